"""Bounds of inner products, of chains of them, and of sums of these, in closed form."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import TF32, Array, FloatFormat
from kerneltest.core.failures import DeclarationError
from kerneltest.numerics.bounds import Bound, gamma, saturate_tf32, scale_magnitudes

_COARSEST = 2.0**-8  # the unit roundoff of bfloat16, the coarsest format to which operands are rounded
_EPILOGUE = 8  # roundings of functions applied to the sum


def inner_product_bound(
    operands: Mapping[str, Array],
    dims: Mapping[str, Sequence[str]],
    over: Sequence[str],
    fmt: FloatFormat,
    shape: tuple[int, ...],
    *,
    slope: float = 1.0,
    output: str = "",
    exact_operands: bool = False,
) -> Bound:
    """Returns the bound of inner products, followed by a function of bounded slope.

    Each dim of `over` ties two operands together. Operands that are tied, directly or through others, form a chain and
    are multiplied in any order; chains are added. `k n` of x[m, k], y[k, n], z[n, p] is `(x @ y) @ z`, and of
    x[m, k], y[k, p], v[m, n], w[n, p] it is `x @ y + v @ w`.

    `|error| <= slope * sum ((1 + v)^(2 q) - 1 + gamma_(k + 8)(u)) |A||B|...`, with q products in a chain, v the unit
    roundoff of the format to which a backend rounds the operands of each (TF32 for float32 on a GPU unless the kernel
    requests more, else 0), u that of `fmt`, in which products of products are kept, and k the sum of the contracted
    lengths along a chain and of the chains. Eight more roundings are for functions applied to the sum. The bound is
    infinite where |A||B|... exceeds the range of `fmt`, since a partial sum may overflow, and where an operand
    overflows when a backend rounds it, as the largest float32 number does in TF32.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1 (inner products, any order of
    summation), lemma 3.3 and section 3.5 (products of products: |A||B||C| and the sum of the gammas); Blanchard,
    Higham, Lopez, Mary, Pranesh, "Mixed Precision Block Fused Multiply-Add", 2020, for operands rounded on input.

    Args:
      operands: the operands by path, float64, in the order of their declaration.
      dims: the name of each axis of each operand.
      over: the dims that are summed over, each in exactly two operands.
      fmt: the accumulation format.
      shape: the output's shape.
      slope: the greatest slope of the function applied to the sum.
      output: the output's dims, separated by spaces; by default those of the first operand, then the new ones of the
        second, and so on.
      exact_operands: whether no backend may round operands.

    Raises:
      ValueError: the products do not have the shape `shape`.
    """
    chains = list(_chains(operands, dims, over))
    terms = max(chain.terms for chain in chains) + len(chains) - 1 + _EPILOGUE
    kept = output.split() or list(dict.fromkeys(dim for chain in chains for dim in chain.outer))
    products, rounded, underflows = (
        np.asarray(sum(parts)) for parts in zip(*(chain.magnitudes(kept) for chain in chains), strict=True)
    )
    summing = gamma(terms, fmt.unit_roundoff)
    fixed, rounded = scale_magnitudes(summing, products), scale_magnitudes(1 + summing, rounded)
    overflows = max(chain.largest_intermediate for chain in chains) > min(fmt.overflow, TF32.overflow)
    fixed = slope * np.where((products > fmt.overflow) | overflows, np.inf, fixed)
    if fixed.shape != shape:
        raise DeclarationError(
            f"dot({' '.join(over)!r}) gives shape {fixed.shape}, the oracle {shape}; say which dims the output has, as "
            "in kt.tolerance.dot(..., output='b m n')"
        )
    roundings = slope * terms * max(chain.underflow_growth for chain in chains)
    if exact_operands:
        return Bound(fixed, roundings=roundings, accumulate=fmt)
    return Bound(fixed, slope * rounded, slope * underflows, roundings, fmt)


@dataclass(frozen=True, slots=True)
class _Chain:
    """Operands that are multiplied with each other.

    Attributes:
      dims: the dims of each operand.
      sizes: their magnitudes.
      over: the dims that are summed over.
      terms: the number of roundings of a term of the result.
    """

    dims: Sequence[Sequence[str]]
    sizes: Sequence[Array]
    over: Sequence[str]
    terms: int

    @property
    def outer(self) -> list[str]:
        """The dims of the result, in the order of the operands."""
        return [dim for dim in dict.fromkeys(itertools.chain(*self.dims)) if dim not in self.over]

    @property
    def largest_intermediate(self) -> float:
        """The largest magnitude of a product of some of the operands, but not all."""
        everything = range(len(self.sizes))
        largest = 0.0
        for count in range(2, len(self.sizes)):
            for some in itertools.combinations(everything, count):
                dims = [self.dims[i] for i in some]
                inner = {dim for dim in self.over if sum(dim in each for each in dims) == 2}
                if inner and all(inner & set(each) for each in dims):
                    outer = [dim for dim in dict.fromkeys(itertools.chain(*dims)) if dim not in inner]
                    whole = _einsum(dims, [self.sizes[i] for i in some], outer)
                    largest = max(largest, float(np.max(whole, initial=0.0)))
        return largest

    @property
    def underflow_growth(self) -> float:
        """The factor by which later products may amplify what a product loses to underflow."""
        if len(self.sizes) == 2:
            return 1.0
        lost = self._underflow_weights(self.outer)
        return 1.0 + float(np.max(lost[np.isfinite(lost)], initial=0.0))

    def magnitudes(self, kept: Sequence[str]) -> tuple[Array, Array, Array]:
        """Returns the three magnitudes of a `Bound`, each over the output's dims `kept`.

        Returns:
          |A||B|...; the same for rounded operands, times the number of roundings; and the sum of the factors of each
          rounding that may underflow.
        """
        products = len(self.sizes) - 1
        factor = products * (1 + _COARSEST) ** (2 * (products - 1))  # (1 + v)^(2 q) - 1 <= factor (2 v + v^2)
        product = _einsum(self.dims, self.sizes, kept)
        rounded = factor * _einsum(self.dims, [saturate_tf32(size) for size in self.sizes], kept)
        return product, rounded, self._underflow_weights(kept)

    def _underflow_weights(self, kept: Sequence[str]) -> Array:
        """Returns the sum, over some of the operands and products of them, of the factors of each."""
        total = np.zeros(())
        for some in itertools.product((False, True), repeat=len(self.sizes)):
            if any(some) and not all(some):
                ones = [np.ones_like(size) if one else size for size, one in zip(self.sizes, some, strict=True)]
                total = total + _einsum(self.dims, ones, kept)
        return total


def _chains(operands: Mapping[str, Array], dims: Mapping[str, Sequence[str]], over: Sequence[str]) -> Iterator[_Chain]:
    """Yields groups of operands that dims of `over` tie, in the order of their declaration."""
    unassigned = [path for path in operands if set(over) & set(dims[path])]
    while unassigned:
        tied = [unassigned.pop(0)]
        while more := [p for p in unassigned if any(set(dims[p]) & set(dims[other]) & set(over) for other in tied)]:
            tied += more
            unassigned = [path for path in unassigned if path not in more]
        inner = [dim for dim in over if any(dim in dims[path] for path in tied)]
        pairs: dict[tuple[str, ...], int] = {}
        for dim in inner:
            pair = tuple(path for path in tied if dim in dims[path])
            length = operands[pair[0]].shape[dims[pair[0]].index(dim)]
            pairs[pair] = pairs.get(pair, 1) * length
        terms = sum(pairs.values()) if len(pairs) == len(tied) - 1 else math.prod(pairs.values())
        yield _Chain([dims[path] for path in tied], [np.abs(operands[path]) for path in tied], inner, terms)


def _einsum(dims: Sequence[Sequence[str]], sizes: Sequence[Array], kept: Sequence[str]) -> Array:
    """Returns the sum of products over all dims but `kept`, which become its axes; of length 1 for unknown dims."""
    letters = {dim: chr(ord("a") + i) for i, dim in enumerate(dict.fromkeys(itertools.chain(*dims)))}
    own = [dim for dim in kept if dim in letters]
    spec = ",".join("".join(letters[dim] for dim in each) for each in dims)
    with np.errstate(all="ignore"):
        total = np.einsum(f"{spec}->{''.join(letters[dim] for dim in own)}", *sizes, optimize=len(sizes) > 2)
    total = np.expand_dims(total, tuple(i for i, dim in enumerate(kept) if dim not in letters))
    return np.where(np.isnan(total), np.inf, total)  # inf * 0 leaves the element unbounded
