"""The default error model: what rounding does to the oracle's own operations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat, dtype_named, float_format, is_float
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.bounds import Limit, Measured
from kerneltest.declare.dims import Dim
from kerneltest.declare.sampled import Conditioned
from kerneltest.numerics.error_budget import Share, shares
from kerneltest.numerics.rounding_model import RESULT, Machine, Source
from kerneltest.numerics.spread import Spread, median, row_by_row, sampled, sampled_together, spread

ROWS = 17  # the exact one and sixteen samples
FACTOR = 7.0
_FEWEST = 2.0  # roundings of the result itself that a kernel may make in any case
_QUARTER, _MOST = 0.25, 32.0  # a floor: of the median relative deviation, which counts up to so many roundings
_SAME = 1e-9  # how near the exact row is to the oracle's values


@dataclass(frozen=True, slots=True)
class Rounding:
    """What moves the oracle's result when each of its operations is rounded as the backend rounds it.

    `|error| <= 7 max(s, m |f| / 4) + 2 u |f|`, element by element, with s the root mean square over 16 samples of how
    far the oracle's result moves, m the median of s / |f| over the output (at most 32 u), and u the unit roundoff of
    `compute`. `kerneltest.numerics` says how an operation is rounded in a sample.

    Source: stochastic arithmetic, as in CADNA (Vignes, "Discrete stochastic arithmetic for validating results of
    numerical software", 2004) and Verrou (Févotte and Lathuilière, 2016), here over the oracle in place of the
    kernel. Of normally distributed errors as large as the samples', one in 300,000 exceeds seven times the root mean
    square of sixteen samples (Student's t with 16 degrees of freedom). A machine's are smaller: a sample moves each
    operation by up to one and a half roundings, and sums by the longest walk that any order may take.

    Attributes:
      compute: the format of elementwise arithmetic; `input` for that of the arguments that take part.
      precision: the static argument whose option `highest` forbids a backend to round operands of products; where it
        is "", one that is called `precision`.
    """

    compute: str = "float32"
    precision: str = ""
    models_operands: ClassVar[bool] = True  # whether bounds account for how a backend rounds operands of products

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        return ""

    def bounds(self, measured: Measured) -> "tuple[Rounded, ...]":
        compute = None if self.compute == "input" else float_format(dtype_named(self.compute))
        exact = measured.statics.get(self.precision or "precision", "").lower() == "highest"
        samples = Samples(measured, compute, exact)
        return tuple(Rounded(samples, i) for i in range(len(measured.values)))

    def __str__(self) -> str:
        return f"rounding(compute={self.compute})" if self.compute != "float32" else "rounding()"


# How an oracle can be followed: at once, or sample by sample. What its code does not allow is not tried again.
_WAYS: tuple[Callable[..., list[Array]], ...] = (sampled, row_by_row)
_tried: dict[Callable[..., Any], tuple[int, str]] = {}
_one_by_one: set[Callable[..., Any]] = set()  # oracles that tell cases apart


@dataclass(slots=True)
class Samples:
    """The oracle's outputs for one case, as backends round them.

    Attributes:
      measured: the case.
      compute: the format of elementwise arithmetic; None for that of the arguments.
      exact_dots: no backend may round operands of products.
      known: what was found, by the name of the precision.
      sources: of error in this case or those beside it, likewise; none where the oracle is followed sample by sample.
      parts: of each output's spread, by the name of the precision and the output.
      beside: the cases that are followed with it, itself among them; [] for none.
    """

    measured: Measured
    compute: FloatFormat | None
    exact_dots: bool
    known: dict[str, tuple[list[Spread], str]] = field(default_factory=dict)
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict)
    parts: dict[tuple[str, int], tuple[Share, ...]] = field(default_factory=dict)
    beside: "list[Samples]" = field(default_factory=list, repr=False, compare=False)

    def at(self, precision: Precision) -> tuple[list[Spread], str]:
        """The spread of each output on a backend, and what of the oracle could not be followed."""
        precision = precision.with_exact_dots() if self.exact_dots else precision
        if precision.name not in self.known:
            self._follow_together(precision)
        if precision.name not in self.known:
            self.known[precision.name] = self._followed(precision)
        return self.known[precision.name]

    def shares(self, precision: Precision, output: int) -> tuple[Share, ...]:
        """What each of the oracle's operations adds to an output's spread, the largest first; () where it is not
        followed at once."""
        precision = precision.with_exact_dots() if self.exact_dots else precision
        measured = self.measured
        _, left = self.at(precision)
        sources = self.sources.get(precision.name, ())
        if left or not sources:
            return ()

        def evaluate(machine: Machine) -> Array:
            return sampled(measured.watched, measured.leaves, measured.formats, machine)[output]

        key = precision.name, output
        if key not in self.parts:
            self.parts[key] = shares(evaluate, precision, self.compute, sources)
        return self.parts[key]

    def _follow_together(self, precision: Precision) -> None:
        """Follows the oracle for all cases at once that it has not been followed for, if it allows that.

        It gives each case what it gives that case alone.
        """
        cases = [each for each in self.beside if precision.name not in each.known]
        measured = self.measured
        if len(cases) < 2 or measured.oracle in _tried or measured.oracle in _one_by_one:
            return
        leaves = [each.measured.leaves for each in cases]
        try:
            machine = Machine(precision, self.compute, ROWS)
            found = sampled_together(measured.watched, leaves, measured.formats, machine)
        except Exception as error:  # as an oracle that branches on values
            if isinstance(error, (TypeError, AttributeError)):
                _one_by_one.add(measured.oracle)
            return
        for each, outputs in zip(cases, found, strict=True):
            if each.is_followed(outputs) and not machine.left:
                each.known[precision.name] = [spread(samples) for samples in outputs], ""
                each.sources[precision.name] = tuple(machine.sources)

    def _followed(self, precision: Precision) -> tuple[list[Spread], str]:
        measured = self.measured
        way, why = _tried.get(measured.oracle, (0, ""))
        while way < len(_WAYS):
            machine = Machine(precision, self.compute, ROWS)
            try:
                outputs = _WAYS[way](measured.watched, measured.leaves, measured.formats, machine)
                if not self.is_followed(outputs):
                    raise ValueError("watched, it computes something else")
            except Exception as error:  # whatever an oracle makes of an array that is not NumPy's own
                way, why = way + 1, f"{type(error).__name__}: {error}".splitlines()[0]
                if isinstance(error, (TypeError, AttributeError)):  # by how it is written, and not by the values
                    _tried[measured.oracle] = way, why
                continue
            self.sources[precision.name] = tuple(machine.sources) if not way else ()
            spreads = [spread(samples) for samples in outputs]
            if not machine.left:
                return spreads, ""
            return self._beside(spreads, precision), f"{machine.left} is not followed, conditioned() is the floor"
        none = [Spread.none(value) for value in measured.values]
        return self._beside(none, precision), f"conditioned() in its place, for the oracle is not followed ({why})"

    def _beside(self, spreads: Sequence[Spread], precision: Precision) -> list[Spread]:
        """Spreads that are no smaller than what `conditioned` makes of them."""
        floors = [bound.at(precision) for bound in Conditioned().bounds(self.measured)]
        return [each.at_least(floor / FACTOR) for each, floor in zip(spreads, floors, strict=True)]

    def is_followed(self, outputs: Sequence[Array]) -> bool:
        """Whether the row that nothing moves is the oracle's own result, or something was not followed."""
        return len(outputs) == len(self.measured.values) and all(map(_is_same, outputs, self.measured.values))


def _is_same(samples: Array, value: Array) -> bool:
    if samples.shape[1:] != value.shape:
        return False
    if (samples[0] == value).all():  # as nearly always
        return True
    wide = np.asarray(value, np.float64)
    size = float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0))
    return np.allclose(samples[0], value, rtol=_SAME, atol=1e-3 * _SAME * size, equal_nan=is_float(value.dtype))


