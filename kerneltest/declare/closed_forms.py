"""Error models in closed form: each with its formula, its units and its source."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.bounds import Bound, Limit, Measured, Tolerance, format_of, gamma, magnitude, times
from kerneltest.declare.dims import Dim


@dataclass(frozen=True, slots=True)
class Exact:
    """The correctly rounded result, bit for bit: `|error| <= 0` after rounding the oracle's value once."""

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        return tuple(Bound(np.zeros(v.shape)) for v in measured.values)

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True, slots=True)
class Ulp:
    """A result within `n` units in the last place: `|error| <= n u |f(x)|`, u twice the unit roundoff of `compute`.

    For one function of well-rounded arguments, such as an `exp` of which a vendor states the error. The output's own
    rounding is added by `Expectation.bound`. Source: the definition of an ulp as in Muller et al., Handbook of
    Floating-Point Arithmetic, 2nd ed., section 2.3.

    Attributes:
      n: in ulps of `compute`.
      compute: the format of the kernel's arithmetic; `input` for that of its arguments.
    """

    n: float
    compute: str = "float32"

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        return "" if self.n > 0 else f"ulp({self.n:g}) allows nothing: use exact()"

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        fmt = format_of(self.compute, measured)
        return tuple(
            Bound(self.n * 2 * fmt.unit_roundoff * magnitude(v), roundings=2 * self.n, accumulate=fmt)
            for v in measured.values
        )

    def __str__(self) -> str:
        return f"ulp({self.n:g}, compute={self.compute})"


@dataclass(frozen=True, slots=True)
class Each:
    """A model for each output, in their order.

    Attributes:
      models: as many as the oracle has outputs.
    """

    models: tuple[Tolerance, ...]

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        return next((why for model in self.models if (why := model.misfit(leaves, dims))), "")

    def bounds(self, measured: Measured) -> tuple[Limit, ...]:
        if len(self.models) != len(measured.values):
            raise ValueError(f"{self} has {len(self.models)} models, and the oracle {len(measured.values)} outputs")
        return tuple(bound for i, model in enumerate(self.models) for bound in model.bounds(_of_output(measured, i)))

    def __str__(self) -> str:
        return f"each({', '.join(map(str, self.models))})"


def _of_output(measured: Measured, i: int) -> Measured:
    """What a model is given of a case whose oracle has one output, the i-th."""
    return replace(
        measured,
        evaluate=lambda leaves: measured.evaluate(leaves)[i : i + 1],
        values=measured.values[i : i + 1],
        watched=lambda leaves: measured.watched(leaves)[i : i + 1],
        in_kernel_dtypes=lambda function: measured.in_kernel_dtypes(function)[i : i + 1],
    )


@dataclass(frozen=True, slots=True)
class Reduction:
    """Sums over dims of one array argument, in any order: `|error| <= gamma_n(u) sum |x|`.

    Unlike `Conditioned`, it does not ask that terms have one sign. Where `sum |x|` exceeds the accumulation format's
    range, a partial sum may overflow and nothing is asked. What the output has along other axes than the dims that
    remain are sums of some of the terms, such as those of a cumulative sum or of groups; all terms bound each.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2, equation 4.4.

    Attributes:
      over: the dims that are summed over, in exactly one array argument.
      accumulate: the format of the sum; `input` for that of the arguments.
      output: the output's dims; by default those that remain, in their order, then whatever axes there are.
    """

    over: tuple[str, ...]
    accumulate: str = "float32"
    output: str = ""

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        having = [path for path, leaf in leaves.items() if set(self.over) <= set(leaf.shape)]
        if len(having) != 1:
            return (
                f"reduction({' '.join(self.over)!r}) needs exactly one array argument with these dims, and "
                f"{len(having)} have them ({', '.join(having) or 'none'}); use conditioned(over=...), or other dims"
            )
        remain = [str(axis) for axis in leaves[having[0]].shape if axis not in self.over]
        lost = [axis for axis in remain if axis not in self.output.split()] if self.output else []
        return f"reduction(output={self.output!r}) lacks {' '.join(lost)}, over which nothing is summed" if lost else ""

    def bounds(self, measured: Measured) -> tuple[Limit, ...]:
        fmt = format_of(self.accumulate, measured)
        (path,) = (p for p, leaf in measured.declared.items() if set(self.over) <= set(leaf.shape))
        shape = measured.declared[path].shape
        axes = tuple(i for i, axis in enumerate(shape) if axis in self.over)
        n = math.prod(measured.dims[name] for name in self.over)
        (value,) = measured.values
        size = magnitude(measured.leaves[path]).sum(axis=axes)  # special terms reach only sums that are special
        fixed = np.where(size > fmt.overflow, np.inf, times(gamma(n, fmt.unit_roundoff), size))
        remain = [str(axis) for axis in shape if axis not in self.over]
        return (Bound(self._spread(fixed, remain, axes, value.shape), roundings=float(n), accumulate=fmt),)

    def _spread(self, sums: Array, remain: list[str], summed: tuple[int, ...], shape: tuple[int, ...]) -> Array:
        """What holds for whole sums, over the output's axes."""
        if self.output:
            names = self.output.split()
            sums = sums.transpose([remain.index(name) for name in names if name in remain])
            sums = np.expand_dims(sums, tuple(i for i, name in enumerate(names) if name not in remain))
        elif sums.ndim + len(summed) == len(shape):  # the output has the argument's axes
            sums = np.expand_dims(sums, summed)
        elif sums.shape == shape[: sums.ndim]:
            sums = np.expand_dims(sums, tuple(range(sums.ndim, len(shape))))
        if sums.ndim != len(shape) or any(n not in (1, m) for n, m in zip(sums.shape, shape, strict=True)):
            raise ValueError(
                f"{self} gives shape {sums.shape}, the oracle {shape}; say which dims the output has, as in "
                "kt.tolerance.reduction(..., output='m n')"
            )
        return np.broadcast_to(sums, shape)

    def __str__(self) -> str:
        return f"reduction({' '.join(self.over)}, accumulate={self.accumulate})"
