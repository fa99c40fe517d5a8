"""Evaluates an oracle in samples, and turns their spread into a bound."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.numpy_patch import made_on
from kerneltest.numerics.rounding_model import Machine
from kerneltest.numerics.samples import Sampled
from kerneltest.numerics.tracked import Watched

Oracle = Callable[[Mapping[str, Any]], Sequence[Any]]


def sampled(
    oracle: Oracle, leaves: Mapping[str, Array], formats: Mapping[str, FloatFormat], machine: Machine
) -> list[Array]:
    """The oracle's outputs, each (rows or 1, *shape).

    Raises:
      Exception: whatever the oracle raises, among it `UnfollowedError`.
    """
    (outputs,) = sampled_together(oracle, [leaves], formats, machine)
    return outputs


def sampled_together(
    oracle: Oracle, cases: Sequence[Mapping[str, Array]], formats: Mapping[str, FloatFormat], machine: Machine
) -> list[list[Array]]:
    """The same for several cases at once, whose other leaves are alike: the outputs of each.

    Raises:
      Exception: as `sampled` does; also where the oracle treats the cases in different ways.
    """
    machine.cases = len(cases)
    given: dict[str, Any] = dict(cases[0])
    with made_on(machine):
        for path in filter(formats.__contains__, cases[0]):
            values = np.stack([leaves[path] for leaves in cases])
            if len(cases) > 1:
                values = np.tile(values, (machine.rows, *(1,) * (values.ndim - 1)))
            given[path] = Watched(machine.flushed(values), machine, formats[path])
        outputs = oracle(given)
    samples = [out.samples if isinstance(out, Sampled) else np.asarray(out)[None] for out in outputs]
    if len(cases) == 1:
        return [samples]
    apart = [each.reshape(-1, len(cases), *each.shape[1:]) if len(each) > 1 else each[:, None] for each in samples]
    return [[each[:, case if each.shape[1] > 1 else 0] for each in apart] for case in range(len(cases))]


def row_by_row(
    oracle: Oracle, leaves: Mapping[str, Array], formats: Mapping[str, FloatFormat], machine: Machine
) -> list[Array]:
    """The same, one evaluation a row: for an oracle that takes values out of watched arrays."""
    rows = []
    for row in range(machine.rows):
        machine.single = row
        machine.__post_init__()
        rows.append([samples[0] for samples in sampled(oracle, leaves, formats, machine)])
    return [np.stack(parts) for parts in zip(*rows, strict=True)]


@dataclass(frozen=True, slots=True)
class Spread:
    """How far one output moves.

    Attributes:
      deviation: root mean square over the samples of the distance from the exact row, per element.
      lost: elements that some sample turns into NaN or an infinity, or the other way round: nothing can be asked.
      others: the results of the samples, where these are integers or booleans and differ.
    """

    deviation: Array
    lost: Array
    others: tuple[Array, ...] = ()

    @staticmethod
    def none(value: Array) -> "Spread":
        """Of a value that does not move."""
        return Spread(np.zeros(value.shape), np.zeros(value.shape, bool))

    def at_least(self, floor: Array) -> "Spread":
        """The same with no element's deviation below a floor, which may be infinite."""
        finite = np.isfinite(floor)
        deviation = np.maximum(self.deviation, np.where(finite, floor, 0.0))
        return replace(self, deviation=deviation, lost=self.lost | ~finite)


def spread(samples: Array) -> Spread:
    """The spread of an output's samples, (rows or 1, *shape), around the first."""
    exact, moved = samples[0], samples[1:]
    if not len(moved):
        return Spread.none(exact)
    if exact.dtype.kind != "f":
        return replace(Spread.none(exact), others=tuple(row for row in moved if (row != exact).any()))
    with np.errstate(all="ignore"):
        off = moved - exact
        deviation = np.sqrt(np.mean(np.square(off, out=off), 0))
        if np.isfinite(deviation).all():
            return Spread(deviation, np.zeros(exact.shape, bool))
        off = moved - exact
        alike = (moved == exact) | (np.isnan(moved) & np.isnan(exact))
        # Beyond what float32 holds, an infinity is how it says the same.
        alike |= np.isinf(moved) & (np.sign(moved) == np.sign(exact)) & (np.abs(exact) >= FLOAT32.overflow)
        off[alike] = 0.0
        finite = np.isfinite(off)
        deviation = np.sqrt(np.mean(np.where(finite, off, 0.0) ** 2, 0))
    return Spread(np.asarray(deviation), np.asarray(~finite.all(0)))


def median(values: Array) -> float:
    """The median of numbers among which is no NaN; `np.median` selects around it too, and takes ten times as long."""
    ordered, middle = values.flatten(), values.size // 2
    ordered.partition(middle)
    upper = float(ordered[middle])
    return upper if values.size % 2 else (float(ordered[:middle].max()) + upper) / 2
