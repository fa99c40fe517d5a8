"""What runs the items of a session, whichever process or machine that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kerneltest.backends.base import Backend
    from kerneltest.pytest_plugin.process import Ended, Task
    from kerneltest.run.item import Item


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
