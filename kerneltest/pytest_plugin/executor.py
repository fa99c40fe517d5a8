"""What runs the items of a session, whichever process or machine that is, and by what it collects them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kerneltest.backends.base import Backend
    from kerneltest.execute.item import Item
    from kerneltest.pytest_plugin.worker import Ended, Task


@dataclass(frozen=True, slots=True)
class Arguments:
    """By what pytest collects the same items again.

    Attributes:
      words: after `pytest`.
      folder: that it was started in.
      captured: whether what is written to standard output and error is kept for the item that wrote it.
      elsewhere: whether the session is on another machine: it must have planned the same, and the run's folder here is
        this process's alone, which goes with it.
    """

    words: tuple[str, ...]
    folder: Path
    captured: bool
    elsewhere: bool = False


class Engine(Protocol):
    """A process, one that it watches, or a cluster."""

    def run(self, parts: Sequence[Item], task: Task, judged: Callable[[], None] = ...) -> Ended:
        """Runs all groups of an item."""
        ...


class Cluster(Engine, Protocol):
    """Machines that run items for a session."""

    def served(self, backends: Sequence[Backend]) -> tuple[Backend, ...]:
        """Backends as these machines can serve them."""
        ...

    def doing(self) -> tuple[int, str]:
        """How many cases of the items that run are judged, and what goes on, in words."""
        ...
