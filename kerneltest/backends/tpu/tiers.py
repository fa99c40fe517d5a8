"""The tiers of TPU code without a TPU: JAX's lowering, and XLA's TPU compiler."""

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

from kerneltest.backends.compilation import CompiledCall, Compiler, CompileTier, LowerTier, prefix
from kerneltest.backends.lowering_errors import (
    advise_backends,
    format_size,
    largest_arrays,
    lowering_failure,
    match_rule,
    part_that_fits,
    user_place,
)
from kerneltest.backends.tpu.errors import COMPILING, LOWERING, tile_advice, vmem_limit, windows
from kerneltest.core.details import NotBuilt, ResourceExceeded, Stage
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.source_location import in_order
from kerneltest.core.targets import Tpu
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.abstract_devices import TPU_CUSTOM_CALL, module_bytes, mosaic_text
from kerneltest.trace.jax_compat.jaxprs import sparse_cores
from kerneltest.trace.jax_compat.mlir import custom_calls
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.platform_dispatch import abstract_platform
from kerneltest.trace.runnable import call_as_function, refuse_outer_references
from kerneltest.trace.tracing import Call, Traced, trace_function

# Lowering of Pallas calls to Mosaic modules without a TPU, by JAX's own lowering rules.


@dataclass(frozen=True, eq=False, slots=True)
class MosaicModule:
    """One Pallas call as XLA's TPU compiler takes it: the function around it and its modules, as bytecode."""

    call: Call
    stablehlo: bytes
    mosaic: tuple[bytes, ...]

    suffix = "mosaic.mlir"

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def text(self) -> str:
        return "\n".join(map(mosaic_text, self.mosaic))


@functools.lru_cache(maxsize=512)
def lower_call(call: Call, tpu: Tpu) -> MosaicModule:
    """Lowers one Pallas call for a generation; see `LowerTier.lower`."""
    run, shapes = call_as_function(call, "mosaic_tpu")
    try:
        with abstract_platform(tpu.id):
            lowered = jax.jit(run).trace(*shapes).lower(lowering_platforms=("tpu",))
    except Exception as error:
        refuse_outer_references(call)
        failure = lowering_failure(error, call.name, LOWERING, line_of(call.equation.source_info))
        raise advise_backends(failure, call, "TPUs", "gpu") from error
    configs = (each.config["custom_call_config"] for each in custom_calls(lowered, frozenset({TPU_CUSTOM_CALL})))
    return MosaicModule(call, module_bytes(lowered), tuple(base64.b64decode(config["body"]) for config in configs))


# Compilation of lowered TPU kernels by XLA.

COMPILER = Compiler("kerneltest.backends.tpu.compiler", "XLA's TPU compiler")

_USED = re.compile(r"(?:Used|Scoped allocation with size) ([\d.]+)([KMG]) (?:of|and limit) ([\d.]+)([KMG])")
_ALLOCATION = in_order(r".*?Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\)", r".*?space=vmem")
_REASON = "RESOURCE_EXHAUSTED: VMEM"  # the same for all wordings of XLA, and for kernels that are not compiled
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@functools.cache
def problem(tpu: Tpu) -> str:
    """Returns why libtpu cannot compile for a generation here, or "". Compiles a minimal kernel to find out."""
    if importlib.util.find_spec("libtpu") is None:
        return "libtpu is not installed (pip install kerneltest[tpu]); lower:tpu-* works without it"

    def copy(source: Any, target: Any) -> None:
        target[...] = source[...]

    tile = jax.ShapeDtypeStruct((8, 128), np.float32)
    kernel = trace_function(
        lambda x: [pl.pallas_call(copy, out_shape=tile)(x)], (ShapeDtype(tile.shape, np.dtype(np.float32)),), ""
    )
    try:
        compile_module(lower_call(kernel.calls[0], tpu), tpu)
    except Failure as failure:
        required = next((line for line in metadata.requires("jax") or () if line.startswith("libtpu")), "libtpu")
        return (
            f"libtpu {metadata.version('libtpu')} with JAX {jax.__version__} cannot compile even a copy for {tpu}: "
            f"{str(failure).splitlines()[0]} (this JAX requires {required.partition(';')[0].strip()}: "
            "pip install 'jax[tpu]')"
        )
    return ""


