"""Kernels that choose an implementation by platform, traced for a platform that this machine does not have."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from kerneltest.core.details import Stated
from kerneltest.core.failures import Failure, exception_text, iter_causes
from kerneltest.core.targets import TPUS
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.abstract_devices import answer_for_devices
from kerneltest.trace.jax_compat.jaxprs import (
    Equation,
    Jaxpr,
    dialect_of,
    dialect_of_operation,
    inner_jaxprs,
    parameter_names,
)
from kerneltest.trace.jax_compat.patches import report_platform
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.rewrite import inline_equations, rewrite_jaxpr
from kerneltest.trace.walk import equations_in, iter_equations, primitive_name

# Tried in turn for an implementation with a Pallas call.
PLATFORMS = ("cuda", "tpu-v5e", "rocm")


def jax_platform_name(platform: str) -> str:
    """JAX's name for a platform, which for any TPU generation is `tpu`."""
    return TPUS[platform].platform if platform in TPUS else platform


# Part of the key of `jax.jit`'s traces, so that a trace for another platform or kernel is not reused.
_traced_for = jax.make_user_context(default_value=None)
_queried_by: set[int] = set()  # ids of kernels that have asked for the platform or the kind of device


@contextmanager
def simulate_platform(platform: str, kernel: object) -> Iterator[None]:
    """Has `jax.default_backend()` name a platform while a kernel is traced; "" stands for the machine's own."""

    def note() -> None:
        _queried_by.add(id(kernel))

    def answer() -> str:
        note()
        return "gpu" if platform in ("cuda", "rocm") else jax_platform_name(platform)

    with report_platform(answer), answer_for_devices(note), _traced_for((platform, id(kernel))):
        yield


def queries_platform(kernel: object) -> bool:
    """Returns whether a kernel has queried the platform in this trace or in an earlier one, which JAX may reuse."""
    return id(kernel) in _queried_by


_BRANCHES = "branches_platforms"  # the parameter with the platforms of each branch, None for a default branch


def is_platform_dependent(jaxpr: Jaxpr) -> bool:
    """Returns whether a jaxpr contains `jax.lax.platform_dependent`."""
    return any(equation.params.get(_BRANCHES) is not None for equation, _ in iter_equations(jaxpr))


def resolve_platform(jaxpr: Jaxpr, platform: str) -> Jaxpr:
    """Replaces every `jax.lax.platform_dependent` of a jaxpr, open or closed, by its branch for a platform.

    "" stands for this machine's platform, or else the first of `PLATFORMS` that has a branch. The Failure is
    `unimplemented` if there is no branch.
    """
    preferred = [*map(jax_platform_name, (platform,) if platform else (jax.default_backend(), *PLATFORMS))]

    def rule(equation: Equation) -> Sequence[Equation] | None:
        platforms = equation.params.get(_BRANCHES)
        if platforms is None:
            return None
        found = [i for each in preferred for i, names in enumerate(platforms) if names is None or each in names]
        if not found:
            known = ", ".join(name for names in platforms for name in names or ())
            sentence = "jax.lax.platform_dependent has a branch for {known}, but not for {platform}"
            values = {"known": known, "platform": jax_platform_name(platform)}
            raise Failure(Verdict.UNIMPLEMENTED, Stated(sentence, values, line_of(equation.source_info)))
        branch = rewrite_jaxpr(equation.params["branches"][found[0]], rule)
        return inline_equations(jaxpr_as_fun(branch), equation.invars[1:], equation.outvars)

    return rewrite_jaxpr(jaxpr, rule)


INTERPRETED_TPU = "tpu-v5e"
"""The TPU generation for which TPU kernels are interpreted."""

_SPARSE_TPU = "tpu-v5p"  # the first that has SparseCores

