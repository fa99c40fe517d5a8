"""Counts the broken Mosaic GPU kernels that a Hopper GPU and the simulator find: `python benchmarks/mosaic_gpu.py`.

Each twin of tests/corpus that the simulator in `--backends` runs (`simulate:sm_90` if none is there), and each right
kernel, runs at `quick` until its first finding on `cuda` and on the simulator. Each has a process of its own: some
never end, and are killed after `--limit` seconds. Prints a table, and writes it to `--out FILE`. Exits with 1 if a
right kernel is accused or was not judged.

`--times` prints the seconds that JAX's own Mosaic GPU kernels take on the tiers that need no GPU instead.
"""

import argparse
import json
import math
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
BROKEN, RIGHT = "broken", "right"
Answer = dict[str, str]


def judge_twin(name: str, which: str, backend: str, seed: str) -> Answer:
    """One of two twins on a backend: its verdict, and how many cases ran; the device and JAX's version."""
    from kerneltest.backends.registry import resolve
    from kerneltest.execute.cache import Cache
    from kerneltest.execute.planning import plan_pairing
    from kerneltest.execute.runner import run_item
    from kerneltest.execute.settings import RunSettings
    from tests.corpus import TWINS

    (served,) = resolve([backend])
    settings = RunSettings(depth="quick", timeout=0, seed=int(seed))
    pairing, cache, passed = TWINS[name].make(which == BROKEN), Cache(), 0
    if reason := served.unavailable():
        return {"verdict": "unavailable", "message": reason, "cases": ""}
    facts = {key: str(value) for key, value in served.environment().items()}
    for item in plan_pairing(pairing, f"{name}::{which}", [served], settings).items:
        for outcome in run_item(item, cache):
            record = outcome.record
            if record.verdict.is_finding:
                message = (record.message.splitlines() or [""])[0]
                return facts | {"verdict": record.verdict, "message": message, "cases": f"case {passed + 1}"}
            passed += record.verdict == "pass"
    return facts | {"verdict": "pass" if passed else "unavailable", "message": "", "cases": f"{passed} cases"}


def times() -> Iterator[str]:
    """A table of processor seconds for each pairing of JAX's kernels, at its largest signature: the best of three.

    Lowering is a part of compiling and of preparing.
    """
    from kerneltest.backends.registry import resolve
    from kerneltest.declare.pairing import Pairing
    from kerneltest.plan.cases import value_cases
    from kerneltest.plan.signatures import signatures
    from kerneltest.trace.tracing import trace
    from tests.corpus import TWINS

    small = TWINS["an input written to"].right()
    tiers = ("lower:", "compile:xla-", "simulate:")
    yield "| kernel | target | lower, s | compile, s | simulate: prepare, s | a case with three schedules, ms |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for path in sorted((ROOT / "suites" / "jax_ops").glob("test_gpu_mosaic_*.py")):
        for name, pairing in vars(import_module(f"suites.jax_ops.{path.stem}")).items():
            if not isinstance(pairing, Pairing):
                continue
            target = "sm_100" if "blackwell" in path.stem else "sm_90"
            float16 = [s for s in signatures(pairing, "quick") if s.dtype != "bfloat16"]
            signature = max(float16, key=lambda s: math.prod(dict(s.dims).values()))
            cases = value_cases(pairing, name, signature.dtype, "structural", 0, "quick")
            filled = next(case for case in cases if case.signature == signature).fill(pairing)
            leaves, cells = [filled[path] for path in pairing.leaves], []
            for backend in resolve([f"{tier}{target}" for tier in tiers]):
                traced = [trace(pairing, signature, backend.platform) for _ in range(3)]  # what is lowered once is kept
                simulates = backend.tier.gives_values
                if reason := backend.unavailable() or backend.unavailable_for(traced[0]):
                    cells += [f"unavailable: {reason}"[:40]] * (1 + simulates)
                    continue
                if backend.tier == "compile":
                    backend.prepare(trace(small, signatures(small, "quick")[0], backend.platform))  # starts a process
                    traced = traced[:1]  # XLA compiles a kernel once in a process
                prepared = [timed(partial(backend.prepare, each)) for each in traced]
                cells.append(best(prepared, 1, "{:.2f}"))
                if simulates:
                    cells.append(best([timed(partial(prepared[0][1].run, leaves)) for _ in range(3)], 1000, "{:.0f}"))
            kernel = f"{path.stem.removeprefix('test_gpu_mosaic_')}.{name}, {signature}"
            yield f"| {kernel} | {target} | {' | '.join(cells)} |"


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of a call on the processors, those of this process's children included; its result or failure."""
    import psutil

    from kerneltest.core.failures import Failure

    def processor() -> float:
        children = psutil.Process().children(recursive=True)
        return time.process_time() + sum(sum(child.cpu_times()[:2]) for child in children)

    started = processor()
    try:
        result = function()
    except Failure as failure:
        result = failure
    return processor() - started, result


