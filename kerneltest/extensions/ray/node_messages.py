"""Messages between the session and the nodes of a cluster: requests, and what comes back while they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kerneltest.extensions.ray.code_comparison import ProjectCode
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult, PytestArguments, WorkerSetup
from kerneltest.records.journal import Activity


@dataclass(frozen=True, slots=True)
class JobSetup:
    """The part of their setup that all jobs of a run share.

    Attributes:
      run: the run's id.
      plan: content of the run's `plan.json`.
      worker: setup of the session's own worker.
      arguments: with which the session collected.
      memory: limit of a worker process in GiB; 0 for 90 % of the free memory.
      code: of the session; nodes must have the same.
      environment: variables that affect what kernels compute.
      paths: entries of the session's `sys.path` below its root.
      archive: of the project's files; None if nodes have them.
    """

    run: str
    plan: bytes
    worker: WorkerSetup
    arguments: PytestArguments
    memory: float
    code: ProjectCode
    environment: Mapping[str, str]
    paths: tuple[str, ...]
    archive: bytes | None


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a job needs from its node.

    Attributes:
      gpus: number of GPUs, or the fraction of one; 0 for none.
      tpus: number of TPUs.
      accelerator: type of GPU in Ray's naming; "" for any.
    """

    gpus: float = 0.0
    tpus: int = 0
    accelerator: str = ""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of `ray.remote`."""
        if not (self.gpus or self.tpus):
            return {"num_cpus": 1}
        # A device must not wait for a processor that other jobs use.
        accelerator = {"accelerator_type": self.accelerator} if self.accelerator else {}
        return {
            "num_cpus": 0,
            "num_gpus": self.gpus,
            **({"resources": {"TPU": self.tpus}} if self.tpus else {}),
            **accelerator,
        }


@dataclass(frozen=True, slots=True)
class QueuedItem:
    """An item to run, and the lines of its records so far; these cases do not run again."""

    request: ItemRequest
    records: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemStarted:
    """An item has started.

    Attributes:
      item: its name.
      node, host: on which it runs.
    """

    item: str
    node: str
    host: str


@dataclass(frozen=True, slots=True)
class ItemProgress:
    """The output of a running item since the last message.

    Attributes:
      item: its name.
      files: content by name within the run's folder. A file comes no later than the line that names it.
      records, smallest: lines.
      activity: what its process is doing, if that has changed.
    """

    item: str
    files: Mapping[str, bytes]
    records: tuple[bytes, ...]
    smallest: tuple[bytes, ...]
    activity: Activity | None = None


@dataclass(frozen=True, slots=True)
class ItemDone:
    """An item has ended.

    Attributes:
      item: its name.
      result: of the item; None if it could not run.
      output: of its process.
      seconds: that it took.
      error: why it could not run.
    """

    item: str
    result: ItemResult | None
    output: str = ""
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class JobLost:
    """A job whose node or worker died before the job ended.

    Attributes:
      node: whether the whole node died.
      reason: by Ray, in a line.
    """

    node: bool
    reason: str


@dataclass(frozen=True, slots=True)
class JobOver:
    """A job that has sent all of its messages."""


NodeEvent = ItemStarted | ItemProgress | ItemDone
