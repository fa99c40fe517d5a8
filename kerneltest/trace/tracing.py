"""Kernel to jaxpr, and what is read off there: its Pallas calls, and what its arithmetic does to numbers."""

import functools
import platform
import re
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AbstractDevice, AbstractMesh

from kerneltest.core.dtypes import ShapeDtype, dtype_named
from kerneltest.core.failures import Failure
from kerneltest.core.precision import Precision
from kerneltest.core.targets import TPUS
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature
from kerneltest.trace.jax_compat.names import ClosedJaxpr, user_line, whole_tracebacks
from kerneltest.trace.languages import language_of
from kerneltest.trace.platforms import PLATFORMS, answering, chosen, depends, has_asked
from kerneltest.trace.walk import ENTRIES, equations, has_reduced_dots, is_exact, name_of, named_dots


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One `pallas_call` or Mosaic kernel inside the function under test.

    Attributes:
      name: its name, or that of its function.
      grid: how many programs along each axis.
      dialect: `triton`, `mosaic_gpu`, `mosaic_tpu`, or `any` where the kernel leaves it open.
      told_by: what of it tells the dialect, in words; "" for `any`.
      equation: where it stands in the jaxpr.
    """

    name: str
    grid: tuple[int, ...]
    dialect: str
    told_by: str
    equation: Any


@dataclass(frozen=True, eq=False, slots=True)
class Traced:
    """A kernel as a jaxpr, for one signature.

    Attributes:
      function: from the leaves, in the pairing's order, to the flat outputs, as the kernel was written.
      jaxpr: the same, traced.
      inputs: shape and dtype of each leaf.
      outputs: shape and dtype of each output.
      calls: the kernels inside, in order.
      exact: its arithmetic is exact, in any order, on integers within the plan's limit: nothing but sums, moves and
        at most one multiplication of floats.
      reduced_dots: it has a float32 matrix product whose precision it leaves to the backend.
      named_dots: the dtype that such a product names, or JAX's default matmul precision for it; "" for none.
      by_platform: another platform may get another form of it.
      eager: it is to be called outside of `jax.jit`.
    """

    function: Callable[..., Any]
    jaxpr: ClosedJaxpr
    inputs: tuple[ShapeDtype, ...]
    outputs: tuple[ShapeDtype, ...]
    calls: tuple[Call, ...]
    exact: bool
    reduced_dots: bool
    named_dots: str = ""
    by_platform: bool = False
    eager: bool = False

    def products_on(self, row: Precision) -> Precision:
        """What a machine does to the kernel's numbers, where its products are as the kernel asks for them."""
        if not self.reduced_dots:
            return row.with_exact_dots()
        return row.with_dots_in(self.named_dots) if self.named_dots else row

    @property
    def dialects(self) -> frozenset[str]:
        return frozenset(call.dialect for call in self.calls)

    def written_for(self, foreign: Container[str]) -> str:
        """The first of some dialects that a call is written in, and what tells; "" where none is."""
        call = next((call for call in self.calls if call.dialect in foreign), None)
        return "" if call is None else f"{call.dialect} ({call.told_by})" if call.told_by else call.dialect


@contextmanager
def without_debugging() -> Iterator[None]:
    """Where JAX is entered: its debugging modes would blame a kernel for a NaN that is right, or not compile it."""
    with jax.debug_nans(False), jax.debug_infs(False), jax.disable_jit(False):
        yield


def trace(pairing: Pairing, signature: Signature, platform: str = "") -> Traced:
    """Traces the kernel for one signature, without values and without a device.

    A kernel that picks its form by platform has the form for `platform`: `cuda`, `rocm`, `tpu`, or a TPU generation
    such as `tpu-v5e`, which it may ask about. Where that is "", it has the one for the machine it runs on, or the
    first of others that holds a Pallas call.

    Raises:
      Failure: the kernel raised; names the signature and the user's line.
    """
    dtypes = dict(signature.dtypes)
    present = signature.leaves(pairing)
    inputs = tuple(ShapeDtype(signature.shape(leaf), dtype_named(dtypes[path])) for path, leaf in present.items())

    def flat(*leaves: Any) -> list[Any]:
        named = dict(zip(present, leaves, strict=True))
        values = pairing.assemble(named, dict(signature.dims), dict(signature.statics), oracle=False)
        return jax.tree_util.tree_leaves(pairing.call_kernel(values))

    def traced_for(each: str) -> Traced:
        function = functools.partial(_on, each, flat)  # another object each time, since JAX knows traces by it
        with answering(each, pairing.kernel):
            traced = trace_function(function, inputs, f"for {signature}")
        by_platform = depends(traced.jaxpr)
        if not (by_platform or has_asked(pairing.kernel)):
            return traced
        resolved = chosen(traced.jaxpr, each) if by_platform else traced.jaxpr
        # Which form it has must not be asked again.
        return replace(read(resolved, jaxpr_as_fun(resolved), inputs), by_platform=True)

    traced = traced_for(platform)
    if platform or traced.calls or not traced.by_platform:
        return traced
    return next((each for each in map(traced_for, PLATFORMS) if each.calls), traced)


def trace_function(function: Callable[..., Any], inputs: tuple[ShapeDtype, ...], how: str) -> Traced:
    """Traces a function of arrays that returns a list of them.

    Args:
      function: to trace.
      inputs: shape and dtype of each argument.
      how: what it is traced for, in the words of an error.

    Raises:
      Failure: it raised; names the user's line.
    """
    shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype) for i in inputs]
    try:
        with whole_tracebacks():
            try:
                closed = jax.make_jaxpr(function)(*shapes)
            except (ValueError, AttributeError) as error:
                if not (asked := _asks_for(error)):
                    raise
                function = functools.partial(_on, asked, function)
                closed = jax.make_jaxpr(function)(*shapes)
    except Exception as error:
        raise Failure(
            Verdict.RUNTIME_ERROR,
            f"the kernel raised {type(error).__name__} while traced {how}: {_meant(error)}{user_line(error)}",
        ) from error
    return read(closed, function, inputs)


