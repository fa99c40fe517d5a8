"""The arrays that an oracle gets in place of NumPy's: every operation on them is rounded."""

import copy
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kerneltest.core.dtypes import Array, is_float
from kerneltest.numerics import array_functions, linear_algebra, products, ufuncs
from kerneltest.numerics.rounding_model import RoundingModel, current_origin, fits
from kerneltest.numerics.samples import (
    KeptArrayError,
    Operand,
    Option,
    SampledArray,
    UntrackedError,
    round_numbers,
    unwrap,
)

_SUBSCRIPTS = {"vecdot": "...i,...i->...", "matvec": "...ij,...j->...i", "vecmat": "...i,...ij->...j"}


def _call_numpy(array: Operand, name: str, *args: Operand, **kwargs: Option) -> Operand:
    return getattr(np, name)(array, *args, **kwargs)


class TrackedArray(SampledArray, NDArrayOperatorsMixin):
    """An array of the oracle, in all samples at once, with the part of NumPy's interface that oracles use."""

    __slots__ = ()

    dtype = property(lambda self: self.samples.dtype)
    size = property(lambda self: int(np.prod(self.shape)))
    T = property(lambda self: np.transpose(self))
    mT = property(lambda self: np.swapaxes(self, -1, -2))  # noqa: N815
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.itemsize)
    real = property(lambda self: self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Operand, **kwargs: Option) -> Operand:
        self._check_current()
        out = kwargs.pop("out", (None,))[0]
        if method == "__call__":
            where, dtype = kwargs.pop("where", True), kwargs.pop("dtype", None)
            if ufunc is np.matmul and not kwargs:
                result = products.matmul(*inputs)
            elif ufunc.__name__ in _SUBSCRIPTS and not kwargs:
                result = products.einsum(_SUBSCRIPTS[ufunc.__name__], inputs)
            else:
                result = ufuncs.call(ufunc, inputs, kwargs)
            if dtype is not None:
                result = array_functions.cast(result, np.dtype(dtype))
            if where is not True:
                if out is None:
                    raise UntrackedError(f"np.{ufunc.__name__} with where= and without out=")
                result = array_functions.call(np.where, (where, result, out), {})
        elif method == "reduce":
            result = ufuncs.reduce(ufunc, inputs[0], **kwargs)
        elif method == "accumulate":
            result = ufuncs.accumulate(ufunc, inputs[0], kwargs.get("axis", 0))
        elif method == "outer":
            one, two = inputs
            result = ufuncs.call(ufunc, (np.reshape(one, (*np.shape(one), *(1,) * np.ndim(two))), two), kwargs)
        elif method == "at" and ufunc is np.add:
            return array_functions.add_at(*inputs)
        else:
            raise UntrackedError(f"np.{ufunc.__name__}.{method}")
        if out is None:
            return result
        if not isinstance(out, TrackedArray) or self.rounding.tape is not None:
            raise UntrackedError(f"np.{ufunc.__name__} with out=")
        out.overwrite(np.broadcast_to(result.samples, (len(result.samples), *out.shape)), result.formats)
        return out

    def __array_function__(
        self, func: Option, types: Option, args: tuple[Operand, ...], kwargs: Mapping[str, Option]
    ) -> Operand:
        self._check_current()
        return array_functions.call(func, args, dict(kwargs))

    def _check_current(self) -> None:
        if self.rounding.has_ended:
            raise KeptArrayError

    def __array__(self, dtype: Option = None, copy: Option = None) -> Array:
        return self._escape("conversion to a NumPy array").astype(dtype or self.dtype)

    @property
    def __jax_array__(self) -> Operand:
        # JAX looks for this method before anything else. Keys and positions are as exact in JAX as in NumPy.
        self.rounding.in_jax |= is_float(self.samples.dtype)
        raise AttributeError("tracked arrays cannot be converted to arrays of JAX")

    def __float__(self) -> float:
        return float(self._escape("float()"))

    def __int__(self) -> int:
        return int(self._escape("int()"))

    def __hash__(self) -> int:
        if self.constant is None:
            raise TypeError(f"unhashable type: {type(self).__name__}")
        return hash(self.constant.item())

    def __getattr__(self, name: str) -> Operand:
        if name.startswith("__") or self.constant is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.constant, name)

    def __index__(self) -> int:
        return self._escape("use as an index").__index__()

    def item(self, *at: int) -> Operand:
        return self._escape("item()").item(*at)

    def tolist(self) -> Operand:
        return self._escape("tolist()").tolist()

    def _escape(self, how: str) -> Array:
        """Returns the values of the only sample, and notes that they escape tracking; raises if there are several."""
        self._check_current()
        if len(self.samples) > 1:
            raise UntrackedError(how)
        if self.dtype == np.float64:
            self.rounding.escape = self.rounding.escape or f"{how}, {current_origin()}"
        return np.asarray(self.samples[0])

    def __bool__(self) -> bool:
        self._check_current()
        if (self.samples != self.samples[:1]).any():
            raise UntrackedError("a branch that samples take differently")
        return bool(self.samples[0])

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Option) -> Operand:
        self._check_current()
        return array_functions.get_item(self, index)

    def __setitem__(self, index: Option, value: Operand) -> None:
        self._check_current()
        array_functions.set_item(self, index, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.samples[0]!r})"

    def __format__(self, spec: str) -> str:
        return format(self.samples[0], spec) if not self.ndim else str(self)

    def astype(self, dtype: Option, **kwargs: Option) -> Operand:
        return array_functions.cast(self, np.dtype(dtype))

    def copy(self, *args: Operand) -> Self:
        return self.with_samples(self.samples)

    def reshape(self, *shape: Operand, **kwargs: Option) -> Operand:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, **kwargs)

    def transpose(self, *axes: Option) -> Operand:
        return np.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)

    def flatten(self) -> Operand:
        return np.reshape(self, -1)


