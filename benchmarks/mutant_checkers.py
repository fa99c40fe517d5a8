"""Counts the mutants that kerneltest finds, and those that two checks written by hand find.

    python -m benchmarks.mutant_checkers FILE[::NAME]... [--most 10] [--depth quick] [--jobs N]

The checks are those of `benchmarks.detection`: one call with a tutorial's tolerance, and a Hypothesis test of 100
examples. At most `--most` mutants of each kernel are tried, every n-th. All run in NumPy, not compiled.
Equivalent, undecided and invalid mutants do not count.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.checkers import Run, hypothesis, tutorial
from benchmarks.side_by_side import run_on_places
from kerneltest.backends.base import Artifact
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.mutation.judging import MutationSession, TrialEnd, UnfitPairingError, plan_items
from kerneltest.extensions.mutation.mutants import EvaluatedInterpret, KernelMutant, LocatedTraces, MutantTracer
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.extensions.mutation.run import find_pairings
from kerneltest.plan.signatures import Signature
from kerneltest.trace.tracing import Traced

_COUNTED = (TrialEnd.KILLED, TrialEnd.SURVIVED)
CHECKS = {"tutorial": tutorial, "Hypothesis": hypothesis}


@dataclass(frozen=True, slots=True)
class Compared:
    """The checks of one pairing's mutants.

    Attributes:
      name: of the pairing.
      mutants: those that count.
      found: how many of them each check finds.
      seconds: that each check took.
    """

    name: str
    mutants: int
    found: Counter[str]
    seconds: Counter[str]


def runner(originals: LocatedTraces, mutant: KernelMutant | None) -> Run:
    """Returns a function that runs a kernel, or one of its mutants, in NumPy."""
    tracer = MutantTracer(originals, mutant) if mutant is not None else originals

    def run(pairing: Pairing, signature: Signature, leaves: Sequence[Array]) -> tuple[Traced, Sequence[Array]]:
        traced = tracer.trace(pairing, signature, "")
        executable = EvaluatedInterpret("interpret").prepare(traced)
        assert not isinstance(executable, Artifact)
        try:
            return traced, executable.run(leaves)
        except Failure:
            raise
        except Exception as error:  # of the mutant: a hand-written test would fail with it
            raise Failure(Verdict.CRASH, str(error)) from error

    return run


def compare_checks(place: str, depth: str, most: int) -> list[Compared]:
    """Returns how many mutants of each pairing of a place each check finds."""
    compared = []
    for pairing_id, pairing in find_pairings(place).items():
        try:
            session = MutationSession(plan_items(pairing, pairing_id, "interpret", depth))
        except UnfitPairingError as error:
            print(f"{pairing_id}: no mutants: {error}", flush=True)
            continue
        originals = LocatedTraces()
        unfit = [name for name, check in CHECKS.items() if check(pairing, runner(originals, None)).finding]
        if unfit:
            print(f"{pairing_id}: left out, since its kernel fails: {', '.join(unfit)}", flush=True)
            continue
        mutants = session.mutants(OPERATORS.entries())
        found: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        counted = 0
        for mutant in mutants[:: max(1, len(mutants) // most)][:most]:
            started = time.perf_counter()
            trial = session.judge(mutant)
            if trial.end not in _COUNTED:
                continue
            counted += 1
            seconds["kerneltest"] += time.perf_counter() - started
            found["kerneltest"] += trial.end is TrialEnd.KILLED
            for name, check in CHECKS.items():
                result = check(pairing, runner(originals, mutant))
                seconds[name] += result.seconds
                found[name] += bool(result.finding)
        compared.append(Compared(pairing_id, counted, found, seconds))
        shown = ", ".join(f"{name} {count}" for name, count in found.items())
        print(f"{pairing_id}: of {counted} mutants: {shown}", flush=True)
    return compared


def main() -> None:
    """Runs the checks and prints a table."""
    rows = run_on_places(__doc__, 10, compare_checks)
    names = ("kerneltest", *CHECKS)
    print(f"| pairing | mutants | {' | '.join(names)} |\n| --- | ---: |{' ---: |' * len(names)}")
    total, spent = sum((row.found for row in rows), Counter()), sum((row.seconds for row in rows), Counter())
    count = sum(row.mutants for row in rows)
    for row in rows:
        print(f"| `{row.name}` | {row.mutants} | {' | '.join(str(row.found[name]) for name in names)} |")
    print(f"| all | {count} | {' | '.join(str(total[name]) for name in names)} |")
    print(f"| seconds | | {' | '.join(f'{spent[name]:.0f}' for name in names)} |")


if __name__ == "__main__":
    main()
