"""What a search for repairs concludes from those that repair only some cases, with time for all repairs and without."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kerneltest.localize.repair_search import find_repair
from kerneltest.localize.repairs import Repair


@dataclass(frozen=True)
class FakeReplay:
    """A wrong call that some patches make right."""

    number: int
    repairs: frozenset[str]
    is_wrong: bool = True
    kernel: object = field(default_factory=object)

    @property
    def case(self) -> Any:
        return SimpleNamespace(id=str(self.number))

    def attempt(self, patch: Any) -> Any:
        return patch

    def is_right(self, run: Any) -> bool:
        return run in self.repairs


def _repair(line: int, name: str) -> Repair:
    return Repair(f"kernel.py:{line}", name, f"changing {name}", 0, True, lambda kernel: iter([name]))


ONE, OTHER = frozenset({"one"}), frozenset({"other"})


@pytest.mark.parametrize(
    ("repaired", "in_time", "split"), [(4, True, True), (4, False, False), (6, True, True), (6, False, False)]
)
def test_two_bugs_are_told_apart_only_if_all_repairs_were_tried(
    monkeypatch: pytest.MonkeyPatch, repaired: int, in_time: bool, split: bool
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("kerneltest.localize.repair_search.time", SimpleNamespace(monotonic=lambda: clock.now))

    def repairs() -> Iterator[Repair]:
        yield _repair(1, "one")
        clock.now += 1.0 if in_time else 8.0
        yield _repair(2, "neither")

    replays = [FakeReplay(i, ONE if i < repaired else OTHER) for i in range(10)]
    found = find_repair(replays[0], lambda: replays[1:], repairs(), 10.0, lambda: iter(()))
    if split:
        assert found is not None
        assert found.explained == tuple(map(str, range(repaired)))
        assert found.unexplained == tuple(map(str, range(repaired, 10)))
    else:
        assert found is None
