"""Lines of source as messages and reports name them."""

import os


def shown(file: str) -> str:
    """A file relative to the current folder, where it lies below that; else as it is."""
    return file.removeprefix(os.path.join(os.getcwd(), "")).replace(os.sep, "/")  # noqa: PTH109, PTH118
