"""Bounds in closed form, of the values or of sums of the inputs."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import TF32, Array, FloatFormat, is_float
from kerneltest.core.failures import DeclarationError
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.bounds import Bound, OracleCase, distance, gamma, magnitude, scale_magnitudes


def ulp_bounds(values: Sequence[Array], n: float, fmt: FloatFormat) -> tuple[Bound, ...]:
    """Returns `|error| <= n u |f(x)|`, n ulps, for each output, u being twice the unit roundoff of `fmt`.

    Source: the definition of an ulp in Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., section 2.3.
    """
    return tuple(
        Bound(n * 2 * fmt.unit_roundoff * magnitude(value), roundings=2 * n, accumulate=fmt) for value in values
    )


def specified_bounds(values: Sequence[Array], error: float, *, relative: bool) -> tuple[Bound, ...]:
    """Returns `|error| <= e` or, if it is relative, `|error| <= e |f(x)|` for each output."""
    return tuple(Bound(error * (magnitude(value) if relative else np.ones(value.shape))) for value in values)


def reduction_bound(
    terms: Array,
    dims: Sequence[str],
    over: Sequence[str],
    n: int,
    fmt: FloatFormat,
    shape: tuple[int, ...],
    output: str = "",
) -> Bound:
    """Returns `|error| <= gamma_n(u) sum |x|` of sums in any order.

    The bound is infinite where `sum |x|` exceeds the range of the format, since a partial sum may overflow. Along
    further axes of the output, which belong to sums of only some of the terms (cumulative sums, groups), the bound of
    the whole sum is repeated.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2, equation 4.4.

    Args:
      terms: the terms x. Special values count as zero: they reach only sums that are special themselves.
      dims: the name of each axis of `terms`.
      over: the dims that are summed over; n is the product of their lengths.
      fmt: the format in which they are summed.
      output: the output's dims, separated by spaces; by default the dims that remain, in their order, then any further
        axes.

    Raises:
      DeclarationError: the sums do not broadcast to `shape`.
    """
    summed = tuple(i for i, dim in enumerate(dims) if dim in over)
    remaining = [dim for dim in dims if dim not in over]
    size = magnitude(terms).sum(axis=summed)
    sums = np.where(size > fmt.overflow, np.inf, scale_magnitudes(gamma(n, fmt.unit_roundoff), size))
    if output:
        names = output.split()
        sums = sums.transpose([remaining.index(name) for name in names if name in remaining])
        sums = np.expand_dims(sums, tuple(i for i, name in enumerate(names) if name not in remaining))
    elif sums.ndim + len(summed) == len(shape):  # the output has the argument's axes
        sums = np.expand_dims(sums, summed)
    elif sums.shape == shape[: sums.ndim]:
        sums = np.expand_dims(sums, tuple(range(sums.ndim, len(shape))))
    if sums.ndim != len(shape) or any(length not in (1, m) for length, m in zip(sums.shape, shape, strict=True)):
        raise DeclarationError(
            f"reduction({' '.join(over)!r}) gives shape {sums.shape}, the oracle {shape}; say which dims the output "
            "has, as in kt.tolerance.reduction(..., output='m n')"
        )
    return Bound(np.broadcast_to(sums, shape), roundings=float(n), accumulate=fmt)


# Bounds of inner products, of chains of them, and of sums of these, in closed form.

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
      output: the output's dims, separated by spaces; by default those of the first operand, then the new ones of the
        second, and so on.
      exact_operands: whether no backend may round operands.

    Raises:
      DeclarationError: the products do not have the shape `shape`.
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


# Operands that are multiplied with each other.
@dataclass(frozen=True, slots=True)
class _Chain:
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


# Bounds from evaluating the oracle on perturbed inputs, and from the error of a reference implementation.


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


def reference_bounds(
    results: Sequence[Array], values: Sequence[Array], formats: Sequence[FloatFormat], factor: float
) -> tuple[Bound, ...]:
    """Returns a multiple of the error of a reference implementation in the kernel's own precision.

    `|error| <= factor * max(|g(x) - f(x)| over all elements, u max |f(x)|)`, with `results` g(x) of the reference,
    `values` f(x) of the oracle, and u the largest unit roundoff of the float arguments' `formats`, or that of float32.
    The maximum over elements and the floor of one rounding keep the bound from collapsing if the reference happens to
    be exact.

    Source: the practice of attention kernels (Dao, FlashAttention's tests), with that floor added.
    """
    u = max((fmt.unit_roundoff for fmt in formats), default=FLOAT32.unit_roundoff)
    bounds = []
    for result, value in zip(results, values, strict=True):
        error = float(np.max(distance(result, value), initial=0.0))
        floor = u * float(np.max(magnitude(value), initial=0.0))
        bounds.append(Bound(np.full(np.shape(value), factor * max(error, floor)), roundings=factor))
    return tuple(bounds)
