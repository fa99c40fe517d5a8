"""The base of all kinds of details, and helpers for their texts."""

import re
from dataclasses import dataclass

_TENSOR = re.compile(r"(tensor|vector|memref)<[^>]*>")
_NUMBER = re.compile(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[+-]?\d+)?")
_SEVERAL = re.compile(r"\[N(, N)*,?\]|\(N(, N)*,?\)|(Nx)+")
_LONGEST = 1000  # characters of foreign text that are looked at


@dataclass(frozen=True, slots=True)
class BaseDetail:
    """A kind of failure. Subclasses add a `kind` by which records tell them apart."""

    @property
    def place(self) -> str:
        """FILE:LINE of the user's source that it points at, or "": its `source`, if it has one."""
        return str(getattr(self, "source", ""))

    @property
    def essence(self) -> str:
        """The same for all failures that have one cause, whatever their shapes, elements and numbers are."""
        return type(self).__name__

    def text(self) -> str:
        """The failure in words. The first line can be read by itself."""
        raise NotImplementedError


def without_numbers(text: str) -> str:
    """Text by JAX, a compiler or a user, without its numbers, shapes and tensor types."""
    return _SEVERAL.sub("N", _NUMBER.sub("N", _TENSOR.sub("a tensor", text[:_LONGEST])))


def first_line(text: str) -> str:
    """The first line of text by JAX or a compiler that is not blank."""
    return text.strip().partition("\n")[0]


def format_place(place: str) -> str:
    """` (FILE:LINE)`, or "" for no place."""
    return f" ({place})" if place else ""


def format_index(index: tuple[int, ...]) -> str:
    """`[3, 4]`."""
    return f"[{', '.join(map(str, index))}]"


def kernel_prefix(kernel: str, target: str = "") -> str:
    """`kernel NAME: ` or `kernel NAME for TARGET: `, or "" for no name."""
    return f"kernel {kernel}{f' for {target}' if target else ''}: " if kernel else ""
