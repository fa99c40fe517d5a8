"""`kt.tolerance`: the error models that a pairing can name, as functions."""

from collections.abc import Callable

from kerneltest.declare.bounds import Tolerance
from kerneltest.declare.closed_forms import Dot, Exact, Reduction, Ulp
from kerneltest.declare.sampled import Conditioned, Reference


def exact() -> Tolerance:
    """Bit for bit the correctly rounded result: for data movement, integers, and single IEEE operations."""
    return Exact()


def conditioned(factor: float = 8.0, *, over: str = "", compute: str = "float32", samples: int = 4) -> Tolerance:
    """A multiple of what the oracle does when its inputs are perturbed by one rounding; the default.

    Args:
      factor: how many roundings may act together.
      over: dims over which terms of one sign are summed, as in `"n"`.
      compute: the format of the kernel's arithmetic, or `"input"` for that of its arguments.
      samples: how many random perturbations.
    """
    return Conditioned(factor, tuple(over.split()), compute, samples)


def dot(
    over: str, *, accumulate: str = "float32", slope: float = 1.0, output: str = "", precision: str = ""
) -> Tolerance:
    """The closed form of an inner product.

    Args:
      over: the dim that is summed over, in exactly two array arguments.
      accumulate: the format of the sum, or `"input"` for that of the arguments.
      slope: the greatest slope of the function applied to the sum.
      output: the output's dims, as in `"b m n"`; by default those of the first operand, then those new in the second.
      precision: the static argument whose option `highest` forbids a backend to round operands.
    """
    return Dot(tuple(over.split()), accumulate, slope, output, precision)


def ulp(n: float, *, compute: str = "float32") -> Tolerance:
    """Within `n` units in the last place of the format `compute` (`"input"`: that of the arguments)."""
    return Ulp(n, compute)


def reduction(over: str, *, accumulate: str = "float32") -> Tolerance:
    """The closed form of a sum of terms of any sign.

    Args:
      over: the dims that are summed over, as in `"m n"`, in exactly one array argument.
      accumulate: the format of the sum, or `"input"` for that of the argument.
    """
    return Reduction(tuple(over.split()), accumulate)


def reference(function: Callable[..., object], *, factor: float = 2.0) -> Tolerance:
    """A multiple of the error of a reference implementation in the kernel's own precision.

    Args:
      function: takes the arguments as the kernel gets them (NumPy, the kernel's dtypes) and returns its outputs.
      factor: how much worse than the reference the kernel may be; at least 1.
    """
    return Reference(function, factor)
