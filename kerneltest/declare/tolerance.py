"""`kt.tolerance`: the error models that a pairing can name. Each bounds |kernel - oracle| for each element.

    tolerance=kt.tolerance.dot("k")

Dims are named in one string, separated by spaces. Formats are dtype names, such as `"float32"`, or `"input"` for that
of the arguments (the narrowest, if they differ). A model that does not fit the pairing is a `DeclarationError`.
"""

from collections.abc import Callable, Mapping, Sequence

from kerneltest.declare import problems
from kerneltest.declare.error_models import (
    Conditioned,
    Dot,
    Each,
    Exact,
    Reduction,
    ReferenceMultiple,
    Rounding,
    Specified,
    Tolerance,
    Ulp,
)


def exact() -> Tolerance:
    """Requires the correctly rounded result, bit for bit: for data movement, integers, and single IEEE operations."""
    return Exact()


@problems.hide_frames
def rounding(
    *,
    compute: str = "float32",
    precision: str = "",
    forms: Sequence[Callable[..., object]] = (),
    functions: Mapping[str, float] | None = None,
) -> Tolerance:
    """Allows for the rounding of the oracle's own operations on the backend in question. This is the default.

    Args:
      compute: the format of the kernel's arithmetic other than sums and matrix products, which are in float32.
      precision: the static argument whose option `highest` forbids a backend to round operands of products; by default
        one that is called `precision`.
      forms: other forms of the oracle, functions of the same arguments that are equal but for their rounding, such as
        `E[x^2] - E[x]^2` of a variance. The bounds allow for the rounding of each. A form that computes something else
        is an `oracle_error`. Gradients are bounded by the oracle alone.
      functions: functions that the kernel approximates on purpose, as the oracle calls them, with the largest error of
        each relative to its value, as in `{"exp": 1e-4}`. The bounds allow for these errors, with and without rounding.

    Raises:
      ValueError: `functions` is not a mapping.
    """
    if not isinstance(functions, Mapping | None):
        example = "functions={'exp': 1e-4}"
        raise ValueError(f"rounding: functions= gives the error of each, as in {example}, not {functions!r}")
    return Rounding(compute, precision, tuple(forms), tuple((functions or {}).items()))


@problems.hide_frames
def conditioned(factor: float = 8.0, *, over: str = "", compute: str = "float32", samples: int = 4) -> Tolerance:
    """Allows a multiple of how far the oracle moves when its inputs are perturbed by one rounding.

    `|error| <= factor * (max_s |f(x(1 + u e_s)) - f(x)| + u |f(x)|) + gamma_n |f(x)|`

    Args:
      factor: the number of roundings that may act together.
      over: dims over which terms of one sign are summed, as in `"n"`; n is the product of their lengths.
      compute: the format of the kernel's arithmetic; u is its unit roundoff.
      samples: the number of random perturbations s.
    """
    return Conditioned(factor, tuple(over.split()), compute, samples)


@problems.hide_frames
def dot(
    over: str, *, accumulate: str = "float32", slope: float = 1.0, output: str = "", precision: str = ""
) -> Tolerance:
    """Allows the closed form of inner products, chains and sums of them, |A||B| being that of the operands' magnitudes.

    `|error| <= slope * ((2 v + v^2) + gamma_(k + 8)) |A||B|`, with v the unit roundoff to which a backend rounds the
    operands (0 if it keeps them), and k the length of the dim. For a chain, `|A||B||C|` with the sum of the lengths
    and of the operands' roundings; products that no dim ties are added.

    Args:
      over: the dims that are summed over, each in exactly two array arguments: `"k"` for `x @ y`, and `"k n"` for
        `(x @ y) @ z` or `x @ y + v @ w`.
      accumulate: the format of the sums, and of a product that is multiplied again.
      slope: the greatest slope of the function applied to the sum.
      output: the output's dims, as in `"b m n"`; by default those of the first operand, then those new in the second.
      precision: the static argument whose option `highest` forbids a backend to round operands.
    """
    return Dot(tuple(over.split()), accumulate, slope, output, precision)


@problems.hide_frames
def each(*models: Tolerance) -> Tolerance:
    """Applies a model to each output, in their order: `each(dot("k"), exact())`.

    Args:
      models: as many as the oracle has outputs.
    """
    return Each(models)


@problems.hide_frames
def ulp(n: float, *, compute: str = "float32") -> Tolerance:
    """Allows some units in the last place: `|error| <= n u |f(x)|`, for one function of rounded arguments.

    Args:
      n: the number of units; above 0.
      compute: the format of the kernel's arithmetic; u is twice its unit roundoff.
    """
    return Ulp(n, compute)


@problems.hide_frames
def absolute(error: float, reason: str) -> Tolerance:
    """Allows an error that a specification sets: `|error| <= e`. Nothing is derived from the computation.

        tolerance=kt.tolerance.absolute(1e-3, "the codec's specification, section 4.2")

    Args:
      error: the largest error of any element; above 0.
      reason: the specification that sets it, for readers of the report.
    """
    return Specified("absolute", error, reason)


@problems.hide_frames
def relative(error: float, reason: str) -> Tolerance:
    """Allows a relative error that a specification sets: `|error| <= e |f(x)|`.

        tolerance=kt.tolerance.relative(1e-3, "the codec's specification, section 4.2")

    Args:
      error: the largest error of any element, as a share of its right value; above 0.
      reason: the specification that sets it, for readers of the report.
    """
    return Specified("relative", error, reason)


@problems.hide_frames
def reduction(over: str, *, accumulate: str = "float32", output: str = "") -> Tolerance:
    """Allows the closed form of sums of terms of any sign, in any order: `|error| <= gamma_n sum |x|`.

    Args:
      over: the dims that are summed over, as in `"m n"`, in exactly one array argument; n is the product of their
        lengths.
      accumulate: the format of the sum.
      output: the output's dims, as in `"m n"` for a cumulative sum over n; by default those that remain, in their
        order. Along further axes (groups of a dim, say) the bound of the whole sum is repeated.
    """
    return Reduction(tuple(over.split()), accumulate, output)


@problems.hide_frames
def reference(function: Callable[..., object], *, factor: float = 2.0) -> Tolerance:
    """Allows a multiple of the error of a reference implementation in the kernel's own precision.

    `|error| <= factor * max(|g(x) - f(x)|, u |f(x)|)`, the maximum being over all elements.

    Args:
      function: g, which takes the arguments in the kernel's dtypes, as NumPy arrays, and returns its outputs.
      factor: how many times as inaccurate as the reference the kernel may be; at least 1.
    """
    return ReferenceMultiple(function, factor)
