"""JAX's lowering of Mosaic GPU kernels, for a GPU of any generation."""

import functools
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import takewhile
from typing import Any, TypeVar

import jax
from jax._src import source_info_util
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh
from jaxlib.mlir import ir

from kerneltest.core.failures import Failure, exception_text, iter_causes
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.jax_compat.mlir import operations_in
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes, setting

T = TypeVar("T")
_target: ContextVar[Target | None] = ContextVar("target", default=None)
_take: ContextVar[Callable[[Any], None] | None] = ContextVar("take", default=None)


def _arch_replacements() -> Iterator[Replacement]:
    # Of JAX's choice of the architecture, if Mosaic GPU, whose import takes most of a second, is in use.
    for module in ("utils", "core"):  # the former since JAX 0.12
        owner: Any = sys.modules.get(f"jax.experimental.mosaic.gpu.{module}")
        if hasattr(owner, "_infer_arch"):
            yield Replacement(owner, "_infer_arch", _chosen_arch(owner._infer_arch))


def _chosen_arch(by_jax: Callable[[], tuple[int, int]]) -> Callable[[], tuple[int, int]]:
    def infer_arch() -> tuple[int, int]:
        target = _target.get()  # None in a thread that only runs at the same time
        if target is None or not target.compute_capability:
            return by_jax()
        major, minor = map(int, target.compute_capability.split("."))
        return major, minor

    return infer_arch


def is_chosen_while_traced(equation: Equation) -> bool:
    """Returns whether JAX's pipelines have made an equation for the GPU that the kernel was traced for."""
    pipeline = sys.modules.get("jax._src.pallas.mosaic_gpu.pipeline")
    if pipeline is None or not hasattr(pipeline, "mgpu_utils"):  # they do not ask for the GPU before JAX 0.12
        return False
    code, _ = equation.source_info.traceback.raw_frames()
    inner = takewhile(lambda file: not source_info_util.is_user_filename(file), (c.co_filename for c in code))
    return pipeline.__file__ in inner


def has_lowering(equation: Equation) -> bool:
    """Returns whether JAX lowers a call to Mosaic GPU. Since 0.11, it no longer lowers a `pallas_call`."""
    name: str = equation.primitive.name
    return name != "pallas_call" or jax.__version_info__ < (0, 11)


class _DoneError(Exception):
    pass


def read_dialect(function: Callable[..., Any], shapes: Sequence[Any], target: Target, read: Callable[[Any], T]) -> T:
    """Lowers a function that calls one kernel up to the dialect of whole vectors with layouts, and reads the module.

    Raises a Failure: `unavailable` if JAX does not use it for this kernel, as it does not by default before 0.12.
    """
    found: list[T] = []

    def take(module: Any) -> None:
        found.append(read(module.operation))
        raise _DoneError

    _own_lowering()  # before it is replaced
    taken = Replacement(_dialect(), "lower_mgpu_dialect", _lower_or_take)
    with suppress(_DoneError), setting(_take, take), lowering_for(target), replace_attributes(taken):
        jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",))
    if found:
        return found[0]
    said = f"JAX {jax.__version__} lowers this kernel without the dialect that is simulated, which JAX 0.12 uses"
    raise Failure(Verdict.UNAVAILABLE, said)


@functools.cache
def _dialect() -> Any:
    return sys.modules["jax.experimental.mosaic.gpu.dialect_lowering"]  # the kernel's own import has loaded it


@functools.cache
def _own_lowering() -> Callable[..., Any]:
    own: Callable[..., Any] = _dialect().lower_mgpu_dialect
    return own


def _lower_or_take(module: Any, *arguments: Any, **options: Any) -> Any:
    take = _take.get()  # None in a thread that only runs at the same time
    return take(module) if take is not None else _own_lowering()(module, *arguments, **options)


@contextmanager
def lowering_for(target: Target) -> Iterator[None]:
    """A context in which kernels are lowered for a target.

    An abstract device has no compute capability, for which Mosaic GPU assumes 9.0. It is also unknown inside of traced
    functions, which keep the mesh that they were traced with.
    """
    device = AbstractDevice(device_kind=target.device_kind, num_cores=None, platform="gpu")
    mesh = use_abstract_mesh(AbstractMesh((), (), abstract_device=device))
    with setting(_target, target), mesh, replace_attributes(*_arch_replacements()):
        yield


_SECONDS = 2.0
_CAST = "mosaic_gpu.layout_cast"
_NO_LAYOUTS = "Failed to infer a possible set of layouts"


def conflicting_casts(error: BaseException) -> list[tuple[str, str]]:
    """Returns a smallest set of casts without any of which JAX would infer layouts, or at least fail with less.

    Each has its layout, and its location as MLIR prints it. There are none if the error is another one, if the module
    has no layouts without casts either, or if the search takes too long.
    """
    frames = [frame for cause in iter_causes(error) for frame, _ in traceback.walk_tb(cause.__traceback__)]
    found = next((frame for frame in reversed(frames) if frame.f_code.co_name == "infer_layout"), None)
    if found is None or _NO_LAYOUTS not in exception_text(error):
        return []
    options: dict[str, Any] = {name: found.f_locals[name] for name in ("fuel", "arch") if name in found.f_locals}
    with suppress(TimeoutError):
        return _smallest(found.f_locals["module"], found.f_globals["infer_layout"], options)
    return []


def _smallest(module: Any, infer: Any, options: dict[str, Any]) -> list[tuple[str, str]]:
    text, end = module.operation.get_asm(enable_debug_info=True), time.monotonic() + _SECONDS

    def fails(kept: Collection[int]) -> bool:
        if time.monotonic() > end:
            raise TimeoutError
        changed = ir.Module.parse(text)
        for number, cast in enumerate(list(_casts(changed))):
            if number not in kept:
                cast.results[0].replace_all_uses_with(cast.operands[0])
                cast.erase()
        try:
            infer(changed, **options)
        except ValueError as error:
            return _NO_LAYOUTS in str(error)
        return False

    with module.context, ir.Location.unknown():
        casts = list(_casts(module))
        kept = set(range(len(casts)))
        if fails(()):
            return []
        for number in range(len(casts)):
            if fails(kept - {number}):
                kept.discard(number)
        return [(_layout(casts[number]), str(casts[number].location)) for number in sorted(kept)]


def _casts(module: Any) -> Iterator[Any]:
    return (operation for operation in operations_in(module.operation) if operation.name == _CAST)


def _layout(cast: Any) -> str:
    layouts = sys.modules["jax.experimental.mosaic.gpu.layouts"]
    layout = layouts.from_layout_attr(cast.attributes["new_layout"])
    name = getattr(layouts, "pprint_layout", lambda layout: type(layout).__name__)  # since JAX 0.12
    return str(name(layout))
