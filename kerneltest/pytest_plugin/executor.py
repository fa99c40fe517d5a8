"""Executors run the items of a session, in this process or another one; here is what they are asked and answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kerneltest.backends.base import Backend
    from kerneltest.execute.item import Item
    from kerneltest.execute.settings import RunSettings


@dataclass(frozen=True, slots=True)
class PytestArguments:
    """The pytest call with which another process collects the same items."""

    words: tuple[str, ...]
    folder: Path  # in which pytest was started
    captures: bool  # whether pytest captures standard output and error
    # whether the session is on another machine. This machine must then plan the same cases, and the run's folder here
    # belongs to the process, which deletes it at its end.
    is_remote: bool = False


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """The setup of a worker process; it can be pickled."""

    folder: Path
    shard: str  # the name of the process within the run: `main`, `gw0`, `gw0.1`
    planned: frozenset[tuple[str, str, str]]  # pairing, backend and dtype of everything that the run does
    settings: RunSettings
    named_backends: frozenset[str]  # backends that must be available
    store: Path | None  # folder that keeps compiled code and green items between runs; None to keep none
    root: Path  # of the session; paths in messages are relative to it
    shows_cases: bool  # whether failures also show single cases
    # the run's folder in paths that files of the run hold; None if that is `folder`
    published_folder: Path | None = None
    reuses_records: bool = False  # whether the records of green items in the store may be reused
    writes_keys: bool = False  # whether a later run may reuse results of this one, so that items need keys


@dataclass(frozen=True, slots=True)
class ItemRequest:
    """A request to run one pytest item."""

    name: str
    command: str  # reruns it; its failure shows that
    budget: float = 0.0  # seconds that it may take; 0 for no limit
    is_retry: bool = False  # whether it was begun before, so that some of its cases may have a record
    fingerprint: str = ""  # the `item_fingerprint` that another machine must find, too; "" for any
    stops_at_finding: bool = False  # whether it ends with its first finding, as the run then does


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The result of one pytest item."""

    verdict: str  # the worst verdict of its cases, or a gap
    families: tuple[str, ...] = ()  # those that have a record
    headline: str = ""  # the findings in one line; "" without any
    message: str = ""  # the findings, or the reason of a skip
    skipped: bool = False
    device_lost: bool = False  # whether the device no longer responds, so that the process must not run another item


class Executor(Protocol):
    """Runs items."""

    def run(self, parts: Sequence[Item], request: ItemRequest, on_case: Callable[[], None] = ...) -> ItemResult:
        """Runs all groups of an item; calls `on_case` after each case, or regularly, whose exceptions end the item."""


class Cluster(Executor, Protocol):
    """An executor on other machines."""

    def wrap_backends(self, backends: Sequence[Backend]) -> tuple[Backend, ...]:
        """Returns backends whose availability is that of the cluster's machines."""

    def progress(self) -> tuple[int, str]:
        """Returns the number of judged cases of the running items, and their stage in words."""
