"""Lowered TPU kernels through XLA's compiler: in child processes, side by side, answers kept on disk by content."""

import atexit
import base64
import functools
import importlib.util
import re
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl

from kerneltest.backends.compile_cache import answered
from kerneltest.backends.lowering_errors import meant
from kerneltest.backends.tpu.lower import Module, lower
from kerneltest.backends.tpu.memory import advice, limit, sized, windows
from kerneltest.backends.tpu.rules import COMPILING, place_of
from kerneltest.backends.workers import Workers
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tpu
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.names import line_of
from kerneltest.trace.tracing import trace_function

# A window that is too large takes most of a minute to be refused.
SECONDS = 120.0

_workers = Workers("kerneltest.backends.tpu.compiler", "XLA's TPU compiler")
atexit.register(_workers.close)

_NEEDS = re.compile(
    r"(?:Used|Scoped allocation with size) ([\d.]+)([KMG]) (?:of|and limit) ([\d.]+)([KMG])"
    r"|Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\).*?space=vmem",
    re.DOTALL,
)
_REASON = "RESOURCE_EXHAUSTED: VMEM"  # whatever the words for it
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of one kernel.

    Attributes:
      facts: bytes of VMEM and SMEM and what there is of each, scheduled bundles of instructions, bytes moved.
      advice: what its author may want to change.
    """

    facts: dict[str, int]
    advice: tuple[str, ...]


@functools.cache
def problem(tpu: Tpu) -> str:
    """Why libtpu does not compile for a generation here, or "": it is asked for the least kernel."""
    if importlib.util.find_spec("libtpu") is None:
        return "libtpu is not installed (pip install kerneltest[tpu]); lower:tpu-* works without it"

    def copy(source: Any, target: Any) -> None:
        target[...] = source[...]

    least = jax.ShapeDtypeStruct((8, 128), np.float32)
    kernel = trace_function(
        lambda x: [pl.pallas_call(copy, out_shape=least)(x)], (ShapeDtype(least.shape, np.dtype(np.float32)),), ""
    )
    try:
        (module,) = lower(kernel, tpu)
        compile_module(module, tpu)
    except Failure as failure:
        asked = next((each for each in metadata.requires("jax") or () if each.startswith("libtpu")), "libtpu")
        return (
            f"libtpu {version()} with JAX {jax.__version__} does not even compile a copy for {tpu}: "
            f"{str(failure).splitlines()[0]} (this JAX asks for {asked.partition(';')[0].strip()}: "
            "pip install 'jax[tpu]')"
        )
    return ""


def version() -> str:
    """Of the installed libtpu."""
    return metadata.version("libtpu")


def compile_module(module: Module, tpu: Tpu) -> Compiled:
    """Compiles one kernel, or recalls it.

    Raises:
      Failure: what the compiler says, or that it died or took too long; or that its blocks alone take more VMEM than
        there is, which is not tried.
    """
    kept = windows(module.call)
    allowed = limit(module.call, tpu)
    if (needed := sum(window.size for window in kept)) > allowed:
        raise Failure(Verdict.RESOURCE_EXCEEDED, _too_much(module, tpu, needed, allowed))
    request = {"module": base64.b64encode(module.stablehlo).decode(), "topology": tpu.topology}
    try:
        answer = answered(request, {"libtpu": version()}, frozenset({"facts"}), lambda: _asked(request))
    except Failure as failure:
        known = meant(failure.stderr, COMPILING)
        raise Failure(failure.verdict, f"{known[1]}\n{failure}" if known else str(failure), failure.stderr) from failure
    if "verdict" in answer:
        raise _explained(answer["message"], module, tpu)
    told = answer["facts"]
    facts = {"VMEM": told.pop("VMEM"), "VMEM there is": tpu.vmem, "SMEM": told.pop("SMEM"), "SMEM there is": tpu.smem}
    return Compiled({**facts, **told}, advice(kept))


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = _workers.ask(request, SECONDS)
    answer.pop("stderr")
    return answer


def _explained(text: str, module: Module, tpu: Tpu) -> Failure:
    """What XLA or Mosaic said, with the user's line."""
    where = place_of(text) or f" ({line_of(module.call.equation.source_info)})"
    if found := _NEEDS.search(text):
        used, unit, most, of_unit, size, there = found.groups()
        needed = int(size) if size else int(float(used) * _UNITS[unit])
        allowed = int(there) if there else int(float(most) * _UNITS[of_unit])
        return Failure(Verdict.RESOURCE_EXCEEDED, _too_much(module, tpu, needed, allowed), text)
    first = next(line for line in text.splitlines() if line.strip())
    if known := meant(text, COMPILING):
        verdict, meaning = known
        return Failure(verdict, f"{meaning}{where}\n{first}", text)
    verdict = Verdict.RESOURCE_EXCEEDED if "RESOURCE_EXHAUSTED" in text else Verdict.COMPILE_ERROR
    return Failure(verdict, f"{first}{where}", text)


def _too_much(module: Module, tpu: Tpu, needed: int, allowed: int) -> str:
    """How much VMEM a call takes, what takes it and what fits."""
    kept = windows(module.call)
    parts = "; ".join(map(str, kept[:4])) + (f"; and {len(kept) - 4} more" if len(kept) > 4 else "")
    said = f"needs {sized(needed)} of VMEM, and may have {sized(allowed)}: {parts}"
    times = 1 << (-(-needed // allowed) - 1).bit_length()
    smaller = f"blocks of 1/{times} the size fit"
    if needed <= tpu.vmem:
        smaller += f", and so do these with pltpu.CompilerParams(vmem_limit_bytes={needed})"
    return f"{said}; {smaller}\n{_REASON}"
