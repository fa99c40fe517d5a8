"""Names of a kernel's Pallas calls, and the compilation of each call under its name."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from kerneltest.core.details import Crashed, Detail, Hung, NotBuilt, ResourceExceeded, Stated, Unavailable
from kerneltest.core.failures import Failure


class HasName(Protocol):
    """A call as a tier has it."""

    @property
    def name(self) -> str: ...


_Call = TypeVar("_Call", bound=HasName)
_Target = TypeVar("_Target")
_Compiled = TypeVar("_Compiled")


def unique_names(calls: Sequence[_Call]) -> list[tuple[str, _Call]]:
    """Returns calls with their names, which are numbered if several calls share one."""
    names = [call.name for call in calls]
    return [
        (f"{name}.{i}" if names.count(name) > 1 else name, call)
        for i, (name, call) in enumerate(zip(names, calls, strict=True))
    ]


def compile_each(
    calls: Sequence[_Call], target: _Target, compile_one: Callable[[_Call, _Target], _Compiled]
) -> dict[str, _Compiled]:
    """Compiles every call of a kernel.

    Returns:
      The results by name.

    Raises:
      Failure: as `compile_one` does, with the call's name and the target.
    """
    compiled: dict[str, _Compiled] = {}
    for name, call in unique_names(calls):
        try:
            compiled[name] = compile_one(call, target)
        except Failure as failure:
            detail = _name_kernel(failure.detail, name, str(target))
            raise Failure(failure.verdict, detail, failure.stderr) from failure
    return compiled


def _name_kernel(detail: Detail, kernel: str, target: str) -> Detail:
    if isinstance(detail, NotBuilt | ResourceExceeded):
        return replace(detail, kernel=kernel, target=target)
    return prefix(detail, f"kernel {kernel} for {target}: ")


def prefix(detail: Detail, text: str) -> Detail:
    """Returns a detail whose words begin with some text."""
    match detail:
        case Hung():
            return replace(detail, words=f"{text}{detail.words}")
        case Crashed():
            return replace(detail, cause=f"{text}{detail.cause}")
        case Unavailable():
            return replace(detail, reason=f"{text}{detail.reason}")
    return Stated(f"{text}{detail.text()}")
