"""Bounds from evaluating the oracle on perturbed inputs, and from the error of a reference implementation."""

from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat, is_float
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.bounds import Bound, OracleCase, distance, gamma, magnitude


def conditioned_bounds(
    case: OracleCase, *, factor: float = 8.0, terms: int = 0, fmt: FloatFormat = FLOAT32, samples: int = 4
) -> tuple[Bound, ...]:
    """Returns the bound of a backward-stable kernel, which is exact for inputs perturbed by a few roundings.

    `|error| <= factor * (max_s |f(x(1 + u e_s)) - f(x)| + u |f(x)|) + gamma_n |f(x)|`, with u the unit roundoff of the
    format, e_s random signs, and n the number of terms of the sums behind an element.

    Source: the first term estimates the componentwise condition number by sampling (Kenney and Laub, "Small-sample
    statistical condition estimates", 1994). The error of a stable algorithm is a small multiple of it by the backward
    error principle (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5). For gamma_n of terms
    of one sign see section 3.1 there.

    Args:
      case: the oracle's side of the case.
      factor: the number of roundings that may act as one worst perturbation.
      terms: n.
      fmt: the format of the kernel's arithmetic.
      samples: the number of random perturbations.

    Returns:
      A bound for each output.
    """
    u = fmt.unit_roundoff
    rng = np.random.Generator(np.random.PCG64(0))
    largest = [np.zeros(value.shape) for value in case.values]
    for _ in range(samples):
        moved = {
            path: value * (1 + u * rng.choice((-1.0, 1.0), value.shape)) if is_float(value.dtype) else value
            for path, value in case.leaves.items()
        }
        for i, (near, value) in enumerate(zip(case.evaluate(moved), case.values, strict=True)):
            largest[i] = np.maximum(largest[i], distance(near, value))
    return tuple(
        Bound(
            factor * (moved_by + u * magnitude(value)) + gamma(terms, u) * magnitude(value),
            roundings=factor,
            accumulate=fmt,
        )
        for moved_by, value in zip(largest, case.values, strict=True)
    )


def reference_bounds(
    results: Sequence[Array], values: Sequence[Array], formats: Sequence[FloatFormat], factor: float
) -> tuple[Bound, ...]:
    """Returns a multiple of the error of a reference implementation in the kernel's own precision.

    `|error| <= factor * max(|g(x) - f(x)| over all elements, u max |f(x)|)`, with g the reference and f the oracle. The
    maximum over elements and the floor of one rounding keep the bound from collapsing if the reference happens to be
    exact.

    Source: the practice of attention kernels (Dao, FlashAttention's tests), with that floor added.

    Args:
      results: the outputs g(x), as float64.
      values: the oracle's outputs f(x).
      formats: those of the float arguments; u is the largest of their unit roundoffs, or that of float32 without any.
      factor: how many times as inaccurate as the reference the kernel may be.

    Returns:
      A bound for each output.
    """
    u = max((fmt.unit_roundoff for fmt in formats), default=FLOAT32.unit_roundoff)
    bounds = []
    for result, value in zip(results, values, strict=True):
        error = float(np.max(distance(result, value), initial=0.0))
        floor = u * float(np.max(magnitude(value), initial=0.0))
        bounds.append(Bound(np.full(np.shape(value), factor * max(error, floor)), roundings=factor))
    return tuple(bounds)
