"""Changes one thing in each generated kernel, and counts the changes that its pairing finds.

    python -m benchmarks.generated_mutants --seeds 0:1000 [--jobs N] [--depth quick] [--minutes M]

Each seed of `tools.generate` gives a kernel, its oracle and its pairing. One of its mutants, chosen by the seed,
is judged as `kerneltest mutate` does. Survivors are printed with their change; the last lines count how the mutants
end, by operator.
"""

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import jax

from kerneltest.extensions.mutation.judging import (
    BACKENDS,
    MutationSession,
    Trial,
    TrialEnd,
    UnfitPairingError,
    plan_items,
)
from kerneltest.extensions.mutation.operators import OPERATORS
from tools.generate.productions import generate_kernel

_TOLD = frozenset({TrialEnd.SURVIVED, TrialEnd.UNDECIDED})
_PLENTY = 30  # seeds for each process, which then ends: what it has compiled fills its memory


def try_one(seed: int, depth: str) -> tuple[int, str, Trial | None]:
    """Returns a seed, what its kernel is, and the end of one of its mutants; None for a kernel without mutants."""
    warnings.filterwarnings("ignore")
    kernel = generate_kernel(seed)
    try:
        session = MutationSession(plan_items(kernel.pairing(), str(seed), BACKENDS, depth))
    except UnfitPairingError:
        return seed, kernel.what, None
    mutants = session.mutants(OPERATORS.entries())
    return seed, kernel.what, session.judge(random.Random(seed).choice(mutants)) if mutants else None


def table(trials: Iterable[Trial]) -> Iterator[str]:
    """Yields the rows of a Markdown table: how the mutants of each operator end."""
    ends = Counter((trial.mutant.operator, trial.end) for trial in trials)
    yield f"| operator | {' | '.join(map(str, TrialEnd))} |"
    yield f"| --- |{' ---: |' * len(TrialEnd)}"
    for operator in sorted({name for name, _ in ends}):
        yield f"| `{operator}` | {' | '.join(str(ends[operator, end]) for end in TrialEnd)} |"


def main() -> None:
    """Tries the mutants, and prints those that survive, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:60", help="FIRST:LAST, without the last")
    parser.add_argument("--depth", default="quick")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="start nothing after so many")
    options = parser.parse_args()
    seeds, started, trials, without = range(*map(int, options.seeds.split(":"))), time.monotonic(), [], 0
    for first in range(0, len(seeds), _PLENTY * options.jobs):
        if time.monotonic() - started > 60 * options.minutes:
            break
        some = seeds[first : first + _PLENTY * options.jobs]
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            for seed, what, trial in pool.map(partial(try_one, depth=options.depth), some):
                if trial is None:
                    without += 1
                    continue
                trials.append(trial)
                if trial.end in _TOLD:
                    change = f"{trial.mutant.place} {trial.mutant.phrase} ({trial.mutant.operator}): {trial.note}"
                    print(f"{seed} ({what}) {trial.end}: {change}", flush=True)
    print("\n".join(table(trials)))
    ends = Counter(trial.end for trial in trials)
    killed, survived = ends[TrialEnd.KILLED], ends[TrialEnd.SURVIVED]
    share = f", {killed / (killed + survived):.1%}" if killed else ""
    print(
        f"JAX {jax.__version__}, {options.depth}: {killed} of {killed + survived} mutants found{share}; "
        + ", ".join(f"{ends[end]} {end}" for end in TrialEnd)
        + f"; {without} kernels without; {time.monotonic() - started:.0f} s by {options.jobs} processes"
    )
    sys.exit(not killed)


if __name__ == "__main__":
    main()
