"""Every option of the pipelines on a Hopper GPU, many times over: `python benchmarks/pipelines.py FOLDER`.

Each signature of the pipelines' suites is compiled once and then run, in one process a pairing, on every family, round
after round, with other inputs in each: a buffer that is used again too early shows as the data of the run before. Some
cases are run twice and their bits compared. What must be refused is checked as well.
Where compute-sanitizer is on PATH, a sample of the signatures then runs under its synccheck and memcheck.

Writes `pipelines.json` and `pipelines.md`. Exits with 0 if nothing is found, 1 if anything is, 2 if there is no GPU.
"""

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from kerneltest.backends.base import Backend  # noqa: E402
from kerneltest.backends.registry import resolve  # noqa: E402
from kerneltest.declare.pairing import Pairing  # noqa: E402
from kerneltest.execute.cache import Cache  # noqa: E402
from kerneltest.execute.item import Item  # noqa: E402
from kerneltest.execute.planning import plan_pairing  # noqa: E402
from kerneltest.execute.runner import run_item  # noqa: E402
from kerneltest.execute.settings import RunSettings  # noqa: E402
from kerneltest.trace.jax_environment import jax_environment  # noqa: E402

SUITES = ("test_pipeline_copy", "test_pipeline_compute", "test_pipeline_specialized")
DEPTH = "standard"
TOOLS = ("synccheck", "memcheck")
FOUND = 9  # what compute-sanitizer is told to exit with when it has found something


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to write the summary")
    parser.add_argument("--rounds", type=int, default=20, help="how many times over, each with other inputs")
    parser.add_argument("--jobs", type=int, default=1, help="pairings side by side, each in a process of its own")
    parser.add_argument("--backend", default="cuda", help="another one, to try this script without a GPU")
    parser.add_argument("--no-sanitizer", action="store_true", help="leave compute-sanitizer out")
    parser.add_argument("--sanitize", default="", metavar="ONLY", help="part of the names of those that are sampled")
    parser.add_argument("--only", default="", help="part of the pairings' names")
    parser.add_argument("--sample", action="store_true", help="one case a signature, once: what the sanitizer runs")
    options = parser.parse_args()
    (backend,) = resolve([options.backend])
    reason = backend.unavailable()
    if reason:
        print(f"{backend.id} is not there: {reason}", file=sys.stderr)
        return 2
    if options.sample:
        return sampled(backend, options.only)
    started = time.perf_counter()
    names = [name for name, _ in pairings(options.only)]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        found = pool.map(repeated, names, repeat(options.backend), repeat(options.rounds))
        results = dict(zip(names, found, strict=True))
    summary = {
        "environment": {**jax_environment(), **backend.environment()},
        "rounds": options.rounds,
        "seconds": round(time.perf_counter() - started, 1),
        "pairings": results,
        "sanitizer": {} if options.no_sanitizer else sanitized(options),
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "pipelines.json").write_text(json.dumps(summary, indent=1) + "\n")
    (options.folder / "pipelines.md").write_text(markdown(summary))
    print(markdown(summary))
    wrong = any(result["findings"] for result in results.values())
    return int(wrong or any(ended["exit code"] != 0 for ended in summary["sanitizer"].values()))


def pairings(only: str) -> Iterator[tuple[str, Pairing]]:
    for suite in SUITES:
        for name, value in vars(importlib.import_module(f"suites.{suite}")).items():
            if isinstance(value, Pairing) and only in f"{suite}.{name}":
                yield f"{suite}.{name}", value


def repeated(name: str, backend_id: str, rounds: int) -> dict[str, Any]:
    """Every case of a pairing in each of some rounds, each signature compiled once for all of them."""
    ((_, pairing),) = (each for each in pairings(name) if each[0] == name)
    (backend,) = resolve([backend_id])
    counts: Counter[str] = Counter()
    signatures: set[str] = set()
    findings: list[dict[str, Any]] = []
    used = 0.0
    cache = Cache()
    by_dtype: dict[str, list[Item]] = {}
    for seed in range(rounds):
        for item in plan_pairing(pairing, name, [backend], RunSettings(depth=DEPTH, seed=seed)).items:
            if seed == 0 or item.group.name != "rejects":
                by_dtype.setdefault(item.dtype, []).append(item)
    for items in by_dtype.values():
        for item in items:
            cache.expectations.cases.clear()
            for outcome in run_item(item, cache):
                record = outcome.record
                counts[record.verdict] += 1
                signatures.add(record.signature)
                used = max(used, record.bound_fraction or 0.0)
                if record.verdict.is_finding:
                    where = {"family": record.family, "signature": record.signature, "seed": item.seed}
                    findings.append({"verdict": record.verdict, **where, "message": record.message})
    cache.process.pool.close()
    print(f"{name}: {dict(counts)}", flush=True)
    return {
        "signatures": len(signatures), "cases": counts.total(), "verdicts": dict(counts),
        "used": round(used, 4), "findings": findings[:50], "findings in all": len(findings),
    }  # fmt: skip


def sampled(backend: Backend, only: str) -> int:
    """The first case of each signature, once."""
    found = 0
    for name, pairing in pairings(only):
        cache = Cache()
        seen: set[str] = set()
        for item in plan_pairing(pairing, name, [backend], RunSettings(depth="quick")).items:
            for case in item.cases():
                if item.group.name == "structural" and str(case.signature) not in seen:
                    seen.add(str(case.signature))
                    found += sum(o.record.verdict.is_finding for o in run_item(item, cache, case.id))
        cache.process.pool.close()
        print(f"{name}: {len(seen)} signatures", flush=True)
    return int(found > 0)


def sanitized(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The sample under each of compute-sanitizer's tools."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        print("compute-sanitizer is not on PATH: nothing was run under it", file=sys.stderr)
        return {}
    script = [sys.executable, str(Path(__file__)), str(options.folder), "--sample", "--backend", options.backend]
    ended = {}
    for name in TOOLS:
        command = [tool, "--tool", name, "--error-exitcode", str(FOUND), "--target-processes", "all", *script]
        done = subprocess.run(
            [*command, "--only", options.sanitize or options.only], capture_output=True, text=True, check=False,
            env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        )  # fmt: skip
        said = [line for line in done.stdout.splitlines() if line.startswith("=========")]
        ended[name] = {"exit code": done.returncode, "said": said[-20:], "errors": done.stderr.splitlines()[-5:]}
    return ended


def markdown(summary: dict[str, Any]) -> str:
    facts = ", ".join(f"{key} {value}" for key, value in summary["environment"].items())
    lines = [
        "# Pipelines on a GPU",
        "",
        f"{facts}. {summary['rounds']} rounds, {summary['seconds']} s.",
        "",
        "| pairing | signatures | cases | verdicts | largest error / bound | findings |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for name, result in summary["pairings"].items():
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in result["verdicts"].items())
        lines.append(
            f"| {name} | {result['signatures']} | {result['cases']} | {verdicts} | {result['used']} | "
            f"{result['findings in all']} |"
        )
    lines += ["", "| sanitizer | exit code | last line |", "| --- | ---: | --- |"]
    for name, ended in summary["sanitizer"].items():
        lines.append(f"| {name} | {ended['exit code']} | {(ended['said'] or [''])[-1]} |")
    if not summary["sanitizer"]:
        lines.append("| not run | | |")
    for name, result in summary["pairings"].items():
        lines += [f"\n- {name} {f['verdict']}, {f['signature']}: {f['message']}" for f in result["findings"][:3]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