def follow_together(limits: Iterable[Sequence[Limit] | None]) -> None:
    """Has the oracle followed at once for cases of one signature, as far as it rounds them and they differ in floats
    alone.

    Args:
      limits: of the outputs of each case.
    """
    alike: dict[object, list[Samples]] = {}
    for outputs in limits:
        if outputs and isinstance(outputs[0], Rounded):
            samples = outputs[0].samples
            measured = samples.measured
            fixed = [(path, value.tobytes()) for path, value in measured.leaves.items() if path not in measured.formats]
            alike.setdefault((measured.oracle, samples.compute, samples.exact_dots, *fixed), []).append(samples)
    for several in alike.values():
        for each in several:
            each.beside = several


@runtime_checkable
class Explained(Protocol):
    """A bound that says what makes it."""

    def shares(self, precision: Precision) -> tuple[Share, ...]:
        """The parts of it, the largest first; () where they are not known."""
        ...


@dataclass(frozen=True, slots=True)
class Rounded:
    """The bound of one output, once it is known where the kernel runs.

    Attributes:
      samples: of all outputs of the case.
      output: which of them, counted from 0.
    """

    samples: Samples
    output: int

    def at(self, precision: Precision) -> Array:
        """The largest absolute error of each element before it is rounded to the output's dtype; infinite where
        nothing is asked."""
        found = self.samples.at(precision)[0][self.output]
        value = np.asarray(self.samples.measured.values[self.output], np.float64)
        return bound(value, found, (self.samples.compute or FLOAT32).unit_roundoff)

    def others(self, precision: Precision) -> tuple[Array, ...]:
        """What else than the oracle's values is right for integers and booleans: the samples' values."""
        return self.samples.at(precision)[0][self.output].others

    def note(self, precision: Precision) -> str:
        """What of the oracle could not be followed, or ""."""
        return self.samples.at(precision)[1]

    def shares(self, precision: Precision) -> tuple[Share, ...]:
        """What makes the bound, as parts of it, the largest first; () where the oracle is not followed at once."""
        found = self.samples.shares(precision, self.output)
        return of_bound(found, self.at(precision), self.samples.at(precision)[0][self.output])


def of_bound(found: tuple[Share, ...], limit: Array, moved: Spread) -> tuple[Share, ...]:
    """Shares of a spread as shares of the bound that it makes, beside what the bound adds to it."""
    finite = np.isfinite(limit) & (limit > 0)
    if not found or not finite.any():
        return found
    of_spread = float(np.mean(FACTOR * moved.deviation[finite] / limit[finite]))
    scaled = [replace(each, part=of_spread * each.part) for each in found]
    return tuple(sorted([*scaled, Share(RESULT, 1 - of_spread)], key=lambda each: -each.part))


def bound(value: Array, found: Spread, u: float) -> Array:
    """How far a right kernel may be from `value`, as `Rounding` says; u is the unit roundoff of its arithmetic."""
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    with np.errstate(all="ignore"):
        relative = (found.deviation / size)[(size > 0) & (found.deviation > 0)]
    typical = min(median(relative), _MOST * u) if relative.size else 0.0
    moved = np.maximum(found.deviation, _QUARTER * typical * size)
    return np.where(found.lost, np.inf, FACTOR * moved + _FEWEST * u * size * (found.deviation > 0))