# The methods that call the function of NumPy with their name.
for _name in (
    "sum mean var std prod max min argmax argmin cumsum cumprod any all sort argsort ravel squeeze swapaxes repeat "
    "take diagonal trace nonzero searchsorted clip conj dot round"
).split():
    setattr(TrackedArray, _name, functools.partialmethod(_call_numpy, _name))


# Tracking of the arrays that an oracle creates or refers to: positions, frequencies, masks, tables of its module.
#
# NumPy has no hook for the creation of arrays. So the oracle, and the functions of the same user that it calls, are
# copied with other globals, in which a module that creates tracked arrays takes the place of NumPy. The originals do
# not change.

Creator = Callable[..., Operand]

Tables = list[tuple[Callable[[Operand], None], Any]]
"""Arrays and containers that an oracle refers to, each with a function that puts another in its place.

Each call gets containers of its own, so that arrays that the oracle keeps there do not reach a later call.
"""

_CONVERTERS = frozenset("asarray array asanyarray ascontiguousarray".split())
_CREATORS = _CONVERTERS | frozenset(
    "arange linspace logspace geomspace zeros ones full empty eye identity tri indices fromfunction "
    "bartlett blackman hamming hanning kaiser".split()
)
_INTERPOLATING = (np.arange, np.linspace)
_INTERPOLATION_TERMS = 3  # start + i * step, with a rounded step
_thread = threading.local()


@contextmanager
def track_created_arrays(rounding: RoundingModel) -> Iterator[None]:
    """Tracks the arrays that copied oracles create in this thread, and silences NumPy's floating-point warnings."""
    before = getattr(_thread, "rounding", None)
    _thread.rounding = rounding
    rounding.has_ended = False
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _thread.rounding = before
        rounding.has_ended = True


class _TrackingNumpy(ModuleType):
    """NumPy, with functions that create tracked arrays."""

    def __getattr__(self, name: str) -> Operand:
        found = getattr(np, name)
        if name == "vectorize":
            return _Vectorized
        return _tracking_version(found) if name in _CREATORS else found


