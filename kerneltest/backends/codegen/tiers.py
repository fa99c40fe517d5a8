"""The tiers of GPU code without a GPU: JAX's lowering, and Triton's compiler."""

import functools
import importlib.util
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from kerneltest.backends.codegen.block_limits import (
    check_block,
    check_features,
    check_shared_memory,
    memory_rules,
    other_generation,
)
from kerneltest.backends.compilation import Answer, CompiledCall, Compiler, CompileTier, LowerTier
from kerneltest.backends.lowering_errors import (
    Excess,
    Rule,
    advise_backends,
    lacking,
    lowering_failure,
    refused,
    user_place,
)
from kerneltest.core.details import NotBuilt, ResourceExceeded, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.source_location import in_order
from kerneltest.core.targets import TARGETS, X_BY_JAX, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jaxprs import Equation, core_meshes
from kerneltest.trace.jax_compat.mlir import CustomCall, custom_calls, module_text, mosaic_gpu_facts
from kerneltest.trace.jax_compat.mosaic_gpu_lowering import conflicting_casts, has_lowering, lowering_for
from kerneltest.trace.jax_compat.source_lines import line_of, processed_line
from kerneltest.trace.runnable import call_as_function, runnable
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.triton_kernels import is_triton_call, scalar_of, triton_arguments, triton_ir
from kerneltest.trace.walk import equations_in, primitive_name

# Limits of GPU code: the size of a launch, and counts of 32 bits.

_INT32 = 2**31 - 1


def too_many_programs(grid: Sequence[int]) -> Rule:
    """Returns the rule for JAX's error about a grid: Triton has only 65,535 programs along y and z."""
    programs = math.prod(grid)
    words = (
        f"the {programs:,} programs of the grid {tuple(grid)} do not fit into one launch, whose x has at most "
        f"{X_BY_JAX:,}, and whose y and z 65,535: JAX maps the last two axes to y and z if they are no longer than "
        "that, and all others to x. Let each program do more, or make the last axes shorter and the first one longer"
    )
    excess = Excess(words, "programs of a launch", programs)
    return re.compile("Cannot fix pallas kernel launch grid"), Verdict.RESOURCE_EXCEEDED, lambda: excess


def check_counts(call: Call) -> None:
    """Raises a Failure if a loop's number of iterations silently overflows the 32 bits of the lowered code."""
    for equation, _ in equations_in(call.equation):
        count = equation.params["length"] if primitive_name(equation) == "scan" else 0
        if count > _INT32:
            words = (
                f"a loop of {count:,} iterations overflows its 32-bit counter: nest a loop of fewer iterations in "
                "another one"
            )
            source = line_of(equation.source_info)
            raise Failure(Verdict.COMPILE_ERROR, NotBuilt(Stage.LOWER, call.name, "", words, source=source))


def check_launch(name: str, grid: Sequence[int], warps: int, target: Target) -> None:
    """Raises a Failure if the programs along x, y, z, or their `warps`, exceed the target's limits."""
    for axis, programs, most in zip("xyz", grid, target.grid, strict=True):
        if programs > most:
            words = (
                f"{programs:,} programs along {axis} of the launch, but {target} allows {most:,}: let each program do "
                f"more{_OTHER_AXIS[axis]}"
            )
            raise _too_large(name, f"programs along {axis}", programs, most, words)
    threads = warps * target.warp
    items = grid[0] * threads
    if target.work_items and items > target.work_items:
        words = (
            f"{grid[0]:,} programs along x of the launch, of {threads} threads each, are {items:,} work items, but "
            f"{target} allows {target.work_items:,}, or {target.work_items // threads:,} programs: let each program do "
            "more, or use fewer warps (num_warps)"
        )
        raise _too_large(name, "work items", items, target.work_items, words)


_OTHER_AXIS = {"x": "", **dict.fromkeys("yz", ", or make the longest axis the last one of the grid, which is x")}


def mosaic_launch(equation: Equation) -> tuple[int, int, int]:
    """Returns the programs along x, y and z of a Mosaic GPU call: its last axis is x, the one before y, the rest z."""
    params = equation.params
    if meshes := core_meshes(equation):
        grid, cluster = tuple(meshes[0].grid), tuple(meshes[0].cluster)
    else:
        semantics = getattr(params.get("compiler_params"), "dimension_semantics", None)
        axes = params["grid_mapping"].grid
        kinds = semantics or [""] * len(axes)
        grid = tuple(n for n, kind in zip(axes, kinds, strict=True) if "sequential" not in str(kind).lower())
        cluster = ()
    whole = [math.prod(axes) for axes in zip(_last_three(grid), _last_three(cluster), strict=True)]
    return whole[2], whole[1], whole[0]


