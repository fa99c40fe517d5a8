"""The one place that decides who raised an exception: user code, JAX or kerneltest."""

import sys
import traceback
from collections.abc import Callable, Iterator
from enum import Enum
from types import CodeType, FrameType
from typing import TypeVar

from kerneltest.core.details import InternalError, Raised, Unavailable
from kerneltest.core.failures import DeclarationError, Failure, exception_text
from kerneltest.core.source_location import location_of_exception, relative_path
from kerneltest.core.verdicts import Verdict

# Packages whose limits are JAX's, as far as a kernel is concerned.
_JAX = frozenset({"jax", "jaxlib", "libtpu", "triton"})

# Packages that raise on behalf of whoever calls them.
_NEUTRAL = sys.stdlib_module_names | {
    "_pytest", "allpairspy", "filelock", "hypothesis", "ml_dtypes", "numpy", "opt_einsum", "pebble", "pluggy",
    "psutil", "pydantic", "pydantic_core", "scipy", "threadpoolctl", "z3",
}  # fmt: skip

_FRAMES = 5  # of a traceback, in a report of an internal error


class Origin(Enum):
    """The code that raised an exception."""

    USER = "user"
    JAX = "jax"
    KERNELTEST = "kerneltest"


_FOR_USER: list[CodeType] = []

_F = TypeVar("_F", bound=Callable[..., object])


def raises_for_user(function: _F) -> _F:
    """Marks a function of kerneltest that only calls user code, so what it raises itself is due to wrong arguments."""
    _FOR_USER.append(function.__code__)
    return function


def origin_of(error: BaseException) -> Origin:
    """Returns who raised an exception, from its traceback.

    The innermost frame that is neither a neutral library's nor JAX's decides. If it is kerneltest's and JAX raised
    inside it, the origin is JAX. A function that is `raises_for_user` counts as the user's.

    Args:
      error: the exception, as it was caught.
    """
    if isinstance(error, DeclarationError):
        return Origin.USER
    by_jax = _package_of(type(error).__module__) in _JAX
    for frame, _ in _frames(error):
        package = _package_of(_module_of(frame))
        if package in _JAX:
            by_jax = True
        elif package == "kerneltest" and not _acts_for_user(frame):
            return Origin.JAX if by_jax else Origin.KERNELTEST
        elif package not in _NEUTRAL:
            return Origin.USER
    return Origin.JAX if by_jax else Origin.USER


def assign_blame(error: BaseException, doing: str, who: str = "the kernel") -> Failure:
    """Returns the failure of a case that ended with an exception.

    Args:
      error: the exception. A `Failure` keeps its verdict unless its cause was raised by kerneltest.
      doing: the phase of the case, as a participle: `judging its outputs`.
      who: the user code that ran, for the message.

    Returns:
      `internal_error` for exceptions of kerneltest, `unavailable` for those of JAX and for too little memory,
      `runtime_error` for those of user code.
    """
    cause = underlying_exception(error)
    if cause is None:
        assert isinstance(error, Failure)
        return error
    origin = origin_of(cause)
    if origin is Origin.KERNELTEST:
        if isinstance(cause, MemoryError):
            return Failure(Verdict.UNAVAILABLE, Unavailable(f"this machine has too little memory for {doing}"))
        return internal_failure(cause, doing)
    if isinstance(error, Failure):
        return error
    source = location_of_exception(error).strip(" ()")
    if origin is Origin.JAX:
        reason = f"JAX raised {type(error).__name__} while {doing}: {exception_text(error)}"
        return Failure(Verdict.UNAVAILABLE, Unavailable(f"{reason} ({source})" if source else reason))
    detail = Raised(who, type(error).__name__, exception_text(error), f"while {doing}", source)
    return Failure(Verdict.RUNTIME_ERROR, detail)


def describe_internal_error(error: BaseException, doing: str) -> InternalError:
    """Describes an exception of kerneltest.

    Args:
      error: the exception.
      doing: what kerneltest was doing, as a participle.
    """
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    ours = (pair for pair in _frames(error) if _package_of(_module_of(pair[0])) == "kerneltest")
    return InternalError(
        doing=doing,
        error=type(error).__name__,
        said=exception_text(error),
        source=next((_short(f"{frame.f_code.co_filename}:{line}") for frame, line in ours), ""),
        trace=tuple(f"{relative_path(f.filename)}:{f.lineno} in {f.name}: {f.line}" for f in frames),
    )


def internal_failure(error: BaseException, doing: str) -> Failure:
    """Returns the `internal_error` for an exception of kerneltest; see `describe_internal_error`."""
    return Failure(Verdict.INTERNAL_ERROR, describe_internal_error(error, doing))


def underlying_exception(error: BaseException) -> BaseException | None:
    """Returns the exception that a chain of failures comes from; None if kerneltest itself stated the failure."""
    cause: BaseException | None = error
    while isinstance(cause, Failure):
        cause = cause.__cause__
    return cause


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yields the frames of a traceback with their line numbers, the innermost first."""
    yield from reversed(list(traceback.walk_tb(error.__traceback__)))


def _module_of(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name


def _package_of(module: str) -> str:
    return module.partition(".")[0]


def _acts_for_user(frame: FrameType) -> bool:
    """Returns whether a frame of kerneltest belongs to user code: a call of it, or of a `kt` function by it."""
    if any(frame.f_code is code for code in _FOR_USER):  # equal code may be another function's
        return True
    if not _module_of(frame).startswith("kerneltest.declare.") or frame.f_back is None:
        return False
    return _package_of(_module_of(frame.f_back)) not in _NEUTRAL | _JAX | {"kerneltest"}


def _short(place: str) -> str:
    """Returns a place with its file relative to the folder that contains the package."""
    _, found, rest = place.rpartition("/kerneltest/")
    return f"kerneltest/{rest}" if found else place
