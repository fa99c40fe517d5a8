"""Options of a run that extensions and users add. Imports neither NumPy nor JAX: pytest reads them when it starts."""

from collections.abc import Callable
from dataclasses import dataclass

from kerneltest.core.registry import Registry


@dataclass(frozen=True, slots=True)
class RunOption:
    """An option of pytest's command line, which an ini file may hold as well.

    Attributes:
      name: with underscores, as in an ini file: `kt_sanitize` for `--kt-sanitize`.
      help: its description, without the default.
      default: the text that counts if neither the command line nor the ini file gives one; "" for a flag.
      parse: returns the value that some text stands for, or raises a ValueError that says what is wrong; None for a
        flag, whose value is a boolean.
    """

    name: str
    help: str
    default: str = ""
    parse: Callable[[str], object] | None = None

    @property
    def flag(self) -> str:
        """The option as the command line has it: `--kt-sanitize`."""
        return f"--{self.name.replace('_', '-')}"


_REGISTRY: Registry[RunOption] = Registry("option", extended_by="options")


def register_option(option: RunOption, home: str) -> None:
    """Registers an option.

    Args:
      option: to add.
      home: the module that adds it.

    Raises:
      ValueError: the name is taken.
    """
    _REGISTRY.add(option, home)


def registered_options() -> tuple[RunOption, ...]:
    """The options that extensions and users have added."""
    return _REGISTRY.entries()
