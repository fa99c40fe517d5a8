"""The error model of inner products: one, chains of them, and sums of these."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kerneltest.core.dtypes import TF32, Array
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.bounds import Bound, Measured, format_of, gamma, saturated, times
from kerneltest.declare.dims import Dim

_COARSEST = 2.0**-8  # the unit roundoff of bfloat16, the coarsest format to which operands are rounded


@dataclass(frozen=True, slots=True)
class Dot:
    """Inner products, then perhaps a function of bounded slope.

    Each dim of `over` ties two operands together. Operands that are tied, directly or through others, are multiplied
    in any order, and what is not tied is added: `"k n"` of x[m, k], y[k, n], z[n, p] is `(x @ y) @ z`, and of
    x[m, k], y[k, p], v[m, n], w[n, p] it is `x @ y + v @ w`.

    `|error| <= slope * sum ((1 + v)^(2 q) - 1 + gamma_(k + 8)(u)) |A||B|...`, with q products in a chain, v the unit
    roundoff of the format to which a backend rounds the operands of each (TF32 for float32 on a GPU unless the kernel
    asks for more, else 0), u that of `accumulate`, in which products of products are kept, and k the sum of the
    contracted lengths along a chain, and of the chains. Eight more roundings are for what is applied to the sum. Where
    |A||B|... exceeds the accumulation format's range, a partial sum may overflow and the bound is infinite; so it is
    where a backend's rounding of an operand overflows, as float32's largest number does in TF32.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1 (inner products, any order
    of summation), lemma 3.3 and section 3.5 (products of products: |A||B||C| and the sum of the gammas); Blanchard,
    Higham, Lopez, Mary, Pranesh, "Mixed Precision Block Fused Multiply-Add", 2020, for operands rounded on input.

    Attributes:
      over: the dims that are summed over, each in exactly two array arguments.
      accumulate: the format of the sums; `input` for that of the arguments.
      slope: the greatest slope of the function applied to the sum.
      output: the output's dims; by default those of the first operand, then those new in the second, and so on.
      precision: the static argument whose option `highest` forbids a backend to round operands; "" without one. What
        it owes is then read from the case and not from the kernel, which may have ignored it.
    """

    over: tuple[str, ...]
    accumulate: str = "float32"
    slope: float = 1.0
    output: str = ""
    precision: str = ""
    models_operands: ClassVar[bool] = True  # whether bounds account for how a backend rounds operands of products

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        for dim in self.over:
            operands = [path for path, leaf in leaves.items() if dim in leaf.shape]
            if len(operands) != 2:
                return (
                    f"dot({' '.join(self.over)!r}) needs exactly two array arguments with dim {dim}, and "
                    f"{len(operands)} have it ({', '.join(operands) or 'none'}); use conditioned(), or name another dim"
                )
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        fmt = format_of(self.accumulate, measured)
        chains = list(_chains(self.over, measured))
        terms = max(chain.terms for chain in chains) + len(chains) - 1 + 8
        kept = self.output.split() or list(dict.fromkeys(axis for chain in chains for axis in chain.kept))
        products, rounded, operands = (
            np.asarray(sum(parts)) for parts in zip(*(chain.magnitudes(kept) for chain in chains), strict=True)
        )
        summing = gamma(terms, fmt.unit_roundoff)
        fixed, rounded = times(summing, products), times(1 + summing, rounded)
        too_large = max(chain.within for chain in chains) > min(fmt.overflow, TF32.overflow)
        fixed = self.slope * np.where((products > fmt.overflow) | too_large, np.inf, fixed)
        (value,) = measured.values
        if fixed.shape != value.shape:
            raise ValueError(
                f"dot({' '.join(self.over)!r}) gives shape {fixed.shape}, the oracle {value.shape}; say which dims "
                "the output has, as in kt.tolerance.dot(..., output='b m n')"
            )
        if self.precision and self.precision not in measured.statics:
            raise ValueError(f"dot(precision={self.precision!r}) names no static argument of the kernel's")
        roundings = self.slope * terms * max(chain.amplified for chain in chains)
        if self.precision and measured.statics[self.precision].lower() == "highest":
            return (Bound(fixed, roundings=roundings, accumulate=fmt),)
        return (Bound(fixed, self.slope * rounded, self.slope * operands, roundings, fmt),)

    def __str__(self) -> str:
        return f"dot(over={' '.join(self.over)}, accumulate={self.accumulate}, slope={self.slope:g})"


@dataclass(frozen=True, slots=True)
class _Chain:
    """Operands that are multiplied with each other.

    Attributes:
      axes: the dims of each operand.
      sizes: their magnitudes.
      over: the dims that are summed over.
      terms: how many roundings a term of the result goes through.
    """

    axes: Sequence[tuple[str, ...]]
    sizes: Sequence[Array]
    over: Sequence[str]
    terms: int

    @property
    def kept(self) -> list[str]:
        return [axis for axis in dict.fromkeys(itertools.chain(*self.axes)) if axis not in self.over]

    @property
    def within(self) -> float:
        """The largest number that a product of some of the operands, but not of all, may come to."""
        everything = range(len(self.sizes))
        largest = 0.0
        for count in range(2, len(self.sizes)):
            for some in itertools.combinations(everything, count):
                axes = [self.axes[i] for i in some]
                inner = {axis for axis in self.over if sum(axis in each for each in axes) == 2}
                if inner and all(inner & set(each) for each in axes):
                    outer = [axis for axis in dict.fromkeys(itertools.chain(*axes)) if axis not in inner]
                    whole = _einsum(axes, [self.sizes[i] for i in some], outer)
                    largest = max(largest, float(np.max(whole, initial=0.0)))
        return largest

    @property
    def amplified(self) -> float:
        """By how much what a product loses to underflow may grow in those after it."""
        if len(self.sizes) == 2:
            return 1.0
        lost = self._lost(self.kept)
        return 1.0 + float(np.max(lost[np.isfinite(lost)], initial=0.0))

    def magnitudes(self, kept: Sequence[str]) -> tuple[Array, Array, Array]:
        """As a `Bound` has them, over the output's dims: |A||B|..., the same where operands are rounded (with the
        number of times that they are), and the sum of what each rounding that underflows is multiplied by.
        """
        times_rounded = len(self.sizes) - 1
        more = times_rounded * (1 + _COARSEST) ** (2 * (times_rounded - 1))  # (1 + v)^(2 q) - 1 <= more (2 v + v^2)
        product = _einsum(self.axes, self.sizes, kept)
        rounded = more * _einsum(self.axes, [saturated(size) for size in self.sizes], kept)
        return product, rounded, self._lost(kept)

    def _lost(self, kept: Sequence[str]) -> Array:
        """The sum over some of the operands, and products of them, of what is multiplied with each."""
        total = np.zeros(())
        for some in itertools.product((False, True), repeat=len(self.sizes)):
            if any(some) and not all(some):
                ones = [np.ones_like(size) if one else size for size, one in zip(self.sizes, some, strict=True)]
                total = total + _einsum(self.axes, ones, kept)
        return total


def _chains(over: Sequence[str], measured: Measured) -> Iterator[_Chain]:
    """The operands, those together that dims of `over` tie, in the order of their declaration."""
    axes = {
        path: tuple(map(str, leaf.shape)) for path, leaf in measured.declared.items() if set(over) & set(leaf.shape)
    }
    left = list(axes)
    while left:
        tied = [left.pop(0)]
        while more := [path for path in left if any(set(axes[path]) & set(axes[other]) & set(over) for other in tied)]:
            tied += more
            left = [path for path in left if path not in more]
        mine = [dim for dim in over if any(dim in axes[path] for path in tied)]
        pairs: dict[tuple[str, ...], int] = {}
        for dim in mine:
            pair = tuple(path for path in tied if dim in axes[path])
            pairs[pair] = pairs.get(pair, 1) * measured.dims[dim]
        terms = sum(pairs.values()) if len(pairs) == len(tied) - 1 else math.prod(pairs.values())
        yield _Chain([axes[path] for path in tied], [np.abs(measured.leaves[path]) for path in tied], mine, terms)


def _einsum(axes: Sequence[tuple[str, ...]], sizes: Sequence[Array], kept: Sequence[str]) -> Array:
    """The sum of products over all dims but some, which are the axes of the result; of length 1 where none has them."""
    letters = {axis: chr(ord("a") + i) for i, axis in enumerate(dict.fromkeys(itertools.chain(*axes)))}
    own = [axis for axis in kept if axis in letters]
    spec = ",".join("".join(letters[axis] for axis in each) for each in axes)
    with np.errstate(all="ignore"):
        total = np.einsum(f"{spec}->{''.join(letters[axis] for axis in own)}", *sizes, optimize=len(sizes) > 2)
    total = np.expand_dims(total, tuple(i for i, axis in enumerate(kept) if axis not in letters))
    return np.where(np.isnan(total), np.inf, total)  # inf * 0: nothing can be said