def _last_three(grid: Sequence[int]) -> list[int]:
    padded = [1, 1, 1, *grid]
    return [math.prod(padded[:-2]), *padded[-2:]]


def _too_large(kernel: str, resource: str, needed: int, available: int, words: str) -> Failure:
    detail = ResourceExceeded(Stage.LOWER, kernel, resource, needed, available, "", words)
    return Failure(Verdict.RESOURCE_EXCEEDED, detail)


# Lowering of Pallas calls to GPU code without a GPU, by JAX's own lowering rules for a platform that is absent.

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


_NO_CALL = f"JAX {jax.__version__} does not lower pl.pallas_call to Mosaic GPU: write the kernel with plgpu.kernel"

_RULES: tuple[Rule, ...] = (
    (
        re.compile(r"Maximum allowed number of elements is (\d+)(.*)", re.DOTALL),
        Verdict.RESOURCE_EXCEEDED,
        _too_many_elements,
    ),
    refused(
        in_order(r".*?size is a power of 2", r".*?shape (?=\()", r"(\([^)]*\))"),
        "Triton computes on arrays whose size is a power of two, and {0} is not: round the block up "
        "(pl.next_power_of_2) and mask the elements past the end",
    ),
    lacking(
        r"dynamic grid bounds not supported",
        "the grid depends on a value at run time, which the Triton lowering does not support: make it static, and let "
        "programs past the end do nothing",
    ),
    lacking(
        r"scalar prefetch not implemented",
        "scalar prefetch (num_scalar_prefetch) has no Triton lowering: pass the scalars as an input, and load them",
    ),
    lacking(
        r"scratch memory not implemented",
        "scratch_shapes has no Triton lowering: keep the value in a variable or a loop's carry",
    ),
    lacking(
        r"unsupported (?:d?types?)(?: for (\w+))?: (.+)",
        "a dtype has no lowering here: {1}; convert first, as in .astype(jnp.float32)",
    ),
)


@dataclass(frozen=True, eq=False, slots=True)
class LoweredKernel:
    """One Pallas call as GPU code."""

    name: str  # of the kernel function
    language: str  # `triton`, or `mosaic_gpu`, whose code only XLA compiles
    grid: tuple[int, int, int]  # the numbers of programs along x, y and z
    # warps, stages: from its compiler parameters
    warps: int
    stages: int
    bytecode: bytes  # the MLIR module, in bytecode or as text
    aliases: Mapping[int, int]  # maps an output to the input whose memory it shares
    facts: Mapping[str, int]  # what a block takes, as `mosaic_gpu_facts` returns it
    # the arguments of the module's function: the numbers of the inputs, then outputs, that they point to, and scalars;
    # None if it takes a pointer to each input, then to each output
    arguments: tuple[int | np.generic, ...] | None = None

    @property
    def text(self) -> str:
        return module_text(self.bytecode)

    @property
    def suffix(self) -> str:
        return "ttir" if self.language == "triton" else ""


def lower(traced: Traced, target: Target) -> tuple[LoweredKernel, ...]:
    """Lowers every Pallas call of a kernel for a target, in order; see `LowerTier.lower`."""
    if "mosaic_gpu" in traced.dialects:
        return lower_mosaic_gpu(traced, target)[1]
    return tuple(kernel for call in traced.calls for kernel in lower_call(call, target))


def lower_mosaic_gpu(traced: Traced, target: Target) -> tuple[Any, tuple[LoweredKernel, ...]]:
    """Lowers a function with Mosaic GPU calls as a whole; returns JAX's lowered function and its kernels."""
    check_mosaic_gpu(traced, target)
    shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype) for i in traced.inputs]
    calls = [call for call in traced.calls if call.dialect == "mosaic_gpu"]
    name = calls[0].name if len(calls) == 1 else ""
    try:
        rules = *_RULES, *memory_rules(calls, target)
        lowered = _lower(runnable(traced, interpret=False), shapes, target, name, rules)
    except Failure as failure:
        raise _explain_layouts(failure) from failure.__cause__
    kernels = tuple(_kernels(lowered))
    for kernel in kernels:
        check_shared_memory(calls, kernel.name, kernel.facts.get("shared memory", 0), target)
    return lowered, kernels


