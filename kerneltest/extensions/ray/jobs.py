"""Tracks which item runs where: submits jobs, resubmits what died, and abandons what keeps dying."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from kerneltest.core.verdicts import Verdict, worst
from kerneltest.extensions.ray.node_messages import (
    ItemDone,
    ItemProgress,
    ItemStarted,
    JobLost,
    JobOver,
    NodeEvent,
    QueuedItem,
    Resources,
)
from kerneltest.extensions.ray.record_log import RecordLog
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult
from kerneltest.records.journal import Activity

MAX_LOSSES = 3  # of nodes and workers while an item runs, before the rest of its cases is abandoned


@dataclass(slots=True)
class ClusterJob:
    """Items that run one after another on a node: of one pairing in one dtype, which share traces and expectations.

    Attributes:
      requests: of the items that have not ended, by name.
      needs: from its node.
      running: the running item; "" before the first.
      activity: what its process was doing according to its last message.
      location: host and node; "" before it runs.
    """

    requests: dict[str, ItemRequest]
    needs: Resources
    running: str = ""
    activity: Activity | None = None
    location: str = ""


@dataclass(slots=True)
class JobTable:
    """All jobs of a run.

    Attributes:
      jobs: by number.
      log: receives the records.
      submit: submits a job.
      abandon: ends an item that keeps dying: its request, what its process was doing, and the reason.
      ended: the items that have ended, by name.
      losses: descriptions of nodes and workers that died.
      served: number of items that ended on each node.
    """

    jobs: Sequence[ClusterJob]
    log: RecordLog
    submit: Callable[[int, Sequence[QueuedItem], Resources], None]
    abandon: Callable[[ItemRequest, Activity, str], ItemResult]
    ended: dict[str, ItemDone] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    served: Counter[str] = field(default_factory=Counter)
    _losses_of: Counter[str] = field(default_factory=Counter)  # by item
    _begun: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Submits all jobs."""
        for number in range(len(self.jobs)):
            self._submit(number)

    def running(self) -> Iterable[str]:
        """Returns the running items."""
        return [job.running for job in self.jobs if job.running]

    def handle(self, number: int, event: NodeEvent | JobLost | JobOver) -> None:
        """Handles a message of a job, or its end.

        Raises:
          RecordLogError: a node sent something invalid.
        """
        job = self.jobs[number]
        match event:
            case ItemStarted():
                job.running, job.activity, job.location = event.item, None, f"{event.host} (node {event.node[:8]})"
                self._begun.add(event.item)
            case ItemProgress():
                self.log.save(event.files)  # before the lines that name them
                for line in event.records:
                    self.log.add(line)
                self.log.add_smallest(event.smallest)
                job.activity = event.activity or job.activity
            case ItemDone():
                self.served[job.location] += 1
                self._end_item(job, event)
            case JobLost():
                self._lose(job, event)
                self._submit(number)
            case JobOver() if job.requests:
                self._lose(job, JobLost(False, "its job ended before all of its items had"))
                self._submit(number)

    def _end_item(self, job: ClusterJob, done: ItemDone) -> None:
        job.requests.pop(done.item, None)
        job.running, job.activity = "", None
        contradictions = self.log.end(done.item)
        if contradictions and done.result is not None:  # which the node cannot know
            verdict = worst([Verdict.NONDETERMINISTIC, *(each for each in Verdict if each == done.result.verdict)])
            message = "\n".join([*contradictions, *([done.result.message] if done.result.message else [])])
            result = replace(done.result, verdict=str(verdict), headline=contradictions[0], message=message)
            done = replace(done, result=result)
        self.ended[done.item] = done

    def _lose(self, job: ClusterJob, lost: JobLost) -> None:
        """Takes back the items of a job that have not ended.

        The running case is not to blame: it runs in a process of its own, which its node supervises.
        """
        if not job.requests:
            return
        item = job.running or next(iter(job.requests))
        self._losses_of[item] += 1
        continues = self._losses_of[item] < MAX_LOSSES
        subject = "the node" if lost.node else "a worker"
        location = f" on {job.location}" if job.location else ""
        others = len(job.requests) - 1
        more = f", with {others} more item{'s' * (others > 1)}" if others else ""
        outcome = "continues elsewhere" if continues else "is abandoned"
        self.losses.append(f"{subject} that ran {item} was lost{location}: {lost.reason}; the item {outcome}{more}")
        activity = job.activity or Activity(item)
        job.running, job.location = "", ""
        if not continues:
            reason = f"{MAX_LOSSES} nodes or workers were lost while running it: {lost.reason}"
            self._end_item(job, ItemDone(item, self.abandon(job.requests[item], activity, reason)))

    def _submit(self, number: int) -> None:
        job = self.jobs[number]
        items = []
        for name, request in job.requests.items():
            lines = self.log.lines_of(name)
            is_retry = request.is_retry or name in self._begun or bool(lines)
            items.append(QueuedItem(replace(request, is_retry=is_retry), lines))
        if items:
            self.submit(number, items, job.needs)
