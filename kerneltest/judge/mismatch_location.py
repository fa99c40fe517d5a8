"""The location of wrong elements in the kernel's own terms: blocks of dims, and the pattern that the elements make."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, cast
from kerneltest.declare.axis_expressions import AxisExpression
from kerneltest.judge.compare import Comparison
from kerneltest.records.evidence import Pattern, PatternKind

_FEW = 64  # wrong elements to test before all of them


@dataclass(frozen=True, slots=True)
class OutputAxis:
    """One axis of an output.

    Attributes:
      name: its dim, or `axis0`, `axis1`, ... if that is unknown.
      length: number of elements along it.
      block: the dim's block length; None if it has none.
    """

    name: str
    length: int
    block: int | None

    @property
    def blocks(self) -> int:
        """Number of blocks along the axis; 1 if it has no blocks."""
        return -(-self.length // self.block) if self.block else 1


@dataclass(frozen=True, slots=True)
class MismatchLocation:
    """The location of the wrong elements of one output.

    Attributes:
      index: the index of the worst element.
      block: the block that contains it, such as `m=1 n=0`; "" if there are no blocks.
      wrong_blocks: number of blocks with a wrong element, and number of all blocks.
      pattern: the pattern that the wrong elements make; None if no rule fits.
    """

    index: tuple[int, ...]
    block: str
    wrong_blocks: tuple[int, int]
    pattern: Pattern | None


def locate_mismatch(comparison: Comparison, axes: Sequence[OutputAxis]) -> MismatchLocation:
    """Returns the location of a comparison's wrong elements, of which there is at least one."""
    index = comparison.worst_index
    if not index:  # a scalar
        return MismatchLocation(index, "", (1, 1), None)
    named = [f"{axis.name}={i // axis.block}" for i, axis in zip(index, axes, strict=True) if axis.block]
    touched = _blocks_with(comparison.wrong, axes)
    patterns = (rule(comparison, axes) for rule in _RULES)
    return MismatchLocation(
        index, " ".join(named), (int(touched.sum()), touched.size), next(filter(None, patterns), None)
    )


def match_axes(
    shapes: Sequence[tuple[int, ...]], dims: Sequence[dict[str, int]], expressions: Sequence[AxisExpression] = ()
) -> tuple[str, ...]:
    """Returns the dim of each axis of an output: the one that has the axis's length in every signature.

    Args:
      shapes: shapes of the output, one for each signature.
      dims: lengths by dim, for the same signatures.
      expressions: expressions such as `2*h`, for axes that no dim fits.

    Returns:
      A dim or an expression for each axis; "" if none or several dims fit.
    """
    names = []
    for axis in range(len(shapes[0])):
        fitting = [
            name
            for name in dims[0]
            if all(lengths[name] == shape[axis] for shape, lengths in zip(shapes, dims, strict=True))
        ]
        made = [
            str(extent)
            for extent in expressions
            if all(extent.length(lengths) == shape[axis] for shape, lengths in zip(shapes, dims, strict=True))
        ]
        names.append(fitting[0] if len(fitting) == 1 else made[0] if made and not fitting else "")
    return tuple(names)


def _blocks_with(wrong: Array, axes: Sequence[OutputAxis]) -> Array:
    """Returns an array with one element for each block: True if the block has a wrong element."""
    touched = np.zeros([axis.blocks for axis in axes], bool)
    touched[
        tuple(at // (axis.block or max(axis.length, 1)) for at, axis in zip(np.nonzero(wrong), axes, strict=True))
    ] = True
    return touched


def _past_the_last_full_block(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    """All wrong elements are in the incomplete last block of an axis."""
    for place, axis in enumerate(axes):
        if not axis.block or axis.length < axis.block or axis.length % axis.block == 0:
            continue
        edge = axis.length // axis.block * axis.block
        if np.min(np.nonzero(comparison.wrong)[place]) >= edge:
            return Pattern(PatternKind.PAST_THE_LAST_FULL_BLOCK, axis.name, edge)
    return None


def _shifted_by_a_block(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    """The wrong elements have the expected values of elements a whole number of blocks further along one axis."""
    rounded = cast(comparison.expected, comparison.actual.dtype)
    where = np.argwhere(comparison.wrong)
    few = where[:: -(-len(where) // _FEW)]

    def values_and_sources(places: Array, place: int, by: int) -> tuple[Array, Array]:
        """Returns the actual values at places, and the expected ones `by` further on, if that is inside the output."""
        source = places.copy()
        source[:, place] += by
        inside = (source[:, place] >= 0) & (source[:, place] < axes[place].length)
        return comparison.actual[tuple(places[inside].T)], rounded[tuple(source[inside].T)]

    for place, axis in enumerate(axes):
        if not axis.block:
            continue
        for blocks in (*range(1, axis.blocks), *range(-1, -axis.blocks, -1)):
            by = blocks * axis.block
            if not np.equal(*values_and_sources(few, place, by)).all():  # a few elements refute most shifts
                continue
            values, sources = values_and_sources(where, place, by)
            if len(values) < max(2, len(where) // 2):
                continue
            if (values == sources).all() and len(np.unique(sources.astype(np.float64))) > 2:
                return Pattern(PatternKind.SHIFTED, axis.name, blocks)
    return None


def _one_block(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    """All wrong elements are in one block of an axis."""
    for place, axis in enumerate(axes):
        if axis.blocks < 2 or not axis.block:
            continue
        blocks = np.unique(np.nonzero(comparison.wrong)[place] // axis.block)
        if len(blocks) == 1:
            return Pattern(PatternKind.ONE_BLOCK, axis.name, int(blocks[0]), axis.blocks)
    return None


def _one_line(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    """All wrong elements have one index along an axis, such as one row."""
    for place, axis in enumerate(axes):
        at = np.unique(np.nonzero(comparison.wrong)[place])
        if len(at) == 1 and axis.length > 1 and len(axes) > 1:
            return Pattern(PatternKind.ONE_INDEX, axis.name or f"axis {place}", int(at[0]))
    return None


def _everywhere(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    """All of several elements are wrong."""
    everywhere = comparison.wrong.all() and comparison.wrong.size > 1
    return Pattern(PatternKind.EVERYWHERE) if everywhere else None


Rule = Callable[[Comparison, Sequence[OutputAxis]], Pattern | None]
_RULES: tuple[Rule, ...] = (_shifted_by_a_block, _past_the_last_full_block, _one_line, _one_block, _everywhere)
