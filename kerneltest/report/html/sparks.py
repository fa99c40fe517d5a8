"""The history of a pairing on a backend, over runs, as a small line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kerneltest.report.merge import Past

WIDTH, HEIGHT = 36, 10


@dataclass(frozen=True, slots=True)
class Spark:
    """Points of an SVG polyline, the last of them, and the same in words."""

    points: str
    last: tuple[float, float]
    words: str


def sparks(history: Mapping[tuple[str, str], Sequence[Past]]) -> dict[tuple[str, str], Spark]:
    """A line for each pairing and backend with a history: findings, the fewest at the bottom."""
    return {place: _spark(past) for place, past in history.items()}


def _spark(past: Sequence[Past]) -> Spark:
    most = max(1, *(each.findings for each in past))
    step = (WIDTH - 4) / (len(past) - 1)
    points = [(2 + i * step, 1 + (HEIGHT - 2) * (1 - each.findings / most)) for i, each in enumerate(past)]
    words = "findings by run: " + ", ".join(f"{each.run} {each.findings:,} of {each.cases:,}" for each in past)
    return Spark(" ".join(f"{x:.1f},{y:.1f}" for x, y in points), points[-1], words)
