"""Source locations (FILE:LINE), as messages and reports show them."""

import ast
import functools
import linecache
import os
import re
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from kerneltest.core.ids import Place

# Syntax trees of any source text.


class SourceError(Exception):
    """A file has no syntax tree. The message says why."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line  # of the error; 0 if it is unknown


def parse_source(source: str | bytes) -> ast.Module | None:
    """Returns the syntax tree of a source text; None if it is not Python, or nested too deeply for Python's parser."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def read_source(path: Path) -> ast.Module:
    """Returns the syntax tree of a file; raises a SourceError if it cannot be read or parsed."""
    try:
        return ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise SourceError(error.msg, error.lineno or 0) from error
    except (RecursionError, MemoryError) as error:
        raise SourceError("nested too deeply for Python's parser") from error
    except (OSError, ValueError) as error:
        raise SourceError(str(error)) from error


_PACKAGE = str(Path(__file__).parent.parent)


def relative_path(file: str) -> str:
    """Returns a path relative to the current folder if the file is below it, and unchanged if not."""
    return file.removeprefix(os.path.join(os.getcwd(), "")).replace(os.sep, "/")  # noqa: PTH109, PTH118


def is_internal(file: str, *rooms: str) -> bool:
    """Returns whether a file belongs to kerneltest, or to one of some rooms."""
    return file.startswith(tuple(os.path.join(_PACKAGE, room, "") for room in rooms) or _PACKAGE)  # noqa: PTH118


def source_line(location: str) -> str:
    """Returns the text of the line at FILE:LINE or ` (FILE:LINE)`, stripped; "" if it cannot be read."""
    place = Place.parse(location.strip(" ()"))
    return linecache.getline(place.file, place.line).strip() if place is not None else ""


def location_of_argument(location: str, name: str) -> str:
    """Returns FILE:LINE of a keyword argument in the innermost call around a FILE:LINE that has it, or that line."""
    place = Place.parse(location)
    if place is None:
        return location
    source = "".join(linecache.getlines(place.file))
    calls = [call for call in _calls(source) if call.lineno <= place.line <= (call.end_lineno or 0)]
    for call in sorted(calls, key=lambda call: (call.end_lineno or 0) - call.lineno):
        for keyword in call.keywords:
            if keyword.arg == name:
                return str(replace(place, line=keyword.value.lineno))
    return location


@functools.lru_cache(maxsize=16)
def _calls(source: str) -> list[ast.Call]:
    tree = parse_source(source)
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []


def location_of_exception(error: BaseException, *libraries: str) -> str:
    """Returns ` (FILE:LINE)` of the innermost frame that is not `libraries`', kerneltest's or Python's, or ""."""
    return _innermost_user_frame(traceback.extract_tb(error.__traceback__), libraries)


def location_in_package(error: BaseException, *libraries: str) -> str:
    """Returns ` (FILE:LINE)` of the innermost frame of an installed package but some libraries, or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    return _last([f for f in frames if "/site-packages/" in f.filename and not f.filename.startswith(libraries)])


def location_of_frame(frame: FrameType) -> str:
    """Returns ` (FILE:LINE)` of the innermost frame of user code on a thread's stack, or ""."""
    return _innermost_user_frame(traceback.extract_stack(frame), ())


def _innermost_user_frame(frames: Iterable[traceback.FrameSummary], libraries: tuple[str, ...]) -> str:
    excluded = (_PACKAGE, "<", *libraries)
    return _last([f for f in frames if not f.filename.startswith(excluded) and "/lib/python" not in f.filename])


def _last(frames: Sequence[traceback.FrameSummary]) -> str:
    return f" ({relative_path(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


# Regular expressions for text by JAX, compilers and users, in time linear in the text.


def in_order(*pieces: str) -> re.Pattern[str]:
    """Compiles a pattern of pieces, each of which is matched once, right after the piece before it.

    A search for `A.*?B` looks for B once for each A, which is quadratic in a text without B. Here `.*?A`, `.*?B` are
    two pieces: nothing is tried again. A dot also matches the end of a line. A piece has at most one repetition of it.
    """
    return re.compile(r"\A" + "".join(f"(?>{piece})" for piece in pieces), re.DOTALL)