def compile_module(module: MosaicModule, tpu: Tpu) -> CompiledCall:
    """Compiles one kernel; see `CompileTier.compile`. The compiler is not asked if the blocks need too much VMEM."""
    arrays = windows(module.call)
    allowed = vmem_limit(module.call, tpu)
    if (needed := sum(window.size for window in arrays)) > allowed:
        raise Failure(Verdict.RESOURCE_EXCEEDED, _vmem_exceeded(module, tpu, needed, allowed))
    request = {"module": base64.b64encode(module.stablehlo).decode(), "topology": tpu.topology}
    try:
        answer = COMPILER.ask(request)
    except Failure as failure:
        known = match_rule(failure.stderr, COMPILING)
        detail = prefix(failure.detail, f"{known.words}\n") if known else failure.detail
        raise Failure(failure.verdict, detail, failure.stderr) from failure
    if "verdict" in answer:
        raise _compile_failure(answer["message"], module, tpu)
    facts = answer["facts"]
    memory = {
        "VMEM": facts.pop("VMEM"),
        "VMEM there is": tpu.vmem,
        "SMEM": facts.pop("SMEM"),
        "SMEM there is": tpu.smem,
    }
    return CompiledCall({**memory, **facts}, tile_advice(arrays))


def _compile_failure(text: str, module: MosaicModule, tpu: Tpu) -> Failure:
    if amounts := _vmem_amounts(text):
        return Failure(Verdict.RESOURCE_EXCEEDED, _vmem_exceeded(module, tpu, *amounts), text)
    source = user_place(text) or line_of(module.call.equation.source_info)
    first = next(line for line in text.splitlines() if line.strip())
    if known := match_rule(text, COMPILING):
        if known.verdict is Verdict.UNAVAILABLE:
            return Failure(known.verdict, f"{known.words} ({source})\n{first}", text)
        return Failure(known.verdict, known.detail(Stage.COMPILE, module.name, first, source=source), text)
    if "RESOURCE_EXHAUSTED" in text:
        detail = ResourceExceeded(Stage.COMPILE, module.name, "memory", None, None, "B", first, source=source)
        return Failure(Verdict.RESOURCE_EXCEEDED, detail, text)
    return Failure(Verdict.COMPILE_ERROR, NotBuilt(Stage.COMPILE, module.name, "", first, source=source), text)


# Returns the bytes of VMEM that XLA says a kernel needs and may use; None if it speaks of something else.
def _vmem_amounts(text: str) -> tuple[int, int] | None:
    if found := _USED.search(text):
        used, unit, most, of_unit = found.groups()
        return int(float(used) * _UNITS[unit]), int(float(most) * _UNITS[of_unit])
    if found := _ALLOCATION.search(text):
        return int(found[1]), int(found[2])
    return None


def _vmem_exceeded(module: MosaicModule, tpu: Tpu, needed: int, allowed: int) -> ResourceExceeded:
    parts = largest_arrays(windows(module.call))
    advised = f"blocks of {part_that_fits(needed, allowed)} the size fit"
    if needed <= tpu.vmem:
        advised += f", and so do these with pltpu.CompilerParams(vmem_limit_bytes={needed})"
    words = f"needs {format_size(needed)} of VMEM, but may use only {format_size(allowed)}: {parts}; {advised}"
    return ResourceExceeded(Stage.COMPILE, module.name, "VMEM", needed, allowed, "B", words, _REASON)


class LowerTpu(LowerTier):
    """Lowering to Mosaic."""

    def unsupported_reason(self, traced: Traced) -> str:
        foreign = traced.foreign_dialect({"triton", "mosaic_gpu"})
        return f"a kernel written for {foreign} cannot be lowered for {self.target}" if foreign else ""

    def unavailable_for(self, traced: Traced) -> str:
        if not self.target.sparse_cores and any(sparse_cores(call.equation) for call in traced.calls):
            return f"{self.target} has no SparseCores, on which the kernel runs"
        return LowerTier.unavailable_for(self, traced)

    def lower(self, traced: Traced) -> tuple[MosaicModule, ...]:
        return tuple(lower_call(call, self.target) for call in traced.calls)


class CompileTpu(CompileTier, LowerTpu):
    """Compilation by libtpu."""

    package = "libtpu"

    def unavailable(self) -> str:
        return super().unavailable() or problem(self.target)

    def compile(self, call: MosaicModule) -> CompiledCall:
        return compile_module(call, self.target)
