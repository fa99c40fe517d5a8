"""Names and places inside JAX: the class of a closed jaxpr, Pallas' languages, the cache on disk, the user's lines."""

import functools
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
from jax._src import config, source_info_util
from jax._src.pallas import primitives as of_all
from jax.extend.core import ClosedJaxpr as ClosedJaxpr  # type: ignore[attr-defined, unused-ignore]
from jax.extend.core import Primitive

from kerneltest.core.source_location import shown, where_raised

_HOMES = {
    "jax._src.pallas.triton.": "triton",
    "jax._src.pallas.mosaic_gpu.": "mosaic_gpu",
    "jax._src.pallas.mosaic.": "mosaic_tpu",
}


def dialect_of(parameter: Any) -> str:
    """The language that one parameter of a Pallas call belongs to, `triton`, `mosaic_gpu` or `mosaic_tpu`, or ""."""
    home = type(parameter).__module__
    return next((dialect for prefix, dialect in _HOMES.items() if home.startswith(prefix)), "")


@functools.cache
def _primitives(module: ModuleType) -> frozenset[Primitive]:
    """Those that it has alone."""
    shared = vars(of_all).values()
    return frozenset(each for each in vars(module).values() if isinstance(each, Primitive) and each not in shared)


def dialect_of_operation(equation: Any) -> str:
    """The language that alone has an equation's primitive, or the memory that it works on; "" where all do."""
    for prefix, dialect in _HOMES.items():
        module = sys.modules.get(f"{prefix}primitives")  # no kernel speaks a language that nobody has imported
        if module is not None and equation.primitive in _primitives(module):
            return dialect
    spaces = (getattr(variable.aval, "memory_space", None) for variable in equation.invars)
    return next(filter(None, map(dialect_of, spaces)), "")


def without_disk_cache() -> AbstractContextManager[Any]:
    """Compiles without JAX's cache on disk, from which code for a device that is not there cannot be read back."""
    off: AbstractContextManager[Any] = config.enable_compilation_cache(False)
    return off


@contextmanager
def debugging_off_in_callbacks() -> Iterator[None]:
    """Switches JAX's debugging modes off for all threads: callbacks run on XLA's, which see no thread's own values."""
    modes = {
        "jax_debug_nans": config.debug_nans,
        "jax_debug_infs": config.debug_infs,
        "jax_disable_jit": config.disable_jit,
    }
    on = [name for name, mode in modes.items() if mode.get_global()]
    for name in on:
        jax.config.update(name, False)
    try:
        yield
    finally:
        for name in on:
            jax.config.update(name, True)


_JAX = str(Path(jax.__file__).parent)


def user_line(error: BaseException) -> str:
    """` (FILE:LINE)` of the last frame outside JAX and kerneltest, or ""."""
    return where_raised(error, _JAX)


def whole_tracebacks() -> AbstractContextManager[Any]:
    """What JAX raises keeps JAX's own frames."""
    whole: AbstractContextManager[Any] = config.traceback_filtering("off")
    return whole


def raised_in_jax(error: BaseException | None) -> bool:
    """Whether a line of JAX's raised an error, and not one of code that JAX called; with `whole_tracebacks`."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return bool(frames) and frames[-1].filename.startswith(_JAX)


def line_of(source_info: Any) -> str:
    """`FILE:LINE` of the user's code that an equation's `source_info` remembers, or ""."""
    frame = source_info_util.user_frame(source_info.traceback)
    return f"{shown(frame.file_name)}:{frame.start_line}" if frame is not None else ""


_AT = re.compile(r" at (.+):(\d+)$")


def line_of_function(jaxpr: Any) -> str:
    """`FILE:LINE` at which the user's function behind a jaxpr was defined, or ""."""
    info = getattr(jaxpr, "debug_info", None)
    found = _AT.search(str(getattr(info, "func_src_info", "") or ""))
    return f"{shown(found.group(1))}:{found.group(2)}" if found and not found.group(1).startswith(_JAX) else ""


def placed(equation: Any, caller: Any = None) -> Any:
    """An equation in which those inside JAX's own jitted functions have the line of the call (see `line_of_nested`)."""
    if caller is not None:
        equation = equation.replace(source_info=caller.source_info)
    inner = equation.params.get("jaxpr")
    if not isinstance(inner, ClosedJaxpr) or (caller is None and not is_of_jax(inner)):
        return equation
    body = inner.jaxpr.replace(eqns=[placed(each, equation) for each in inner.jaxpr.eqns])
    return equation.replace(params={**equation.params, "jaxpr": inner.replace(jaxpr=body)})


def is_of_jax(jaxpr: Any) -> bool:
    """Whether the function behind a jaxpr is one of JAX's own."""
    return _JAX in str(getattr(getattr(jaxpr, "jaxpr", jaxpr).debug_info, "func_src_info", "") or "")


def equations_being_lowered(error: BaseException | None) -> list[Any]:
    """The equations that JAX was lowering when it raised, outermost first: its frames hold them."""
    while error is not None:
        if equations := [equation for equation, file in _equations_held(error) if "lowering" in Path(file).stem]:
            return equations
        error = error.__cause__ or error.__context__
    return []


def line_in_hand(error: BaseException) -> str:
    """` (FILE:LINE)` of the user's code behind the last equation that JAX worked at when it raised, or ""."""
    lines = [line_of(equation.source_info) for equation, _ in _equations_held(error)]
    return next((f" ({line})" for line in reversed(lines) if line), "")


def _equations_held(error: BaseException) -> Iterator[tuple[Any, str]]:
    """The equations in the frames of an error, with the file of each frame."""
    trace = error.__traceback__
    while trace is not None:
        if hasattr(equation := trace.tb_frame.f_locals.get("eqn"), "source_info"):
            yield equation, trace.tb_frame.f_code.co_filename
        trace = trace.tb_next


def line_of_nested(equations: list[Any]) -> str:
    """`FILE:LINE` of the user's code behind the last of some equations, each nested in the one before it, or "".

    The equations inside one of JAX's own jitted functions carry the line that first traced it, perhaps another
    kernel's, so the line of the call stands for them.
    """
    line = ""
    for equation in equations:
        line = line_of(equation.source_info) or line
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        home = getattr(getattr(getattr(inner, "jaxpr", inner), "debug_info", None), "func_src_info", "") or ""
        if _JAX in str(home):
            break
    return line
