"""Lowering of Pallas calls to GPU code without a GPU, by JAX's own lowering rules for a platform that is absent."""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import AbstractDevice, AbstractMesh

from kerneltest.backends.codegen.launch_limits import check_counts, check_launch, mosaic_launch, too_many_programs
from kerneltest.backends.lowering_errors import Excess, Rule, lowering_failure
from kerneltest.core.patterns import in_order
from kerneltest.core.targets import TARGETS, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.mlir import CustomCall, custom_calls, module_text
from kerneltest.trace.runnable import call_as_function, runnable
from kerneltest.trace.tracing import Call, Traced

_TRITON, _MOSAIC = "__gpu$xla.gpu.triton", "mosaic_gpu_v2"
_ANY_ROCM = next(target for target in TARGETS.values() if target.platform == "rocm")


def _too_many_elements(most: str, after: str) -> Excess:
    shapes = (tuple(map(int, text.split("x")[:-1])) for text in re.findall(r"tensor<((?:\d+x)+)", after))
    shape = next((s for s in shapes if math.prod(s) > int(most)), None)
    block = f"a block of {' x '.join(map(str, shape))} elements" if shape else "a block"
    words = (
        f"{block} is more than the {int(most):,} that Triton computes on at once: use smaller blocks, or declare the "
        "longest axis that users have, as in kt.dim(maximum=...)"
    )
    return Excess(words, "elements of a block", math.prod(shape) if shape else None, int(most))


_RULES: tuple[Rule, ...] = (
    (
        re.compile(r"Maximum allowed number of elements is (\d+)(.*)", re.DOTALL),
        Verdict.RESOURCE_EXCEEDED,
        _too_many_elements,
    ),
    (
        in_order(r".*?size is a power of 2", r".*?shape (?=\()", r"(\([^)]*\))"),
        Verdict.COMPILE_ERROR,
        "Triton computes on arrays whose size is a power of two, and {0} is not: round the block up "
        "(pl.next_power_of_2) and mask the elements past the end",
    ),
    (
        re.compile(r"dynamic grid bounds not supported"),
        Verdict.UNIMPLEMENTED,
        "the grid depends on a value at run time, which the Triton lowering does not support: make it static, and let "
        "programs past the end do nothing",
    ),
    (
        re.compile(r"scalar prefetch not implemented"),
        Verdict.UNIMPLEMENTED,
        "scalar prefetch (num_scalar_prefetch) has no Triton lowering: pass the scalars as an input, and load them",
    ),
    (
        re.compile(r"scratch memory not implemented"),
        Verdict.UNIMPLEMENTED,
        "scratch_shapes has no Triton lowering: keep the value in a variable or a loop's carry",
    ),
    (
        re.compile(r"unsupported (?:d?types?)(?: for (\w+))?: (.+)"),
        Verdict.UNIMPLEMENTED,
        "a dtype has no lowering here: {1}; convert first, as in .astype(jnp.float32)",
    ),
)


@dataclass(frozen=True, eq=False, slots=True)
class LoweredKernel:
    """One Pallas call as GPU code.

    Attributes:
      name: of the kernel function.
      language: `triton`, or `mosaic_gpu`, whose code only XLA compiles.
      grid: the numbers of programs along x, y and z.
      warps, stages: from its compiler parameters.
      bytecode: the MLIR module; its function takes a pointer to each input, then to each output.
      aliases: maps an output to the input whose memory it shares.
    """

    name: str
    language: str
    grid: tuple[int, int, int]
    warps: int
    stages: int
    bytecode: bytes
    aliases: Mapping[int, int]

    @property
    def text(self) -> str:
        """The MLIR module as text."""
        return module_text(self.bytecode)


def lower(traced: Traced, target: Target) -> tuple[LoweredKernel, ...]:
    """Lowers every Pallas call of a kernel for a target.

    Returns:
      The lowered calls, in order.

    Raises:
      Failure: with the call, the primitive that has no rule, the user's line and advice.
    """
    if "mosaic_gpu" in traced.dialects:
        # Its calls are surrounded by operations on references, so the whole function is lowered at once.
        shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype) for i in traced.inputs]
        for call in traced.calls:
            check_launch(call.name, mosaic_launch(call.equation), 0, target)
        return _lower(runnable(traced, interpret=False), shapes, target, "", _RULES)
    return tuple(kernel for call in traced.calls for kernel in lower_call(call, target))


def lower_call(call: Call, target: Target) -> tuple[LoweredKernel, ...]:
    """Lowers one Pallas call; see `lower`."""
    # For ROCm, JAX has only Triton, whose lowering does not depend on the architecture.
    kernels = _lower_once(call, _ANY_ROCM if target.platform == "rocm" else target)
    for kernel in kernels:
        check_launch(call.name, kernel.grid, kernel.warps, target)
    return kernels


@functools.lru_cache(maxsize=512)
def _lower_once(call: Call, target: Target) -> tuple[LoweredKernel, ...]:
    run, shapes = call_as_function(call)
    check_counts(call)
    return _lower(run, shapes, target, call.name, (*_RULES, too_many_programs(call.grid)))


def _lower(
    run: Callable[..., Any], shapes: list[jax.ShapeDtypeStruct], target: Target, name: str, rules: Sequence[Rule]
) -> tuple[LoweredKernel, ...]:
    device = AbstractDevice(device_kind=target.device_kind, num_cores=None, platform="gpu")
    try:
        with jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
            lowered = jax.jit(run).trace(*shapes).lower(lowering_platforms=(target.platform,))
    except Exception as error:
        raise lowering_failure(error, name, rules) from error
    return tuple(_kernel(custom) for custom in custom_calls(lowered, frozenset({_TRITON, _MOSAIC})))


def _kernel(call: CustomCall) -> LoweredKernel:
    config = call.config
    if call.target == _MOSAIC:
        return LoweredKernel("", "mosaic_gpu", (1, 1, 1), 0, 0, config["module"], {})
    return LoweredKernel(
        name=config["name"].decode(),
        language="triton",
        grid=(config["grid_x"], config["grid_y"], config["grid_z"]),
        warps=config["num_warps"],
        stages=config["num_stages"],
        bytecode=config["ir"],
        aliases=call.aliases,
    )
