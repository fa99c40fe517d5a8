"""Raises at random lines of kerneltest while it tests a small kernel: `python -m benchmarks.fault_injection`.

Each run raises a RuntimeError once, at one execution of one line, while a right or a wrong kernel is tested. No run may
blame the kernel for it, end as pytest's INTERNALERROR, or end with 0 unless every verdict is that of a run without the
exception, as where a fast path failed and a slower one took its place. Prints how the runs ended, and each wrong one;
the exit status is 1 if there are any. Needs a checkout with the extra `test`, and no GPU.
"""

import argparse
import collections
import inspect
import itertools
import json
import linecache
import multiprocessing
import os
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import pytest

import kerneltest
from kerneltest.records.runs import read_runs
from tests import preloaded  # noqa: F401 - what every run imports
from tests.plugins import PLUGINS

ROOT = Path(kerneltest.__file__).parent
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
BACKENDS = ("interpret,lower:sm_90,simulate:sm_90", "interpret-tpu,lower:tpu-v5e")
FACTORS = {"right": 2, "wrong": 3}
KINDS = tuple(itertools.product(FACTORS, BACKENDS))
OPTIONS = ("-p", "no:cacheprovider", "--kt-depth", "quick", "--kt-report", "out", "--kt-minimize", "1")
HARMLESS = ("pass", "unavailable", "internal_error")  # verdicts that blame no kernel
# The frame that raises counts as kerneltest's, as the line would.
RAISES = "def raise_it():\n    raise RuntimeError('injected')"


@dataclass(frozen=True)
class Line:
    """An execution of a line, or all of them: `execution` counts from 1."""

    file: str
    number: int
    execution: int


@dataclass(frozen=True)
class Ended:
    """The exit code of a run, the number of its records by verdict, and the end of its output."""

    code: int
    verdicts: dict[str, int]
    output: str
    raised: bool = True  # whether the line was executed as often
    lines: tuple[tuple[str, int, int], ...] = ()  # of a run that raises nothing: each line and how often it ran


def trace_lines(executed: collections.Counter[tuple[str, int]], at: Line | None) -> Callable[..., Any]:
    """Returns a trace function that counts executed lines of kerneltest, and raises at one of them."""
    namespace: dict[str, Any] = {"__name__": "kerneltest.injected"}
    exec(RAISES, namespace)
    lock = threading.Lock()

    def trace_line(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            with lock:
                executed[place] += 1
                is_due = at is not None and (*place, executed[place]) == (at.file, at.number, at.execution)
            if is_due:
                sys.settrace(None)
                threading.settrace(None)  # type: ignore[arg-type]
                namespace["raise_it"]()
        return trace_line

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # a module that is not imported is another failure
        return trace_line if is_function and file.startswith(at.file if at else str(ROOT)) else None

    return enter


def run_suite(kind: tuple[str, str], folder: Path, at: Line | None) -> None:
    """Runs the suite in this process, and writes how it ended to a file."""
    kernel, backends = kind
    os.chdir(folder)
    Path("test_scale.py").write_text(SUITE.format(factor=FACTORS[kernel]), encoding="utf-8")
    log = os.open("log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    executed: collections.Counter[tuple[str, int]] = collections.Counter()
    tracer = trace_lines(executed, at)
    threading.settrace(tracer)
    sys.settrace(tracer)
    try:
        code = int(pytest.main([*PLUGINS, *OPTIONS, "--kt-backends", backends, "."]))
    except SystemExit as left:  # before or after a session
        code = left.code if isinstance(left.code, int) else -1
    except BaseException as error:
        print(f"escaped pytest: {type(error).__name__}: {error}", flush=True)
        code = -1
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    verdicts: collections.Counter[str] = collections.Counter()
    try:
        verdicts.update(str(record.verdict) for run in read_runs(Path("out")) for record in run.records)
    except Exception as error:
        print(f"no records: {error}", flush=True)
    raised = at is None or executed[at.file, at.number] >= at.execution
    lines = () if at else tuple((*place, count) for place, count in executed.items())
    ended = Ended(code, dict(verdicts), Path("log").read_text("utf-8", "replace")[-3000:], raised, lines)
    Path("ended.json").write_text(json.dumps(asdict(ended)), encoding="utf-8")
    os._exit(0)


def execute(seconds: float, attempt: tuple[tuple[str, str], Line | None]) -> Ended:
    """Runs the suite in a forked process."""
    kind, at = attempt
    with tempfile.TemporaryDirectory(prefix="fault-") as name:
        child = multiprocessing.get_context("fork").Process(target=run_suite, args=(kind, Path(name), at))
        child.start()
        child.join(seconds)
        child.kill()
        child.join()
        if (path := Path(name, "ended.json")).exists():
            return Ended(**json.loads(path.read_text(encoding="utf-8")))
        return Ended(-1, {}, Path(name, "log").read_text("utf-8", "replace")[-3000:])


def problem(kernel: str, ended: Ended, wanted: Ended) -> str:
    """Returns what is wrong with how a run ended, or ""."""
    if ended.code < 0 or "INTERNALERROR" in ended.output:
        return "no end in words"
    if blamed := set(ended.verdicts) - {*HARMLESS, *(["mismatch"] if kernel == "wrong" else [])}:
        return f"blames the kernel: {', '.join(sorted(blamed))}"
    return "ends with 0 and other verdicts" if ended.code == 0 and ended.verdicts != wanted.verdicts else ""


def choose_lines(wanted: dict[tuple[str, str], Ended], generator: random.Random) -> Iterator[tuple[Any, Line]]:
    """Yields executions of lines that can raise, those of each kind of run in turn."""
    for kind in itertools.cycle(wanted):
        file, line, count = generator.choice(wanted[kind].lines)
        # Where a bare `try:` raises, Python leaves a `with` around it without its exit.
        if linecache.getline(file, line).strip() != "try:":
            yield kind, Line(file, line, generator.choice((1, generator.randint(1, count))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300, help="for one run")
    chosen = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    wrong = 0
    # A process with threads cannot fork safely, so each job is a new process that imports only what a run does.
    with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn")) as pool:
        wanted = dict(zip(KINDS, pool.map(partial(execute, 600), [(kind, None) for kind in KINDS]), strict=True))
        for kind, ended in wanted.items():
            print(f"{' on '.join(kind)}: exit code {ended.code}, {ended.verdicts}, {len(ended.lines):,} lines")
        attempts = list(itertools.islice(choose_lines(wanted, random.Random(chosen.seed)), chosen.runs))
        for (kind, at), ended in zip(attempts, pool.map(partial(execute, chosen.seconds), attempts), strict=True):
            found = problem(kind[0], ended, wanted[kind])
            outcomes[f"{kind[0]}: {found or f'exit code {ended.code}'}{'' if ended.raised else ', not reached'}"] += 1
            if found:
                wrong += 1
                print(f"{found}: {' on '.join(kind)}, {at}: {ended.verdicts}\n{ended.output}", flush=True)
            if outcomes.total() % 50 == 0:
                print(f"{outcomes.total()} runs: {wrong} wrong", flush=True)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:5} {outcome}")
    print(f"JAX {jax.__version__}, {outcomes.total()} runs: {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
