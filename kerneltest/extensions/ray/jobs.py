"""Which item is where: jobs are handed out, taken back from what died, and given up in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from kerneltest.core.verdicts import Verdict, worst
from kerneltest.extensions.ray.events import Began, Done, Event, Lost, Needs, News, Over, Work
from kerneltest.extensions.ray.record_log import Ledger
from kerneltest.pytest_plugin.worker import Ended, Task
from kerneltest.records.journal import Doing

MOST = 3  # nodes and workers that an item may lose, before the rest of its cases is left


@dataclass(slots=True)
class Job:
    """Items that run one after another on a node: of one pairing in one dtype, which share traces and the oracle.

    Attributes:
      tasks: of the items that have not ended, by name.
      needs: what it asks of its node.
      running: the item that runs; "" before the first.
      doing: what its process was about when it last said so.
      place: where it runs, in words.
    """

    tasks: dict[str, Task]
    needs: Needs
    running: str = ""
    doing: Doing | None = None
    place: str = ""


@dataclass(slots=True)
class Jobs:
    """All jobs of a run.

    Attributes:
      jobs: by number.
      ledger: takes the records in.
      submit: hands a job out.
      give_up: ends an item of which no more is run, with what its process was doing, and why.
      ended: how each item ended, by name.
      losses: nodes and workers that died, in words.
      served: how many items ended on each node, by its name in words.
    """

    jobs: Sequence[Job]
    ledger: Ledger
    submit: Callable[[int, Sequence[Work], Needs], None]
    give_up: Callable[[Task, Doing, str], Ended]
    ended: dict[str, Done] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    served: Counter[str] = field(default_factory=Counter)
    _deaths: Counter[str] = field(default_factory=Counter)  # by item
    _begun: set[str] = field(default_factory=set)

    def start(self) -> None:
        for number in range(len(self.jobs)):
            self._submit(number)

    def running(self) -> Iterable[str]:
        """The items that run now."""
        return [job.running for job in self.jobs if job.running]

    def take(self, number: int, event: Event | Lost | Over) -> None:
        """Takes in what a job sent, or how it ended.

        Raises:
          LedgerError: a node sent what no node sends.
        """
        job = self.jobs[number]
        match event:
            case Began():
                job.running, job.doing, job.place = event.item, None, f"{event.host} (node {event.node[:8]})"
                self._begun.add(event.item)
            case News():
                self.ledger.save(event.files)  # before the lines that name them
                for line in event.records:
                    self.ledger.add(line)
                self.ledger.add_smallest(event.smallest)
                job.doing = event.doing or job.doing
            case Done():
                self.served[job.place] += 1
                self._end(job, event)
            case Lost():
                self._lose(job, event)
                self._submit(number)
            case Over() if job.tasks:
                self._lose(job, Lost(False, "its job ended before all of its items had"))
                self._submit(number)

    def _end(self, job: Job, done: Done) -> None:
        job.tasks.pop(done.item, None)
        job.running, job.doing = "", None
        told = self.ledger.end(done.item)
        if told and done.ended is not None:  # of which its node knows nothing
            verdict = worst([Verdict.NONDETERMINISTIC, *(each for each in Verdict if each == done.ended.verdict)])
            message = "\n".join([*told, *([done.ended.message] if done.ended.message else [])])
            done = replace(done, ended=replace(done.ended, verdict=str(verdict), headline=told[0], message=message))
        self.ended[done.item] = done

    def _lose(self, job: Job, lost: Lost) -> None:
        """Takes back what a job has not ended. A case that was running is not to blame: its own process is watched."""
        if not job.tasks:
            return
        item = job.running or next(iter(job.tasks))
        self._deaths[item] += 1
        what = f"{'the node' if lost.node else 'a worker'} of {item} was lost"
        place = f" on {job.place}" if job.place else ""
        others = len(job.tasks) - 1
        more = f", and {others} more item{'s' * (others > 1)} with it" if others else ""
        again = self._deaths[item] < MOST
        self.losses.append(f"{what}{place}: {lost.words}; it {'goes on elsewhere' if again else 'is given up'}{more}")
        doing = job.doing or Doing(item)
        job.running, job.place = "", ""
        if not again:
            words = f"{MOST} nodes or workers were lost while it ran: {lost.words}"
            self._end(job, Done(item, self.give_up(job.tasks[item], doing, words)))

    def _submit(self, number: int) -> None:
        job = self.jobs[number]
        works = []
        for name, task in job.tasks.items():
            lines = self.ledger.of(name)
            works.append(Work(replace(task, again=task.again or name in self._begun or bool(lines)), lines))
        if works:
            self.submit(number, works, job.needs)
