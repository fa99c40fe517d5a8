"""What a kernel's calls are called."""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str: ...


_Thing = TypeVar("_Thing", bound=Named)


def named(things: Sequence[_Thing]) -> list[tuple[str, _Thing]]:
    """Things with their names, numbered where several share one."""
    names = [thing.name for thing in things]
    return [
        (f"{name}.{i}" if names.count(name) > 1 else name, thing)
        for i, (name, thing) in enumerate(zip(names, things, strict=True))
    ]
