"""The exception that carries a verdict, and the conversion of other exceptions to it."""

from collections.abc import Iterator
from contextlib import contextmanager

from kerneltest.core.details import Detail, NotBuilt, Raised, ResourceExceeded, Stage, Stated, Unavailable
from kerneltest.core.source_location import location_of_exception
from kerneltest.core.verdicts import Verdict

_LONGEST = 20_000  # characters of an exception's text


class DeclarationError(ValueError):
    """Something that a user declares is wrong; the message names it and the fix."""

    __module__ = "kerneltest"  # the name under which tracebacks show it


class Failure(Exception):  # noqa: N818 - a verdict that is not always an error
    """The end of a case before its values could be compared.

    Attributes:
      verdict: the outcome of the case.
      detail: what happened, as data. Its text is the exception's.
      stderr: the end of the standard error of the process that failed, or "".
    """

    def __init__(self, verdict: Verdict, detail: Detail | str, stderr: str = "") -> None:
        """Stores the verdict and its detail, and renders the detail as the exception's text.

        Args:
          verdict: the outcome of the case.
          detail: what happened; a string makes an `Unavailable` for that verdict, and a `Stated` for any other.
          stderr: the end of the standard error of the process that failed.
        """
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
    except KeyboardInterrupt:
        raise
    except BaseException as other:  # SystemExit and pytest's outcomes included
        return f"(its text raised {type(other).__name__})"
    more = len(text) - _LONGEST
    return text if more <= 0 else f"{text[:_LONGEST]}... and {more:,} more characters"


def iter_causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and those that it was raised from, the last one first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


@contextmanager
def convert_exceptions(raiser: str, verdict: Verdict, *, with_source: bool = False) -> Iterator[None]:
    """Converts every exception that user code raises, including SystemExit and pytest's outcomes, to a `Failure`.

    Args:
      raiser: the code that runs inside, for the message: `the kernel`, `oracle NAME`.
      verdict: the verdict of the failure.
      with_source: whether the failure names the source line that raised.

    Raises:
      Failure: an exception was raised. KeyboardInterrupt, GeneratorExit and failures pass unchanged.
    """
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit, Failure):
        raise
    except BaseException as error:
        source = location_of_exception(error).strip(" ()") if with_source else ""
        raise Failure(verdict, Raised(raiser, type(error).__name__, exception_text(error), source=source)) from error