def _asks_for(error: Exception) -> str:
    """What a kernel must be on to go on where it raised, or ""."""
    if "TPU device kind" in str(error):  # `pltpu.emit_pipeline` asks which one it is for
        return INTERPRETED
    return _SMALL_GPU if getattr(error, "name", None) == "core_count" else ""  # for a program on each multiprocessor


_TOO_LARGE = re.compile(r"-?\d{10,}")


def _meant(error: Exception) -> str:
    """What was raised, in words; JAX says of a number that does not fit only which argument of its own it is."""
    number = _TOO_LARGE.search(str(error)) if isinstance(error, OverflowError) else None
    if number is None:
        return str(error)
    return (
        f"{int(number[0]):,} does not fit into 32 bits, as integers have them here: keep it between -2^31 and 2^31 - 1 "
        "(cut the axis of an array that is longer, as by x.reshape(rows, columns), and index both), or compute in "
        f"64 bits (jax_enable_x64, jnp.int64): {error}"
    )


def on_a(platform: str) -> AbstractContextManager[Any]:
    """Where a kernel for a platform or a TPU generation is traced, lowered and interpreted on a machine without it.

    The kernel may ask what it is on, and JAX's caches know it apart.
    """
    if platform in TPUS:
        device = AbstractDevice(device_kind=TPUS[platform].device_kind, num_cores=1, platform="tpu")
    elif platform in _GPUS:
        kind, cores = _GPUS[platform]
        device = AbstractDevice(device_kind=kind, num_cores=cores, platform="gpu")
    else:
        return nullcontext()
    mesh: AbstractContextManager[Any] = jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device))
    return mesh


_SMALL_GPU = "a GPU of two multiprocessors"  # which an interpreter can run in good time
_GPUS = {"cuda": ("NVIDIA H200", 132), "rocm": ("gfx942", 304), _SMALL_GPU: ("NVIDIA H200", 2)}


def _on(platform: str, function: Callable[..., Any], *leaves: Any) -> Any:
    with on_a(platform):
        return function(*leaves)


def read(closed: ClosedJaxpr, function: Callable[..., Any], inputs: tuple[ShapeDtype, ...]) -> Traced:
    """What there is to know of a traced function."""
    # A jitted function called twice is one jaxpr, so its calls are the same equations.
    unique = {id(equation): equation for equation, _ in equations(closed.jaxpr) if name_of(equation) in ENTRIES}
    return Traced(
        function=function,
        jaxpr=closed,
        inputs=inputs,
        outputs=tuple(map(_shape_dtype, closed.jaxpr.outvars)),
        calls=tuple(map(call_of, unique.values())),
        exact=is_exact(closed.jaxpr),
        reduced_dots=has_reduced_dots(closed.jaxpr),
        named_dots=named_dots(closed.jaxpr),
    )


def _shape_dtype(variable: Any) -> ShapeDtype:
    return ShapeDtype(tuple(variable.aval.shape), np.dtype(variable.aval.dtype))


def call_of(equation: Any) -> Call:
    """What there is to know of one Pallas call."""
    params = equation.params
    dialect, told_by = language_of(equation)
    grid = getattr(params.get("grid_mapping"), "grid", ())
    debug = getattr(params.get("jaxpr"), "debug_info", None)
    name = params.get("name") or getattr(debug, "func_name", "")
    return Call(name, tuple(g for g in grid if isinstance(g, int)), dialect, told_by, equation)


INTERPRETED = "tpu-v5e"
"""The generation that TPU kernels are interpreted as."""

NEWEST = (0, 12)


def version_problem() -> str:
    """Why this JAX is not one that kerneltest was tested with, or ""; an older one is refused by the room's door."""
    if jax.__version_info__[:2] > NEWEST:
        return f"JAX {jax.__version__} is newer than {'.'.join(map(str, NEWEST))}, the newest that was tested"
    return ""


@functools.cache
def device_problem(platform: str = "") -> str:
    """Why JAX has no device of a platform here ("" for any), or "" where it has one."""
    try:
        jax.devices(platform or None)
    except Exception as error:  # an AssertionError without a word, where JAX_PLATFORMS names what is not there
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
        asked = f"; JAX_PLATFORMS is {platforms!r}" if platforms and "JAX_PLATFORMS" not in reason else ""
        return f"JAX finds no {f'{platform} device' if platform else 'device'} here: {reason}{asked}"
    return ""


def device(platform: str) -> Any:
    """The device of a platform that kernels run on: the user's default device, or else JAX's first."""
    there = jax.devices(platform)
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    return chosen if chosen in there else there[0]


SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_device", "jax_debug_nans", "jax_debug_infs",
            "jax_disable_jit")  # fmt: skip


def settings() -> dict[str, str]:
    """The user's settings of JAX that say what kernels compute, and those of `without_debugging`."""
    return {name: str(getattr(jax.config, name)) for name in SETTINGS}


@functools.cache
def environment() -> dict[str, str]:
    """Versions and devices, as JAX reports them."""
    found = [] if device_problem() else jax.devices()
    devices = sorted({f"{d.client.platform_version.splitlines()[0]}: {d.device_kind}" for d in found})
    return {
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "devices": "; ".join(devices) or device_problem(),
    }
