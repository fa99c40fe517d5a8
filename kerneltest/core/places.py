"""Lines of source as messages and reports name them."""

import os
import traceback
from pathlib import Path

_OURS = str(Path(__file__).parent.parent)


def shown(file: str) -> str:
    """A file relative to the current folder, where it lies below that; else as it is."""
    return file.removeprefix(os.path.join(os.getcwd(), "")).replace(os.sep, "/")  # noqa: PTH109, PTH118


def where_raised(error: BaseException, *libraries: str) -> str:
    """ " (FILE:LINE)" of the last frame outside kerneltest and some libraries (their folders), or ""."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((_OURS, *libraries))]
    frames = [f for f in frames if not f.filename.startswith("<") and "/lib/python" not in f.filename]
    return f" ({shown(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
