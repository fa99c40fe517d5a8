"""Source lines behind equations and errors, and whether an error is due to JAX or to the kernel."""

import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import jax
from jax._src import custom_batching, source_info_util
from jax._src.interpreters import ad
from jax._src.lib import xla_client  # type: ignore[attr-defined, unused-ignore]

from kerneltest.core.failures import Failure, Origin, exception_text, iter_causes, origin_of
from kerneltest.core.ids import Place
from kerneltest.core.source_location import is_internal, location_in_package, location_of_exception, relative_path
from kerneltest.trace.jax_compat.jaxprs import ClosedJaxpr, Equation, Jaxpr, SourceInfo
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes

_JAX = str(Path(jax.__file__).parent)
_KERNELTEST = str(Path(__file__).parents[2])
_CUSTOM_BATCHING = str(custom_batching.__file__)


def line_of(source_info: SourceInfo) -> str:
    """`FILE:LINE` of the user's code that an equation's `source_info` remembers, or ""."""
    frame = source_info_util.user_frame(source_info.traceback)
    return f"{relative_path(frame.file_name)}:{frame.start_line}" if frame is not None else ""


def place_of(source_info: SourceInfo) -> tuple[str, int, int] | None:
    """The file, line and column of the user's code that an equation's `source_info` remembers, or None."""
    frame = source_info_util.user_frame(source_info.traceback)
    return (relative_path(frame.file_name), frame.start_line, frame.start_column) if frame is not None else None


def user_frames(source_info: SourceInfo) -> list[tuple[str, int]]:
    """FILE:LINE and column of the frames of the kernel that an equation remembers, from the inside out."""
    frames = takewhile(lambda f: not is_internal(f.file_name), source_info_util.user_frames(source_info.traceback))
    return [(f"{relative_path(frame.file_name)}:{frame.start_line}", frame.start_column) for frame in frames]


@contextmanager
def keep_lines_of_gradients() -> Iterator[None]:
    """A context in which equations that a custom gradient traces remember its lines, not those of the call."""
    tables = [table for table in (ad.primitive_transposes, ad.fancy_transposes) if ad.custom_lin_p in table]
    with replace_attributes(
        *(Replacement(table, ad.custom_lin_p, _without_context(table[ad.custom_lin_p])) for table in tables)
    ):
        yield


def _without_context(transpose: Callable[..., Any]) -> Callable[..., Any]:
    def traced_anew(*arguments: Any, **params: Any) -> Any:
        state = source_info_util._source_info_context
        around = state.context
        state.context = source_info_util.SourceInfo(None, around.name_stack)
        try:
            return transpose(*arguments, **params)
        finally:
            state.context = around

    return traced_anew


def line_of_nested(equations: list[Equation]) -> str:
    """`FILE:LINE` of the user's code behind the last of some equations, each nested in the one before it, or "".

    The equations inside one of JAX's own jitted functions carry the line that first traced it, which may belong to
    another kernel. For these, the line is that of the call.
    """
    line = ""
    for equation in equations:
        line = line_of(equation.source_info) or line
        inner: Jaxpr = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if _JAX in _function_source(inner):
            break
    return line


def line_of_function(jaxpr: Jaxpr) -> str:
    """`FILE:LINE` at which the user's function behind a jaxpr is defined, or ""."""
    place = Place.parse(_function_source(jaxpr).partition(" at ")[2])
    return str(Place(relative_path(place.file), place.line)) if place and not place.file.startswith(_JAX) else ""


def is_of_jax(jaxpr: Jaxpr) -> bool:
    """Returns whether the function behind a jaxpr, open or closed, is one of JAX's own."""
    return _JAX in _function_source(jaxpr)


# JAX's text for the function behind a jaxpr, open or closed: its name, file and line; or "".
def _function_source(jaxpr: Jaxpr) -> str:
    info = getattr(getattr(jaxpr, "jaxpr", jaxpr), "debug_info", None)
    return str(getattr(info, "func_src_info", "") or "")


def propagate_call_lines(equation: Equation, caller: Equation | None = None) -> Equation:
    """Gives the equations inside JAX's own jitted functions the line of the call (see `line_of_nested`).

    A loop of JAX's, such as that of a pipeline, is traced anew each time, and may call the user's functions.
    """
    if caller is not None:
        equation = equation.replace(source_info=caller.source_info)
    inner = equation.params.get("jaxpr")
    is_loop = equation.primitive.name == "scan"
    if not isinstance(inner, ClosedJaxpr) or (caller is None and (is_loop or not is_of_jax(inner))):
        return equation
    body = inner.jaxpr.replace(eqns=[propagate_call_lines(inside, equation) for inside in inner.jaxpr.eqns])
    return equation.replace(params={**equation.params, "jaxpr": inner.replace(jaxpr=body)})


def user_line(error: BaseException) -> str:
    """` (FILE:LINE)` of the last frame outside JAX and kerneltest, or ""."""
    return location_of_exception(error, _JAX)


def package_line(error: BaseException) -> str:
    """` (FILE:LINE)` of the last frame in an installed package outside JAX and kerneltest, or ""."""
    return location_in_package(error, _JAX, _KERNELTEST)


def raised_in_jax(error: BaseException | None) -> bool:
    """Returns whether a line of JAX's own raised an error, rather than code that JAX called.

    Reliable only for errors raised under `keep_jax_frames`. An error of XLA's may stand for any other.
    """
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    by_xla = isinstance(error, jax.errors.JaxRuntimeError)
    last = frames[-1].filename if frames else ""
    return (last.startswith(_JAX) or "/jax_triton/" in last) and not by_xla


