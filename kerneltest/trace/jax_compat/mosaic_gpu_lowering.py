"""JAX's lowering of Mosaic GPU kernels, for a GPU of any generation."""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import takewhile
from typing import Any, TypeVar

import jax
from jax._src import source_info_util
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes

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

    Raises:
      Failure: `unavailable` if JAX does not use it for this kernel, as it does not by default before 0.12.
    """
    found: list[T] = []

    def take(module: Any) -> None:
        found.append(read(module.operation))
        raise _DoneError

    _own_lowering()  # before it is replaced
    token = _take.set(take)
    try:
        with lowering_for(target), replace_attributes(Replacement(_dialect(), "lower_mgpu_dialect", _lower_or_take)):
            jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",))
    except _DoneError:
        return found[0]
    finally:
        _take.reset(token)
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
    token = _target.set(target)
    try:
        with (
            use_abstract_mesh(AbstractMesh((), (), abstract_device=device)),
            replace_attributes(*_arch_replacements()),
        ):
            yield
    finally:
        _target.reset(token)