# Creates tracked arrays inside `track_created_arrays`.
def _tracking_version(create: Creator) -> Creator:

    def create_tracked(*args: Operand, **kwargs: Option) -> Operand:
        rounding = getattr(_thread, "rounding", None)
        if rounding is None:
            return create(*args, **kwargs)
        if create is np.full and len(args) == 2 and not kwargs and isinstance(args[1], SampledArray):
            number: Operand = args[1]
            return np.copy(np.broadcast_to(number, args[0]))
        if create.__name__ not in _CONVERTERS:
            args, kwargs = array_functions.replace_tracked((args, kwargs), unwrap)
        elif args and isinstance(args[0], (list, tuple)) and [*array_functions.find_tracked(args[0])]:
            whole = np.stack([create_tracked(argument) for argument in args[0]])
            return create_tracked(whole, *args[1:], **kwargs)
        elif args and isinstance(args[0], SampledArray):  # such as np.asarray of a tracked array
            dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
            return args[0] if dtype is None else array_functions.cast(args[0], np.dtype(dtype))
        values = np.asarray(create(*args, **kwargs))
        return _track(values, rounding, interpolated=create in _INTERPOLATING)

    return create_tracked


# A created array as a kernel has it: rounded to float32, and computed there if it is interpolated.
def _track(values: Array, rounding: RoundingModel, *, interpolated: bool) -> Operand:
    if values.dtype.kind not in "fiub":
        return values
    made = TrackedArray(values[None], rounding)
    if interpolated and values.dtype.kind == "f" and values.size and not fits(values, made.compute):
        largest = np.max(np.abs(values[np.isfinite(values)]), initial=0.0)
        mass = np.full(made.samples.shape, largest)
        return made.with_samples(rounding.round_sum(made.samples, mass, _INTERPOLATION_TERMS, made.compute))
    return made if values.dtype.kind != "f" else made.with_samples(round_numbers(made.samples, rounding, made.compute))


class _Vectorized(np.vectorize):
    """An elementwise function of Python numbers, which rounds as the table of ufuncs says for its name."""

    def __call__(self, *args: Operand, **kwargs: Option) -> Operand:
        if kwargs or self.signature is not None or not any(isinstance(argument, SampledArray) for argument in args):
            return super().__call__(*args, **kwargs)
        return ufuncs.call_vectorized(super().__call__, self.pyfunc.__name__, args)


_NUMPY = _TrackingNumpy("numpy")
# Functions of these modules are not copied.
_LIBRARIES = tuple("numpy scipy jax jaxlib ml_dtypes math functools itertools builtins kerneltest".split())


def instrument(oracle: Creator) -> Creator:
    """Returns a copy of an oracle that tracks the arrays it creates, or the oracle if it is not a Python function."""
    if not isinstance(oracle, FunctionType):
        return oracle
    tables: Tables = []
    made = _copy_function(oracle, {}, tables)

    @functools.wraps(oracle)
    def call_with_tables(*args: Operand, **kwargs: Option) -> Operand:
        rounding = getattr(_thread, "rounding", None)
        for put, table in tables:
            put(table if rounding is None else _for_one_call(table, rounding))
        return made(*args, **kwargs)

    return call_with_tables if tables else made


def _for_one_call(table: Any, rounding: RoundingModel) -> Operand:
    if isinstance(table, tuple):  # default values of parameters
        return tuple(copy.copy(each) if _is_container(each) else each for each in table)
    return _track(table, rounding, interpolated=False) if isinstance(table, np.ndarray) else copy.copy(table)


