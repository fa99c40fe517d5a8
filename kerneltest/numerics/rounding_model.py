"""The rounding model: the errors that one operation adds to a value, in all samples at once."""

import functools
import linecache
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32, Precision

# Rounding of float64 arrays to the numbers of a narrower format.

_FEW = 8.0  # roundings: the errors of values that differ by more are independent


def round_to_nearest(values: Array, fmt: FloatFormat) -> Array:
    """Rounds to nearest, and overflows to infinity. The result is float32 for that format, float64 for others."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32) if fmt == FLOAT32 else _split(np.atleast_1d(values), fmt).reshape(values.shape)


# Veltkamp's splitting: the float64 sum with a number 2^(53 - p) times as large drops all but p bits (Muller et al.,
# Handbook of Floating-Point Arithmetic, 2nd ed., section 4.4.1).
def _split(values: Array, fmt: FloatFormat) -> Array:
    large = np.asarray(values * (2.0 ** (53 - fmt.precision) + 1))
    near = large - values
    np.subtract(large, near, out=near)
    size = np.abs(values, out=large)
    near = _round_subnormals(near, values, size, fmt, np.rint)
    if not np.max(size, initial=0.0) < fmt.overflow:
        near = np.where(size < fmt.overflow, near, np.where(np.isnan(values), values, np.copysign(np.inf, values)))
    return np.asarray(near)


def is_short(number: float, fmt: FloatFormat) -> bool:
    """Returns whether a number of a format is likely what its author wrote, and not the rounding of such as 0.1.

    It has half of float32's bits, or is the sum or difference of three powers of two; or it is not finite. One of 16
    bits, of which most are such sums, is its shortest decimal.
    """
    if not math.isfinite(number):
        return True
    digits = significant_digits(number)
    if fmt.precision < FLOAT32.precision:
        return shortest_decimal(number, fmt) == number
    powers = (digits ^ (3 * digits)).bit_count()  # in the sum or difference that has the fewest
    return digits < 2 ** (fmt.precision // 2) or powers <= 3


def shortest_decimal(number: float, fmt: FloatFormat) -> float:
    """Returns the shortest decimal that rounds to a number of 16 bits.

    The largest number stays, and those that have three bits or one digit more than that decimal: 0.3125, 528.
    """
    if (digits := significant_digits(number)) < 2**3 or digits == 2**fmt.precision - 1:
        return number
    decimals = np.array([float(f"{number:.{length}g}") for length in range(1, 9)])
    shortest, longer = decimals[round_to_nearest(decimals, fmt) == number][:2]
    return number if longer == number else float(shortest)


def significant_digits(number: float) -> int:
    """Returns the odd integer of which a finite number is a multiple by a power of two; 0 for 0."""
    digits = int(abs(math.frexp(number)[0]) * 2**53)
    return digits >> max((digits & -digits).bit_length() - 1, 0)


def fits(values: Array, fmt: FloatFormat) -> bool:
    """Returns whether a format represents all values exactly; NaN counts as representable."""
    same = round_to_nearest(values, fmt) == values
    return bool(same.all() or (same | np.isnan(values)).all())


def truncate(values: Array, fmt: FloatFormat) -> Array:
    """Rounds towards zero, in float64. Values that are too large keep their exponent."""
    dropped = 53 - fmt.precision  # bits of a float64
    near = (values.view(np.int64) & -(1 << dropped)).view(np.float64)
    return _round_subnormals(near, values, np.abs(values), fmt, np.trunc)


# `near`, with values below the smallest normal number rounded to multiples of the smallest subnormal.
def _round_subnormals(
    near: Array, values: Array, size: Array, fmt: FloatFormat, to_integer: Callable[[Array], Array]
) -> Array:
    low = size < fmt.smallest_normal
    if not (low.any() and size[low].any()):
        return near
    least = fmt.smallest_subnormal
    return np.where(low, to_integer(values / least) * least, near)


def nearly_equal(values: Array, axis: int, fmt: FloatFormat) -> Array:
    """Returns whether magnitudes along an axis, except zeros, differ by a few roundings at most; keeps the axis."""
    size = np.abs(values)
    most = size.max(axis, keepdims=True, initial=0.0)
    least = np.where(size == 0, np.inf, size).min(axis, keepdims=True, initial=np.inf)
    return np.asarray((most - least <= _FEW * fmt.unit_roundoff * most) & (most > 0))


# All that samples asked about a machine's arithmetic: the same answers make the same samples.

# By the name of an attribute of `Precision`, and the function or dtype that was looked up in it, or "".
Answers = Mapping[tuple[str, str], Any]


def would_answer(precision: Precision, answers: Answers) -> bool:
    """Checks whether a machine would give the same answers."""
    return all(_look_up(precision, *question) == answer for question, answer in answers.items())


def _look_up(precision: Precision, attribute: str, key: str) -> Any:
    found = getattr(precision, attribute)
    if isinstance(found, Mapping):
        return found.get(key)
    return key in found if isinstance(found, frozenset) else found


# Random errors of samples, which are the same for all cases that are sampled at once.

ROUNDING = 1.5
"""In roundoffs, of which a rounding is one, or half of one just below a power of two: this reaches both neighbours."""

_NOISE = np.random.Generator(np.random.PCG64(20)).uniform(-1.0, 1.0, 1 << 20)
_HASHES = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # odd


def perturb(values: Array, ulps: Array, fmt: FloatFormat, seed: float) -> None:
    """Perturbs values by up to `ulps`, and by one rounding if they are not representable, in place.

    The distance to the next representable value is irrelevant: another formula for the same value, such as weights
    before they are divided by their total, is rounded elsewhere.
    """
    u = fmt.unit_roundoff
    amplitude: Array = np.asarray(2 * u * ulps + ROUNDING * u)
    inexact = ulps != 0
    free = inexact.any(axis=(0, *range(2, ulps.ndim)), keepdims=True) if ulps.ndim else inexact  # of each case
    if not free.all():
        amplitude = amplitude * (free | (round_to_nearest(values, fmt) != values))
    scale_randomly(values, amplitude, fmt, seed)


def scale_randomly(values: Array, amplitude: "float | Array", fmt: FloatFormat, seed: float) -> None:
    """Perturbs values in place by up to `amplitude`, relative to them or to the smallest normal number.

    Equal values get errors of their own: a right kernel may compute them in several ways, as in blocks with maxima of
    their own, so that their errors do not cancel.
    """
    moved = np.asarray(amplitude * noise(values.shape, seed))
    low = np.abs(values) < fmt.smallest_normal if fmt != FLOAT32 else np.False_
    if low.any() and (low := low & (values != 0)).any():
        values[...] = np.where(low, values + moved * fmt.smallest_normal, values * (1 + moved))
    else:
        moved += 1
        values *= moved


def largest_rounding(
    values: Array, fmt: FloatFormat, *, rounded: "Array | bool" = False, terms: Sequence[Array] = ()
) -> Array:
    """Returns by how much samples of a kernel's rounded values are off at most; 0 where they are representable.

    `rounded` are those that are rounded nevertheless. So are sums or differences of two `terms` that float64 rounds, as
    that of 1 and 1e-20: those with an error by Dekker's Fast2Sum (Muller et al., section 4.3.1).
    """
    if terms:
        a, b = (np.abs(x.reshape(len(x), *(1,) * (values.ndim - x.ndim), *x.shape[1:])) for x in terms)
        with np.errstate(invalid="ignore"):
            rounded = np.isfinite(values) & (np.abs(np.abs(values) - np.maximum(a, b)) != np.minimum(a, b))
    inexact = (round_to_nearest(values, fmt) != values) | rounded
    error = np.maximum(fmt.unit_roundoff * np.abs(values), fmt.smallest_subnormal / 2)
    return np.where(inexact, ROUNDING * error, 0.0)


def largest_error_of_sums(sums: Array, mass: Array, terms: int, fmt: FloatFormat, partial: "Array | float") -> Array:
    """Returns by how much samples of a kernel's sums are off at most, in any order: see `RoundingModel.round_sum`.

    Args:
      mass: the sums of the terms' magnitudes.
      partial: the least size of partial sums that are not zero.
    """
    known = np.where(np.isfinite(mass), mass, 0.0)
    exact = known < 2.0**fmt.precision  # sums of integers are exact up to there
    whole = exact & (sums == np.rint(sums)) & (known == np.rint(known))
    steps = min(math.sqrt(3 * terms), terms - 1) * fmt.unit_roundoff
    return np.where(whole, 0.0, steps * np.where(known > 0, np.maximum(known, partial), known))


def noise_of(values: Array, rows: Array, seed: float) -> Array:
    """Returns numbers between -1 and 1, a hash of each value, (rows, ...), and of the number of its row.

    It is for a kernel's own operations, each of which gives equal values the same error.
    """
    mixed = (rows.astype(np.uint64) + np.uint64(1)) * _HASHES[0] ^ np.uint64(int(seed * 2**53))
    mixed = values.view(np.uint64) ^ (mixed * _HASHES[1]).reshape(-1, *(1,) * (values.ndim - 1))
    mixed *= _HASHES[0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _HASHES[1]
    return np.asarray(mixed.view(np.int64) * 2.0**-63)


def noise(shape: tuple[int, ...], seed: float) -> Array:
    """Returns numbers between -1 and 1, (rows, 1, ...), which are the same for all cases."""
    shape = (shape[0], 1, *shape[2:])
    count = math.prod(shape)
    if count > _NOISE.size:  # a pool that repeats would give several samples of an element the same error
        return np.random.Generator(np.random.PCG64(int(seed * 2**53))).uniform(-1.0, 1.0, shape)
    start = int(seed * (_NOISE.size - count + 1))
    return _NOISE[start : start + count].reshape(shape)


def select_rows(values: Array, rows: slice) -> Array:
    """Returns some rows of an array with all rows; an array with one row, or a number, is returned unchanged."""
    return values[rows] if values.ndim and len(values) > 1 else values


# The expression in the oracle's source that computes a value, and the sources of error.

_NUMERICS = str(Path(__file__).parent)
_NUMPY = str(Path(np.__file__).parent)

_LONGEST = 48  # characters of an expression in a description


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """An expression in a source file."""

    file: str  # the path of the file; "" if unknown
    line: int  # the line of the expression's first character, counted from 1; 0 if unknown
    text: str  # the expression, joined to one line

    def __str__(self) -> str:
        return f"`{self.text}` at {Path(self.file).name}:{self.line}" if self.line else "the oracle"


def current_origin() -> ValueOrigin:
    """Returns the innermost expression under evaluation outside this package and NumPy."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((_NUMERICS, _NUMPY)):
        frame = frame.f_back
    return _expression(frame.f_code, frame.f_lasti) if frame is not None else _NOWHERE