def refuses_custom_vmap(error: BaseException | None) -> bool:
    """Returns whether JAX could not use what a user's `custom_vmap` rule returned, or its arrays did not fit in it.

    Reliable as `raised_in_jax` is.
    """
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    applies = [i for i, f in enumerate(frames) if f.filename == _CUSTOM_BATCHING and f.name == "custom_vmap_batching"]
    by_jax = bool(applies) and all(frame.filename.startswith(_JAX) for frame in frames[applies[-1] :])
    return by_jax or (bool(applies) and isinstance(error, TypeError))


def equations_being_lowered(error: BaseException | None) -> list[Equation]:
    """The equations that JAX was lowering when it raised, outermost first, from the frames of its traceback."""
    for cause in iter_causes(error, contexts=True) if error is not None else ():
        if equations := [equation for equation, file in _equations_in_frames(cause) if "lowering" in Path(file).stem]:
            return equations
    return []


def _equations_in_frames(error: BaseException) -> Iterator[tuple[Equation, str]]:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if hasattr(equation := frame.f_locals.get("eqn"), "source_info"):
            yield equation, frame.f_code.co_filename


# A `ValueError` of JAX's about its own limits.
_OWN_LIMIT = re.compile(
    r"Cannot lower jaxpr with effects|not (?:currently |yet )?support|[Uu]nsupported|does not have trivial BlockSpec"
)

# The checks of kernels that JAX's interpreters of Mosaic make before they run one.
_CHECKS = re.compile(
    r"barrier without indexing|more axes than barrier|does not select one barrier|Collective axis .* not found|"
    r"no explicit thread axis|only allows arriving on a Barrier|already mpmd_mapped|cannot be referenced directly"
)


def is_limit_text(error: str, said: str) -> bool:
    """Returns whether an exception's type and text name a limit of one of JAX's interpreters."""
    return error == "NotImplementedError" or (error == "ValueError" and bool(_OWN_LIMIT.search(said)))


def is_jax_limitation(error: BaseException, *, checks: bool = False) -> bool:
    """Returns whether an interpreter of JAX's, or XLA's compiler for the CPU, failed although the kernel has no fault.

    The kernel was traced before, so its shapes, dtypes and indices are right, and JAX runs it without calling it again.
    If the interpreter `checks` kernels, some of its exceptions are for faulty ones.
    """
    return not user_line(error) and not (checks and _CHECKS.search(exception_text(error)))


def describe_limitation(error: BaseException, what: str) -> str:
    """Text for a limit of JAX's: its version, `what` it cannot do (a predicate), the error and the user's line."""
    return limitation_text(what, type(error).__name__, f"{text_of(error)}{processed_line(error)}")


def processed_line(error: BaseException) -> str:
    """` (FILE:LINE)` of the user's code that raised, or from which JAX was processing an equation, or ""."""
    lines = [line_of(equation.source_info) for equation, _ in _equations_in_frames(error)]
    return user_line(error) or next((f" ({line})" for line in reversed(lines) if line), "")


def text_of(error: BaseException) -> str:
    """The text of an exception of JAX's; the line of JAX's that raised it, if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    if exception_text(error) or not frames:
        return exception_text(error)
    return f"in {frames[-1].filename.removeprefix(f'{Path(_JAX).parent}/')}:{frames[-1].lineno}"


def limitation_text(what: str, error: str, said: str) -> str:
    """The same, from the exception's type and its text."""
    return f"JAX {jax.__version__} {what}, which is not the kernel's fault: {error}: {said}"


# The lines of functions that JAX traces again while it transforms an equation, as it does for a custom gradient.

_current = source_info_util.current
source_info_util.register_exclusion(__file__)  # its frame is in every traceback that it takes


@contextmanager
def keep_retraced_lines() -> Iterator[None]:
    """Has equations remember the line that makes them, rather than the line of the equation that JAX transforms."""
    with replace_attributes(Replacement(source_info_util, "current", _with_own_line)):
        yield


def _with_own_line() -> SourceInfo:
    context = _current()
    own = xla_client.Traceback.get_traceback()
    frames = takewhile(lambda frame: not is_internal(frame.file_name), source_info_util.user_frames(own))
    # JAX evaluates an equation, without the user's code, below kerneltest's own frames only.
    return context.replace(traceback=own) if any(True for _ in frames) else context


# The first exception in a running interpreter. XLA passes on only the text of what its callbacks raise.

_noted: list[Exception] = []  # in the interpreter that runs; one does at a time


class KernelFaultError(Exception):
    """A fault of the kernel that kerneltest finds inside an interpreter."""


def note(error: Exception) -> None:
    """Keeps an exception with its traceback, if it is the first one in this run of an interpreter."""
    if not _noted:
        _noted.append(error)


def first_exception() -> Exception | None:
    """Returns the exception that `note` has kept in this run of an interpreter; None if there is none."""
    return next(iter(_noted), None)


def call_back(callback: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Calls an interpreter's callback."""
    try:
        return callback(*arguments)
    except Exception as error:
        note(error)
        raise


@contextmanager
def raise_own_exception() -> Iterator[None]:
    """Raises the first exception again if it is kerneltest's, in place of the failure that followed from it."""
    _noted.clear()
    try:
        yield
    except Failure:
        _raise_own()
        raise
    _raise_own()


def _raise_own() -> None:
    for first in _noted:
        if not isinstance(first, (Failure, KernelFaultError)) and origin_of(first) is Origin.KERNELTEST:
            raise first
