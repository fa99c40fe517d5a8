"""The exception that carries a verdict, and the conversion of other exceptions to it."""

import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from types import CodeType, FrameType
from typing import TypeVar

from kerneltest.core.details import (
    ISSUES,
    Detail,
    InternalError,
    NotBuilt,
    Raised,
    ResourceExceeded,
    Stage,
    Stated,
    Unavailable,
)
from kerneltest.core.media import lines_for_terminal
from kerneltest.core.source_location import location_of_exception, relative_path
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import WorkBudget

_LONGEST = 20_000  # characters of an exception's text


class DeclarationError(ValueError):
    """Something that a user declares is wrong; the message names it and the fix."""

    __module__ = "kerneltest"  # the name under which tracebacks show it

    def __str__(self) -> str:
        """Returns the message without the control characters that a declared name may contain."""
        return lines_for_terminal(super().__str__())


class UnusableInputError(ValueError):
    """Something that a command of `kerneltest` was given and cannot work with; the message says why."""


class RecordError(UnusableInputError):
    """A file of a run that cannot be read; names the file, the line and the field."""


class Failure(Exception):  # noqa: N818 - a verdict that is not always an error
    """The end of a case before its values could be compared.

    Attributes:
      verdict: the outcome of the case.
      detail: what happened, as data. Its text is the exception's.
      stderr: the end of the standard error of the process that failed, or "".
    """

    def __init__(self, verdict: Verdict, detail: Detail | str, stderr: str = "") -> None:
        """Stores the verdict and its detail; a string makes an `Unavailable` for that verdict, else a `Stated`."""
        if isinstance(detail, str):
            detail = Unavailable(detail) if verdict is Verdict.UNAVAILABLE else Stated(detail)
        super().__init__(escape_surrogates(detail.text()))
        self.verdict = verdict
        self.detail = detail
        self.stderr = escape_surrogates(stderr)

    @property
    def does_not_lower(self) -> bool:
        """True if the kernel does not lower, so that every later tier fails as well."""
        return isinstance(self.detail, NotBuilt | ResourceExceeded) and self.detail.stage is Stage.LOWER


def escape_surrogates(text: str) -> str:
    """Returns text that can be encoded as UTF-8: lone surrogates, as in file names, are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def format_exception(error: BaseException) -> str:
    """Returns the type and text of an exception, even if its `__str__` raises."""
    return f"{type(error).__name__}: {exception_text(error)}"


def exception_text(error: BaseException) -> str:
    """Returns the text of an exception up to a length that a record can hold, even if its `__str__` raises."""
    try:
        text = str(error)
    except BaseException as other:  # SystemExit and pytest's outcomes included
        reraise_interrupt(other)
        return "(its text never ended)" if underlying_hang(other) else f"(its text raised {type(other).__name__})"
    more = len(text) - _LONGEST
    return text if more <= 0 else f"{text[:_LONGEST]}... and {more:,} more characters"


def reraise_interrupt(error: BaseException) -> None:
    """Raises again what ends kerneltest itself: Ctrl-C, or a generator's exit that tested code did not raise."""
    if isinstance(error, KeyboardInterrupt) or (
        isinstance(error, GeneratorExit) and origin_of(error) is Origin.KERNELTEST
    ):
        raise error


def iter_causes(error: BaseException, *, contexts: bool = False) -> Iterator[BaseException]:
    """Yields an exception and its causes, the last one first, each once; `contexts` are causes if asked for."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or (cause.__context__ if contexts else None)


# The watchdog raises a hang into a thread, and code on the way may convert it to a failure of the kernel.
def underlying_hang(error: BaseException) -> Failure | None:
    """Returns the hang that an exception was raised from, which may be itself; None if there is none."""
    hangs = (cause for cause in iter_causes(error) if isinstance(cause, Failure) and cause.verdict is Verdict.HANG)
    return next(hangs, None)


@contextmanager
def convert_exceptions(raiser: str, verdict: Verdict, *, with_source: bool = False) -> Iterator[None]:
    """Converts every exception that user code raises, including SystemExit and pytest's outcomes, to a `Failure`.

    Failures, and what `reraise_interrupt` raises, pass unchanged. The message names the raiser (`the kernel`, `oracle
    NAME`), and on request the source line.
    """
    try:
        yield
    except Failure:
        raise
    except BaseException as error:
        reraise_interrupt(error)
        source = location_of_exception(error).strip(" ()") if with_source else ""
        raise Failure(verdict, Raised(raiser, type(error).__name__, exception_text(error), source=source)) from error


def check_raises_again(error: BaseException, raiser: str, again: Callable[[], object]) -> None:
    """Repeats a call of an oracle or a kernel that raised an exception, where kerneltest goes on without its results.

    If it raises nothing `again`, the Failure is `oracle_error`, or that of the kernel. It may also be a `hang`.
    """
    try:
        again()
    except BaseException as other:
        reraise_interrupt(other)
        if isinstance(other, Failure) and other.verdict is Verdict.HANG:
            raise
        return
    if isinstance(error, Failure):
        raise Failure(error.verdict, Stated("{said}, the first time only", {"said": str(error)})) from error
    detail = Raised(raiser, type(error).__name__, exception_text(error), "the first time only")
    raise Failure(Verdict.ORACLE_ERROR, detail) from error


# The one place that decides who raised an exception: user code, JAX or kerneltest.

# Packages whose limits are JAX's, as far as a kernel is concerned.
_JAX = frozenset({"jax", "jaxlib", "jax_triton", "libtpu", "triton"})

# Packages that raise on behalf of whoever calls them.
_NEUTRAL = sys.stdlib_module_names | {
    "_pytest", "allpairspy", "filelock", "hypothesis", "ml_dtypes", "numpy", "opt_einsum", "pluggy",
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
    """
    if isinstance(error, DeclarationError):
        return Origin.USER
    by_jax = type(error).__module__.partition(".")[0] in _JAX
    for frame, _ in _frames(error):
        package = _package_of(frame)
        if package in _JAX:
            by_jax = True
        elif package == "kerneltest" and not _acts_for_user(frame):
            return Origin.JAX if by_jax else Origin.KERNELTEST
        elif package not in _NEUTRAL:
            return Origin.USER
    return Origin.JAX if by_jax else Origin.USER


