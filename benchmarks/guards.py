"""What a guard of softmax costs, `isfinite` against a comparison: `python benchmarks/guards.py [--device]`.

Prints a table of instructions and registers of `softmax_tiled` by target, both kernels together. `--device` adds the
time of both forms on this machine's GPU, side by side.
"""

import argparse
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import jax
import jax.numpy as jnp
import numpy as np

from kernels.softmax import softmax_tiled, softmax_tiled_by_comparison
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.trace.tracing import trace_function

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx1100", "gfx1151")
GUARDS = {"isfinite": softmax_tiled, "comparison": softmax_tiled_by_comparison}
DTYPES = ("float32", "bfloat16")
SHAPE = (1024, 4096)
_INSTRUCTION = {  # labels, directives and comments are none
    ".ptx": re.compile(r"^\s+(?:@!?%p\d+\s+)?[a-z]\w*(?:\.\w+)*\s[^;\n]*;", re.M),
    ".amdgcn": re.compile(r"^\s+(?:[sv]|ds|global|buffer|flat)_\w+", re.M),
}
_ROUNDS, _CALLS, _LARGE = 15, 20, (16384, 8192)


def compiled(kernel: Any, dtype: str, target: str) -> tuple[str, str]:
    """Instructions, and registers a thread of each kernel; or why there are none."""
    (backend,) = resolve([f"compile:{target}"])
    inputs = (ShapeDtype(SHAPE, np.dtype(jnp.dtype(dtype))),)
    try:
        made = backend.prepare(trace_function(lambda x: [kernel(x)], inputs, ""))
    except Failure as failure:
        return str(failure.verdict), ""
    files = [(_INSTRUCTION.get(Path(name).suffix), text) for name, text in made.files().items()]
    registers = [str(facts["registers"]) for facts in made.facts.values()]
    return str(sum(len(instruction.findall(text)) for instruction, text in files if instruction)), " and ".join(
        registers
    )


def rows() -> Iterator[tuple[str, ...]]:
    """A row for each target and dtype: instructions and registers with each guard."""
    for target in TARGETS:
        for dtype in DTYPES:
            found = [compiled(kernel, dtype, target) for kernel in GUARDS.values()]
            yield target, dtype, *(told for pair in found for told in pair)


def timed(dtype: str) -> tuple[float, float]:
    """The median time of a call with `isfinite`, in ms, and that with a comparison as a ratio of it."""
    x = jax.random.normal(jax.random.key(0), _LARGE, jnp.dtype(dtype))
    calls = [jax.jit(kernel) for kernel in GUARDS.values()]
    for call in calls:
        jax.block_until_ready(call(x))

    def seconds(call: Any) -> float:
        started = time.perf_counter()
        jax.block_until_ready([call(x) for _ in range(_CALLS)])
        return (time.perf_counter() - started) / _CALLS

    pairs = [[seconds(call) for call in calls] for _ in range(_ROUNDS)]
    return 1e3 * statistics.median(a for a, _ in pairs), statistics.median(b / a for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", action="store_true", help="also time both on this machine's GPU")
    chosen = parser.parse_args()
    print("| target | dtype | instructions with `isfinite` | registers | with a comparison | registers |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows():
        print(f"| {' | '.join(row)} |")
    if chosen.device:
        print(f"\n{jax.devices('gpu')[0].device_kind}, JAX {jax.__version__}, {_LARGE[0]} x {_LARGE[1]}:")
        for dtype in DTYPES:
            spent, ratio = timed(dtype)
            print(f"{dtype}: {spent:.3f} ms with isfinite, {ratio:.3f} of that with a comparison")


if __name__ == "__main__":
    main()
