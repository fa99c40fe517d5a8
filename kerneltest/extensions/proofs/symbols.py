"""Named integers that stand for what is not known, and what is known of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from kerneltest.extensions.proofs.polynomial import Condition, Poly, symbol


@dataclass(frozen=True)
class Loaded:
    """Where a loaded value stands in memory."""

    buffer: int
    offset: Poly


class Symbols:
    """Names, each with conditions that hold of it.

    Attributes:
      unknown: names of which too little is known, to the operation that makes them so.
      loaded: names of loaded values.
      homes: names to the step that makes them.
    """

    def __init__(self) -> None:
        self._facts: dict[str, tuple[Condition, ...]] = {}
        self._names: dict[object, str] = {}
        self.unknown: dict[str, str] = {}
        self.loaded: dict[str, Loaded] = {}
        self.homes: dict[str, int] = {}

    def state(self, name: str, *facts: Condition) -> None:
        """Says what holds of a name."""
        self._facts[name] = facts

    def fresh(self, prefix: str, key: object) -> tuple[str, bool]:
        """The name for a key, and whether it is new."""
        if (prefix, key) in self._names:
            return self._names[prefix, key], False
        name = f"{prefix}#{len(self._names)}"
        self._names[prefix, key] = name
        return name, True

    def defined(self, prefix: str, key: object) -> tuple[Poly, bool]:
        """The same as a polynomial."""
        name, new = self.fresh(prefix, key)
        return symbol(name), new

    def closure(self, names: Iterable[str]) -> set[str]:
        """These names and all that what is known of them speaks of."""
        found: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                for fact in self._facts.get(name, ()):
                    todo += fact.names
                if name in self.loaded:
                    todo += self.loaded[name].offset.names
        return found

    def facts(self, names: Iterable[str]) -> list[Condition]:
        """All that is known of these names and of those it speaks of."""
        return [fact for name in sorted(self.closure(names)) for fact in self._facts.get(name, ())]
