"""Pallas call to GPU code, with no GPU: JAX's own lowering rules, asked for a platform that is not there."""

import functools
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax._src import source_info_util
from jax.sharding import AbstractDevice, AbstractMesh
from jaxlib.mlir import ir
from jaxlib.triton import dialect as triton_dialect

from kerneltest.backends.codegen.hints import lowering_hint
from kerneltest.core.failures import Failure
from kerneltest.core.places import shown
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict
from kerneltest.jaxprs.trace import Call, Traced, callable_of, runnable

# MLIR's bindings look for a Python module of the dialect whenever they touch an operation, until they find one: a tenth
# of a lowering and most of reading its result.
sys.modules.setdefault("jaxlib.mlir.dialects.tt", types.ModuleType("jaxlib.mlir.dialects.tt"))

_TRITON, _MOSAIC = "__gpu$xla.gpu.triton", "mosaic_gpu_v2"

_MISSING = re.compile(r"unimplemented primitive in pallas (?:\w+ )?lowering: ([\w-]+)", re.IGNORECASE)
# What JAX says, the verdict, and what it means to the author of a kernel.
_RULES = (
    (
        re.compile(r"size is a power of 2.*?shape (\([^)]*\))", re.DOTALL),
        Verdict.COMPILE_ERROR,
        "Triton computes on arrays whose size is a power of two, and {0} is not: round the block up "
        "(pl.next_power_of_2) and mask what lies past the end",
    ),
    (
        re.compile(r"dynamic grid bounds not supported"),
        Verdict.UNIMPLEMENTED,
        "the grid depends on a value at run time, which the Triton lowering does not take: make it static, and let "
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
        "a dtype has no lowering here: {1}; convert it before, as by .astype(jnp.float32)",
    ),
)


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """One Pallas call as GPU code.

    Attributes:
      name: of the kernel function.
      language: `triton`, or `mosaic_gpu`, whose code only XLA compiles.
      grid: programs along x, y and z.
      warps, stages: as its compiler parameters say.
      bytecode: the MLIR module; its function takes a pointer to each input, then to each output.
      aliases: output to the input whose memory it shares.
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
        """The module as MLIR text."""
        with mlir_context():
            return str(ir.Module.parse(self.bytecode))


def lower(traced: Traced, target: Target) -> tuple[Kernel, ...]:
    """Every Pallas call of a kernel, in order, lowered for `target`.

    Raises:
      Failure: names the call, the primitive where one has no rule, the user's line and what to write instead.
    """
    if "mosaic_gpu" in traced.dialects:
        # Its calls stand amid operations on references that only make sense together.
        shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype) for i in traced.inputs]
        return _lowered(runnable(traced, interpret=False), shapes, target, "")
    return tuple(kernel for call in traced.calls for kernel in lower_call(call, target))


@functools.lru_cache(maxsize=512)
def lower_call(call: Call, target: Target) -> tuple[Kernel, ...]:
    """One Pallas call, lowered; see `lower`."""
    run, shapes = callable_of(call)
    return _lowered(run, shapes, target, call.name)


def _lowered(run: Any, shapes: list[Any], target: Target, name: str) -> tuple[Kernel, ...]:
    device = AbstractDevice(device_kind=target.device_kind, num_cores=None, platform="gpu")
    try:
        with jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
            lowered = jax.jit(run).trace(*shapes).lower(lowering_platforms=(target.platform,))
    except Exception as error:
        raise _explained(error, name) from error
    return tuple(_kernel(op) for op in _operations(lowered.compiler_ir("stablehlo").operation) if _is_kernel(op))


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from _operations(inner.operation)


def _is_kernel(operation: Any) -> bool:
    if operation.name != "stablehlo.custom_call":
        return False
    return ir.StringAttr(operation.attributes["call_target_name"]).value in (_TRITON, _MOSAIC)


def _kernel(operation: Any) -> Kernel:
    attributes = operation.attributes
    config = ir.DictAttr(attributes["mhlo.backend_config"])
    if ir.StringAttr(attributes["call_target_name"]).value == _MOSAIC:
        return Kernel("", "mosaic_gpu", (1, 1, 1), 0, 0, ir.StringAttr(config["module"]).value_bytes, {})

    def number(key: str) -> int:
        return int(ir.IntegerAttr(config[key]).value)

    return Kernel(
        name=ir.StringAttr(config["name"]).value,
        language="triton",
        grid=(number("grid_x"), number("grid_y"), number("grid_z")),
        warps=number("num_warps"),
        stages=number("num_stages"),
        bytecode=ir.StringAttr(config["ir"]).value_bytes,
        aliases=_aliases(str(attributes["output_operand_aliases"]) if "output_operand_aliases" in attributes else ""),
    )


_ALIAS = re.compile(r"output_tuple_indices = \[(\d*)\],\s*operand_index = (\d+)")


def _aliases(text: str) -> dict[int, int]:
    return {int(output or 0): int(operand) for output, operand in _ALIAS.findall(text)}


@functools.cache
def mlir_context() -> Any:
    """A context that knows the Triton dialect."""
    context = ir.Context()
    triton_dialect.register_dialect(context)
    context.load_all_available_dialects()
    return context


def _explained(error: Exception, name: str) -> Failure:
    """What JAX said, with the primitive, the user's line and a mend."""
    text = str(error) or type(error).__name__
    equations = _lowering_equations(error)
    where = _place(equations)
    within = f"kernel {name}{': ' if name else ''}" if name else ""
    if missing := _MISSING.search(text):
        primitive = missing.group(1)
        instead = lowering_hint(primitive)
        hint = f"; write instead: {instead}" if instead else ""
        said = f"{within}primitive {primitive} has no lowering{where}{hint}"
        return Failure(Verdict.UNIMPLEMENTED, f"{said}\n{text.splitlines()[0]}")
    for words, verdict, meaning in _RULES:
        if found := words.search(text):
            groups = [group or "" for group in found.groups()]
            return Failure(verdict, f"{within}{meaning.format(*groups)}{where}\n{text.splitlines()[0]}")
    verdict = Verdict.UNIMPLEMENTED if isinstance(error, NotImplementedError) else Verdict.COMPILE_ERROR
    what = f"primitive {equations[-1].primitive.name}: " if equations else ""
    return Failure(verdict, f"{within}{what}{type(error).__name__}: {text}{where}")


