"""The one exception by which a kernel, its oracle or a backend fails."""

from collections.abc import Iterator
from contextlib import contextmanager

from kerneltest.core.details import Detail, NotBuilt, Raised, ResourceExceeded, Stage, Stated, Unavailable
from kerneltest.core.source_location import where_raised
from kerneltest.core.verdicts import Verdict


class Failure(Exception):  # noqa: N818 - it is a verdict on its way up
    """A case that ends before its values could be compared.

    Attributes:
      verdict: how the case ends.
      detail: what happened, as data. Its text is the exception's.
      stderr: the last output of the process that failed, if there was one.
    """

    def __init__(self, verdict: Verdict, detail: Detail | str, stderr: str = "") -> None:
        """Args:
        verdict: how the case ends.
        detail: what happened; text stands for a `Stated`, or for an `Unavailable` if that is the verdict.
        stderr: the last output of the process that failed.
        """
        if isinstance(detail, str):
            detail = Unavailable(detail) if verdict is Verdict.UNAVAILABLE else Stated(detail)
        super().__init__(printable(detail.text()))
        self.verdict = verdict
        self.detail = detail
        self.stderr = printable(stderr)

    @property
    def does_not_lower(self) -> bool:
        """Whether the kernel does not lower, so that every later tier fails as well."""
        return isinstance(self.detail, NotBuilt | ResourceExceeded) and self.detail.stage is Stage.LOWER


def printable(text: str) -> str:
    """Text that can be written as UTF-8: half of a surrogate pair, as a file's name may hold, is escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def format_exception(error: BaseException) -> str:
    """The type and text of an exception, even if its `__str__` raises."""
    return f"{type(error).__name__}: {text_of(error)}"


def text_of(error: BaseException) -> str:
    """The text of an exception, even if its `__str__` raises."""
    try:
        return str(error)
    except Exception as other:
        return f"(its text raised {type(other).__name__})"


@contextmanager
def convert_exceptions(who: str, verdict: Verdict, *, located: bool = False) -> Iterator[None]:
    """Converts what a user's code raises, SystemExit and pytest's own included, to a `Failure` that names the user.

    Args:
      who: raised it, as the message says.
      verdict: of the failure.
      located: whether the failure names the line that raised.

    Raises:
      Failure: for every exception but interruptions and failures, which pass.
    """
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit, Failure):
        raise
    except BaseException as error:
        source = where_raised(error).strip(" ()") if located else ""
        raise Failure(verdict, Raised(who, type(error).__name__, text_of(error), source=source)) from error
