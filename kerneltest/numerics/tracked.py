"""Arrays that round what is done to them: what the oracle is given in place of NumPy's."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kerneltest.core.dtypes import Array
from kerneltest.numerics import functions, products, ufuncs
from kerneltest.numerics.origins import current_origin
from kerneltest.numerics.samples import SampledArray, UntrackedError

_SUMMED = {"vecdot": "...i,...i->...", "matvec": "...ij,...j->...i", "vecmat": "...i,...ij->...j"}


class TrackedArray(SampledArray, NDArrayOperatorsMixin):
    """An array of the oracle's, in all samples at once; what it has of NumPy's interface is what oracles use."""

    __slots__ = ()

    dtype = property(lambda self: self.samples.dtype)
    size = property(lambda self: int(np.prod(self.shape)))
    T = property(lambda self: np.transpose(self))
    mT = property(lambda self: np.swapaxes(self, -1, -2))  # noqa: N815
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.itemsize)
    real = property(lambda self: self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", (None,))[0]
        if method == "__call__":
            where, dtype = kwargs.pop("where", True), kwargs.pop("dtype", None)
            if ufunc is np.matmul and not kwargs:
                result = products.matmul(*inputs)
            elif ufunc.__name__ in _SUMMED and not kwargs:
                result = products.einsum(_SUMMED[ufunc.__name__], inputs)
            else:
                result = ufuncs.call(ufunc, inputs, kwargs)
            if dtype is not None:
                result = functions.cast(result, np.dtype(dtype))
            if where is not True:
                if out is None:
                    raise UntrackedError(f"np.{ufunc.__name__} with where= and without out=")
                result = functions.call(np.where, (where, result, out), {})
        elif method == "reduce":
            result = ufuncs.reduce(ufunc, inputs[0], kwargs)
        elif method == "accumulate":
            result = ufuncs.accumulate(ufunc, inputs[0], kwargs.get("axis", 0))
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

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return functions.call(func, args, dict(kwargs))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self._leaving("an ordinary array").astype(dtype or self.dtype)

    def __float__(self) -> float:
        return float(self._leaving("float()"))

    def __int__(self) -> int:
        return int(self._leaving("int()"))

    def __index__(self) -> int:
        return self._leaving("an index").__index__()

    def item(self, *at: int) -> Any:
        return self._leaving("item()").item(*at)

    def tolist(self) -> Any:
        return self._leaving("tolist()").tolist()

    def _leaving(self, how: str) -> Array:
        """The values of the only sample that is evaluated; of several there is no one value."""
        if len(self.samples) > 1:
            raise UntrackedError(how)
        if self.dtype == np.float64:
            self.machine.left = self.machine.left or f"{how}, {current_origin()}"
        return np.asarray(self.samples[0])

    def __bool__(self) -> bool:
        if (self.samples != self.samples[:1]).any():
            raise UntrackedError("a branch that goes another way once values are rounded")
        return bool(self.samples[0])

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        return functions.item(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        functions.put(self, index, value)

    def __repr__(self) -> str:
        return f"TrackedArray({self.samples[0]!r})"

    def __format__(self, spec: str) -> str:
        return format(self.samples[0], spec) if not self.ndim else str(self)

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        return functions.cast(self, np.dtype(dtype))

    def copy(self, *args: Any) -> Self:
        return self.with_samples(self.samples)

    def dot(self, other: Any) -> Any:
        return np.dot(self, other)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, **kwargs)

    def transpose(self, *axes: Any) -> Any:
        return np.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)

    def flatten(self) -> Any:
        return np.reshape(self, -1)

    def round(self, decimals: int = 0) -> Any:
        return np.round(self, decimals)


def _method(name: str) -> Any:
    def method(self: TrackedArray, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    method.__name__ = name
    return method


for _name in (
    "sum mean var std prod max min argmax argmin cumsum cumprod any all sort argsort ravel squeeze swapaxes repeat "
    "take diagonal trace nonzero searchsorted clip conj"
).split():
    setattr(TrackedArray, _name, _method(_name))
