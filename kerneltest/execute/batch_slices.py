"""Slices of arguments and outputs along a dim that `batch_dims` names, even if several dims make up an axis."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.axis_expressions import Axis, AxisExpression, dims_in, length_of, positions_along
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.invariant_context import InvariantContext, Outputs, Take
from kerneltest.oracle.evaluation import evaluator
from kerneltest.plan.signatures import Signature
from kerneltest.records.journal import Phase
from kerneltest.trace.tracing import Traced

_ROUNDING = 1e-9  # relative difference in float64 between two orders of summation


@dataclass(frozen=True, slots=True)
class BatchSlices:
    """Slices along one dim.

    Attributes:
      lengths: the lengths of all dims in the whole arrays.
      name: the dim.
    """

    lengths: dict[str, int]
    name: str

    def repeated_positions(self, start: int, length: int, count: int) -> Array:
        """Returns the positions of a slice, repeated `count` times."""
        return np.tile(np.arange(start, start + length), count)

    def overlap(self, arrays: Sequence[Sequence[Axis]]) -> bool:
        """Returns whether neighbouring slices of an array share elements, as in an array of offsets of length n + 1."""
        return any(isinstance(a, AxisExpression) and a.extra and self.name in a.names for axes in arrays for a in axes)

    def taker(self, arrays: Sequence[Sequence[Axis]], positions: Array) -> Take:
        """Returns a function that takes the elements at some positions along the dim out of arrays with these axes."""
        return lambda values: tuple(self._take(x, axes, positions) for x, axes in zip(values, arrays, strict=True))

    def _take(self, array: Array, axes: Sequence[Axis], positions: Array) -> Array:
        for place, axis in enumerate(axes):
            if self.name in dims_in(axis):
                array = array.take(positions_along(axis, self.lengths, {self.name: positions}), place)
        return array


def batch_slices(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, int, int]]:
    """Yields the dims along which slices can run alone, each with its length and that of the shortest slice."""
    lengths, statics = dict(signature.dims), dict(signature.statics)
    for name in pairing.batch_dims:
        least = pairing.dims[name].shortest
        if lengths[name] > least > 0 and pairing.admits({**lengths, name: least}, statics):
            yield name, lengths[name], least


def output_axes(
    pairing: Pairing, signature: Signature, name: str, least: int, whole: Sequence[int], single: Sequence[int]
) -> list[Axis]:
    """Returns the axes of an output: an expression where a dim is part of the axis, else the length.

    Args:
      pairing, signature: of the call.
      name: the dim.
      least: its length in a slice.
      whole: the output's shape for all of the dim.
      single: the output's shape for a slice.

    Raises:
      Failure: `unavailable`; the length of an axis changes with the slice as no declared axis does.
    """
    lengths = dict(signature.dims)
    short = {**lengths, name: least}
    declared = [axis for leaf in pairing.leaves.values() for axis in leaf.shape if name in dims_in(axis)]
    axes: list[Axis] = []
    for length, less in zip(whole, single, strict=True):
        fitting = [
            axis for axis in [name, *declared] if (length_of(axis, lengths), length_of(axis, short)) == (length, less)
        ]
        if length != less and not fitting:
            raise Failure(
                Verdict.UNAVAILABLE,
                f"the output has an axis of {length} elements, and of {less} with a slice of {least} along {name!r}; "
                "no declared shape tells which elements belong to the slice",
            )
        axes.append(fitting[0] if length != less else length)
    return axes


def check_order(asked: InvariantContext, shorter: Signature, single: Traced, sliced: Outputs, part: Take) -> None:
    """Checks that outputs order the elements of a composed axis in the same way as the argument that declares it.

    An output does not if the oracle's values for a slice differ from that part of its values for the whole, but are
    among these elsewhere.

    Args:
      asked: the plain call.
      shorter: the signature of a slice.
      single: the kernel, traced for that signature.
      sliced: the arguments of a slice.
      part: takes the slice out of outputs.

    Raises:
      Failure: `unavailable`; an output has another order, so its slices are unknown.
    """
    wide = {path: widen(leaf) for (path, _), leaf in zip(shorter.dtypes, sliced, strict=True)}
    asked.cache.enter_phase(Phase.EXPECTING)
    alone = evaluator(asked.pairing, shorter, single.outputs)(wide)
    for one, there, whole in zip(alone, part(asked.expectation.values), asked.expectation.values, strict=True):
        if one.shape != there.shape or (not _are_close(one, there) and _are_among(one, whole)):
            raise Failure(
                Verdict.UNAVAILABLE,
                "an output orders the elements of an axis differently from the argument that has this axis, so its "
                "slices are unknown; leave the dim out of batch_dims, or give it an axis of its own",
            )


def _are_close(one: Array, other: Array) -> bool:
    return bool(np.allclose(one, other, rtol=_ROUNDING, atol=0, equal_nan=True))


def _are_among(values: Array, others: Array) -> bool:
    """Returns whether each finite value is close to one of the others."""
    known = np.concatenate([[-np.inf], np.sort(others[np.isfinite(others)].astype(np.float64), axis=None), [np.inf]])
    wanted = values[np.isfinite(values)].astype(np.float64)
    at = np.clip(np.searchsorted(known, wanted), 1, known.size - 1)
    off = np.minimum(wanted - known[at - 1], known[at] - wanted)
    return bool((off <= _ROUNDING * np.abs(wanted)).all())
