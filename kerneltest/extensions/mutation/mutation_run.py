"""A run of `kerneltest mutate`: the pairings of test files one after another, with progress and results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.mutation.advice import advise
from kerneltest.extensions.mutation.judging import UnfitPairingError
from kerneltest.extensions.mutation.mutation_text import format_result, result_as_data
from kerneltest.extensions.mutation.mutation_workers import MutationPool, Task
from kerneltest.extensions.mutation.score import count_disregarded, count_ends
from kerneltest.extensions.mutation.trial import Trial, TrialEnd
from kerneltest.records.strict_json import dumps
from kerneltest.start.command_progress import CommandProgress


@dataclass(slots=True)
class MutationRun:
    """The options of a run, and its results so far.

    Attributes:
      backends, depth, operators: as for `Task`.
      pool: the processes that judge.
      with_advice: whether to look for declarations that find survivors.
      lists_all: whether to list all mutants rather than survivors.
      json: a file for the results, written after each pairing; None for none.
      results: those of the pairings so far.
    """

    backends: str
    depth: str
    operators: tuple[str, ...]
    pool: MutationPool
    with_advice: bool
    lists_all: bool
    json: Path | None
    results: list[dict[str, Any]] = field(default_factory=list)

    def judge_pairings(self, pairings: Mapping[str, Pairing]) -> Sequence[float | None]:
        """Judges pairings, by node id, and prints the results.

        Returns:
          Their scores; None for one without mutants.
        """
        scores = []
        for pairing_id, pairing in pairings.items():
            file, _, name = pairing_id.partition("::")
            task = Task(Path(file), name, self.backends, self.depth, self.operators)
            self.results.append(self._judge(task, pairing))
            scores.append(self.results[-1]["score"])
            if self.json is not None:
                self.json.write_text(dumps(self.results) + "\n", encoding="utf-8")
        return scores

    def _judge(self, task: Task, pairing: Pairing) -> dict[str, Any]:
        progress = CommandProgress()
        progress.show(f"{task.pairing_id}: making mutants")
        try:
            mutants = self.pool.open(task, pairing)
        except UnfitPairingError as error:
            progress.clear()
            print(f"{task.pairing_id}: no mutants: {error}")
            return {"pairing": task.pairing_id, "score": None, "problem": str(error)}
        found: dict[int, Trial] = {}
        for number, trial in self.pool.judge(task, mutants):
            found[number] = trial
            done = f"{len(found)} of {len(mutants)} mutants"
            progress.show(f"{task.pairing_id}: {done}, {count_ends(list(found.values()))}")
        trials = [found[number] for number in sorted(found)]
        # Equivalent mutants are equal only for declared inputs.
        left = (TrialEnd.SURVIVED, TrialEnd.UNDECIDED, TrialEnd.EQUIVALENT)
        survivors = [trial.mutant for trial in trials if trial.end in left]
        advice = []
        if self.with_advice and count_ends(trials).survived:
            advice = advise(pairing, task.pairing_id, task.depth, survivors, progress.show)
        progress.clear()
        if count := count_disregarded(trials):
            print(f"{task.pairing_id}: {count} cases have a finding in the unchanged kernel; they judge no mutants")
        print("\n".join(format_result(task.pairing_id, trials, advice, all_of_them=self.lists_all)), flush=True)
        return result_as_data(task.pairing_id, trials, advice)
