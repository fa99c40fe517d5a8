"""Interpret mode with and without XLA: `python benchmarks/interpreters.py [--signatures 3]`.

For some signatures of every pairing of the suites that Pallas' interpreter takes: seconds to compile its interpretation
and to run all values of the plan through that, one call a case; seconds to build and run the same in NumPy, all at
once (`rows`); and seconds to run the first case through JAX's own interpreter with its operations in NumPy, and whether
that gives the same bits. The outputs of XLA and NumPy are compared too, in ulps of the largest element. Needs no GPU.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, float_format, is_float
from kerneltest.core.failures import Failure
from kerneltest.plan.cases import Case, value_cases
from kerneltest.plan.families import GROUPS
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, InterpreterRules
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced, trace

ROOT = Path(__file__).parent.parent


def pairings() -> Iterator[tuple[str, kt.Pairing]]:
    """Every pairing of the suites, with its name."""
    for path in sorted((ROOT / "suites").rglob("test_*.py")):
        module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name, value in vars(module).items():
            if isinstance(value, kt.Pairing):
                yield f"{path.stem}::{name}", value


def cases_of(pairing: kt.Pairing, signature: Signature) -> list[Case]:
    """The values that a plan has for a signature."""
    return [
        case
        for group in GROUPS
        for case in value_cases(pairing, pairing.name, signature.dtype, group, 0, "quick")
        if case.signature == signature
    ]


def distance(one: Array, other: Array, inputs: list[Array]) -> float:
    """The largest difference of two outputs in roundoffs of the largest element; infinite where a class differs."""
    a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
    alike = (a == b) | (np.isnan(a) & np.isnan(b))
    if alike.all():
        return 0.0
    if not is_float(one.dtype):
        return np.inf
    fmt = max((float_format(x.dtype) for x in [*inputs, one] if is_float(x.dtype)), key=lambda f: f.unit_roundoff)
    with np.errstate(all="ignore"):
        flushed = (np.abs(a) < 2.0**-100) & (np.abs(b) < 2.0**-100)  # XLA drops subnormal inputs
        off = np.where(alike | flushed, 0.0, np.abs(a - b))
        size = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
        off = np.where(np.isnan(off), np.inf, off)
    return float(np.max(off) / (2 * fmt.unit_roundoff * size)) if size else float(np.max(off))


class Measured:
    """Seconds and counts so far."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.distances: list[float] = []

    def add(self, name: str, pairing: kt.Pairing, signature: Signature, traced: Traced) -> None:
        """Takes one signature in."""
        (backend,) = resolve(["interpret"])
        started = time.perf_counter()
        try:
            rows = BatchedKernel(traced)
        except UnknownError as error:
            self.unknown[f"{name}: {error}"] += 1
            return
        self.seconds["NumPy, build"] += time.perf_counter() - started
        filled = [case.fill(pairing) for case in cases_of(pairing, signature)]
        if not filled:
            return
        inputs = [[values[path] for path, _ in signature.dtypes] for values in filled]
        started = time.perf_counter()
        executable = backend.prepare(traced)
        self.seconds["XLA, compile"] += time.perf_counter() - started
        started = time.perf_counter()
        wanted = [executable.run(leaves) for leaves in inputs]  # type: ignore[union-attr]
        self.seconds["XLA, run"] += time.perf_counter() - started
        started = time.perf_counter()
        outputs = rows([np.stack(column) for column in zip(*inputs, strict=True)])
        self.seconds["NumPy, run"] += time.perf_counter() - started
        started = time.perf_counter()
        first = [leaf[None] for leaf in inputs[0]]
        by_jax = BatchedKernel(traced, InterpreterRules())(first)
        self.seconds["JAX's interpreter in NumPy, first case"] += time.perf_counter() - started
        same = all(one.tobytes() == other.tobytes() for one, other in zip(rows(first), by_jax, strict=True))
        self.counts["signatures"] += 1
        self.counts["cases"] += len(inputs)
        self.counts["of the same bits as JAX's interpreter in NumPy"] += same
        for row, (leaves, results) in enumerate(zip(inputs, wanted, strict=True)):
            pairs = zip(outputs, results, strict=True)
            self.distances.append(max(distance(output[row], want, leaves) for output, want in pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signatures", type=int, default=3, help="of each pairing")
    count = parser.parse_args().signatures
    sys.path.insert(0, str(ROOT))
    measured = Measured()
    (backend,) = resolve(["interpret"])
    for name, pairing in pairings():
        planned = signatures(pairing, "quick")
        for signature in planned[:: max(1, len(planned) // count)][:count]:
            try:
                traced = trace(pairing, signature)
                if not backend.unsupported_reason(traced):
                    measured.add(name, pairing, signature, traced)
            except Failure as failure:
                measured.unknown[f"{name}: {failure.verdict}"] += 1
    print(f"JAX {version('jax')}, NumPy {np.__version__}")
    for what, number in [*measured.counts.items(), *((k, round(v, 2)) for k, v in measured.seconds.items())]:
        print(f"{what}: {number}")
    distances = np.array(measured.distances)
    print(f"NumPy against XLA, in roundoffs of the largest element: median {np.median(distances):.2g}, "
          f"99% below {np.quantile(distances, 0.99):.2g}, {np.isinf(distances).sum()} differ in class")  # fmt: skip
    print("left to JAX:", *(f"  {what}" for what in measured.unknown), sep="\n")


if __name__ == "__main__":
    main()
