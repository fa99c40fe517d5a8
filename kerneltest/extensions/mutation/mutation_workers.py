"""Judges the mutants of a pairing in processes of their own, each with its own session."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Self

from kerneltest.declare.discovery import iter_pairings
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.mutation.judging import MutationSession, plan_items
from kerneltest.extensions.mutation.kernel_mutants import KernelMutant
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.extensions.mutation.trial import Trial
from kerneltest.reproduce.suite_import import SuiteImportError, import_suite

_CHUNK = 4  # mutants for a process at once


@dataclass(frozen=True, slots=True)
class Task:
    """A pairing whose mutants are to be judged.

    Attributes:
      suite: the test file of the pairing.
      name: the pairing's name there.
      backends, depth: of the session.
      operators: names of the operators; () for all.
    """

    suite: Path
    name: str
    backends: str
    depth: str
    operators: tuple[str, ...] = ()

    @property
    def pairing_id(self) -> str:
        """The pairing's node id."""
        return f"{self.suite}::{self.name}"


def import_pairings(suite: Path) -> dict[str, Pairing]:
    """Returns the pairings of a test file by name.

    Raises:
      SuiteImportError: it cannot be imported.
    """
    module = import_suite(suite.resolve())
    found = (pair for name, value in vars(module).items() for pair in iter_pairings(name, value))
    return {name: pairing for name, pairing in found if pairing.module == module.__name__}


def find_pairings(place: str) -> dict[str, Pairing]:
    """Returns the pairings of a test file, or the one that `FILE::NAME` names, by node id.

    Raises:
      SuiteImportError: the file cannot be imported.
      ValueError: it has no pairing of that name, or none at all.
    """
    file, _, name = place.partition("::")
    try:
        pairings = import_pairings(Path(file))
    except SuiteImportError as error:
        raise SuiteImportError(f"{file}: {error}") from error
    if not pairings or name not in ("", *pairings):
        raise ValueError(f"{file} has no pairing {name}".rstrip() + f"; it has {', '.join(pairings) or 'none'}")
    return {f"{file}::{each}": pairings[each] for each in ([name] if name else pairings)}


def open_session(task: Task, pairing: Pairing) -> tuple[MutationSession, list[KernelMutant]]:
    """Returns the session of a task, and its mutants.

    Raises:
      UnfitPairingError: as `plan_items` does.
    """
    session = MutationSession(plan_items(pairing, task.pairing_id, task.backends, task.depth))
    operators = [each for each in OPERATORS.entries() if not task.operators or each.name in task.operators]
    return session, session.mutants(operators)


_SESSIONS: dict[Task, tuple[MutationSession, list[KernelMutant]]] = {}  # of a worker


def _judge(task: Task, numbers: Sequence[int]) -> list[tuple[int, Trial]]:
    if task not in _SESSIONS:
        _SESSIONS.clear()
        _SESSIONS[task] = open_session(task, import_pairings(task.suite)[task.name])
    session, mutants = _SESSIONS[task]
    return [(number, session.judge(mutants[number])) for number in numbers]


class MutationPool:
    """Processes that judge mutants beside this one, and are kept from one pairing to the next."""

    def __init__(self, jobs: int) -> None:
        """Prepares for `jobs` processes, of which this one is the first."""
        self._others = jobs - 1
        self._pool = ProcessPoolExecutor(self._others, mp_context=get_context("spawn")) if self._others else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def judge(
        self, task: Task, session: MutationSession, mutants: Sequence[KernelMutant]
    ) -> Iterator[tuple[int, Trial]]:
        """Yields the number of each mutant with its trial, as they end.

        This process judges one after another from the first on, the others a few at a time from the last on.

        Args:
          task: the task of the mutants.
          session: of this process.
          mutants: all mutants of the task.
        """
        left = deque(range(len(mutants)))
        asked: set[Future[list[tuple[int, Trial]]]] = set()
        while left or asked:
            while self._pool is not None and len(asked) < self._others and len(left) > _CHUNK:
                asked.add(self._pool.submit(_judge, task, [left.pop() for _ in range(_CHUNK)]))
            if left:
                number = left.popleft()
                yield number, session.judge(mutants[number])
            ended, asked = wait(asked, timeout=0 if left else None, return_when=FIRST_COMPLETED)
            for future in ended:
                yield from future.result()
