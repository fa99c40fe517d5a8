"""Error models: how `kt.tolerance` turns the oracle's side of a case into bounds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import ClassVar, Protocol

import numpy as np

from kerneltest.core.dtypes import TF32, Array, FloatFormat, float_format, parse_dtype
from kerneltest.core.failures import DeclarationError
from kerneltest.core.precision import FLOAT32, FUNCTIONS
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.dims import Dim
from kerneltest.numerics.bounds import Bound, Limit, OracleCase, distance, gamma, magnitude, scale_magnitudes
from kerneltest.numerics.closed_forms import conditioned_bounds, operand_chains
from kerneltest.numerics.rounding_bounds import RoundingLimit, joined_bounds

Leaves = Mapping[str, ArrayArgument]
Dims = Mapping[str, Dim]


@dataclass(frozen=True, slots=True)
class Measured(OracleCase):
    """A case as an error model gets it: the oracle's side only, never what the kernel computed.

    Attributes:
      evaluate: evaluates the oracle: from leaves in float64 or int64 to its outputs.
      leaves: the case's array arguments by path, widened to float64 or int64.
      values: the oracle's outputs for them.
      formats: the formats of the float leaves in the kernel's dtypes, by path.
      watched: evaluates the oracle on leaves that may be tracked arrays; they are not checked.
      oracle: the oracle function itself.
      jax_in_float64: whether JAX computes in float64.
      declared: the declarations of the leaves, by path.
      dims: the length of each dim.
      in_kernel_dtypes: evaluates another function on the leaves in the kernel's dtypes; returns its outputs as float64.
      form: evaluates another form of the oracle on the case: returns its side of it, and raises what it raises.
      statics: the chosen option of each static argument.
    """

    declared: Leaves
    dims: Mapping[str, int]
    in_kernel_dtypes: Callable[[Callable[..., object]], tuple[Array, ...]]
    form: Callable[[Callable[..., object]], OracleCase]
    statics: Mapping[str, str] = field(default_factory=dict)

    @property
    def input_formats(self) -> tuple[FloatFormat, ...]:
        return tuple(self.formats.values())


class Tolerance(Protocol):
    """An error model: any object with these two methods. `str()` of it names it in reports, with its constants."""

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        """Returns why the model does not fit a pairing with these leaves and dims, and the fix; "" if it fits."""
        ...

    def bounds(self, measured: Measured) -> Sequence[Limit]:
        """Returns a bound for each output of a case; an exception ends the case as an `oracle_error`."""
        ...


# The error models behind `kt.tolerance`, whose functions describe their fields.


class _Model:
    asks_formula: ClassVar[bool] = False  # whether another formula than the oracle's is wrong, if float32 can tell
    models_operands: ClassVar[bool] = False  # whether bounds account for how a backend rounds operands of products

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Exact(_Model):
    """The model of `kt.tolerance.exact`: the correctly rounded result, bit for bit."""

    asks_formula = True

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        return tuple(Bound(np.zeros(value.shape)) for value in measured.values)

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True, slots=True)
class Rounding(_Model):
    """The model of `kt.tolerance.rounding`, the default: `rounding_bounds`."""

    compute: str = "float32"
    precision: str = ""
    forms: tuple[Callable[..., object], ...] = ()
    functions: tuple[tuple[str, float], ...] = ()
    asks_formula = True
    models_operands = True

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        for name, error in self.functions:
            if name not in FUNCTIONS:
                return f"rounding(functions=...) names {name!r}; use one of {', '.join(sorted(FUNCTIONS))}"
            if not (isinstance(error, Real) and 0 < error < 1):
                give = "give a relative error between 0 and 1, such as 1e-4"
                return f"rounding(functions=...) has {error!r} for {name}; {give}"
        return ""

    def bounds(self, measured: Measured) -> tuple[RoundingLimit, ...]:
        compute = None if self.compute == "input" else float_format(parse_dtype(self.compute))
        exact_dots = measured.statics.get(self.precision or "precision", "").lower() == "highest"
        forms = [measured.form(form) for form in self.forms]
        return joined_bounds(measured, forms, compute, exact_dots, dict(self.functions))

    def __str__(self) -> str:
        parts = [f"compute={self.compute}"] * (self.compute != "float32")
        parts += [f"forms={' '.join(getattr(form, '__name__', repr(form)) for form in self.forms)}"] * bool(self.forms)
        parts += [f"{name} to {error:g}" for name, error in self.functions]
        return f"rounding({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Conditioned(_Model):
    """The model of `kt.tolerance.conditioned`: `conditioned_bounds`."""

    factor: float = 8.0
    over: tuple[str, ...] = ()
    compute: str = "float32"
    samples: int = 4
    asks_formula = True

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        for name in self.over:
            if name not in dims:
                return f"conditioned(over=...) names dim {name!r}, which no argument has; there are {', '.join(dims)}"
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        terms = math.prod(measured.dims[name] for name in self.over) if self.over else 0
        fmt = _format(self.compute, measured)
        return conditioned_bounds(measured, factor=self.factor, terms=terms, fmt=fmt, samples=self.samples)

    def __str__(self) -> str:
        over = f", over={' '.join(self.over)}" if self.over else ""
        return f"conditioned(factor={self.factor:g}, compute={self.compute}{over})"


_EPILOGUE = 8  # roundings of functions applied to the sum


@dataclass(frozen=True, slots=True)
class Dot(_Model):
    """The model of `kt.tolerance.dot`: inner products, followed by a function of bounded slope.

    Each dim of `over` ties two operands together. Operands that are tied, directly or through others, form a chain and
    are multiplied in any order; chains are added. `k n` of x[m, k], y[k, n], z[n, p] is `(x @ y) @ z`, and of
    x[m, k], y[k, p], v[m, n], w[n, p] it is `x @ y + v @ w`.

    `|error| <= slope * sum ((1 + v)^(2 q) - 1 + gamma_(k + 8)(u)) |A||B|...`, with q products in a chain, v the unit
    roundoff of the format to which a backend rounds the operands of each (TF32 for float32 on a GPU unless the kernel
    requests more, else 0), u that of the format in which products of products are kept, and k the sum of the contracted
    lengths along a chain and of the chains. Eight more roundings are for functions applied to the sum. The bound is
    infinite where |A||B|... exceeds the range of that format, since a partial sum may overflow, and where an operand
    overflows when a backend rounds it, as the largest float32 number does in TF32.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1 (inner products, any order of
    summation), lemma 3.3 and section 3.5 (products of products: |A||B||C| and the sum of the gammas); Blanchard,
    Higham, Lopez, Mary, Pranesh, "Mixed Precision Block Fused Multiply-Add", 2020, for operands rounded on input.
    """

    over: tuple[str, ...]
    accumulate: str = "float32"
    slope: float = 1.0
    output: str = ""
    precision: str = ""
    asks_formula = True
    models_operands = True

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        for dim in self.over:
            operands = [path for path, leaf in leaves.items() if dim in leaf.shape]
            if len(operands) != 2:
                return (
                    f"dot({' '.join(self.over)!r}) needs exactly two array arguments with dim {dim}, but "
                    f"{len(operands)} have it ({', '.join(operands) or 'none'}); use conditioned(), or name another dim"
                )
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        if self.precision and self.precision not in measured.statics:
            raise DeclarationError(f"dot(precision={self.precision!r}): the kernel has no static argument of this name")
        (value,) = measured.values
        fmt = _format(self.accumulate, measured)
        operands = {path: measured.leaves[path] for path in measured.declared}
        dims = {path: tuple(map(str, leaf.shape)) for path, leaf in measured.declared.items()}
        chains = list(operand_chains(operands, dims, self.over))
        terms = max(chain.terms for chain in chains) + len(chains) - 1 + _EPILOGUE
        kept = self.output.split() or list(dict.fromkeys(dim for chain in chains for dim in chain.outer))
        products, rounded, underflows = (
            np.asarray(sum(parts)) for parts in zip(*(chain.magnitudes(kept) for chain in chains), strict=True)
        )
        summing = gamma(terms, fmt.unit_roundoff)
        fixed, rounded = scale_magnitudes(summing, products), scale_magnitudes(1 + summing, rounded)
        overflows = max(chain.largest_intermediate for chain in chains) > min(fmt.overflow, TF32.overflow)
        fixed = self.slope * np.where((products > fmt.overflow) | overflows, np.inf, fixed)
        if fixed.shape != value.shape:
            raise DeclarationError(
                f"dot({' '.join(self.over)!r}) gives shape {fixed.shape}, the oracle {value.shape}; say which dims the "
                "output has, as in kt.tolerance.dot(..., output='b m n')"
            )
        roundings = self.slope * terms * max(chain.underflow_growth for chain in chains)
        if self.precision and measured.statics[self.precision].lower() == "highest":
            return (Bound(fixed, roundings=roundings, accumulate=fmt),)
        return (Bound(fixed, self.slope * rounded, self.slope * underflows, roundings, fmt),)

    def __str__(self) -> str:
        return f"dot(over={' '.join(self.over)}, accumulate={self.accumulate}, slope={self.slope:g})"


@dataclass(frozen=True, slots=True)
class Each(_Model):
    """The model of `kt.tolerance.each`."""

    models: tuple[Tolerance, ...]

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        return next((why for model in self.models if (why := model.misfit(leaves, dims))), "")

    def bounds(self, measured: Measured) -> tuple[Limit, ...]:
        if len(self.models) != len(measured.values):
            outputs = len(measured.values)
            raise DeclarationError(f"{self} has {len(self.models)} models, but the oracle {outputs} outputs")
        return tuple(bound for i, model in enumerate(self.models) for bound in model.bounds(_with_output(measured, i)))

    def __str__(self) -> str:
        return f"each({', '.join(map(str, self.models))})"


@dataclass(frozen=True, slots=True)
class Ulp(_Model):
    """The model of `kt.tolerance.ulp`.

    Source: the definition of an ulp in Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., section 2.3.
    """

    n: float
    compute: str = "float32"

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        return "" if self.n > 0 else f"ulp({self.n:g}) allows no error: use exact()"

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        fmt = _format(self.compute, measured)
        errors = (self.n * 2 * fmt.unit_roundoff * magnitude(value) for value in measured.values)
        return tuple(Bound(error, roundings=2 * self.n, accumulate=fmt) for error in errors)

    def __str__(self) -> str:
        return f"ulp({self.n:g}, compute={self.compute})"


@dataclass(frozen=True, slots=True)
class Reduction(_Model):
    """The model of `kt.tolerance.reduction`. Unlike `Conditioned`, it allows terms of both signs.

    Special values among the terms count as zero: they reach only sums that are special themselves. The bound is
    infinite where `sum |x|` exceeds the range of the format, since a partial sum may overflow. Along further axes of
    the output, which belong to sums of only some of the terms (cumulative sums, groups), the bound of the whole sum is
    repeated.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2, equation 4.4.
    """

    over: tuple[str, ...]
    accumulate: str = "float32"
    output: str = ""
    asks_formula = True

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        having = [path for path, leaf in leaves.items() if set(self.over) <= set(leaf.shape)]
        if len(having) != 1:
            return (
                f"reduction({' '.join(self.over)!r}) needs exactly one array argument with these dims, but "
                f"{len(having)} have them ({', '.join(having) or 'none'}); use conditioned(over=...), or other dims"
            )
        remaining = [str(axis) for axis in leaves[having[0]].shape if axis not in self.over]
        missing = [axis for axis in remaining if axis not in self.output.split()] if self.output else []
        return (
            f"reduction(output={self.output!r}) lacks {' '.join(missing)}, which is not summed over" if missing else ""
        )

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        (path,) = (p for p, leaf in measured.declared.items() if set(self.over) <= set(leaf.shape))
        (value,) = measured.values
        dims, fmt, shape = [*map(str, measured.declared[path].shape)], _format(self.accumulate, measured), value.shape
        n = math.prod(measured.dims[name] for name in self.over)
        summed = tuple(i for i, dim in enumerate(dims) if dim in self.over)
        remaining = [dim for dim in dims if dim not in self.over]
        size = magnitude(measured.leaves[path]).sum(axis=summed)
        sums = np.where(size > fmt.overflow, np.inf, scale_magnitudes(gamma(n, fmt.unit_roundoff), size))
        if names := self.output.split():
            sums = sums.transpose([remaining.index(name) for name in names if name in remaining])
            sums = np.expand_dims(sums, tuple(i for i, name in enumerate(names) if name not in remaining))
        elif sums.ndim + len(summed) == len(shape):  # the output has the argument's axes
            sums = np.expand_dims(sums, summed)
        elif sums.shape == shape[: sums.ndim]:
            sums = np.expand_dims(sums, tuple(range(sums.ndim, len(shape))))
        if sums.ndim != len(shape) or any(length not in (1, m) for length, m in zip(sums.shape, shape, strict=True)):
            raise DeclarationError(
                f"reduction({' '.join(self.over)!r}) gives shape {sums.shape}, the oracle {shape}; say which dims the "
                "output has, as in kt.tolerance.reduction(..., output='m n')"
            )
        return (Bound(np.broadcast_to(sums, shape), roundings=float(n), accumulate=fmt),)

    def __str__(self) -> str:
        return f"reduction({' '.join(self.over)}, accumulate={self.accumulate})"


@dataclass(frozen=True, slots=True)
class ReferenceMultiple(_Model):
    """The model of `kt.tolerance.reference`; u is the largest unit roundoff of the float arguments' formats.

    The maximum over elements and the floor of one rounding keep the bound from collapsing if the reference happens to
    be exact.

    Source: the practice of attention kernels (Dao, FlashAttention's tests), with that floor added.
    """

    reference: Callable[..., object]
    factor: float = 2.0

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        if self.factor >= 1:
            return ""
        return (
            f"reference(factor={self.factor:g}): use at least 1, since a kernel may be as inaccurate as the reference"
        )

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        u = max((fmt.unit_roundoff for fmt in measured.input_formats), default=FLOAT32.unit_roundoff)
        bounds = []
        for result, value in zip(measured.in_kernel_dtypes(self.reference), measured.values, strict=True):
            error = float(np.max(distance(result, value), initial=0.0))
            floor = u * float(np.max(magnitude(value), initial=0.0))
            bounds.append(Bound(np.full(np.shape(value), self.factor * max(error, floor)), roundings=self.factor))
        return tuple(bounds)

    def __str__(self) -> str:
        name = getattr(self.reference, "__name__", type(self.reference).__name__)
        return f"reference({name}, factor={self.factor:g})"


def _format(name: str, measured: Measured) -> FloatFormat:
    """Returns the format of a dtype name; `input` is the narrowest of the arguments'."""
    if name != "input":
        return float_format(parse_dtype(name))
    return max(measured.input_formats, key=lambda fmt: fmt.unit_roundoff, default=FLOAT32)


def _with_output(measured: Measured, i: int) -> Measured:
    """Returns the case of an oracle that has only output `i`."""
    return replace(
        measured,
        evaluate=lambda leaves: measured.evaluate(leaves)[i : i + 1],
        values=measured.values[i : i + 1],
        watched=lambda leaves: measured.watched(leaves)[i : i + 1],
        in_kernel_dtypes=lambda function: measured.in_kernel_dtypes(function)[i : i + 1],
    )


@dataclass(frozen=True, slots=True)
class Specified(_Model):
    """The model of `kt.tolerance.absolute` and `kt.tolerance.relative`."""

    kind: str
    error: float
    reason: str

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        if not (isinstance(self.error, Real) and 0 < self.error < math.inf):
            return f"{self.kind}({self.error!r}) is not a positive number; for no error, use exact()"
        if not (isinstance(self.reason, str) and self.reason.strip()):
            return f"{self.kind}({self.error:g}, reason) needs the specification that sets this error, as text"
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        sizes = (magnitude(x) if self.kind == "relative" else np.ones(x.shape) for x in measured.values)
        return tuple(Bound(self.error * size) for size in sizes)

    def __str__(self) -> str:
        return f"{self.kind}({self.error:g}): {self.reason}"
