"""The first exception in a running interpreter. XLA passes on only the text of what its callbacks raise."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kerneltest.core.blame import Origin, origin_of
from kerneltest.core.failures import Failure

_noted: list[Exception] = []  # in the interpreter that runs; one does at a time


class KernelFaultError(Exception):
    """A fault of the kernel that kerneltest finds inside an interpreter."""


def note(error: Exception) -> None:
    """Keeps an exception with its traceback, if it is the first one in this run of an interpreter."""
    if not _noted:
        _noted.append(error)


def call_back(callback: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Calls an interpreter's callback."""
    try:
        return callback(*arguments)
    except Exception as error:
        note(error)
        raise


@contextmanager
def raise_own_exception() -> Iterator[None]:
    """Raises the first exception again if it is kerneltest's, in place of the failure that followed from it."""
    _noted.clear()
    try:
        yield
    except Failure:
        _raise_own()
        raise
    _raise_own()


def _raise_own() -> None:
    first = next(iter(_noted), None)
    if first is None or isinstance(first, (Failure, KernelFaultError)):
        return
    if origin_of(first) is Origin.KERNELTEST:
        raise first
