"""What a session asks of a node, and what comes back as it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kerneltest.extensions.ray.code import Code
from kerneltest.pytest_plugin.executor import Arguments
from kerneltest.pytest_plugin.worker import Ended, Setup, Task
from kerneltest.records.journal import Doing


@dataclass(frozen=True, slots=True)
class Orders:
    """What all nodes of a run are told.

    Attributes:
      run: its id.
      plan: the run's `plan.json`.
      setup: of the session's own process.
      arguments: by which the session collected.
      memory: GiB that a process may take; 0 for nine tenths of what is free.
      code: that the session has, and that nodes must have.
      environment: variables that say what kernels compute.
      paths: where the session looks for modules below its root.
      archive: of the project's files; None where nodes have these.
    """

    run: str
    plan: bytes
    setup: Setup
    arguments: Arguments
    memory: float
    code: Code
    environment: Mapping[str, str]
    paths: tuple[str, ...]
    archive: bytes | None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job asks of its node.

    Attributes:
      gpus: how many, or what share of one; 0 for none.
      tpus: how many.
      accelerator: the type of GPU, as Ray names it; "" for any.
    """

    gpus: float = 0.0
    tpus: int = 0
    accelerator: str = ""

    @property
    def options(self) -> Mapping[str, Any]:
        if not (self.gpus or self.tpus):
            return {"num_cpus": 1}
        # A device does not wait for a processor that others keep busy.
        named = {"accelerator_type": self.accelerator} if self.accelerator else {}
        return {
            "num_cpus": 0,
            "num_gpus": self.gpus,
            **({"resources": {"TPU": self.tpus}} if self.tpus else {}),
            **named,
        }


@dataclass(frozen=True, slots=True)
class Work:
    """An item to run, and the lines of the records that it has: these cases are not run again."""

    task: Task
    records: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Began:
    """An item begins.

    Attributes:
      item: its name.
      node, host: where.
    """

    item: str
    node: str
    host: str


@dataclass(frozen=True, slots=True)
class News:
    """What an item that is running has written since it was last told of.

    Attributes:
      item: its name.
      files: content by name within the run's folder; those that a line names come with it or before it.
      records, smallest: lines.
      doing: what its process is about, where that changed.
    """

    item: str
    files: Mapping[str, bytes]
    records: tuple[bytes, ...]
    smallest: tuple[bytes, ...]
    doing: Doing | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """An item ended.

    Attributes:
      item: its name.
      ended: how; None where it could not be run.
      said: what its process wrote.
      seconds: that it took.
      why_not: why it could not be run.
    """

    item: str
    ended: Ended | None
    said: str = ""
    seconds: float = 0.0
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """A job whose node or worker process died before it ended.

    Attributes:
      node: whether the whole node died.
      words: what Ray says of it, in a line.
    """

    node: bool
    words: str


@dataclass(frozen=True, slots=True)
class Over:
    """A job that has sent all it had to send."""


Event = Began | News | Done
