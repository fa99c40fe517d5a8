"""Error models that evaluate the oracle, or a reference, again: each with its formula and its source."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import is_float
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.bounds import FLOAT32, Bound, Measured, distance, format_of, gamma, magnitude
from kerneltest.declare.dims import Dim


@dataclass(frozen=True, slots=True)
class Conditioned:
    """A backward-stable kernel: the exact result for inputs perturbed by a few roundings.

    `|error| <= factor * (max_s |f(x(1 + u e_s)) - f(x)| + u |f(x)|) + gamma_n |f(x)|`, with u the unit roundoff
    of `compute`, e_s random signs, and n the number of terms of the sums behind an element.

    Source: the first term estimates the componentwise condition number by sampling (Kenney and Laub, "Small-sample
    statistical condition estimates", 1994); that a stable algorithm's error is a small multiple of it is the
    backward error principle (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5); gamma_n
    of like-signed terms is section 3.1 there.

    Attributes:
      factor: how many roundings may act as one worst perturbation.
      over: dims over which like-signed terms are summed.
      compute: the format of the kernel's arithmetic; `input` for that of its arguments.
      samples: how many random perturbations.
    """

    factor: float = 8.0
    over: tuple[str, ...] = ()
    compute: str = "float32"
    samples: int = 4

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        for name in self.over:
            if name not in dims:
                return f"conditioned(over=...) names dim {name!r}, which no argument has; there are {', '.join(dims)}"
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        fmt = format_of(self.compute, measured)
        u = fmt.unit_roundoff
        rng = np.random.Generator(np.random.PCG64(0))
        worst = [np.zeros(v.shape) for v in measured.values]
        for _ in range(self.samples):
            moved = {
                path: value * (1 + u * rng.choice((-1.0, 1.0), value.shape)) if is_float(value.dtype) else value
                for path, value in measured.leaves.items()
            }
            for i, (near, value) in enumerate(zip(measured.evaluate(moved), measured.values, strict=True)):
                worst[i] = np.maximum(worst[i], distance(near, value))
        n = math.prod(measured.dims[name] for name in self.over) if self.over else 0
        return tuple(
            Bound(
                self.factor * (w + u * magnitude(v)) + gamma(n, u) * magnitude(v),
                roundings=self.factor,
                accumulate=fmt,
            )
            for w, v in zip(worst, measured.values, strict=True)
        )

    def __str__(self) -> str:
        over = f", over={' '.join(self.over)}" if self.over else ""
        return f"conditioned(factor={self.factor:g}, compute={self.compute}{over})"


@dataclass(frozen=True, slots=True)
class Reference:
    """The error of a reference implementation in the kernel's own precision, times a stated factor.

    `|error| <= factor * max(|g(x) - f(x)| over all elements, u max |f(x)|)`, with g the reference and f the oracle,
    both against float64. The maximum over elements and the floor of one rounding keep a bound from collapsing where
    the reference happens to be exact.

    Source: the practice of attention kernels (Dao, FlashAttention's tests), with that floor added.

    Attributes:
      reference: takes the arguments as the kernel gets them (NumPy, the kernel's dtypes) and returns its outputs.
      factor: how much worse than the reference the kernel may be.
    """

    reference: Callable[..., object]
    factor: float = 2.0

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        return "" if self.factor >= 1 else f"reference(factor={self.factor:g}): a kernel may be as bad as the reference"

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        bounds = []
        for near, value in zip(measured.in_kernel_dtypes(self.reference), measured.values, strict=True):
            u = max((fmt.unit_roundoff for fmt in measured.input_formats), default=FLOAT32.unit_roundoff)
            error = float(np.max(distance(near, value), initial=0.0))
            floor = u * float(np.max(magnitude(value), initial=0.0))
            bounds.append(Bound(np.full(np.shape(value), self.factor * max(error, floor)), roundings=self.factor))
        return tuple(bounds)

    def __str__(self) -> str:
        name = getattr(self.reference, "__name__", type(self.reference).__name__)
        return f"reference({name}, factor={self.factor:g})"