_SMALL_GPU = "a GPU of two multiprocessors"  # few enough for an interpreter to run in reasonable time
_GPUS = {"cuda": ("NVIDIA H200", 132), "rocm": ("gfx942", 304), _SMALL_GPU: ("NVIDIA H200", 2)}
# For a device that a kernel asks for: the kernel's language, and the evidence for it.
LANGUAGES = {
    INTERPRETED_TPU: ("mosaic_tpu", "it asks for the properties of a TPU"),
    _SPARSE_TPU: ("mosaic_tpu", "it asks for the SparseCores of a TPU"),
    _SMALL_GPU: ("triton", "it asks for the properties of a GPU"),
}


@contextmanager
def abstract_platform(platform: str) -> Iterator[None]:
    """A context in which a kernel is traced, lowered or interpreted for `cuda`, `rocm` or a TPU generation.

    Kernels may query the device, and JAX's caches keep its traces apart. For any other name the context does nothing.
    """
    if platform in TPUS:
        device = AbstractDevice(device_kind=TPUS[platform].device_kind, num_cores=1, platform="tpu")
    elif platform in _GPUS:
        kind, cores = _GPUS[platform]
        device = AbstractDevice(device_kind=kind, num_cores=cores, platform="gpu")
    else:
        yield
        return
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=device)), answer_for_devices():
        yield


def call_on(platform: str, function: Callable[..., Any], *leaves: Any) -> Any:
    """Calls a function as on a platform."""
    with abstract_platform(platform):
        return function(*leaves)


# The device that has an attribute: `pltpu.create_tensorcore_mesh` asks for the cores of a TPU, and a kernel that starts
# one program on each multiprocessor for those of a GPU.
_OWNERS = {"num_cores": INTERPRETED_TPU, "core_count": _SMALL_GPU, "compute_capability": _SMALL_GPU}


def required_device(error: Exception) -> str:
    """The device for which tracing would not have raised, or "". Libraries raise their own exceptions from JAX's."""
    for cause in iter_causes(error):
        if isinstance(cause, RuntimeError) and "does not have SparseCores" in exception_text(cause):
            return _SPARSE_TPU  # raised by `plsc.get_sparse_core_info`
        if isinstance(cause, ValueError) and "TPU device kind" in exception_text(cause):
            return INTERPRETED_TPU  # raised by `pltpu.emit_pipeline` and `pltpu.get_tpu_info`
        if isinstance(cause, AttributeError) and cause.name in _OWNERS:
            return _OWNERS[cause.name]
    return ""


# The Pallas language that a call is written in, and the evidence for it.

DIALECT_MODULES = {"triton": "pallas.triton", "mosaic_gpu": "pallas.mosaic_gpu", "mosaic_tpu": "pallas.tpu"}


def languages_of(equation: Equation) -> Iterator[tuple[str, str]]:
    """Yields the languages that parts of a Pallas call are particular to, each with that part in words.

    Parameters decide first, then prefetched scalars, the memory of blocks and scratch, and operations.
    """
    for name, value in equation.params.items():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if dialect := dialect_of(item):
                yield dialect, f"{name} is {DIALECT_MODULES[dialect]}.{type(item).__name__}"
    if count := getattr(equation.params.get("grid_mapping"), "num_index_operands", 0):
        yield "mosaic_tpu", f"{count} scalar argument{'s are' if count > 1 else ' is'} prefetched"
    for body in inner_jaxprs(equation):
        for number, (variable, name) in enumerate(zip(body.invars, parameter_names(body), strict=True)):
            space = getattr(variable.aval, "memory_space", None)
            if dialect := dialect_of(space):
                yield dialect, f"{name or f'argument {number}'} is in {DIALECT_MODULES[dialect]}.{space!r}"
    for inner, _ in equations_in(equation):
        if dialect := dialect_of_operation(inner):
            line = line_of(inner.source_info)
            place = f" ({line})" if line else ""
            yield dialect, f"{primitive_name(inner)} is from {DIALECT_MODULES[dialect]}{place}"