def _lowering_equations(error: BaseException | None) -> list[Any]:
    """The equations that JAX was lowering when it raised, outermost first: its frames hold them."""
    while error is not None:
        frames = []
        trace = error.__traceback__
        while trace is not None:
            frames.append(trace.tb_frame)
            trace = trace.tb_next
        found = [
            frame.f_locals["eqn"]
            for frame in frames
            if "eqn" in frame.f_locals and "lowering" in Path(frame.f_code.co_filename).stem
        ]
        if found:
            return found
        error = error.__cause__ or error.__context__
    return []


def _place(equations: list[Any]) -> str:
    """` (FILE:LINE)` of the user's code behind the innermost equation, or "".

    The equations inside one of JAX's own jitted functions carry the line that first traced it, perhaps another
    kernel's, so the line of the call stands for them.
    """
    place = ""
    for equation in equations:
        frame = _user_frame(equation.source_info)
        if frame:
            place = frame
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        home = getattr(getattr(getattr(inner, "jaxpr", inner), "debug_info", None), "func_src_info", "") or ""
        if str(Path(jax.__file__).parent) in str(home):
            break
    return f" ({place})" if place else ""


def _user_frame(source_info: Any) -> str:
    frame = source_info_util.user_frame(source_info.traceback)
    return f"{shown(frame.file_name)}:{frame.start_line}" if frame is not None else ""
