"""Sparklines: the number of findings of a pairing on a backend, run by run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kerneltest.records.overlay import Past

WIDTH, HEIGHT = 36, 10


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A sparkline: the points of an SVG polyline, its last point, and its values in words."""

    points: str
    last: tuple[float, float]
    words: str


def sparklines(history: Mapping[tuple[str, str], Sequence[Past]]) -> dict[tuple[str, str], Sparkline]:
    """Returns a sparkline of the number of findings for each pairing and backend with a history."""
    return {place: _sparkline(past) for place, past in history.items()}


def _sparkline(past: Sequence[Past]) -> Sparkline:
    most = max(1, *(each.findings for each in past))
    step = (WIDTH - 4) / (len(past) - 1)
    points = [(2 + i * step, 1 + (HEIGHT - 2) * (1 - each.findings / most)) for i, each in enumerate(past)]
    words = "findings by run: " + ", ".join(f"{each.run} {each.findings:,} of {each.cases:,}" for each in past)
    return Sparkline(" ".join(f"{x:.1f},{y:.1f}" for x, y in points), points[-1], words)
