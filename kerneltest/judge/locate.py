"""Says where wrong elements lie, in the kernel's own terms: tiles of dims, and the pattern they make."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, cast
from kerneltest.judge.compare import Comparison


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an output: the dim it is, if that is known, and that dim's tile."""

    name: str
    length: int
    tile: int | None

    @property
    def tiles(self) -> int:
        return -(-self.length // self.tile) if self.tile else 1


@dataclass(frozen=True, slots=True)
class Location:
    """Where the wrong elements of one output are.

    Attributes:
      index: the worst of them.
      tile: the tile it lies in, as `m=1 n=0`; "" without tiles.
      wrong_tiles: how many tiles hold a wrong element, and how many there are.
      pattern: what the wrong elements have in common, in words; "" where no rule fits.
    """

    index: tuple[int, ...]
    tile: str
    wrong_tiles: tuple[int, int]
    pattern: str


def locate(comparison: Comparison, axes: Sequence[Axis]) -> Location:
    """The location of a comparison's wrong elements (at least one)."""
    index = comparison.worst
    named = [f"{axis.name}={i // axis.tile}" for i, axis in zip(index, axes, strict=True) if axis.tile]
    touched = _tiles(comparison.wrong, axes)
    patterns = (rule(comparison, axes) for rule in _RULES)
    return Location(index, " ".join(named), (int(touched.sum()), touched.size), next(filter(None, patterns), ""))


def axes_of(shapes: Sequence[tuple[int, ...]], dims: Sequence[dict[str, int]]) -> tuple[str, ...]:
    """Which dim each axis of an output is: the one whose length it has in every signature; "" where unclear.

    Args:
      shapes: of the output, a signature each.
      dims: lengths by dim, of the same signatures.
    """
    names = []
    for axis in range(len(shapes[0])):
        fitting = [
            name
            for name in dims[0]
            if all(lengths[name] == shape[axis] for shape, lengths in zip(shapes, dims, strict=True))
        ]
        names.append(fitting[0] if len(fitting) == 1 else "")
    return tuple(names)


def _tiles(wrong: Array, axes: Sequence[Axis]) -> Array:
    """True for each tile with a wrong element."""
    touched = np.zeros([axis.tiles for axis in axes], bool)
    for index in np.argwhere(wrong):
        touched[tuple(i // axis.tile if axis.tile else 0 for i, axis in zip(index, axes, strict=True))] = True
    return touched


def _past_the_last_full_tile(comparison: Comparison, axes: Sequence[Axis]) -> str:
    for place, axis in enumerate(axes):
        if not axis.tile or axis.length < axis.tile or axis.length % axis.tile == 0:
            continue
        edge = axis.length // axis.tile * axis.tile
        if np.nonzero(comparison.wrong)[place].min() >= edge:
            return f"only past the last full tile of {axis.name} (from {edge} on)"
    return ""


def _shifted_by_a_block(comparison: Comparison, axes: Sequence[Axis]) -> str:
    """The wrong elements hold what belongs a whole number of blocks further along one axis."""
    rounded = cast(comparison.expected, comparison.actual.dtype)
    where = np.argwhere(comparison.wrong)
    for place, axis in enumerate(axes):
        if not axis.tile:
            continue
        for blocks in (*range(1, axis.tiles), *range(-1, -axis.tiles, -1)):
            source = where.copy()
            source[:, place] += blocks * axis.tile
            inside = (source[:, place] >= 0) & (source[:, place] < axis.length)
            if inside.sum() < max(2, len(where) // 2):
                continue
            found = comparison.actual[tuple(where[inside].T)] == rounded[tuple(source[inside].T)]
            if found.all() and len(np.unique(rounded[tuple(source[inside].T)].astype(np.float64))) > 2:
                return f"holds what belongs {abs(blocks)} block{'s' * (abs(blocks) > 1)} of {axis.name} " + (
                    "further on" if blocks > 0 else "further back"
                )
    return ""


def _one_tile(comparison: Comparison, axes: Sequence[Axis]) -> str:
    for place, axis in enumerate(axes):
        if axis.tiles < 2 or not axis.tile:
            continue
        tiles = np.unique(np.nonzero(comparison.wrong)[place] // axis.tile)
        if len(tiles) == 1:
            return f"only in tile {int(tiles[0])} of {axis.name} ({axis.tiles} tiles)"
    return ""


def _one_line(comparison: Comparison, axes: Sequence[Axis]) -> str:
    for place, axis in enumerate(axes):
        at = np.unique(np.nonzero(comparison.wrong)[place])
        if len(at) == 1 and axis.length > 1 and len(axes) > 1:
            return f"only where {axis.name or f'axis {place}'} is {int(at[0])}"
    return ""


def _everywhere(comparison: Comparison, axes: Sequence[Axis]) -> str:
    return "every element" if comparison.wrong.all() and comparison.wrong.size > 1 else ""


Rule = Callable[[Comparison, Sequence[Axis]], str]
_RULES: tuple[Rule, ...] = (_shifted_by_a_block, _past_the_last_full_tile, _one_line, _one_tile, _everywhere)
