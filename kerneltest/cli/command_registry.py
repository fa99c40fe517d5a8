"""The commands of the command line, built-in, by extensions and by users."""

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from kerneltest.core.extension_registry import AFTER_BUILT_IN, Registry

UNUSABLE_INPUT = 2
"""The exit status of a command that could not do its work."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `kerneltest`.

    Attributes:
      name: as the command line has it.
      help: its line in `kerneltest --help`.
      add_arguments: adds its arguments to its parser. If it sets a default for `rest`, the command takes arguments that
        the parser does not know, as a list of that name.
      run: does its work and returns the exit status: 0 if it worked and its result is green, 1 if it worked and the
        result is not green, and `UNUSABLE_INPUT`.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


_REGISTRY: Registry[Command] = Registry("command", extended_by="commands")


def register_command(command: Command, *, order: int = AFTER_BUILT_IN) -> None:
    """Registers a command.

    Args:
      command: with a name that no other command has.
      order: its position in `kerneltest --help`; those of kerneltest are 10 to 100.

    Raises:
      ValueError: the name is taken.
    """
    _REGISTRY.add(command, command.run.__module__, order)


def registered_commands() -> tuple[Command, ...]:
    """All commands, in the order of `kerneltest --help`."""
    return _REGISTRY.entries()


def add_limit(parser: argparse.ArgumentParser, then: str) -> None:
    """Adds `--limit`, a command's time limit.

    Args:
      parser: the command's parser.
      then: the action when the time is over, as in `list the results`.
    """
    parser.add_argument(
        "--limit", type=_seconds, default=60.0, metavar="SECONDS", help=f"then {then} (default: 60; 0 for no limit)"
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds, or 0 for no limit")
    return seconds


def refuse(command: str, error: Exception) -> int:
    """Prints why a command cannot do its work; returns its exit status."""
    from kerneltest.report.text.tables import lines_for_terminal

    print(lines_for_terminal(f"kerneltest {command}: {error}"), file=sys.stderr)
    return UNUSABLE_INPUT
