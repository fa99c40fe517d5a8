"""Bounds of chains of inner products in closed form, and bounds from evaluating the oracle on perturbed inputs."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import TF32, Array, FloatFormat, is_float
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.bounds import Bound, OracleCase, distance, gamma, magnitude

_COARSEST = 2.0**-8  # the unit roundoff of bfloat16, the coarsest format to which operands are rounded


@dataclass(frozen=True, slots=True)
class OperandChain:
    """Operands that are multiplied with each other."""

    dims: Sequence[Sequence[str]]  # of each operand
    sizes: Sequence[Array]  # their magnitudes
    over: Sequence[str]  # the dims that are summed over
    terms: int  # the number of roundings of a term of the result

    @property
    def outer(self) -> list[str]:
        return [dim for dim in dict.fromkeys(itertools.chain(*self.dims)) if dim not in self.over]

    @property
    def largest_intermediate(self) -> float:
        """The largest magnitude of a product of some of the operands, but not all."""
        largest = 0.0
        for count in range(2, len(self.sizes)):
            for some in itertools.combinations(range(len(self.sizes)), count):
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

        They are |A||B|...; the same for rounded operands, times the number of roundings; and the sum of the factors of
        each rounding that may underflow.
        """
        products = len(self.sizes) - 1
        factor = products * (1 + _COARSEST) ** (2 * (products - 1))  # (1 + v)^(2 q) - 1 <= factor (2 v + v^2)
        product = _einsum(self.dims, self.sizes, kept)
        saturated = [np.where(size >= TF32.overflow, np.inf, size) for size in self.sizes]
        rounded = factor * _einsum(self.dims, saturated, kept)
        return product, rounded, self._underflow_weights(kept)

    # The sum, over some of the operands and products of them, of the factors of each.
    def _underflow_weights(self, kept: Sequence[str]) -> Array:
        total = np.zeros(())
        for some in itertools.product((False, True), repeat=len(self.sizes)):
            if any(some) and not all(some):
                ones = [np.ones_like(size) if one else size for size, one in zip(self.sizes, some, strict=True)]
                total = total + _einsum(self.dims, ones, kept)
        return total


def operand_chains(
    operands: Mapping[str, Array], dims: Mapping[str, Sequence[str]], over: Sequence[str]
) -> Iterator[OperandChain]:
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
        yield OperandChain([dims[path] for path in tied], [np.abs(operands[path]) for path in tied], inner, terms)


def _einsum(dims: Sequence[Sequence[str]], sizes: Sequence[Array], kept: Sequence[str]) -> Array:
    """Returns the sum of products over all dims but `kept`, which become its axes; of length 1 for unknown dims."""
    letters = {dim: chr(ord("a") + i) for i, dim in enumerate(dict.fromkeys(itertools.chain(*dims)))}
    own = [dim for dim in kept if dim in letters]
    spec = ",".join("".join(letters[dim] for dim in each) for each in dims)
    with np.errstate(all="ignore"):
        total = np.einsum(f"{spec}->{''.join(letters[dim] for dim in own)}", *sizes, optimize=len(sizes) > 2)
    total = np.expand_dims(total, tuple(i for i, dim in enumerate(kept) if dim not in letters))
    return np.where(np.isnan(total), np.inf, total)  # inf * 0 leaves the element unbounded


def conditioned_bounds(
    case: OracleCase,
    *,
    factor: float = 8.0,
    terms: int = 0,
    fmt: FloatFormat = FLOAT32,
    samples: int = 4,
    normwise: bool = False,
) -> tuple[Bound, ...]:
    """Returns the bound of a backward-stable kernel, which is exact for inputs perturbed by a few roundings.

    `|error| <= factor * (max_s |f(x(1 + u e_s)) - f(x)| + u |f(x)|) + gamma_n |f(x)|`, with u the unit roundoff of the
    format, e_s random signs, and n the number of `terms` of the sums behind an element.

    Source: the first term estimates the componentwise condition number by sampling (Kenney and Laub, "Small-sample
    statistical condition estimates", 1994). The error of a stable algorithm is a small multiple of it by the backward
    error principle (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5). For gamma_n of terms
    of one sign see section 3.1 there.

    Args:
      factor: the number of roundings that may act as one worst perturbation.
      samples: the number of random perturbations.
      normwise: whether inputs are moved relative to the norm of their columns as well, as by algorithms of linear
        algebra (sections 9.3 and 19.3 there).
    """
    u = fmt.unit_roundoff
    rng = np.random.Generator(np.random.PCG64(0))
    largest = [np.zeros(value.shape) for value in case.values]
    for number in range(2 * samples if normwise else samples):
        move = perturb_randomly if number < samples else _perturb_columns
        moved = {path: move(value, u, rng) for path, value in case.leaves.items()}
        for i, (near, value) in enumerate(zip(case.evaluate(moved), case.values, strict=True)):
            largest[i] = np.maximum(largest[i], distance(near, value))
    sizes = map(magnitude, case.values)
    fixed = (factor * (by + u * size) + gamma(terms, u) * size for by, size in zip(largest, sizes, strict=True))
    return tuple(Bound(each, roundings=factor, accumulate=fmt) for each in fixed)


def perturb_randomly(value: Array, u: float, rng: np.random.Generator) -> Array:
    """Returns floats moved by one rounding each, up or down; any other array unchanged."""
    return value * (1 + u * rng.choice((-1.0, 1.0), value.shape)) if is_float(value.dtype) else value


# The same relative to the norm of their columns, and to all elements of a vector.
def _perturb_columns(value: Array, u: float, rng: np.random.Generator) -> Array:
    if not is_float(value.dtype) or not value.ndim:
        return perturb_randomly(value, u, rng)
    return np.asarray(value + u * column_norms(value, value.ndim) * rng.choice((-1.0, 1.0), value.shape))


def column_norms(values: Array, ndim: int) -> Array:
    """Returns the norm of each column of matrices, or of a vector, of `ndim` axes after those of a batch."""
    return np.asarray(np.sqrt(np.sum(magnitude(values) ** 2, axis=-min(ndim, 2), keepdims=True)))
