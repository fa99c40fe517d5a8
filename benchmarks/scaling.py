"""Time against the number of workers on one host: `python benchmarks/scaling.py FOLDER --workers 1,2`.

Runs the suites on `cuda` with each number of workers twice: from no compiled code, and again from what the first left,
so that compilation and running are seen apart. Every case is run both times. Where there are more workers than GPUs,
workers share one; 0 stands for one process without workers. FOLDER gets `scaling.json`, from which `--plot` makes
`scaling.svg` and the table (matplotlib). Exits with 1 where two numbers of workers give other verdicts, or other
fractions of an error bound, which stand for the bits.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kerneltest.records.runs import RunRecords, read_runs

ROOT = Path(__file__).parent.parent


def measured(workers: int, depth: str, suites: list[str], work: Path, backends: str) -> dict[str, Any]:
    """One run: how long it took, what each phase took over all processes, and a digest of its verdicts."""
    report, cache = work / f"report-{workers}", work / f"cache-{workers}"
    shutil.rmtree(cache / "d" / "kerneltest" / "green", ignore_errors=True)  # else its records are taken over
    command = [sys.executable, "-m", "pytest", "-p", "kerneltest", *suites, "-q", "--tb=no", "--no-header"]
    command += ["-n", str(workers), "--kt-backends", backends, "--kt-depth", depth, "--kt-report", str(report)]
    command += ["-o", f"cache_dir={cache}"]
    started = time.monotonic()
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    (run,) = read_runs(report)
    phases: Counter[str] = Counter()
    for path in report.glob("costs-*.json"):
        phases.update(json.loads(path.read_text(encoding="utf-8"))["seconds"])
    return {
        "workers": workers,
        "seconds": round(seconds, 1),
        "phases": {name: round(spent, 1) for name, spent in phases.items()},
        "cases": len(run.records),
        "complete": run.reconciled.complete,
        "findings": sum(record.verdict.is_finding for record in run.records),
        "digest": digest(run),
        "exit": ended.returncode,
        "last": ended.stdout.strip().splitlines()[-1:],
        "device": run.plan.environment.get("cuda: device", "no GPU"),
    }


def digest(run: RunRecords) -> str:
    """What stands for every case, its verdict and how much of its bound it used."""
    lines = sorted(f"{r.item} {r.family} {r.case} {r.verdict} {r.compared} {r.bound_fraction!r}" for r in run.records)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def table(results: list[dict[str, Any]]) -> str:
    """Time, speed-up and phases by number of workers, as Markdown."""
    lines = [
        "| workers | compiled code | seconds | times as fast | compiling | running | oracle | cases | digest |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    first = {each["cache"]: each["seconds"] for each in reversed(results)}
    for each in results:
        phases = each["phases"]
        oracle = phases.get("expecting", 0) + phases.get("filling", 0)
        faster = first[each["cache"]] / each["seconds"]
        lines.append(
            f"| {each['workers']} | {each['cache']} | {each['seconds']:.0f} | {faster:.2f} "
            f"| {phases.get('compiling', 0):.0f} | {phases.get('running', 0):.0f} | {oracle:.0f} | {each['cases']:,} "
            f"| `{each['digest']}` |"
        )
    return "\n".join(lines)


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Seconds against workers, from no compiled code and from what was kept, beside what a perfect share would take."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for cache, mark in (("none", "o-"), ("kept", "s-")):
        mine = [each for each in results if each["cache"] == cache]
        workers, seconds = [each["workers"] for each in mine], [each["seconds"] for each in mine]
        (line,) = axes.plot(workers, seconds, mark, label=f"compiled code: {cache}")
        axes.plot(
            workers,
            [seconds[0] * max(workers[0], 1) / max(count, 1) for count in workers],
            ":",
            color=line.get_color(),
            alpha=0.6,
        )
    axes.set(xlabel="workers", ylabel="seconds", xticks=workers, ylim=(0, None))
    axes.legend(title="dotted: a perfect share")
    figure.savefig(path, bbox_inches="tight")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--depth", default="standard")
    parser.add_argument("--suites", default="suites")
    parser.add_argument("--backends", default="cuda")
    parser.add_argument("--work", type=Path, default=Path("/tmp/kerneltest-scaling"))
    parser.add_argument("--plot", action="store_true", help="only draw what FOLDER holds")
    options = parser.parse_args()
    file = options.folder / "scaling.json"
    if options.plot:
        results = json.loads(file.read_text(encoding="utf-8"))["runs"]
        plot(results, options.folder / "scaling.svg")
        print(table(results))
        return 0
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for workers in map(int, options.workers.split(",")):
        for cache in ("none", "kept"):
            made = measured(workers, options.depth, options.suites.split(), options.work, options.backends)
            results.append({"cache": cache, **made})
            file.write_text(json.dumps({"jax": version("jax"), "runs": results}, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(results[-1]), flush=True)
    print(table(results))
    return int(len({each["digest"] for each in results}) != 1 or not all(each["complete"] for each in results))


if __name__ == "__main__":
    raise SystemExit(main())