_NOWHERE = ValueOrigin("", 0, "")


# The expression of an instruction, or the name of its function if the source is unavailable.
@functools.lru_cache(maxsize=4096)
def _expression(code: CodeType, instruction: int) -> ValueOrigin:
    positions = list(code.co_positions())
    line, end, start_column, end_column = positions[min(instruction // 2, len(positions) - 1)]
    first = line or code.co_firstlineno
    lines = [linecache.getline(code.co_filename, number) for number in range(first, (end or first) + 1)]
    if not any(lines):
        return ValueOrigin(code.co_filename, first, code.co_name)
    if start_column is not None and end_column is not None:  # in bytes of UTF-8
        raw = [each.encode() for each in lines]
        raw[-1] = raw[-1][:end_column]
        raw[0] = raw[0][start_column:]
        lines = [each.decode(errors="replace") for each in raw]
    return ValueOrigin(code.co_filename, first, " ".join(" ".join(lines).split()))


@dataclass(frozen=True, slots=True)
class ErrorSource:
    """A source of error: an operation of the oracle, and the part of it that rounds."""

    origin: ValueOrigin  # the expression in the oracle's source
    kind: str  # `rounding`, `summing`, the format of operands, such as `TF32 operands`, or `cast to bfloat16`

    @property
    def description(self) -> str:
        """The source in words: "TF32 rounding of the operands of `q @ k.T`"."""
        text = self.origin.text
        if not text:
            return self.kind
        expression = f"`{text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}`"
        if self.kind.endswith(" operands"):
            return f"{self.kind.removesuffix(' operands')} rounding of the operands of {expression}"
        return f"{self.kind} {'in' if self.kind.startswith('cast') else 'of'} {expression}"


BACKWARDS = " in the derivative"
"""The end of the kind of an error that the derivative of an operation makes."""

APPROXIMATION = "approximation"
"""The kind of the error of a function that a kernel is declared to approximate."""

RESULT = ErrorSource(_NOWHERE, "a few roundings of the result")
FLUSHED = ErrorSource(_NOWHERE, "flushed subnormal inputs")
STORED = ErrorSource(_NOWHERE, "rounding of stored outputs")
INPUTS = ErrorSource(_NOWHERE, "a rounding of the inputs")
"""The unit in which the other sources are measured; it is in no bound."""


NOISELESS_ROWS = 3  # rows without random errors: exact; rounded to nearest, not flushed; rounded to nearest, flushed
_SAME_WAY = 0.25  # of n u: the error of n equal terms if all partial sums are rounded the same way, whatever the binade
_LEAST = 2.0**-40  # of an ulp: marks an operation that is not correctly rounded, though hardly more inaccurate
_STORED = 0.75  # of a roundoff: an error uniform within it is as large in the mean as that of rounding


@dataclass(slots=True)
class RoundingModel:
    """Rounds the samples of tracked arrays. Their first axis is the samples; its length is 1 if all are equal.

    Several cases may be sampled at once: each row then has a sample of each case, with the same random errors for all,
    so that no result depends on other cases. The first axis is the samples of row 0, then those of row 1. Row 0 stays
    exact. Without `rows_by_source`, rows 1 and 2 are rounded to nearest, as by a machine that makes no other error (in
    row 2 all subnormal results become zero). In all further rows each result is perturbed at random within the error
    that the machine may make before it rounds. With `rows_by_source`, each source of error perturbs only its own rows,
    so that the rows show what each source contributes.
    """

    precision: Precision  # the machine's arithmetic
    # the format of elementwise arithmetic and of sums; None for that of the operands
    compute: FloatFormat | None = FLOAT32
    rows: int = 17  # the number of samples of a case, row 0 included
    # the rows that each source of error perturbs; None to perturb all rows by all sources
    rows_by_source: Mapping[ErrorSource, slice] | None = None
    # the one row that is evaluated if the oracle is evaluated row by row; None for all at once
    single: int | None = None
    seed: int = 0  # the seed of the random errors
    sources: dict[ErrorSource, None] = field(default_factory=dict)  # the sources of error met so far, in order
    escape: str = ""  # how a value escaped tracking; "" if none has
    in_jax: bool = False  # whether a function of JAX got a tracked array of floats
    tape: list[Any] | None = None  # records the operations for differentiation; None to record none
    # the expression whose derivative is computed; None while the oracle is evaluated
    differentiating_at: ValueOrigin | None = None
    cases: int = 1  # the number of cases that are sampled at once
    # all that mattered of the arithmetic so far
    answers: dict[tuple[str, str], Any] = field(default_factory=dict, init=False)
    # whether the oracle has returned, so that whoever still uses its arrays has kept them
    has_ended: bool = field(default=False, init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed if self.single is None else self.seed + 7919 * self.single)

    def ask(self, attribute: str, key: str = "") -> Any:
        """Returns an attribute of the arithmetic, or what it has for a key: None or False for nothing."""
        answer = self.answers[attribute, key] = _look_up(self.precision, attribute, key)
        return answer

    @property
    def length(self) -> int:
        """The length of the first axis of samples that differ."""
        return self.rows * self.cases if self.single is None else 1

    def row(self, samples: Array, row: int) -> Array:
        """Returns one row of samples, (cases or 1, ...)."""
        return samples[row * self.cases : (row + 1) * self.cases] if len(samples) > 1 else samples

    def round_result(
        self,
        values: Array,
        ulps: "float | Callable[[slice], float | Array]",
        fmt: FloatFormat,
        *,
        flushing: bool = False,
        vanishing: Array | None = None,
    ) -> Array:
        """Returns an operation's exact results with the errors of the machine.

        Args:
          values: (rows or 1, ...), float64: the exact result for each row's operands. May be written to.
          ulps: the largest error before the final rounding, in ulps of the result; 0 for a correctly rounded operation,
            whose representable results do not change. A number, or a function from a slice of the first axis of
            `values` to an array of that shape.
          fmt: the format of the result.
          flushing: whether the operation flushes subnormal results even if the machine does not.
          vanishing: in the shape of `values`, where an intermediate result is subnormal though the result is not.
        """
        out, rows, noisy = self._prepare(values, "rounding", own=True)
        if rows is None:
            return self._flatten_cases(out)
        seed, flush_seed = self._draw(), self._draw()
        if out[noisy].size:
            at = slice(noisy.start * self.cases, None if noisy.stop is None else noisy.stop * self.cases)
            perturb(out[noisy], self._by_case(np.asarray(ulps(at) if callable(ulps) else ulps)), fmt, seed)
        near = round_to_nearest(out[rows], fmt)
        if flushing or self._may_flush():
            small = None if vanishing is None else select_rows(self._by_case(vanishing), rows)
            self._flush_subnormals(near, fmt, flush_seed, small)
        out[rows] = near
        return self._flatten_cases(out)

    def round_sum(
        self,
        values: Array,
        mass: Array,
        terms: "int | Array",
        fmt: FloatFormat,
        *,
        partial: Array | None = None,
        sequential: Array | None = None,
        near_equal: Array | None = None,
    ) -> Array:
        """Returns exact sums with the errors of summing `terms` terms in any order.

        The error of a sum is a walk of `terms - 1` steps, each at most u times a partial sum p: within
        `lambda sqrt(terms) u p` but for a probability of `2 exp(-lambda^2 / 2)` (Higham and Mary, "A new approach to
        probabilistic rounding error analysis", 2019), and never above `gamma_terms p` (Higham, section 4.2). The error
        of a sample is uniform up to the smaller of `sqrt(3 terms) u p` and `gamma_terms p`, so that its standard
        deviation is that of a walk with steps of maximal length. Row 1 is the sum in sequence, whose errors may all
        have one sign.

        Args:
          values: exact sums, (rows or 1, ...). May be written to.
          mass: the sums of the terms' magnitudes, (rows or 1, ...), or (cases, ...).
          terms: the number of terms; an array for sums that differ in it.
          fmt: the format in which they are summed.
          partial: p, in the shape of `mass`, which it is by default.
          sequential: the sum in sequence, for row 1, (cases or 1, ...), or None.
          near_equal: where all terms are nearly equal, (cases or 1, ...), so that each partial sum may be rounded the
            same way.
        """
        if np.max(terms) < 2:
            return self.round_result(values, 0.0, fmt)
        mass, partial = self._by_case(mass), self._by_case(mass if partial is None else partial)
        lost = np.isfinite(mass) & (mass >= fmt.overflow)
        known = np.where(np.isfinite(partial), partial, 0.0)
        out, rows, noisy = self._prepare(values, "summing", own=True)
        if rows is None:
            return self._flatten_cases(out)
        seed, flush_seed = self._draw(), self._draw()
        u = fmt.unit_roundoff
        steps = np.minimum(np.sqrt(3 * terms), (terms - 1) / np.maximum(1 - terms * u, 0.5))
        if self.ask("sums_once"):
            steps, near_equal, sequential = np.minimum(steps, ROUNDING), None, None
        if near_equal is not None:
            same_way = np.maximum(_SAME_WAY * terms / np.where(steps > 0, steps, np.inf), 1.0)
            known = known * np.where(self._by_case(near_equal), same_way, 1.0)
        out[noisy] += steps * u * select_rows(known, noisy) * noise(out[noisy].shape, seed)
        if sequential is not None and self.rows_by_source is None and self.single in (None, 1):
            out[rows.start] = sequential
        near = round_to_nearest(out[rows], fmt)
        if lost.any():  # a partial sum may overflow, and the sum may then be infinite or NaN
            opposed = select_rows(np.where(lost, mass, 0.0), rows) - np.abs(out[rows]) >= 2 * fmt.overflow
            near[select_rows(lost, rows) & (np.isfinite(near) | opposed)] = np.nan
        if self._may_flush():
            self._flush_subnormals(near, fmt, flush_seed)
        out[rows] = near
        return self._flatten_cases(out)

    def round_operand(
        self, values: Array, fmt: FloatFormat, truncates: bool, kind: str, *, scaled: bool = False, axis: int = 0
    ) -> Array:
        """Returns an operand of a matrix product, rounded to the format of the machine's multiplier.

        Args:
          values: (rows or 1, ...).
          fmt: the format of the multiplier.
          truncates: whether half of the rows are truncated.
          kind: the kind of error, for its source.
          scaled: whether the operand may be scaled first, so that even representable values are rounded.
          axis: the axis that is summed over; 0 for none. In half of the rows, values that are nearly equal along it get
            the same error.
        """
        seed = self._draw()
        if not scaled and fits(self.row(values, 0), fmt) and (len(values) == 1 or fits(values, fmt)):
            return values
        out, rows, noisy = self._prepare(values, kind)
        if rows is None:
            return self._flatten_cases(out)
        values, axis = self._by_case(values), axis + 1 if axis else 0
        half = slice(2, None, 2) if self.single is None else slice(self.single % 2, 1)
        down = truncate(out[half], fmt) if truncates else None
        perturb(out[noisy], np.full((), float(scaled) * _LEAST), fmt, seed)
        out[rows] = round_to_nearest(out[rows], fmt)
        if axis and (equal := nearly_equal(values[:1], axis, fmt)).any():
            every_second = slice(noisy.start, noisy.stop, 2)
            before = np.broadcast_to(values, out.shape)[every_second]
            largest = np.abs(values[:1]).argmax(axis, keepdims=True)
            at = np.broadcast_to(largest, (len(before), out.shape[1], *equal.shape[2:]))
            ratio = np.take_along_axis(out[every_second], at, axis) / np.take_along_axis(before, at, axis)
            out[every_second] = np.where(equal & np.isfinite(ratio), before * ratio, out[every_second])
        if down is not None and self.rows_by_source is None:
            out[half] = down
        return self._flatten_cases(out)

    def move_elements(self, values: Array, size: Array, fmt: FloatFormat, kind: str) -> Array:
        """Returns operands moved by up to a rounding relative to `size`, (rows or 1, ...), whatever their elements are.

        All rows but the exact one are moved, for algorithms whose errors are relative to norms.
        """
        out, rows, _ = self._prepare(values, kind)
        if rows is not None:
            amplitude = ROUNDING * fmt.unit_roundoff * select_rows(self._by_case(size), rows)
            out[rows] += amplitude * noise(out[rows].shape, self._draw())
        return self._flatten_cases(out)

    def approximate(self, values: Array, error: float) -> Array:
        """Returns a function's results with a relative error that a kernel's approximation of it may have.

        In half of the rows all elements have the same error, as those that a polynomial makes in a short interval.
        """
        out, rows, noisy = self._prepare(values, APPROXIMATION)
        if rows is not None:
            moved = noise(out[noisy].shape, self._draw()).copy()
            alike = moved[(self.single or 0) % 2 :: 2]
            alike[...] = noise((len(alike), *(1,) * (alike.ndim - 1)), self._draw())
            out[noisy] *= 1 + error * moved
        return self._flatten_cases(out)

    def round_stored(self, values: Array, fmt: FloatFormat) -> Array:
        """Returns outputs with the errors of storing them in a format and reading them again."""
        out, rows, noisy = self._prepare(values, STORED)
        if rows is not None:
            scale_randomly(out[noisy], _STORED * fmt.unit_roundoff, fmt, self._draw())
        return self._flatten_cases(out)

    def flush_inputs(self, values: Array) -> Array:
        """Returns inputs with subnormal numbers flushed where the machine does so.

        The rows of the source `INPUTS`, if there are any, are perturbed by up to one rounding.
        """
        seed = self._draw()
        if self.rows_by_source and INPUTS in self.rows_by_source:
            values = np.repeat(values, self.rows, 0)
            moved = values[self.rows_by_source[INPUTS]]
            moved *= 1 + FLOAT32.unit_roundoff * noise((len(moved), 1, *moved.shape[1:]), seed)[:, 0]
        small = (np.abs(values) < FLOAT32.smallest_normal) & (values != 0)
        if not (small.any() and self._may_flush()):
            return values
        out, rows, _ = self._prepare(values, FLUSHED)
        if rows is not None:
            self._flush_subnormals(out[rows], FLOAT32, seed)
        return self._flatten_cases(out)

    def _prepare(
        self, values: Array, error: str | ErrorSource, *, own: bool = False
    ) -> tuple[Array, slice | None, slice]:
        """Registers a source of error, or the expression under evaluation for a kind, and selects the rows it affects.

        Returns the values as (rows, cases, ...), copied unless they are the caller's `own`; the rows that are rounded,
        None for none; and those of them that get random errors.
        """
        if isinstance(error, ErrorSource):
            source = error
        elif self.differentiating_at is None:
            source = ErrorSource(current_origin(), error)
        else:
            source = ErrorSource(self.differentiating_at, f"{error}{BACKWARDS}")
        self.sources.setdefault(source)
        if own and len(values) == self.length and values.dtype == np.float64 and values.flags.c_contiguous:
            out = self._by_case(values)
        else:
            out = np.empty((self.length // self.cases, self.cases, *values.shape[1:]))
            out[...] = self._by_case(values)
        if self.single is not None:
            return out, slice(0, 1) if self.single else None, slice(int(self.single < NOISELESS_ROWS), 1)
        if self.rows_by_source is None:
            return out, slice(1, None), slice(NOISELESS_ROWS, None)
        rows = self.rows_by_source.get(source)
        return out, rows, rows or slice(0, 0)

    # It only matters that a machine flushes once a subnormal result is met.
    def _may_flush(self) -> bool:
        return self.precision.flushes or bool(self.ask("flushes"))

    def _by_case(self, values: Array) -> Array:
        """Returns samples as (rows or 1, cases or 1, ...); a number stays one."""
        if not values.ndim:
            return values
        cases = 1 if len(values) == 1 else self.cases
        return values.reshape(len(values) // cases, cases, *values.shape[1:])

    def _flatten_cases(self, out: Array) -> Array:
        return out.reshape(out.shape[0] * out.shape[1], *out.shape[2:])

    def _flush_subnormals(self, values: Array, fmt: FloatFormat, seed: float, vanishing: Array | None = None) -> None:
        """Sets subnormal results to zero in place: all in row 2, none in row 1, about half in the others.

        `values` are the rows that are rounded, (rows, cases, ...). Results are also flushed where `vanishing`.
        """
        if fmt.min_exponent > FLOAT32.min_exponent:
            return
        small = np.abs(values) < FLOAT32.smallest_normal
        if vanishing is not None:
            small |= vanishing & np.isfinite(values)
        if not small.any() or not (small := small & (values != 0)).any():
            return
        self.ask("flushes")
        chosen = np.asarray(noise(values.shape, seed) < 0)
        if self.single is None and self.rows_by_source is None:
            chosen[0], chosen[1] = False, True
        elif self.single in (1, 2):
            chosen[...] = self.single == 2
        np.multiply(values, 0.0, out=values, where=small & chosen)

    def random_parts(self, shape: tuple[int, ...]) -> Array:
        """Returns numbers between 0 and 1, (rows * cases, *shape): how to split a value between two; 0.5 in row 0."""
        parts = np.full((self.length, *shape), 0.5)
        if self.single != 0:
            moved = parts[0 if self.single else self.cases :]
            moved += 0.5 * noise((len(moved), 1, *shape), self._draw())[:, 0]
        return parts

    def _draw(self) -> float:
        """Returns the noise seed of one operation. Always drawn, so that later draws do not depend on the data."""
        return self._random.random()
