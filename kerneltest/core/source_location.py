"""Source locations (FILE:LINE), as messages and reports show them."""

import ast
import functools
import linecache
import os
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType

from kerneltest.core.syntax import parse_source

_PACKAGE = str(Path(__file__).parent.parent)


def relative_path(file: str) -> str:
    """Returns a path relative to the current folder if the file is below it, and unchanged if not."""
    return file.removeprefix(os.path.join(os.getcwd(), "")).replace(os.sep, "/")  # noqa: PTH109, PTH118


def is_internal(file: str) -> bool:
    """Returns whether a file belongs to kerneltest."""
    return file.startswith(_PACKAGE)


def source_line(location: str) -> str:
    """Returns the text of the line at FILE:LINE, or "" if it cannot be read."""
    file, _, line = location.rpartition(":")
    return linecache.getline(file, int(line)).strip() if line.isdigit() else ""


def location_of_argument(location: str, name: str) -> str:
    """Returns FILE:LINE of a keyword argument in a call.

    Args:
      location: FILE:LINE inside the call.
      name: the keyword. The innermost call that has it counts; without any, `location` is returned.
    """
    file, _, line = location.rpartition(":")
    if not line.isdigit():
        return location
    calls = [n for n in _calls("".join(linecache.getlines(file))) if n.lineno <= int(line) <= (n.end_lineno or 0)]
    for call in sorted(calls, key=lambda call: (call.end_lineno or 0) - call.lineno):
        for keyword in call.keywords:
            if keyword.arg == name:
                return f"{file}:{keyword.value.lineno}"
    return location


@functools.lru_cache(maxsize=16)
def _calls(source: str) -> list[ast.Call]:
    tree = parse_source(source)
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []


def location_of_exception(error: BaseException, *libraries: str) -> str:
    """Returns ` (FILE:LINE)` of the innermost frame of user code in a traceback, or "".

    Args:
      error: the exception.
      *libraries: folders whose code is not the user's, in addition to kerneltest and Python's standard library.
    """
    return _innermost_user_frame(traceback.extract_tb(error.__traceback__), libraries)


def location_in_package(error: BaseException, *libraries: str) -> str:
    """Returns ` (FILE:LINE)` of the innermost frame of an installed package in a traceback, or "".

    Args:
      error: the exception.
      *libraries: folders of packages that do not count.
    """
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
