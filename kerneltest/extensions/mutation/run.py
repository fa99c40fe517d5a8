"""A run of `kerneltest mutate`: the pairings of test files one after another, with progress and results."""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from kerneltest.core.children import Answer, Child, ChildEndedError, Children
from kerneltest.core.failures import UnusableInputError
from kerneltest.core.ids import PairingId
from kerneltest.core.media import for_terminal, lines_for_terminal
from kerneltest.declare.discovery import iter_pairings
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.watchdog import limit_time
from kerneltest.extensions.mutation.judging import MutationSession, Trial, TrialEnd, UnfitPairingError, plan_items
from kerneltest.extensions.mutation.mutants import KernelMutant
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.extensions.mutation.results import advise, count_disregarded, count_ends, format_result, result_as_data
from kerneltest.records.journal import Journal
from kerneltest.reproduce.rerun import SuiteImportError, import_suite
from kerneltest.start.command_progress import CommandProgress

# Judges the mutants of a pairing in processes of their own, each with its own session.

_CHUNK = 4  # mutants for a process at once
_ENDED = "it ended the process in which it ran"
_KILLED = "its process was killed, perhaps because memory ran out"


@dataclass(frozen=True, slots=True)
class Task:
    """A pairing whose mutants are to be judged."""

    backends: str
    depth: str
    suite: Path = Path()  # the test file of the pairing
    name: str = ""  # the pairing's name there
    operators: tuple[str, ...] = ()  # names of the operators; () for all
    timeout: int = 0  # seconds that a step of a case may take; 0 for no limit

    @property
    def pairing_id(self) -> str:
        return str(PairingId(str(self.suite), self.name))


def import_pairings(suite: Path) -> dict[str, Pairing]:
    """Returns the pairings of a test file by name; raises a SuiteImportError if it cannot be imported."""
    module = import_suite(suite.resolve())
    found = (pair for name, value in vars(module).items() for pair in iter_pairings(name, value))
    return {name: pairing for name, pairing in found if pairing.module == module.__name__}


def find_pairings(place: str) -> dict[str, Pairing]:
    """Returns the pairings of a file, or that of `FILE::NAME`, by node id.

    Raises a SuiteImportError if the file cannot be imported, an UnusableInputError if it has no such pairing.
    """
    chosen = PairingId.parse(place)
    try:
        pairings = import_pairings(Path(chosen.file))
    except SuiteImportError as error:
        raise SuiteImportError(f"{chosen.file}: {error}") from error
    if not pairings or chosen.name not in ("", *pairings):
        lacking = f"{chosen.file} has no pairing {chosen.name}".rstrip()
        raise UnusableInputError(f"{lacking}; it has {', '.join(pairings) or 'none'}")
    return {str(replace(chosen, name=name)): pairings[name] for name in ([chosen.name] if chosen.name else pairings)}


def open_session(task: Task, pairing: Pairing, journal: Journal) -> tuple[MutationSession, list[KernelMutant]]:
    """Returns the session of a task and its mutants; a journal notes evaluations. Raises as `plan_items` does."""
    items = plan_items(pairing, task.pairing_id, task.backends, task.depth, journal)
    session = MutationSession(items, journal=journal)
    operators = [entry for entry in OPERATORS.entries() if not task.operators or entry.name in task.operators]
    return session, session.mutants(operators)


_TASK, _TRIALS, _MUTANTS = TypeAdapter(Task), TypeAdapter(list[Trial]), TypeAdapter(list[KernelMutant])


def _serve() -> Callable[[dict[str, Any]], dict[str, Any]]:
    sessions: dict[Task, tuple[MutationSession, list[KernelMutant]]] = {}  # the latest
    journal = Journal()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        task = _TASK.validate_python(request["task"])
        with limit_time(journal, task.timeout):
            if task not in sessions:
                sessions.clear()
                try:
                    sessions[task] = open_session(task, import_pairings(task.suite)[task.name], journal)
                except UnfitPairingError as error:
                    return {"unfit": str(error)}
            session, mutants = sessions[task]
            if "numbers" in request:
                trials = [session.judge(mutants[number]) for number in request["numbers"]]
                return {"trials": _TRIALS.dump_python(trials, mode="json")}
            if request.get("runs_kernel"):
                session.run_kernel()
            return {"mutants": _MUTANTS.dump_python(mutants, mode="json")}

    return answer