# Returns the failure, with the casts that disagree if JAX found no layouts because of them.
def _explain_layouts(failure: Failure) -> Failure:
    if failure.__cause__ is None or not isinstance(detail := failure.detail, NotBuilt):
        return failure
    casts = [(layout, user_place(place)) for layout, place in conflicting_casts(failure.__cause__)]
    if not casts:
        return failure
    listed = " and ".join(f"the cast to {layout}{f' at {place}' if place else ''}" for layout, place in casts)
    words = (
        f"{listed} disagree: values that meet in an operation have one layout"
        if len(casts) > 1
        else f"{listed} fits no operation that makes or uses the value"
    )
    return Failure(failure.verdict, replace(detail, meaning=words, source=casts[-1][1] or detail.source))


def check_mosaic_gpu(traced: Traced, target: Target) -> None:
    """Raises a Failure if a target lacks what the Mosaic GPU calls of a kernel use, as far as they show it."""
    check_features(traced, target)
    for call in traced.calls:
        if not has_lowering(call.equation):
            source = line_of(call.equation.source_info)
            raise Failure(Verdict.UNIMPLEMENTED, NotBuilt(Stage.LOWER, call.name, "", _NO_CALL, source=source))
        check_launch(call.name, mosaic_launch(call.equation), 0, target)
        check_block(call, target)


def lower_call(call: Call, target: Target) -> tuple[LoweredKernel, ...]:
    """Lowers one Pallas call; see `lower`."""
    if is_triton_call(call.equation):
        return (_lower_triton(call, target),)
    # For ROCm, JAX has only Triton, whose lowering does not depend on the architecture.
    kernels = _lower_once(call, _ANY_ROCM if target.platform == "rocm" else target)
    for kernel in kernels:
        check_launch(call.name, kernel.grid, kernel.warps, target)
    return kernels


def _lower_triton(call: Call, target: Target) -> LoweredKernel:
    text, equation = triton_ir(call.equation, target), call.equation
    inputs = len(equation.invars)
    arguments: list[int | np.generic] = []
    aliases = {}
    for argument, _ in triton_arguments(equation):
        if argument.operand is not None:
            arguments.append(argument.operand)
            if argument.output is not None:
                aliases[argument.output] = argument.operand
        elif argument.output is not None:
            arguments.append(inputs + argument.output)
        elif not argument.constant:
            arguments.append(scalar_of(argument.value))
    options = dict(equation.params["options"])
    warps, stages = options["num_warps"], options["num_stages"]
    check_launch(call.name, call.grid, warps, target)
    return LoweredKernel(
        call.name, "triton", equation.params["grid"], warps, stages, text.encode(), aliases, {}, tuple(arguments)
    )


@functools.lru_cache(maxsize=512)
def _lower_once(call: Call, target: Target) -> tuple[LoweredKernel, ...]:
    run, shapes = call_as_function(call)
    check_counts(call)
    try:
        return tuple(_kernels(_lower(run, shapes, target, call.name, (*_RULES, too_many_programs(call.grid)))))
    except Failure as failure:
        raise advise_backends(failure, call, "GPUs", "tpu") from failure.__cause__


def _lower(
    run: Callable[..., Any], shapes: list[jax.ShapeDtypeStruct], target: Target, name: str, rules: Sequence[Rule]
) -> Any:
    try:
        with lowering_for(target):
            return jax.jit(run).trace(*shapes).lower(lowering_platforms=(target.platform,))
    except Exception as error:
        raise lowering_failure(error, name, rules, processed_line(error).strip(" ()")) from error


def _kernels(lowered: Any) -> Iterator[LoweredKernel]:
    for call in custom_calls(lowered, frozenset({_TRITON, _MOSAIC})):
        if call.target == _MOSAIC:
            name, facts = mosaic_gpu_facts(call.config["module"])
            yield LoweredKernel(name, "mosaic_gpu", (1, 1, 1), 0, 0, call.config["module"], {}, facts)
        else:
            yield _triton_kernel(call)


def _triton_kernel(call: CustomCall) -> LoweredKernel:
    config = call.config
    return LoweredKernel(
        name=config["name"].decode(),
        language="triton",
        grid=(config["grid_x"], config["grid_y"], config["grid_z"]),
        warps=config["num_warps"],
        stages=config["num_stages"],
        bytecode=config["ir"],
        aliases=call.aliases,
        facts={},
    )


