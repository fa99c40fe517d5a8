"""Lines of source as messages and reports name them."""

import ast
import functools
import linecache
import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

_OURS = str(Path(__file__).parent.parent)


def shown(file: str) -> str:
    """A file relative to the current folder, where it lies below that; else as it is."""
    return file.removeprefix(os.path.join(os.getcwd(), "")).replace(os.sep, "/")  # noqa: PTH109, PTH118


def is_ours(file: str) -> bool:
    """Whether a file is kerneltest's own, and no user's."""
    return file.startswith(_OURS)


def source_line(place: str) -> str:
    """The text of the line at FILE:LINE, or ""."""
    file, _, line = place.rpartition(":")
    return linecache.getline(file, int(line)).strip() if line.isdigit() else ""


def line_of_argument(place: str, name: str) -> str:
    """FILE:LINE of a keyword argument of the innermost call around FILE:LINE that has it; else FILE:LINE itself."""
    file, _, line = place.rpartition(":")
    if not line.isdigit():
        return place
    calls = [n for n in _calls("".join(linecache.getlines(file))) if n.lineno <= int(line) <= (n.end_lineno or 0)]
    for call in sorted(calls, key=lambda call: (call.end_lineno or 0) - call.lineno):
        for keyword in call.keywords:
            if keyword.arg == name:
                return f"{file}:{keyword.value.lineno}"
    return place


@functools.lru_cache(maxsize=16)
def _calls(source: str) -> list[ast.Call]:
    try:
        return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return []


def where_raised(error: BaseException, *libraries: str) -> str:
    """ " (FILE:LINE)" of the last frame outside kerneltest and some libraries (their folders), or ""."""
    return _last(traceback.extract_tb(error.__traceback__), libraries)


def where_it_is(frame: FrameType) -> str:
    """ " (FILE:LINE)" of a thread's last frame outside kerneltest, or ""."""
    return _last(traceback.extract_stack(frame), ())


def _last(frames: Iterable[traceback.FrameSummary], libraries: tuple[str, ...]) -> str:
    theirs = [
        f for f in frames if not f.filename.startswith((_OURS, "<", *libraries)) and "/lib/python" not in f.filename
    ]
    return f" ({shown(theirs[-1].filename)}:{theirs[-1].lineno})" if theirs else ""
