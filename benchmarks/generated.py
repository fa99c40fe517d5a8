"""Runs generated kernels: `python -m benchmarks.generated --seeds 0:100 [--jobs N] [--minutes M]`.

The kernels of `tools.generate` are right by construction, so a finding is a bug of kerneltest, of Pallas or of the
generator. The ledger (by default `reports/generated/ledger.json`) has which seeds ran, with which versions, and
what was found. A finding that it knows is not printed, and one that is gone is. Exits with 1 if there is a new
finding. `--keep` adds the run to the ledger. `--coverage FILE` runs nothing: it writes how often the seeds' kernels
have each production, and with how many others.
"""

import argparse
import itertools
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np

import kerneltest as kt
from benchmarks.device_outputs import ROOT
from tools.generate.productions import PRODUCTIONS, generate_kernel

LEDGER = ROOT / "reports" / "generated" / "ledger.json"
BACKENDS = "interpret,interpret-tpu,interpret-mosaic-gpu,lower:sm_90,lower:gfx942,simulate:sm_90,simulate:gfx942"
SLOWEST = 5  # kernels whose times are printed


@dataclass(frozen=True, slots=True)
class SeedResult:
    """The result of running one seed's kernel.

    Attributes:
      seed, what, features: of the kernel.
      cases: number of cases.
      seconds: that they took.
      findings: one line for each backend and verdict: the first finding with them.
    """

    seed: int
    what: str
    features: tuple[str, ...]
    cases: int
    seconds: float
    findings: tuple[str, ...]

    @property
    def keys(self) -> list[str]:
        """The keys of its findings in the ledger: seed, backend and verdict."""
        return [f"{self.seed} {' '.join(line.split()[:2])}" for line in self.findings]


def run_seed(seed: int, only: str, backends: Sequence[str]) -> SeedResult:
    """Runs the kernel of a seed at depth quick."""
    warnings.filterwarnings("ignore")
    kernel, started = generate_kernel(seed, only), time.monotonic()
    features = tuple(sorted(kernel.features))
    try:
        result = kt.check(kernel.pairing(), backends=backends, depth="quick", minimize=0)
    except Exception as error:  # of the generator, or of kerneltest
        line = f"check {type(error).__name__}: {str(error).splitlines()[0]}"
        return SeedResult(seed, kernel.what, features, 0, time.monotonic() - started, (line,))
    records = [*(each.record for each in result.findings), *result.internal_errors]
    first: dict[tuple[str, str], str] = {}
    for each in records:
        message = each.message.splitlines()[0] if each.message else ""
        text = f"{each.backend} {each.verdict} in {each.family}, {each.signature}: {message}"
        first.setdefault((each.backend, str(each.verdict)), text)
    if not records and not result.ok and result.cases:  # some kernels are for none of the backends
        first["all", "nothing"] = "all nothing_compared"
    return SeedResult(seed, kernel.what, features, result.cases, time.monotonic() - started, tuple(first.values()))


def run_seeds(seeds: range, only: str, backends: Sequence[str], jobs: int, minutes: float) -> Iterator[SeedResult]:
    """Yields the result of each seed, as they end; no new one starts once the time is over."""
    end, waiting = time.monotonic() + 60 * minutes, iter(seeds)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=50) as pool:
        running: set[Future[SeedResult]] = set()
        for seed in waiting:
            running.add(pool.submit(run_seed, seed, only, backends))
            while len(running) >= 2 * jobs or (running and time.monotonic() > end):
                done = next(as_completed(running))
                running.remove(done)
                yield done.result()
            if time.monotonic() > end:
                return
        for done in as_completed(running):
            yield done.result()


