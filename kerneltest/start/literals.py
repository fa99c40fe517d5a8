"""Values as Python source: what a pairing's file needs to say a static argument or a pytree again."""

import dataclasses
import enum
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltest.start.calls import StartError


@dataclasses.dataclass
class Speller:
    """Spells values, and remembers what has to be imported for that.

    Attributes:
      imports: module and name of each.
    """

    imports: dict[tuple[str, str], None] = dataclasses.field(default_factory=dict)

    def spell(self, name: str, value: Any) -> str:
        """The source of the value of an argument.

        Raises:
          StartError: it has none; names the argument.
        """
        match value:
            case None | bool() | int() | str():
                if not isinstance(value, enum.Enum):
                    return repr(value)
            case float():
                return repr(value) if math.isfinite(value) else f'float("{value}")'
            case np.dtype():
                return f'np.dtype("{value.name}")'
        if isinstance(value, enum.Enum):
            return f"{self._imported(name, type(value))}.{value.name}"
        if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
            return self._imported(name, value)
        return self.container(name, value, lambda each: self.spell(name, each))

    def container(self, name: str, value: Any, inside: Callable[[Any], str]) -> str:
        """The source of a dict, a list, a tuple, a NamedTuple or a dataclass, whose parts `inside` spells.

        Raises:
          StartError: it is none of these; names the argument.
        """
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init]
            return self._made(name, value, [(key, each) for key, each in fields], inside)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._made(name, value, list(zip(value._fields, value, strict=True)), inside)
        if type(value) is dict:
            return "{" + ", ".join(f"{key!r}: {inside(each)}" for key, each in value.items()) + "}"
        if type(value) is list:
            return "[" + ", ".join(map(inside, value)) + "]"
        if type(value) is tuple:
            return "(" + ", ".join(map(inside, value)) + ("," if len(value) == 1 else "") + ")"
        raise StartError(
            f"argument {name!r} is a {type(value).__name__}, which cannot be written down; pair a function of yours "
            "that makes it and calls the kernel"
        )

    def _made(self, name: str, value: Any, fields: list[tuple[str, Any]], inside: Callable[[Any], str]) -> str:
        return f"{self._imported(name, type(value))}({', '.join(f'{key}={inside(each)}' for key, each in fields)})"

    def _imported(self, name: str, value: Any) -> str:
        module, path = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        outermost = path.partition(".")[0]
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is not value:
            raise StartError(
                f"argument {name!r} is {value!r}, which no module has under its name; give it one, so that a file can "
                "import it"
            )
        if module != "builtins":
            self.imports[module, outermost] = None
        return path
