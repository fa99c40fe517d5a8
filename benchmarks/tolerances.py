"""What tolerances say of right and of broken kernels: `python benchmarks/tolerances.py [--seeds N] [WHAT ...]`.

WHAT is `right` (every pairing that is not bit for bit, by `rounding` and, beside it, by `conditioned`; how often each
accuses it, and how much of its bound is used at most) or `twins` (every variant of tests/corpus; whether
`rounding` finds it), by default both. No pairing's own `tolerance=` is used.

`--backends` are asked of right kernels (default `interpret`), `--twins-on` of broken ones. Results are kept in
reports/tolerances/results.json, which git ignores, and README.md beside it shows them. `--kept FILE ...` measures
nothing and makes the page of results that were kept: of several machines, or of several seeds.
"""

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.tolerances_report import markdown

FOLDER = Path(__file__).parent.parent / "reports" / "tolerances"


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
      cases, findings: how many, those aside that a declared xfail expects or that could not be run.
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
    from tests.corpus import VARIANTS

    model = kt.tolerance.rounding() if task.model == "rounding" else kt.tolerance.conditioned()
    if task.what == "twins":
        (variant,) = (v for v in VARIANTS if v.name == task.name)
        return replace(variant.broken(), tolerance=model, xfail=())
    return replace(dict(pairings())[task.name], tolerance=model)


def perform(task: Task) -> list[Result]:
    """A task, in this process."""
    import kerneltest as kt
    import kerneltest.execute.expectations as expectations
    from kerneltest.core.verdicts import Verdict
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

    methods = "all_bounds", "shares"
    original = [expectations.expect, *(getattr(Expectation, name) for name in methods)]
    expectations.expect = timed(expectations.expect)
    for name in methods:
        setattr(Expectation, name, timed(getattr(Expectation, name)))
    start = time.process_time()
    try:
        run = kt.check(_pairing(task), backends=list(task.backends), depth=task.depth, seed=task.seed, minimize=0)
    finally:
        expectations.expect = original[0]
        for name, method in zip(methods, original[1:], strict=True):
            setattr(Expectation, name, method)
    seconds = time.process_time() - start
    results = []
    for backend in task.backends:
        aside = (Verdict.XFAIL, Verdict.UNAVAILABLE)
        records = [r for r in run.records if r.backend == backend and r.case and r.verdict not in aside]
        findings = [f for f in run.findings if f.backend == backend]
        most = max(records, key=lambda r: r.bound_fraction or 0.0, default=None)
        results.append(
            Result(
                task,
                backend,
                len(records),
                len(findings),
                (most.bound_fraction or 0.0) if most else 0.0,
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
    from kerneltest.declare.error_models import Exact
    from tests.corpus import VARIANTS

    known = dict(pairings())
    names = [name for name, p in known.items() if not isinstance(p.tolerance, Exact) and only in name]
    if "right" in what:
        for seed in seeds:
            for name in names:
                for model in models:
                    yield Task("right", name, model, tuple(backends), depth, seed)
    if "twins" in what:
        for variant in VARIANTS:
            if only in variant.name and not isinstance(known[variant.edit.pairing].tolerance, Exact):
                yield Task("twins", variant.name, "rounding", tuple(twins_on), "quick", 0)


def _started(platforms: str) -> None:
    if platforms:
        os.environ["JAX_PLATFORMS"] = platforms
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads that wait for each other would count as the oracle's


def facts() -> dict[str, str]:
    """With what this process measures, and where."""
    import jax
    import numpy

    return {
        "Python": platform.python_version(),
        "JAX": jax.__version__,
        "NumPy": numpy.__version__,
        "processors": str(os.cpu_count()),
        "machine": platform.machine(),
        "devices": ", ".join(sorted({device.device_kind for device in jax.devices()})),
    }


def measured(asked: Sequence[Task], platforms: str, processes: int, seconds: float) -> dict[str, Any]:
    """What comes of tasks, as JSON has it; none is started after so many seconds."""
    start, results = time.monotonic(), []
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _started, (platforms,)) as pool:
        environment = pool.submit(facts).result()
        waiting = [pool.submit(perform, task) for task in asked]
        for future in as_completed(waiting):
            if time.monotonic() - start > seconds:
                for each in waiting:
                    each.cancel()
            if future.cancelled():
                continue
            try:
                results += future.result()
            except Exception as error:
                print(f"{asked[waiting.index(future)]}: {type(error).__name__}: {error}", file=sys.stderr)
    if left := sum(future.cancelled() for future in waiting):
        print(f"{left} of {len(asked)} runs were not started", file=sys.stderr)
    took = time.monotonic() - start
    return {"environment": environment, "took": took, "results": [asdict(result) for result in results]}


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
    parser.add_argument("--out", type=Path, default=FOLDER / "results.json", help="README.md is written beside it")
    parser.add_argument("--kept", type=Path, nargs="+", default=[], metavar="FILE", help="results to make the page of")
    given = parser.parse_args()
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in given.kept]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    if not kept:
        seeds = range(given.first_seed, given.first_seed + given.seeds)
        backends, on = given.backends.split(","), given.twins_on.split(",")
        asked = list(tasks(given.what, seeds, given.depth, backends, on, given.models.split(","), given.only))
        platforms = "" if "cuda" in (*backends, *on) else "cpu"
        kept = [measured(asked, platforms, given.processes, given.seconds)]
        given.out.write_text(json.dumps(kept[0], indent=1) + "\n", encoding="utf-8")
    page = markdown(kept)
    given.out.with_name("README.md").write_text(page, encoding="utf-8")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
