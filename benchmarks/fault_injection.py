"""Raises at random lines of kerneltest while it runs a small suite, and checks the outcome of each run.

    python benchmarks/fault_injection.py --runs 2000 --jobs 16

Each run raises a RuntimeError once, at one execution of one line of one of kerneltest's modules. No run may blame the
kernel, lose a verdict in silence, or end as pytest's INTERNALERROR. A run may end with 0 only if every verdict is that
of a run without the exception, which happens where a fast path failed and the slow path took its place.
"""

import argparse
import collections
import inspect
import json
import linecache
import math
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import pytest

import kerneltest
import kerneltest.api  # what every run imports
import kerneltest.pytest_plugin.hooks
from kerneltest.records.runs import read_runs

ROOT = str(Path(kerneltest.__file__).parent)
BACKENDS = "interpret,interpret-tpu,simulate:sm_90,lower:sm_90,lower:tpu-v5e"
SUITE = """
import jax
import kerneltest as kt
from jax.experimental import pallas as pl

def scale(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * {factor}
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

@kt.oracle_for(scale, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(16,))))
def scale_oracle(x):
    return 2 * x
"""
FACTORS = {"right": 2, "wrong": 3}


@dataclass(frozen=True)
class Line:
    """An execution of a line: `number` counts from 0."""

    file: str
    line: int
    number: int


@dataclass(frozen=True)
class Ended:
    """The end of a run.

    Attributes:
      code: pytest's exit code.
      verdicts: number of records by pairing's verdict, those without a case apart.
      raised: whether the line was executed as often.
      output: the end of what pytest printed.
    """

    code: int
    verdicts: dict[str, int]
    raised: bool
    output: str


# The frame that raises counts as kerneltest's, as the line would.
_RAISES = "def raise_it():\n    raise RuntimeError('injected')"


def trace_lines(found: collections.Counter[tuple[str, int]], at: Line | None) -> Callable[..., Any]:
    """Returns a trace function that counts executed lines of kerneltest, and raises at one of them."""
    namespace: dict[str, Any] = {"__name__": "kerneltest.injected"}
    exec(_RAISES, namespace)
    lock = threading.Lock()

    def local(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            with lock:
                found[place] += 1
                due = at is not None and place == (at.file, at.line) and found[place] == at.number + 1
            if due:
                sys.settrace(None)
                threading.settrace(None)  # type: ignore[arg-type]
                namespace["raise_it"]()
        return local

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # a module that is not imported is another failure
        return local if is_function and (file == at.file if at is not None else file.startswith(ROOT)) else None

    return enter


def run_suite(factor: int, folder: Path, at: Line | None, send: Any) -> None:
    """Runs the suite in this process and sends how it ended; without `at` also the executed lines."""
    os.chdir(folder)
    (folder / "test_scale.py").write_text(SUITE.format(factor=factor), encoding="utf-8")
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    found: collections.Counter[tuple[str, int]] = collections.Counter()
    tracer = trace_lines(found, at)
    threading.settrace(tracer)
    sys.settrace(tracer)
    options = ["--kt-backends", BACKENDS, "--kt-depth", "quick", "--kt-report", "out", "--kt-minimize", "1"]
    try:
        code = int(pytest.main(["-q", "-p", "kerneltest", "-p", "no:cacheprovider", "-p", "no:xdist", *options, "."]))
    except SystemExit as left:  # before or after a session
        code = left.code if isinstance(left.code, int) else -1
    except BaseException as error:
        print(f"escaped pytest: {type(error).__name__}: {error}", flush=True)
        code = -1
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    output = (folder / "log").read_text(encoding="utf-8", errors="replace")
    raised = at is None or found[at.file, at.line] > at.number
    verdicts: collections.Counter[str] = collections.Counter()
    try:
        for run in read_runs(folder / "out"):
            verdicts.update(f"{r.verdict}{'' if r.case else ' (whole)'}" for r in run.records)
    except Exception as error:
        print(f"no records: {error}", flush=True)
    lines = [[*place, count] for place, count in found.items()] if at is None else []
    send.send([asdict(Ended(code, dict(verdicts), raised, output[-3000:])), lines])
    send.close()
    os._exit(0)


def execute(factor: int, at: Line | None, seconds: float) -> tuple[Ended, list[Any]]:
    """Runs the suite in a forked process."""
    with tempfile.TemporaryDirectory(prefix="fault-") as name:
        receive, send = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=run_suite, args=(factor, Path(name), at, send))
        child.start()
        send.close()
        ended = Ended(-2, {}, True, "no answer")
        lines: list[Any] = []
        if receive.poll(seconds):
            try:
                answer, lines = receive.recv()
                ended = Ended(**answer)
            except EOFError:
                ended = Ended(-3, {}, True, Path(name, "log").read_text(encoding="utf-8", errors="replace")[-3000:])
        child.kill()
        child.join()
        return ended, lines