def coverage(seeds: range) -> str:
    """Returns a page with each production of the seeds' kernels: how many have it, and how many others one meets."""
    kernels = [sorted(generate_kernel(seed).features) for seed in seeds]
    single = Counter(feature for features in kernels for feature in features)
    met = Counter(itertools.chain.from_iterable(set(itertools.permutations(features, 2)) for features in kernels))
    others = Counter(feature for feature, _ in met)
    chosen = {kind: [name for name in single if (name in PRODUCTIONS) == kind] for kind in (True, False)}
    lines = [
        "# Coverage of generated kernels", "",
        f"Made by `python -m benchmarks.generated --coverage`, of the seeds {seeds.start} to {seeds.stop - 1}:",
        f"{len(single)} productions, in {len(met) // 2} of {len(single) * (len(single) - 1) // 2} pairs. Many of the "
        "rest exclude each other,", "such as two dtypes of one array.",
    ]  # fmt: skip
    for kind, title in ((True, "shape of kernel"), (False, "production within it")):
        lines += ["", f"| {title} | kernels | other productions that it meets |", "| --- | ---: | ---: |"]
        lines += [f"| {name} | {single[name]} | {others[name]} |" for name in sorted(chosen[kind])]
    return "\n".join(lines) + "\n"


def update(ledger: dict[str, Any], results: Sequence[SeedResult], run: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Adds a run to a ledger, and returns the keys of its new findings and of those that are gone."""
    known: dict[str, str] = ledger.setdefault("findings", {})
    found = {key: line for each in results for key, line in zip(each.keys, each.findings, strict=True)}
    ran = {str(each.seed) for each in results}
    new = [key for key in found if key not in known]
    gone = [key for key in known if key.partition(" ")[0] in ran and key not in found]
    ledger.setdefault("runs", []).append(run)
    ledger["findings"] = {key: line for key, line in (known | found).items() if key not in gone}
    return new, gone


def main() -> int:
    """Runs the seeds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:60", help="FIRST:LAST, without the last")
    parser.add_argument("--only", default="", help="the name of a production")
    parser.add_argument("--backends", default=BACKENDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--ledger", type=Path, default=LEDGER, help="what earlier runs found")
    parser.add_argument("--keep", action="store_true", help="add the run to the ledger")
    parser.add_argument("--coverage", type=Path, help="write the coverage of the seeds there, and run nothing")
    options = parser.parse_args()
    started = time.monotonic()
    seeds = range(*map(int, options.seeds.split(":")))
    if options.coverage:
        options.coverage.parent.mkdir(parents=True, exist_ok=True)
        options.coverage.write_text(coverage(seeds), encoding="utf-8")
        return 0
    ledger = json.loads(options.ledger.read_text(encoding="utf-8")) if options.ledger.exists() else {}
    known, results = set(ledger.get("findings", ())), []
    for each in run_seeds(seeds, options.only, options.backends.split(","), options.jobs, options.minutes):
        results.append(each)
        for key, line in zip(each.keys, each.findings, strict=True):
            if key not in known:
                print(f"{each.seed} ({each.what}): {line}", flush=True)
    run = {
        "seeds": options.seeds, "kernels": len(results), "cases": sum(each.cases for each in results),
        "seconds": round(time.monotonic() - started), "jobs": options.jobs, "backends": options.backends,
        "jax": jax.__version__, "numpy": np.__version__, "with findings": sum(bool(each.findings) for each in results),
    }  # fmt: skip
    new, gone = update(ledger, results, run)
    if options.keep:
        options.ledger.parent.mkdir(parents=True, exist_ok=True)
        options.ledger.write_text(json.dumps(ledger, indent=1) + "\n", encoding="utf-8")
    slowest = sorted(results, key=lambda each: -each.seconds)[:SLOWEST]
    print("slowest:", ", ".join(f"{each.seed} ({each.what}) {each.seconds:.1f} s" for each in slowest))
    print(json.dumps(run))
    print(*(f"new: {key}" for key in new), *(f"gone: {key}" for key in gone), sep="\n")
    return int(bool(new))


if __name__ == "__main__":
    sys.exit(main())