# A copy of a function whose globals and closure refer to copies (by the id of their original, for recursive functions)
# and to `_NUMPY`. `tables` gets arrays and containers among them, each with a function that replaces it in the copy.
def _copy_function(function: FunctionType, copies: dict[int, FunctionType], tables: Tables) -> FunctionType:
    if id(function) in copies:
        return copies[id(function)]
    names = dict(function.__globals__)
    closure = tuple(CellType() for _ in function.__closure__ or ())
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure or None)
    made.__kwdefaults__, made.__annotations__ = function.__kwdefaults__, function.__annotations__
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    copies[id(function)] = made
    if any(map(_is_container, function.__defaults__ or ())):
        tables.append((functools.partial(setattr, made, "__defaults__"), function.__defaults__))
    for name in _global_names(function.__code__) & names.keys():
        names[name] = _substitute(names[name], copies, tables)
        if _is_table(names[name]):
            tables.append((functools.partial(names.__setitem__, name), names[name]))
    for cell, old in zip(closure, function.__closure__ or (), strict=True):
        try:
            cell.cell_contents = _substitute(old.cell_contents, copies, tables)
        except ValueError:  # an empty cell
            continue
        if _is_table(cell.cell_contents):
            tables.append((functools.partial(setattr, cell, "cell_contents"), cell.cell_contents))
    return made


_COMPLEX = "complex"


# The names that code and the functions nested in it look up as globals or attributes; that of the type, for constants
# such as 1j.
def _global_names(code: CodeType) -> set[str]:
    nested = (const for const in code.co_consts if isinstance(const, CodeType))
    numbers = {_COMPLEX for const in code.co_consts if isinstance(const, complex)}
    return set(code.co_names).union(numbers, *map(_global_names, nested))


def _is_table(value: object) -> bool:
    return (isinstance(value, np.ndarray) and value.dtype.kind in "fiu") or _is_container(value)


# Whether a value may keep arrays for later calls. One that holds something else stays the oracle's own, such as a list
# that counts its calls: with a copy of it, an oracle that changes from call to call would seem not to.
def _is_container(value: object) -> bool:
    if isinstance(value, dict):
        return not value or any(isinstance(each, np.ndarray) for each in value.values())
    return isinstance(value, list) and any(isinstance(each, np.ndarray) for each in value)


def calls_linear_algebra(function: object) -> bool:
    """Returns whether an oracle, or a function of the same user that it calls, names a module or function for it."""
    return mentions(function, linear_algebra.MODULES, {"linalg"})


def uses_complex_numbers(function: object) -> bool:
    """Returns whether an oracle, or a function of the same user that it calls, names complex numbers or a transform."""
    return mentions(function, ("numpy.fft", "scipy.fft"), {_COMPLEX, "complex64", "complex128", "fft", "imag", "angle"})


def mentions(function: object, modules: tuple[str, ...], words: set[str]) -> bool:
    """Returns whether a function, or one of the same user that it calls, names a word or something of a module."""
    seen: set[int] = set()

    def reaches(each: object) -> bool:
        if _home(each).startswith(modules):
            return True
        each = getattr(each, "func", each)
        if not isinstance(each, FunctionType) or id(each) in seen or _home(each).startswith(_LIBRARIES):
            return False
        seen.add(id(each))
        names = _global_names(each.__code__)
        used = [value for name, value in each.__globals__.items() if name in names]
        used += each.__defaults__ or ()
        for cell in each.__closure__ or ():
            with suppress(ValueError):  # an empty cell
                used.append(cell.cell_contents)
        return not words.isdisjoint(names) or any(map(reaches, used))

    return reaches(function)


# The module of a function, or the name of a module.
def _home(value: object) -> str:
    return str(value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", ""))


# What the copied oracle gets in place of a global or a closure variable.
def _substitute(value: object, copies: dict[int, FunctionType], tables: Tables) -> object:
    if value is np:
        return _NUMPY
    if type(value) is np.vectorize:
        made = copy.copy(value)
        made.__class__ = _Vectorized
        return made
    if isinstance(value, FunctionType) and not value.__module__.startswith(_LIBRARIES):
        return _copy_function(value, copies, tables)
    if getattr(value, "__module__", "") == "numpy" and getattr(value, "__name__", "") in _CREATORS and callable(value):
        return _tracking_version(value)
    return value
