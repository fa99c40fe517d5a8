"""Arrays that an oracle makes itself: positions, frequencies, masks. They are watched from their birth.

NumPy does not ask anybody when it makes an array out of nothing. So the oracle, and the functions beside it that it
calls, are copied with other globals, in which the name of NumPy stands for a module that makes watched arrays.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from kerneltest.numerics import functions, ufuncs
from kerneltest.numerics.rounding_model import Machine
from kerneltest.numerics.samples import Sampled
from kerneltest.numerics.tracked import Watched

_MAKING = frozenset(
    "arange linspace logspace geomspace zeros ones full empty eye identity tri indices fromfunction asarray array "
    "asanyarray ascontiguousarray".split()
)
_here = threading.local()


@contextmanager
def made_on(machine: Machine) -> Iterator[None]:
    """Arrays that this thread's oracle makes meanwhile are of a machine, and NumPy says nothing of special values."""
    before = getattr(_here, "machine", None)
    _here.machine = machine
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _here.machine = before


class _Making(ModuleType):
    """NumPy, but for the functions that make arrays."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name == "vectorize":
            return _Vectorized
        return _making(found) if name in _MAKING else found


def _making(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        machine = getattr(_here, "machine", None)
        if machine is None:
            return make(*args, **kwargs)
        if args and isinstance(args[0], (list, tuple)) and any(isinstance(each, Sampled) for each in _flat(args[0])):
            whole = np.stack([made(each) for each in args[0]])
            return made(whole, *args[1:], **kwargs)
        if args and isinstance(args[0], Sampled):  # what is made of a watched array is the same array
            dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
            return args[0] if dtype is None else functions.cast(args[0], np.dtype(dtype))
        values = np.asarray(make(*args, **kwargs))
        return Watched(values[None], machine, None) if values.dtype.kind in "fiub" else values

    return made


def _flat(values: Any) -> Iterator[Any]:
    for each in values:
        yield from _flat(each) if isinstance(each, (list, tuple)) else (each,)


class _Vectorized(np.vectorize):
    """An elementwise function of Python's numbers: it rounds as the table says of its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or self.signature is not None or not any(isinstance(each, Sampled) for each in args):
            return super().__call__(*args, **kwargs)
        return ufuncs.vectorized(super().__call__, self.pyfunc.__name__, args)


_NUMPY = _Making("numpy")
_KEPT = ("numpy", "scipy", "jax", "jaxlib", "ml_dtypes", "math", "functools", "itertools", "builtins", "kerneltest")


def watching(oracle: Callable[..., Any]) -> Callable[..., Any]:
    """The oracle with arrays of its own making watched; itself where it is no Python function."""
    return _copied(oracle, {}) if isinstance(oracle, FunctionType) else oracle


def _copied(function: FunctionType, known: dict[int, FunctionType]) -> FunctionType:
    if id(function) in known:
        return known[id(function)]
    names: dict[str, Any] = dict(function.__globals__)
    closure = tuple(CellType() for _ in function.__closure__ or ())
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure or None)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    known[id(function)] = copy
    for name in _names(function.__code__) & names.keys():
        names[name] = _replaced(names[name], known)
    for cell, old in zip(closure, function.__closure__ or (), strict=True):
        try:
            cell.cell_contents = _replaced(old.cell_contents, known)
        except ValueError:  # not filled yet
            continue
    return copy


def _names(code: Any) -> set[str]:
    """The globals that code names, that of functions inside it included."""
    inner = (const for const in code.co_consts if hasattr(const, "co_names"))
    return set(code.co_names).union(*map(_names, inner))


def _replaced(value: Any, known: dict[int, FunctionType]) -> Any:
    if value is np:
        return _NUMPY
    if isinstance(value, FunctionType) and not value.__module__.startswith(_KEPT):
        return _copied(value, known)
    if getattr(value, "__module__", "") == "numpy" and getattr(value, "__name__", "") in _MAKING:
        return _making(value)
    return value