class MutationPool:
    """Worker processes that judge mutants, kept from one pairing to the next. With a single job, this process does."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._children = Children(lambda: Child(_serve, "the process", "spawn")) if jobs > 1 else None
        self._threads = ThreadPoolExecutor(jobs)
        self._session: MutationSession | None = None  # of this process
        self._journal = Journal()  # of this process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._children is not None:
            self._children.close()

    def open(self, task: Task, pairing: Pairing) -> Sequence[KernelMutant]:
        """Returns the mutants of a pairing; raises an UnfitPairingError, also if the kernel ends the process."""
        if self._children is None:
            with limit_time(self._journal, task.timeout):
                self._session, mutants = open_session(task, pairing, self._journal)
            return mutants
        opened = [self._ask(task) for _ in range(self._jobs)]
        try:
            answer = opened[0].result()
        except ChildEndedError as ended:
            raise UnfitPairingError(f"the kernel itself ends its process ({ended.cause})") from ended
        if "unfit" in answer:
            raise UnfitPairingError(answer["unfit"])
        return _MUTANTS.validate_python(answer["mutants"])

    def _ask(self, task: Task, **request: Any) -> Future[Answer]:
        assert self._children is not None
        return self._threads.submit(self._children.ask, {"task": _TASK.dump_python(task, mode="json"), **request})

    def judge(self, task: Task, mutants: Sequence[KernelMutant]) -> Iterator[tuple[int, Trial]]:
        """Yields the number of each mutant with its trial, as they end."""
        if self._children is None:
            assert self._session is not None
            for number, mutant in enumerate(mutants):
                with limit_time(self._journal, task.timeout):
                    trial = self._session.judge(mutant)
                yield number, trial
            return
        numbers = range(len(mutants))
        chunks = [list(numbers[start : start + _CHUNK]) for start in numbers[::_CHUNK]]
        chunk_of = {self._ask(task, numbers=chunk): chunk for chunk in chunks}
        kernel_problem: str | None = None  # None until the unchanged kernel has run
        while chunk_of:
            for future in as_completed(list(chunk_of)):
                chunk = chunk_of.pop(future)
                try:
                    yield from zip(chunk, _TRIALS.validate_python(future.result()["trials"]), strict=True)
                except ChildEndedError as ended:  # one of them ended it: judge each by itself
                    if len(chunk) > 1:
                        chunk_of |= {self._ask(task, numbers=[number]): [number] for number in chunk}
                        continue
                    if kernel_problem is None:
                        kernel_problem = self._find_kernel_problem(task)
                    was_killed = ended.status == -signal.SIGKILL
                    note = kernel_problem or (_KILLED if was_killed else "")
                    end = TrialEnd.INVALID if note else TrialEnd.KILLED
                    yield chunk[0], Trial(mutants[chunk[0]], end, note=note or _ENDED)

    def _find_kernel_problem(self, task: Task) -> str:
        try:
            self._ask(task, runs_kernel=True).result()
        except ChildEndedError:
            return "the kernel itself ends the process in which it runs"
        return ""


def judge_pairing(
    task: Task, pairing: Pairing, pool: MutationPool, *, with_advice: bool, lists_all: bool
) -> dict[str, Any]:
    """Judges a pairing, prints the result, and returns it as data; its score is None without mutants."""
    progress = CommandProgress()
    progress.show(f"{task.pairing_id}: making mutants")
    try:
        mutants = pool.open(task, pairing)
    except UnfitPairingError as error:
        progress.clear()
        print(lines_for_terminal(f"{task.pairing_id}: no mutants: {error}"))
        return {"pairing": task.pairing_id, "score": None, "problem": str(error)}
    found: dict[int, Trial] = {}
    for number, trial in pool.judge(task, mutants):
        found[number] = trial
        done = f"{len(found)} of {len(mutants)} mutants"
        progress.show(f"{task.pairing_id}: {done}, {count_ends(list(found.values()))}")
    trials = [found[number] for number in sorted(found)]
    # Equivalent mutants are equal only for declared inputs.
    left = (TrialEnd.SURVIVED, TrialEnd.UNDECIDED, TrialEnd.EQUIVALENT)
    survivors = [trial.mutant for trial in trials if trial.end in left]
    advice = []
    if with_advice and count_ends(trials).survived:
        with limit_time(journal := Journal(), task.timeout):
            advice = advise(pairing, task.pairing_id, task.depth, survivors, progress.show, journal)
    progress.clear()
    if count := count_disregarded(trials):
        left_out = "cases have a finding in the unchanged kernel; they judge no mutants"
        print(for_terminal(f"{task.pairing_id}: {count} {left_out}"))
    print(lines_for_terminal("\n".join(format_result(task.pairing_id, trials, advice, lists_all))), flush=True)
    return result_as_data(task.pairing_id, trials, advice)
