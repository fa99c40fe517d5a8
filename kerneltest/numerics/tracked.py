"""The arrays that an oracle gets in place of NumPy's: every operation on them is rounded."""

from collections.abc import Callable, Iterator, Mapping
from typing import Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kerneltest.core.dtypes import Array, is_float
from kerneltest.numerics import array_functions, products, reductions, ufuncs
from kerneltest.numerics.origins import current_origin
from kerneltest.numerics.samples import Operand, Option, SampledArray, UntrackedError

_SUBSCRIPTS = {"vecdot": "...i,...i->...", "matvec": "...ij,...j->...i", "vecmat": "...i,...ij->...j"}


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
            result = reductions.reduce(ufunc, inputs[0], kwargs)
        elif method == "accumulate":
            result = reductions.accumulate(ufunc, inputs[0], kwargs.get("axis", 0))
        elif method == "outer":
            one, two = inputs
            result = ufuncs.call(ufunc, (np.reshape(one, (*np.shape(one), *(1,) * np.ndim(two))), two), kwargs)
        else:
            raise UntrackedError(f"np.{ufunc.__name__}.{method}")
        if out is None:
            return result
        if not isinstance(out, TrackedArray) or self.machine.tape is not None:
            raise UntrackedError(f"np.{ufunc.__name__} with out=")
        out.samples = np.broadcast_to(result.samples, (len(result.samples), *out.shape))
        return out

    def __array_function__(
        self, func: Option, types: Option, args: tuple[Operand, ...], kwargs: Mapping[str, Option]
    ) -> Operand:
        return array_functions.call(func, args, dict(kwargs))

    def __array__(self, dtype: Option = None, copy: Option = None) -> Array:
        return self._escape("conversion to a NumPy array").astype(dtype or self.dtype)

    @property
    def __jax_array__(self) -> Operand:
        # JAX looks for this method before anything else. Keys and positions are as exact in JAX as in NumPy.
        self.machine.in_jax |= is_float(self.samples.dtype)
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
        """Returns the values of the only sample, and notes that they escape tracking.

        Raises:
          UntrackedError: there are several samples.
        """
        if len(self.samples) > 1:
            raise UntrackedError(how)
        if self.dtype == np.float64:
            self.machine.escape = self.machine.escape or f"{how}, {current_origin()}"
        return np.asarray(self.samples[0])

    def __bool__(self) -> bool:
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
        return array_functions.get_item(self, index)

    def __setitem__(self, index: Option, value: Operand) -> None:
        array_functions.set_item(self, index, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.samples[0]!r})"

    def __format__(self, spec: str) -> str:
        return format(self.samples[0], spec) if not self.ndim else str(self)

    def astype(self, dtype: Option, **kwargs: Option) -> Operand:
        return array_functions.cast(self, np.dtype(dtype))

    def copy(self, *args: Operand) -> Self:
        return self.with_samples(self.samples)

    def dot(self, other: Operand) -> Operand:
        return np.dot(self, other)

    def reshape(self, *shape: Operand, **kwargs: Option) -> Operand:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, **kwargs)

    def transpose(self, *axes: Option) -> Operand:
        return np.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)

    def flatten(self) -> Operand:
        return np.reshape(self, -1)

    def round(self, decimals: int = 0) -> Operand:
        return np.round(self, decimals)


def _method(name: str) -> Callable[..., Operand]:
    """Returns the method that calls the function of NumPy with this name."""

    def method(self: TrackedArray, *args: Operand, **kwargs: Option) -> Operand:
        return getattr(np, name)(self, *args, **kwargs)

    method.__name__ = name
    return method


for _name in (
    "sum mean var std prod max min argmax argmin cumsum cumprod any all sort argsort ravel squeeze swapaxes repeat "
    "take diagonal trace nonzero searchsorted clip conj"
).split():
    setattr(TrackedArray, _name, _method(_name))
