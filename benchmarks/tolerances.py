"""What the default error model says of right and of broken kernels: `python benchmarks/tolerances.py [--seeds N] [WHAT ...]`.

WHAT is `right` (every pairing that is not bit for bit, by `rounding` and, beside it, by `conditioned`; how often each
accuses it, and how much of its bound is used at most) or `twins` (every broken kernel of benchmarks/variants; whether
`rounding` finds it), by default both. No pairing's own `tolerance=` is used.

`--backends` are asked of right kernels (default `interpret`), `--twins-on` of broken ones. Results are kept in
reports/tolerances/results.json, which git ignores, and README.md beside it shows all that are kept.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from typing import Any

FOLDER = "reports/tolerances"


@dataclass(frozen=True, slots=True)
class Task:
    """A run of one kernel.

    Attributes:
      what: `right` or `twins`.
      name: of the pairing, `suite.name`, or of the variant.
      model: `rounding` or `conditioned`.
      backends: on which it is run.
      depth, seed: of the run.
    """

    what: str
    name: str
    model: str
    backends: tuple[str, ...]
    depth: str
    seed: int


@dataclass(frozen=True, slots=True)
class Result:
    """What came out of it, on one backend.

    Attributes:
      task: as it was asked.
      backend: on which.
      cases, findings: how many.
      used: the largest error / bound of a case, and its family.
      empty: cases that compared nothing.
      seconds, oracle: processor time of the whole run, and the part of it that the oracle took.
      messages: of some findings, with family and signature.
      notes: what of the oracle was not followed.
    """

    task: Task
    backend: str
    cases: int
    findings: int
    used: float
    family: str
    empty: int
    seconds: float
    oracle: float
    messages: tuple[str, ...]
    notes: tuple[str, ...]


def _pairing(task: Task) -> Any:
    import kerneltest as kt
    from benchmarks.device_outputs import pairings
    from benchmarks.variants import VARIANTS

    model = kt.tolerance.rounding() if task.model == "rounding" else kt.tolerance.conditioned()
    if task.what == "twins":
        (variant,) = (v for v in VARIANTS if v.name == task.name)
        return replace(variant.broken(), tolerance=model, xfail=())
    return replace(dict(pairings())[task.name], tolerance=model)


def perform(task: Task) -> list[Result]:
    """A task, in this process."""
    import kerneltest as kt
    import kerneltest.run.cache as cache
    from kerneltest.oracle.expectation import Expectation

    spent = [0.0]

    def timed(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[0] += time.process_time() - start

        return call

    original = cache.expect, Expectation.all_bounds
    cache.expect, Expectation.all_bounds = timed(cache.expect), timed(Expectation.all_bounds)  # type: ignore[method-assign]
    start = time.process_time()
    try:
        run = kt.check(_pairing(task), backends=list(task.backends), depth=task.depth, seed=task.seed, minimize=0)
    finally:
        cache.expect, Expectation.all_bounds = original  # type: ignore[method-assign]
    seconds = time.process_time() - start
    results = []
    for backend in task.backends:
        records = [r for r in run.records if r.backend == backend and r.case]
        findings = [f for f in run.findings if f.backend == backend]
        most = max(records, key=lambda r: r.used or 0.0, default=None)
        results.append(
            Result(
                task,
                backend,
                len(records),
                len(findings),
                (most.used or 0.0) if most else 0.0,
                most.family if most else "",
                sum(1 for r in records if r.verdict.value == "pass" and not r.compared),
                seconds,
                spent[0],
                tuple(f"{f.family} {f.signature}: {f.message}"[:300] for f in findings[:8]),
                tuple(sorted({r.tolerance for r in records if ": " in r.tolerance})),
            )
        )
    return results


def tasks(what: Sequence[str], seeds: Sequence[int], depth: str, backends: Sequence[str], twins_on: Sequence[str],
          models: Sequence[str], only: str) -> Iterator[Task]:  # fmt: skip
    """All that is asked for, the longest first."""
    from benchmarks.device_outputs import pairings
    from benchmarks.variants import VARIANTS
    from kerneltest.declare.closed_forms import Exact

    known = dict(pairings())
    names = [name for name, p in known.items() if not isinstance(p.tolerance, Exact) and only in name]
    if "right" in what:
        for seed in seeds:
            for name in names:
                for model in models:
                    yield Task("right", name, model, tuple(backends), depth, seed)
    if "twins" in what:
        for variant in VARIANTS:
            if only in variant.name and not isinstance(known[variant.pairing].tolerance, Exact):
                yield Task("twins", variant.name, "rounding", tuple(twins_on), "quick", 0)


def _started(platforms: str) -> None:
    if platforms:
        os.environ["JAX_PLATFORMS"] = platforms
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads that wait for each other would count as the oracle's


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["right", "twins"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--depth", default="quick")
    parser.add_argument("--backends", default="interpret")
    parser.add_argument("--twins-on", default="interpret")
    parser.add_argument("--models", default="rounding,conditioned")
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start nothing after so many")
    parser.add_argument("--out", default=f"{FOLDER}/results.json")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    backends, on = given.backends.split(","), given.twins_on.split(",")
    asked = list(tasks(given.what, seeds, given.depth, backends, on, given.models.split(","), given.only))
    start, results, left = time.monotonic(), [], 0
    with ProcessPoolExecutor(
        given.processes, multiprocessing.get_context("spawn"), _started, ("" if "cuda" in given.backends else "cpu",)
    ) as pool:
        waiting = [pool.submit(perform, task) for task in asked]
        for future in as_completed(waiting):
            if time.monotonic() - start > given.seconds:
                left += sum(each.cancel() for each in waiting)
            if future.cancelled():
                continue
            try:
                results += future.result()
            except Exception as error:
                print(f"{asked[waiting.index(future)]}: {type(error).__name__}: {error}", file=sys.stderr)
    os.makedirs(os.path.dirname(given.out), exist_ok=True)
    with open(given.out, "w") as file:
        json.dump([asdict(result) for result in results], file, indent=1)
    print("\n".join(summary([asdict(result) for result in results])))
    print(f"{len(asked)} runs, {left} not started, {time.monotonic() - start:.0f} s")
    return 0


def summary(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The results as lines."""
    rows: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for each in results:
        if each["task"]["what"] == "right":
            rows[each["task"]["name"], each["backend"]][each["task"]["model"]].append(each)
    for (name, backend), models in sorted(rows.items()):
        parts = []
        for model, several in sorted(models.items(), reverse=True):
            most = max(several, key=lambda e: e["used"])
            parts.append(
                f"{model}: {sum(e['findings'] for e in several)} of {sum(e['cases'] for e in several)} accused, at most "
                f"{most['used']:.3g} used ({most['family']}), {sum(e['empty'] for e in several)} empty, oracle "
                f"{100 * sum(e['oracle'] for e in several) / sum(e['seconds'] for e in several):.0f}%"
            )
        yield f"{name} {backend}: {'; '.join(parts)}"
        for each in models.get("rounding", ()):
            yield from (f"    {m}" for m in (*each["notes"], *each["messages"][:2]))
    twins = [each for each in results if each["task"]["what"] == "twins"]
    lost = [e for e in twins if not e["findings"]]
    if twins:
        yield f"twins: {len(twins) - len(lost)} of {len(twins)} found"
        yield from (f"    not found on {e['backend']}: {e['task']['name']} ({e['cases']} cases)" for e in lost)


if __name__ == "__main__":
    sys.exit(main())
