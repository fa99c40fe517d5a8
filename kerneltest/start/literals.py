"""Python source of values, for the static arguments and pytrees in the file of a pairing."""

import dataclasses
import enum
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltest.start.example_calls import StartError


@dataclasses.dataclass
class SourceWriter:
    """Writes values as source, and collects the imports that the source needs.

    Attributes:
      imports: the module and name of each import, in order.
    """

    imports: dict[tuple[str, str], None] = dataclasses.field(default_factory=dict)

    def value_source(self, name: str, value: object) -> str:
        """Returns the source of the value of an argument.

        Raises:
          StartError: the value has no source.
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
            return f"{self._import(name, type(value))}.{value.name}"
        if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
            return self._import(name, value)
        return self.container_source(name, value, lambda each: self.value_source(name, each))

    def container_source(self, name: str, value: Any, inside: Callable[[Any], str]) -> str:
        """Returns the source of a dict, list, tuple, NamedTuple or dataclass; `inside` returns the source of its parts.

        Raises:
          StartError: the value is none of these.
        """
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init]
            return self._constructor_call(name, value, [(key, each) for key, each in fields], inside)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._constructor_call(name, value, list(zip(value._fields, value, strict=True)), inside)
        if type(value) is dict:
            return "{" + ", ".join(f"{key!r}: {inside(each)}" for key, each in value.items()) + "}"
        if type(value) is list:
            return "[" + ", ".join(map(inside, value)) + "]"
        if type(value) is tuple:
            return "(" + ", ".join(map(inside, value)) + ("," if len(value) == 1 else "") + ")"
        raise StartError(
            f"argument {name!r} is a {type(value).__name__}, which has no source; pair a function that creates it and "
            "calls the kernel instead"
        )

    def _constructor_call(
        self, name: str, value: object, fields: list[tuple[str, Any]], inside: Callable[[Any], str]
    ) -> str:
        return f"{self._import(name, type(value))}({', '.join(f'{key}={inside(each)}' for key, each in fields)})"

    def _import(self, name: str, value: object) -> str:
        module, path = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        outermost = path.partition(".")[0]
        found: object = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is not value:
            raise StartError(
                f"argument {name!r} is {value!r}, which cannot be imported by its name; define it at the top level of "
                "a module"
            )
        if module != "builtins":
            self.imports[module, outermost] = None
        return path
