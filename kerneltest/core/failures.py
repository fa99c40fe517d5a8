"""The one exception by which a kernel, its oracle or a backend fails."""

from kerneltest.core.verdicts import Verdict


class Failure(Exception):  # noqa: N818 - it is a verdict on its way up
    """A case that ends before its values could be compared.

    Attributes:
      verdict: what that is called.
      stderr: what the process that failed wrote last, where there was one.
    """

    def __init__(self, verdict: Verdict, message: str, stderr: str = "") -> None:
        super().__init__(message)
        self.verdict = verdict
        self.stderr = stderr


def described(error: BaseException) -> str:
    """The type and the text of an exception, also of one whose text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as other:
        return f"{type(error).__name__} (its text raised {type(other).__name__})"
