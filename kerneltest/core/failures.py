"""The one exception by which a kernel, its oracle or a backend fails."""

from collections.abc import Iterator
from contextlib import contextmanager

from kerneltest.core.source_location import where_raised
from kerneltest.core.verdicts import Verdict


class Failure(Exception):  # noqa: N818 - it is a verdict on its way up
    """A case that ends before its values could be compared.

    Attributes:
      verdict: what that is called.
      stderr: what the process that failed wrote last, where there was one.
      lowering: whether the kernel does not lower, which every later tier fails of as well.
    """

    def __init__(self, verdict: Verdict, message: str, stderr: str = "", *, lowering: bool = False) -> None:
        super().__init__(printable(message))
        self.verdict = verdict
        self.stderr = printable(stderr)
        self.lowering = lowering


def printable(text: str) -> str:
    """Text that can be written as UTF-8: half of a surrogate pair, as a file's name may hold, is escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def described(error: BaseException) -> str:
    """The type and the text of an exception, also of one whose text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as other:
        return f"{type(error).__name__} (its text raised {type(other).__name__})"


@contextmanager
def raised_by(who: str, verdict: Verdict, *, located: bool = False) -> Iterator[None]:
    """Turns what a user's code raises, SystemExit and pytest's own included, into a failure that names it.

    Args:
      who: raised it, as the message says.
      verdict: of the failure.
      located: whether the message ends with the line that raised.

    Raises:
      Failure: for every exception but an interruption, which passes, as a failure does.
    """
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit, Failure):
        raise
    except BaseException as error:
        place = where_raised(error) if located else ""
        raise Failure(verdict, f"{who} raised {described(error)}{place}") from error