def best(calls: Sequence[tuple[float, Any]], factor: int, form: str) -> str:
    """The shortest time, and the verdict of calls that failed."""
    verdict = getattr(calls[0][1], "verdict", "")
    return form.format(factor * min(seconds for seconds, _ in calls)) + (f", {verdict}" if verdict else "")


def judge_apart(name: str, which: str, backend: str, limit: float, seed: int) -> Answer:
    """Judges one of two twins on a backend, in a process of its own."""
    command = [sys.executable, __file__, "--one", name, which, backend, str(seed)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    started = time.perf_counter()
    try:
        out, errors = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        answer = {"verdict": "hang", "message": f"no answer within {limit:g} s", "cases": ""}
    else:
        last = (out.splitlines() or [""])[-1]
        ended = {"verdict": "crash", "message": f"exit {child.returncode}: {errors[-200:]}", "cases": ""}
        answer = json.loads(last) if last.startswith("{") else ended
    print(
        f"{time.perf_counter() - started:5.1f} s {backend} {which} {name}: {text(answer)}", file=sys.stderr, flush=True
    )
    return answer


def text(answer: Answer) -> str:
    """An answer as a cell of a table."""
    message = answer["message"].replace("|", "/").replace(f"{ROOT}/", "").replace("\n", " ")[:160]
    return ": ".join(filter(None, [f"{answer['verdict']} ({answer['cases']})".replace(" ()", ""), message]))


def table(which: str, names: Sequence[str], backends: Sequence[str], answers: dict[str, list[Answer]]) -> Iterator[str]:
    yield f"| {which} kernel | {' | '.join(backends)} |"
    yield f"| {' | '.join(['---'] * (1 + len(backends)))} |"
    for name in names:
        yield f"| {' | '.join([name, *map(text, answers[name])])} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backends", default="cuda,simulate:sm_90")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60, help="seconds that a process may take, its start included")
    parser.add_argument("--only", default="", help="part of the names of the kernels to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--one", nargs=4, metavar=("NAME", "WHICH", "BACKEND", "SEED"))
    options = parser.parse_args()
    if options.one:
        print(json.dumps(judge_twin(*options.one)))
        return 0
    if options.times:
        for line in times():
            print(line, flush=True)
        return 0
    import jax

    from tests.corpus import MOSAIC_GPU

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    backends = options.backends.split(",")
    simulators = {backend for backend in backends if backend.startswith("simulate")} or {"simulate:sm_90"}
    twins = [twin for twin in MOSAIC_GPU if simulators & {*twin.verdicts} and options.only in twin.name]
    names = {BROKEN: [t.name for t in twins], RIGHT: [t.name for t in twins if not t.right_is_tested]}
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = {
            (which, name): [
                pool.submit(judge_apart, name, which, backend, options.limit, options.seed) for backend in backends
            ]
            for which, named in names.items()
            for name in named
        }
        answers: dict[str, dict[str, list[Answer]]] = {BROKEN: {}, RIGHT: {}}
        for (which, name), futures in waiting.items():
            answers[which][name] = [future.result() for future in futures]
    shown = [
        f"{sum(row[i]['verdict'] not in ('pass', 'unavailable') for row in answers[BROKEN].values())} on `{backend}`"
        for i, backend in enumerate(backends)
    ]
    wrong = sum(any(each["verdict"] != "pass" for each in row) for row in answers[RIGHT].values())
    devices = {each["device"]: None for row in answers[RIGHT].values() for each in row if "device" in each}
    lines = [
        f"# Broken Mosaic GPU kernels on {options.backends}",
        "",
        f"Of {len(twins)} broken kernels of `tests/corpus`, {' and '.join(shown)} show their bug; {wrong} of "
        f"{len(names[RIGHT])} right kernels do not pass everywhere. `python benchmarks/mosaic_gpu.py --backends "
        f"{options.backends} --limit {options.limit:g} --seed {options.seed}`, JAX {jax.__version__}, Python "
        f"{platform.python_version()}, {', '.join(devices) or 'no GPU'}. Each kernel runs at `quick` until its first "
        "finding, in its own process.",
        "",
        *table(BROKEN, names[BROKEN], backends, answers[BROKEN]),
        "",
        *table(RIGHT, names[RIGHT], backends, answers[RIGHT]),
    ]
    print("\n".join(lines))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
