"""The simulator beside jitted interpret mode: `python benchmarks/simulate.py`.

Over the suites' kernels, in turn in one process: signatures a second from a kernel's jaxpr to its first result, and
milliseconds for one more result of the same signature. No cache on disk.
"""

import statistics
import sys
import time
from collections.abc import Sequence

import jax

from benchmarks.device_outputs import pairings
from kerneltest.backends.base import Backend, Executable
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array
from kerneltest.plan.cases import value_cases
from kerneltest.plan.families import GROUPS
from kerneltest.plan.signatures import signatures
from kerneltest.trace.tracing import Traced, trace

SIGNATURES, REPEATS = 8, 6


def fresh(backend: Backend, traced: Traced, leaves: Sequence[Array]) -> tuple[float, Executable]:
    """Seconds from a jaxpr to the first result."""
    started = time.perf_counter()
    executable: Executable = backend.prepare(traced)  # type: ignore[assignment]
    executable.run(leaves)
    return time.perf_counter() - started, executable


def again(executable: Executable, values: Sequence[Sequence[Array]]) -> float:
    """Seconds for one result."""
    started = time.perf_counter()
    for leaves in values:
        executable.run(leaves)
    return (time.perf_counter() - started) / len(values)


def main() -> int:
    backends = resolve(["simulate:sm_90", "interpret"])
    first: list[tuple[float, float]] = []
    next_: list[tuple[float, float]] = []
    for name, pairing in pairings():
        before = len(first)
        for signature in signatures(pairing, "quick")[:SIGNATURES]:
            traced = trace(pairing, signature)
            if any(backend.unsupported_reason(traced) for backend in backends):
                continue
            planned = [
                case
                for group in GROUPS
                for case in value_cases(pairing, name, signature.dtype, group, 0, "quick")
                if case.signature == signature
            ]
            filled = [case.fill(pairing) for case in planned[:REPEATS]]
            values = [[arguments[path] for path in pairing.leaves] for arguments in filled]
            times, executables = zip(*(fresh(backend, traced, values[0]) for backend in backends), strict=True)
            first.append(times)
            next_.append(tuple(again(executable, values) for executable in executables))  # type: ignore[arg-type]
        if len(first) > before:
            mine, theirs = (sum(column) for column in zip(*first[before:], strict=True))
            print(f"{name:32} {len(first) - before} signatures, {theirs / mine:.1f} times as fast", file=sys.stderr)
    mine, theirs = (sum(column) for column in zip(*first, strict=True))
    once, theirs_once = (statistics.mean(column) * 1e3 for column in zip(*next_, strict=True))
    print(f"JAX {jax.__version__}, {len(first)} signatures")
    print(f"fresh signatures a second: simulate {len(first) / mine:.1f}, interpret {len(first) / theirs:.1f}: "
          f"{theirs / mine:.1f} times as fast")  # fmt: skip
    ratio = theirs_once / once
    print(f"one more result: simulate {once:.2f} ms, interpret {theirs_once:.2f} ms: {ratio:.1f} times as fast")
    return 0 if theirs / mine >= 5 and once <= theirs_once else 1


if __name__ == "__main__":
    raise SystemExit(main())
