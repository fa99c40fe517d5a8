"""Messages of JAX and compilers, shortened to one line that is the same for the same failure."""

import re
import traceback

MAX_LENGTH = 300
# The text that MLIR and XLA put around a cause: the place in the probe, the instruction, the pass that failed.
_AROUND = re.compile(
    r"""(?<=error:\ )"[^\n]{0,999}?\):\ | (?<!\s)\s+(?:note:\ "|see\ current\ operation:|at\ location:\ loc\().*
    | :\ %\S+\ =\ .* | \b\w+:\ Mosaic\ failed\ to\ compile\ TPU\ kernel[^:]*:\s+""",
    re.VERBOSE | re.DOTALL,
)
# The line with the cause, as LLVM, the C library, libtpu and ptxas write it.
_REASON = re.compile(
    r"LLVM ERROR: .*|Assertion .*|^F\d{4} .*|(?<=error: )(?!Failures have been detected).*", re.MULTILINE
)
_STAMP = re.compile(r"\bF\d{4} [\d:.]+ +\d+ \S+\] ")  # the time, the process and the line of libtpu's source


def first_cause(error: BaseException) -> str:
    """Returns the type and text of the innermost cause, without the exceptions that JAX wraps around it."""
    while error.__cause__ is not None and type(error.__cause__).__name__ != "JaxStackTraceBeforeTransformation":
        error = error.__cause__
    words = str(error)
    if not words and error.__traceback__:
        words = "in " + list(traceback.walk_tb(error.__traceback__))[-1][0].f_code.co_name
    return one_line(f"{type(error).__name__}: {_AROUND.sub('', words)}")


def one_line(text: str) -> str:
    """Returns the text on one line, truncated, without folders, times and the random names of temporary files."""
    without_folders = re.sub(r"(?<![\w:/])/(?:[^/\s:\"']+/)+", "", " ".join(text.split()))
    return re.sub(r"\btmp\w{8}\b", "tmp", _STAMP.sub("", without_folders))[:MAX_LENGTH]


def with_reason(message: str, printed: str) -> str:
    """Returns a message, followed by the line of a compiler's output that gives the cause."""
    reason = re.search(_REASON, printed)
    line = reason[0] if reason else printed.strip().partition("\n")[0]
    return one_line(f"{message}: {line}".rstrip(": "))
