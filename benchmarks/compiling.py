"""What XLA's options cost to compile interpreted kernels: `python benchmarks/compiling.py [BACKEND ...]`.

The first signatures of some suites are compiled for `interpret`, `interpret-mosaic-gpu` and `interpret-tpu`, each with
every set of options in turn. The table says seconds of processor time, and how these compare with XLA's own choice.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import jax
from jax import stages
from tabulate import tabulate

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.plan.signatures import signatures
from kerneltest.trace.cpu_options import PORTABLE_OPTIONS
from kerneltest.trace.tracing import Traced, trace

SUITES = {
    "interpret": ("test_attention", "test_matmul"),
    "interpret-mosaic-gpu": ("test_pipeline_copy", "test_pipeline_compute"),
    "interpret-tpu": ("test_tpu_softmax", "test_tpu_matmul"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "XLA's own": {},
    "no optimisation": dict(PORTABLE_OPTIONS),
    "plain loops as well": {**PORTABLE_OPTIONS, "xla_cpu_use_fusion_emitters": False},
}
EACH = 8  # signatures of a suite


def kernels(backend: Any) -> Iterator[Traced]:
    for suite in SUITES[backend.id]:
        pairings = [value for value in vars(import_module(f"suites.{suite}")).values() if isinstance(value, kt.Pairing)]
        for signature in list(signatures(pairings[0], "standard"))[:EACH]:
            traced = trace(pairings[0], signature, backend.platform)
            if not backend.unsupported_reason(traced):
                yield traced


def measured(name: str) -> Counter[str]:
    """Seconds of processor time by set of options, of all signatures together."""
    (backend,) = resolve([name])
    taken: Counter[str] = Counter()
    compile_ = stages.Lowered.compile

    def each(lowered: Any, *_: Any, **__: Any) -> Any:
        compiled = None
        for words, options in OPTIONS.items():
            started = time.process_time()
            try:
                # The first is told apart by an option that changes nothing, or JAX would remember what it gave.
                compiled = compile_(lowered, options or {"xla_embed_ir_in_executable": False})
            except jax.errors.JaxRuntimeError as error:
                if "No such compile option" not in str(error):
                    raise
                continue
            taken[words] += time.process_time() - started
        return compiled

    with mock.patch.object(stages.Lowered, "compile", each):
        for traced in kernels(backend):
            try:
                backend.prepare(traced)
            except Failure:
                continue
            taken["signatures"] += 1
    return taken


def main() -> None:
    rows = []
    for name in sys.argv[1:] or SUITES:
        taken = measured(name)
        first = taken["XLA's own"]
        rows += [
            [name, taken["signatures"], words, f"{taken[words]:.2f}", f"{taken[words] / first:.2f}"]
            for words in OPTIONS
            if words in taken
        ]
    print(f"JAX {jax.__version__}")
    print(tabulate(rows, ["backend", "signatures", "options", "s", "ratio"], "github"))


if __name__ == "__main__":
    main()