def can_raise(file: str, line: int) -> bool:
    """Returns whether a line can raise; where a bare `try:` does, Python leaves a `with` around it without its exit."""
    return linecache.getline(file, line).strip() != "try:"


def problem(kind: str, ended: Ended, wanted: Ended) -> str:
    """Returns what is wrong with how a run ended, or ""."""
    findings = {"mismatch"} if kind == "wrong" else set()
    blamed = {
        name
        for name in ended.verdicts
        if name.partition(" ")[0] not in ("pass", "unavailable", "internal_error", "xfail", *findings)
    }
    if "INTERNALERROR" in ended.output:
        return "INTERNALERROR"
    if ended.code < 0:
        return {-1: "escaped pytest", -2: "no answer"}.get(ended.code, "died")
    if blamed:
        return f"blames the kernel: {', '.join(sorted(blamed))}"
    if ended.code == 0 and ended.verdicts != wanted.verdicts:
        return "ends with 0 and lacks verdicts"
    return ""


def work_off(share: tuple[list[tuple[str, Line]], dict[str, Any], float, float]) -> tuple[Any, list[dict[str, Any]]]:
    """Executes runs until the time is over; returns the number of each outcome, and the runs that are wrong."""
    work, baseline, seconds, until = share
    outcomes: collections.Counter[str] = collections.Counter()
    wrong: list[dict[str, Any]] = []
    for kind, at in work:
        if time.time() > until:
            break
        ended, _ = execute(FACTORS[kind], at, seconds)
        found = problem(kind, ended, baseline[kind][0])
        outcomes[f"{kind}: {found or f'exit code {ended.code}'}{'' if ended.raised else ', not reached'}"] += 1
        if found:
            place = f"{Path(at.file).relative_to(Path(ROOT).parent)}:{at.line}"
            wrong.append({"problem": found, "place": place, "number": at.number, **asdict(ended), "kind": kind})
    return outcomes, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="for one run")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no further run begins")
    parser.add_argument("--json", type=Path, help="write each run that is wrong, with its output")
    chosen = parser.parse_args()
    import kerneltest.api
    import kerneltest.pytest_plugin.hooks  # noqa: F401

    baseline = {kind: execute(factor, None, 600.0) for kind, factor in FACTORS.items()}
    rng = random.Random(chosen.seed)
    work = []
    for number in range(chosen.runs):
        kind = ("right", "wrong")[number % 2]
        file, line, count = rng.choice([each for each in baseline[kind][1] if can_raise(*each[:2])])
        work.append((kind, Line(file, line, rng.choice((0, rng.randrange(count))))))
    for kind, (ended, lines) in baseline.items():
        print(f"{kind}: exit code {ended.code}, {ended.verdicts}, {len(lines):,} lines executed", flush=True)
    # A process with threads cannot fork safely, so each job is a process of its own.
    until = time.time() + 60 * chosen.minutes
    shares = [(work[n :: chosen.jobs], baseline, chosen.seconds, until) for n in range(chosen.jobs)]
    with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn")) as pool:
        answers = list(pool.map(work_off, shares))
    outcomes = sum((counts for counts, _ in answers), collections.Counter[str]())
    wrong = [each for _, found in answers for each in found]
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:5} {outcome}")
    for each in wrong:
        print(f"{each['problem']}: {each['kind']}, {each['place']} at execution {each['number']}")
    if chosen.json:
        chosen.json.write_text(json.dumps(wrong, indent=1), encoding="utf-8")
    print(f"JAX {jax.__version__}, {outcomes.total()} runs: {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
