"""What a kernel's calls are called, and each of them compiled."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from kerneltest.core.failures import Failure


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str: ...


_Thing = TypeVar("_Thing", bound=Named)
_Target = TypeVar("_Target")
_Made = TypeVar("_Made")


def named(things: Sequence[_Thing]) -> list[tuple[str, _Thing]]:
    """Things with their names, numbered where several share one."""
    names = [thing.name for thing in things]
    return [
        (f"{name}.{i}" if names.count(name) > 1 else name, thing)
        for i, (name, thing) in enumerate(zip(names, things, strict=True))
    ]


def each_compiled(
    things: Sequence[_Thing], target: _Target, compile_one: Callable[[_Thing, _Target], _Made]
) -> dict[str, _Made]:
    """What compiling makes of things, by name.

    Raises:
      Failure: as `compile_one` does, with the name and the target.
    """
    made: dict[str, _Made] = {}
    for name, thing in named(things):
        try:
            made[name] = compile_one(thing, target)
        except Failure as failure:
            raise Failure(failure.verdict, f"kernel {name} for {target}: {failure}", failure.stderr) from failure
    return made