# Compilation of lowered kernels by Triton.

COMPILER = Compiler("kerneltest.backends.codegen.triton_compiler", "Triton's compiler")


def compile_kernel(kernel: LoweredKernel, target: Target) -> CompiledCall:
    """Compiles one kernel; see `CompileTier.compile`."""
    text = kernel.text
    request = {name: getattr(target, name) for name in ("platform", "arch", "warp", "shared_memory")}
    request |= {"text": text, "warps": kernel.warps, "stages": kernel.stages}
    answer = COMPILER.ask(request)
    if "verdict" in answer:
        raise _compile_failure(answer, kernel.name)
    ending = "ptx" if target.platform == "cuda" else "amdgcn"
    return CompiledCall(answer["facts"], _advice(answer["facts"], text, target), {ending: answer["assembly"]})


def _compile_failure(answer: Answer, kernel: str) -> Failure:
    verdict, message = Verdict(answer["verdict"]), answer["message"]
    if verdict is Verdict.RESOURCE_EXCEEDED:
        needed, available = answer.get("needed"), answer.get("available")
        detail = ResourceExceeded(Stage.COMPILE, kernel, "shared memory", needed, available, "B", message)
        return Failure(verdict, detail)
    said = f"{message} ({answer['printed']})" if answer.get("printed") else message
    return Failure(verdict, NotBuilt(Stage.COMPILE, kernel, "", said))


def spill_advice(facts: Mapping[str, int]) -> list[str]:
    """Returns advice on registers that do not suffice, if they do not."""
    if not facts.get("spills"):
        return []
    return [f"{facts['spills']} bytes per thread spilled from registers to memory: use smaller blocks or more warps"]


def _advice(facts: dict[str, int], text: str, target: Target) -> tuple[str, ...]:
    advice = spill_advice(facts)
    if facts["shared memory"] * 2 > target.shared_memory:
        share = facts["shared memory"] / target.shared_memory
        advice.append(
            f"{share:.0%} of the target's shared memory, so blocks run one at a time: use smaller ones or fewer stages"
        )
    if facts["float64 instructions"] and "f64" not in text:
        advice.append(f"{facts['float64 instructions']} float64 instructions in a kernel without float64 values")
    if "tt.dot" in text and not facts["matrix instructions"]:
        asked = " (inputPrecision = ieee asks for that)" if "inputPrecision = ieee" in text else ""
        advice.append(f"a dot without matrix instructions{asked}: every product is an ordinary multiply-add")
    return tuple(advice)


def unsupported_on(traced: Traced, target: Target) -> str:
    """Returns why kernels of this dialect are not lowered for `target`, or ""."""
    if foreign := traced.foreign_dialect({"mosaic_tpu"}):
        return f"a kernel written for {foreign} cannot be lowered for {target}"
    if "mosaic_gpu" in traced.dialects and target.platform != "cuda":
        return f"Mosaic GPU lowers for NVIDIA's GPUs, not for {target}"
    return other_generation(traced, target)


class LowerGpu(LowerTier):
    """Lowering to Triton IR, or to Mosaic GPU's for kernels written in it."""

    def unsupported_reason(self, traced: Traced) -> str:
        return unsupported_on(traced, self.target)

    def unavailable_for(self, traced: Traced) -> str:
        # Mosaic GPU kernels are lowered together with the function around them, for all devices of its mesh.
        return "" if "mosaic_gpu" in traced.dialects else super().unavailable_for(traced)

    def lower(self, traced: Traced) -> tuple[LoweredKernel, ...]:
        return lower(traced, self.target)


class CompileGpu(CompileTier, LowerGpu):
    """Compilation by the `triton` package to PTX and machine code, or to AMDGCN."""

    package = "triton"

    def unavailable(self) -> str:
        if importlib.util.find_spec("triton") is None:
            return "the triton package is not installed (pip install kerneltest[compile]); lower:* works without it"
        return super().unavailable()

    def unsupported_reason(self, traced: Traced) -> str:
        if "mosaic_gpu" in traced.dialects:
            return "Mosaic GPU code is compiled by XLA, not by Triton"
        return super().unsupported_reason(traced)

    def compile(self, call: LoweredKernel) -> CompiledCall:
        return compile_kernel(call, self.target)