def comes_from(error: BaseException, *origins: Origin) -> bool:
    """Returns whether an exception, or what a failure comes from, has one of some origins."""
    cause = underlying_exception(error)
    return cause is not None and origin_of(cause) in origins


def assign_blame(error: BaseException, doing: str, who: str = "the kernel") -> Failure:
    """Returns the failure of a case that ended with an exception.

    It is `internal_error` for exceptions of kerneltest, `unavailable` for those of JAX and for too little memory, and
    `runtime_error` for those of user code, whose name is `who`. A `Failure` keeps its verdict unless kerneltest raised
    its cause. `doing` is the phase of the case, as a participle: `judging its outputs`.
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
    """Describes an exception of kerneltest; `doing` is what it was doing, as a participle."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    ours = (f"{f.f_code.co_filename}:{line}" for f, line in _frames(error) if _package_of(f) == "kerneltest")
    return InternalError(
        doing=doing,
        error=type(error).__name__,
        said=exception_text(error),
        source=re.sub(r"^.*/(?=kerneltest/)", "", next(ours, "")),
        trace=tuple(f"{relative_path(f.filename)}:{f.lineno} in {f.name}: {f.line}" for f in frames),
    )


def internal_failure(error: BaseException, doing: str) -> Failure:
    """Returns the `internal_error` for an exception of kerneltest; see `describe_internal_error`."""
    return Failure(Verdict.INTERNAL_ERROR, describe_internal_error(error, doing))


def underlying_exception(error: BaseException) -> BaseException | None:
    """Returns the exception that a chain of failures comes from; None if kerneltest itself stated the failure."""
    return next((cause for cause in iter_causes(error) if not isinstance(cause, Failure)), None)


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yields the frames of a traceback with their line numbers, the innermost first."""
    yield from reversed(list(traceback.walk_tb(error.__traceback__)))


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package_of(frame: FrameType) -> str:
    return _module_of(frame).partition(".")[0]


def _acts_for_user(frame: FrameType) -> bool:
    """Returns whether a frame of kerneltest belongs to user code: a call of it, or of a `kt` function by it."""
    if any(frame.f_code is code for code in _FOR_USER):  # equal code may be another function's
        return True
    caller = frame.f_back
    if caller is not None and "__tracebackhide__" in caller.f_locals:  # a decorator of that function
        caller = caller.f_back
    if not _module_of(frame).startswith("kerneltest.declare.") or caller is None:
        return False
    return _package_of(caller) not in _NEUTRAL | _JAX | {"kerneltest"}


# Exceptions of kerneltest that cost no verdict: the guard around evidence, and the fast paths that fail.

_T = TypeVar("_T")


class Guard:
    """Collects evidence. Whatever raises, or comes once its budget is spent, is left out."""

    def __init__(self, failures: list[Failure], budget: WorkBudget | None = None) -> None:
        # gets the `internal_error` for each exception of kerneltest; those of user code and JAX are ignored
        self.failures = failures
        self.budget = budget or WorkBudget()

    def collect(self, doing: str, make: Callable[[], _T], default: _T, *reraised: type[Exception]) -> _T:
        """Returns a function's result, or a default if it raises any but `reraised`, or the budget is spent."""
        if self.budget.is_over():
            return default
        try:
            return make()
        except BaseException as error:
            reraise_interrupt(error)
            if isinstance(error, reraised):
                raise
            cause = error.__cause__ if isinstance(error, Failure) else error
            if cause is not None and origin_of(cause) is Origin.KERNELTEST:
                self.failures.append(internal_failure(cause, doing))
            return default


class RecoveryWarning(UserWarning):
    """kerneltest raised an exception where it has another way to the same result."""


def warn_of_recovery(error: Exception, doing: str, *expected: type[Exception]) -> None:
    """Warns of an exception of kerneltest's own, unless `expected`, after which it goes another way."""
    cause = underlying_exception(error)
    if cause is None or isinstance(cause, expected) or origin_of(cause) is not Origin.KERNELTEST:
        return
    detail = describe_internal_error(cause, doing)
    text = (
        "kerneltest took a slower way after an exception of its own. No verdict depends on it. Please report it at "
        f"{ISSUES}:\n{detail.report_text()}"
    )
    warnings.warn(text, RecoveryWarning, stacklevel=2)
