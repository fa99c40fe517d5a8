"""A machine that rounds: what one operation adds to a value, in every sample at once."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.numerics.formats import fits, round_to_nearest, nearly_equal, truncate
from kerneltest.numerics.origins import ValueOrigin, current_origin

QUIET = 3  # the first rows: exact; rounded to round_to_nearest, nothing flushed; rounded to round_to_nearest, all flushed

_LONGEST = 48  # characters of an expression in words

_ONE_WAY = 0.25  # of n u: what n equal terms gather when each sum is rounded the same way, but for the binade it is in

_LEAST = 2.0**-40  # of an ulp: an operation that is not correctly rounded, and hardly more than that

_STORED = 0.75  # of a roundoff: evenly within it, a value is as far off in the mean as rounding leaves one

_NOISE = np.random.Generator(np.random.PCG64(20)).uniform(-1.0, 1.0, 1 << 20)


@dataclass(frozen=True, slots=True)
class Source:
    """Where an error comes from: an operation of the oracle, and what of it rounds.

    Attributes:
      place: the expression in the oracle's source.
      kind: `rounding`, `summing`, the format of operands, such as `TF32 operands`, or `cast to bfloat16`.
    """

    place: ValueOrigin
    kind: str

    @property
    def words(self) -> str:
        """What errs, for people: "TF32 rounding of the operands of `q @ k.T`"."""
        text = self.place.text
        if not text:
            return self.kind
        where = f"`{text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}`"
        if self.kind.endswith(" operands"):
            return f"{self.kind.removesuffix(' operands')} rounding of the operands of {where}"
        return f"{self.kind} {'in' if self.kind.startswith('cast') else 'of'} {where}"


BACKWARDS = " in the derivative"
_NOWHERE = ValueOrigin("", 0, "")
RESULT = Source(_NOWHERE, "a few roundings of the result")
FLUSHED = Source(_NOWHERE, "flushed subnormal inputs")
STORED = Source(_NOWHERE, "rounding of stored outputs")
INPUTS = Source(_NOWHERE, "a rounding of the inputs")  # in no bound: what the others are held against


@dataclass(slots=True)
class Machine:
    """Rounds the samples of watched arrays, whose first axis counts the samples (or has length 1: all alike).

    Several cases may be sampled at once: each row then has a sample of each case, and all cases are moved alike, so
    that none can tell which others came with it. The first axis counts the samples of row 0, then those of row 1.

    Row 0 stays exact. Without `parts`, rows 1 and 2 are rounded to round_to_nearest, as a machine without any freedom does
    it (in row 2 all that is subnormal becomes zero), and in all further rows each result is moved at random within
    the error that the machine may make before it is rounded. With `parts`, each source of error moves its own rows
    alone, so that the rows tell what each source contributes.

    Attributes:
      precision: what the backend does.
      compute: the format of elementwise arithmetic and of sums; None for that of the arrays that go in.
      rows: how many samples of a case, row 0 included.
      parts: the rows that each source of error moves.
      sources: those met so far, in order.
      left: how a value left the watched arrays; "" while none did.
      single: the one row that is evaluated, where the oracle is evaluated row by row.
      tape: operations to differentiate, where there is one.
      differentiating_at: on the way back, the operation that is differentiated.
      cases: how many are sampled at once.
    """

    precision: Precision
    compute: FloatFormat | None = FLOAT32
    rows: int = 17
    parts: Mapping[Source, slice] | None = None
    single: int | None = None
    seed: int = 0
    sources: dict[Source, None] = field(default_factory=dict)
    left: str = ""
    tape: list[Any] | None = None
    differentiating_at: ValueOrigin | None = None
    cases: int = 1
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed if self.single is None else self.seed + 7919 * self.single)

    @property
    def length(self) -> int:
        """Of the first axis of samples that are not all alike."""
        return self.rows * self.cases if self.single is None else 1

    def row(self, samples: Array, row: int) -> Array:
        """One row of samples, (cases or 1, ...)."""
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
        """An operation's exact results, as the machine may give them.

        Args:
          values: (rows or 1, ...), float64: for each row what is right for that row's operands. May be written to.
          ulps: the largest error before the last rounding, in ulps of the result; 0 for a correctly rounded operation,
            whose representable results stay what they are. A number, or what makes an array like some rows of `values`.
          fmt: of the result.
          flushing: the operation flushes what is subnormal, even where the machine does not.
          vanishing: where a part of the operation is subnormal though its result is not, like `values`.
        """
        out, rows, loud = self._moving(values, "rounding", own=True)
        if rows is None:
            return self._joined(out)
        drawn, flushed = self._draw(), self._draw()
        if out[loud].size:
            at = slice(loud.start * self.cases, None if loud.stop is None else loud.stop * self.cases)
            self._shake(out[loud], self._split(np.asarray(ulps(at) if callable(ulps) else ulps)), fmt, drawn)
        near = round_to_nearest(out[rows], fmt)
        if flushing or self.precision.flushes:
            self._flush(near, fmt, flushed, None if vanishing is None else _of(self._split(vanishing), rows))
        out[rows] = near
        return self._joined(out)

    def round_sum(
        self,
        values: Array,
        mass: Array,
        terms: int,
        fmt: FloatFormat,
        *,
        in_turn: Array | None = None,
        alike: Array | None = None,
    ) -> Array:
        """Sums of `terms` terms, in any order.

        The error of a sum is a walk of `terms - 1` steps, each at most u times a partial sum and so at most `u mass`:
        within `lambda sqrt(terms) u mass` but for a probability of `2 exp(-lambda^2 / 2)` (Higham and Mary, "A new
        approach to probabilistic rounding error analysis", 2019), and never above `gamma_terms mass` (Higham, section
        4.2). A sample moves by up to the smaller of `sqrt(3 terms) u mass` and `gamma_terms mass`, evenly, so that its
        standard deviation is that of a walk whose steps are all as long as they can be. Row 1 is the sum one term after
        the other, whose errors may all have one sign.

        Args:
          values: exact sums, (rows or 1, ...). May be written to.
          mass: the sums of the terms' magnitudes, (rows or 1, ...), or (cases, ...).
          terms: how many.
          fmt: in which they are summed.
          in_turn: row 1 as it comes out one after the other, (cases or 1, ...), or None.
          alike: where all terms are about the same, (cases or 1, ...), so that each may be rounded the same way.
        """
        if terms < 2:
            return self.round_result(values, 0.0, fmt)
        mass = self._split(mass)
        finite = np.isfinite(mass)
        known = np.where(finite, mass, 0.0)
        lost = finite & (mass >= fmt.overflow)
        out, rows, loud = self._moving(values, "summing", own=True)
        if rows is None:
            return self._joined(out)
        drawn, flushed = self._draw(), self._draw()
        u = fmt.unit_roundoff
        steps = min(math.sqrt(3 * terms), (terms - 1) / max(1 - terms * u, 0.5))
        if alike is not None:
            known = known * np.where(self._split(alike), max(_ONE_WAY * terms / steps, 1.0), 1.0)
        out[loud] += steps * u * _of(known, loud) * _noise(out[loud].shape, drawn)
        if in_turn is not None and self.parts is None and self.single in (None, 1):
            out[rows.start] = in_turn
        near = round_to_nearest(out[rows], fmt)
        if lost.any():  # a partial sum may overflow, and what comes after is infinite or NaN
            near[_of(lost, rows) & np.isfinite(near)] = np.nan
        if self.precision.flushes:
            self._flush(near, fmt, flushed)
        out[rows] = near
        return self._joined(out)

    def round_operand(
        self, values: Array, fmt: FloatFormat, truncates: bool, kind: str, *, scaled: bool = False, axis: int = 0
    ) -> Array:
        """An operand of a product of matrices, as the machine takes it in.

        Args:
          values: (rows or 1, ...).
          fmt: what is taken in.
          truncates: whether bits are dropped in half of the rows.
          kind: of error.
          scaled: it may be scaled before, and so is rounded even where it needs no rounding as it is.
          axis: that is summed over, if not 0; in half of the rows, those that are nearly equal along it
            are rounded alike.
        """
        drawn = self._draw()
        if not scaled and fits(self.row(values, 0), fmt) and (len(values) == 1 or fits(values, fmt)):
            return values
        out, rows, loud = self._moving(values, kind)
        if rows is None:
            return self._joined(out)
        values, axis = self._split(values), axis + 1 if axis else 0
        cut = slice(2, None, 2) if self.single is None else slice(self.single % 2, 1)
        down = truncate(out[cut], fmt) if truncates else None
        self._shake(out[loud], np.full((), float(scaled) * _LEAST), fmt, drawn)
        out[rows] = round_to_nearest(out[rows], fmt)
        if axis and (alike := nearly_equal(values[:1], axis, fmt)).any():
            half = slice(loud.start, loud.stop, 2)
            before = np.broadcast_to(values, out.shape)[half]
            first = np.abs(values[:1]).argmax(axis, keepdims=True)
            at = np.broadcast_to(first, (len(before), out.shape[1], *alike.shape[2:]))
            part = np.take_along_axis(out[half], at, axis) / np.take_along_axis(before, at, axis)
            out[half] = np.where(alike & np.isfinite(part), before * part, out[half])
        if down is not None and self.parts is None:
            out[cut] = down
        return self._joined(out)

    def round_stored(self, values: Array, fmt: FloatFormat) -> Array:
        """Outputs, as they are read again."""
        out, rows, loud = self._moving(values, STORED)
        if rows is not None:
            self._move(out[loud], _STORED * fmt.unit_roundoff, fmt, self._draw())
        return self._joined(out)

    def flush_inputs(self, values: Array) -> Array:
        """Inputs, as a machine sees them that takes subnormal numbers for zero; the rows of `INPUTS` are off by up to a
        rounding."""
        drawn = self._draw()
        if self.parts and INPUTS in self.parts:
            values = np.repeat(values, self.rows, 0)
            moved = values[self.parts[INPUTS]]
            moved *= 1 + FLOAT32.unit_roundoff * _noise((len(moved), 1, *moved.shape[1:]), drawn)[:, 0]
        small = (np.abs(values) < FLOAT32.smallest_normal) & (values != 0)
        if not (self.precision.flushes and small.any()):
            return values
        out, rows, _ = self._moving(values, FLUSHED)
        if rows is not None:
            self._flush(out[rows], FLOAT32, drawn)
        return self._joined(out)

    def _moving(self, values: Array, what: str | Source, *, own: bool = False) -> tuple[Array, slice | None, slice]:
        """A copy as (rows, cases, ...), or the values themselves if they are its `own` and all there; which of the rows
        move, and which of these at random."""
        source = what if isinstance(what, Source) else self._source(what)
        self.sources.setdefault(source)
        if own and len(values) == self.length and values.dtype == np.float64 and values.flags.c_contiguous:
            out = self._split(values)
        else:
            out = np.empty((self.length // self.cases, self.cases, *values.shape[1:]))
            out[...] = self._split(values)
        if self.single is not None:
            return out, slice(0, 1) if self.single else None, slice(int(self.single < QUIET), 1)
        if self.parts is None:
            return out, slice(1, None), slice(QUIET, None)
        rows = self.parts.get(source)
        return out, rows, rows or slice(0, 0)

    def _split(self, values: Array) -> Array:
        """Samples as (rows or 1, cases or 1, ...); a number stays one."""
        if not values.ndim:
            return values
        cases = 1 if len(values) == 1 else self.cases
        return values.reshape(len(values) // cases, cases, *values.shape[1:])

    def _joined(self, out: Array) -> Array:
        return out.reshape(out.shape[0] * out.shape[1], *out.shape[2:])

    def _source(self, kind: str) -> Source:
        return Source(current_origin(), kind) if self.differentiating_at is None else Source(self.differentiating_at, f"{kind}{BACKWARDS}")

    def _shake(self, values: Array, ulps: Array, fmt: FloatFormat, drawn: float) -> None:
        """Moves values by up to `ulps`, and by one rounding where they are not representable.

        How far a value is from the next representable one says nothing: another way to the same value, such as
        weights that are not yet divided by their total, is rounded elsewhere.
        """
        u = fmt.unit_roundoff
        # A rounding is up to u of the value, or half of that just below a power of two; it should reach both sides.
        amplitude: Array = np.asarray(2 * u * ulps + 1.5 * u)
        inexact = ulps != 0
        free = inexact.any(axis=(0, *range(2, ulps.ndim)), keepdims=True) if ulps.ndim else inexact  # of each case
        if not free.all():
            amplitude = amplitude * (free | (round_to_nearest(values, fmt) != values))
        self._move(values, amplitude, fmt, drawn)

    def _move(self, values: Array, amplitude: "float | Array", fmt: FloatFormat, drawn: float) -> None:
        """Moves values by up to a part of themselves, or of the smallest normal number where they are below it."""
        moved = np.asarray(amplitude * _noise(values.shape, drawn))
        low = np.abs(values) < fmt.smallest_normal if fmt != FLOAT32 else np.False_
        if low.any() and (low := low & (values != 0)).any():
            values[...] = np.where(low, values + moved * fmt.smallest_normal, values * (1 + moved))
        else:
            moved += 1
            values *= moved

    def _flush(self, values: Array, fmt: FloatFormat, drawn: float, vanishing: Array | None = None) -> None:
        """Sets subnormal results in rows that move to zero: all of row 2, none of row 1, about half of the others."""
        if fmt.min_exponent > FLOAT32.min_exponent:
            return
        small = np.abs(values) < FLOAT32.smallest_normal
        if vanishing is not None:
            small |= vanishing & np.isfinite(values)
        if not small.any():
            return
        small &= values != 0
        if not small.any():
            return
        chosen = np.asarray(_noise(values.shape, drawn) < 0)
        if self.single is None and self.parts is None:
            chosen[0], chosen[1] = False, True
        elif self.single in (1, 2):
            chosen[...] = self.single == 2
        np.multiply(values, 0.0, out=values, where=small & chosen)

    def random_parts(self, shape: tuple[int, ...]) -> Array:
        """Numbers between 0 and 1 for every row, 0.5 in the exact one: how what may go either way is parted."""
        parts = np.full((self.length, *shape), 0.5)
        if self.single != 0:
            moved = parts[0 if self.single else self.cases :]
            moved += 0.5 * _noise((len(moved), 1, *shape), self._draw())[:, 0]
        return parts

    def _draw(self) -> float:
        """What an operation draws its noise by. It draws whether it needs to or not, so that what comes after it is
        the same for all values."""
        return self._random.random()


def _noise(shape: tuple[int, ...], drawn: float) -> Array:
    """Numbers between -1 and 1, (rows, 1, ...): the same for all cases."""
    shape = (shape[0], 1, *shape[2:])
    count = math.prod(shape)
    start = int(drawn * max(_NOISE.size - count, 1))
    part = _NOISE[start : start + count]
    return (part if part.size == count else np.resize(part, count)).reshape(shape)


def _of(values: Array, rows: slice) -> Array:
    """Some rows of an array that has all of them, or one for all, or none."""
    return values[rows] if values.ndim and len(values) > 1 else values
