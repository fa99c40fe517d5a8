"""The commands of the command line, built-in, by extensions and by users."""

import argparse
import math
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from kerneltest.core.extension_registry import AFTER_BUILT_IN, Registry
from kerneltest.core.media import lines_for_terminal
from kerneltest.execute.settings import Setting, SettingError, known_settings

UNUSABLE_INPUT = 2
"""The exit status of a command that could not do its work."""


Run = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `kerneltest`."""

    name: str  # as the command line has it
    help: str  # its line in `kerneltest --help`
    # adds its arguments to its parser. If it calls `pass_to_pytest`, the command takes unknown ones too
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Run  # returns the exit status: 0 if its result is green, 1 if it is not, and `UNUSABLE_INPUT`


COMMANDS: Registry[Command] = Registry("command", extended_by="commands")  # as `kerneltest --help` has them


def register_command(command: Command, *, order: int = AFTER_BUILT_IN) -> None:
    """Registers a command; those of kerneltest have the orders 10 to 100. Raises a ValueError if its name is taken."""
    COMMANDS.add(command, command.run.__module__, order)


def command(
    order: int, about: str, add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None
) -> Callable[[Run], Run]:
    """Registers a function that runs a command of its name, at a position in `kerneltest --help` and with its line."""

    def register(run: Run) -> Run:
        register_command(Command(run.__name__.removeprefix("_"), about, add_arguments, run), order=order)
        return run

    return register


def add_setting(parser: argparse.ArgumentParser, name: str, option: str, **differences: Any) -> None:
    """Adds a setting of runs as `option` to a command that starts no pytest; `differences` are its own words."""
    (setting,) = (setting for setting in known_settings() if setting.name == name)

    def read(text: str) -> Any:
        try:
            value = setting.parse(text)
            setting.check(value)
        except SettingError as error:
            raise argparse.ArgumentTypeError(error.problem) from error
        return value

    default = differences.setdefault("default", setting.default)
    text = differences.pop("help", setting.help.replace("%", "%%"))
    shown = f"{text} (default: {setting.kind.text(default)})" if default else text
    action = parser.add_argument(option, type=read, metavar=setting.name.upper(), help=shown, **differences)
    _complete(action, setting)


class _PassOn(argparse.Action):
    # Under the last of the option's names.
    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option_string: object = ""
    ) -> None:
        words = [self.option_strings[-1]] if self.nargs == 0 else [self.option_strings[-1], str(values)]
        namespace.rest = [*namespace.rest, *words]


def pass_to_pytest(parser: argparse.ArgumentParser, without: Collection[str] = (), **own: str) -> None:
    """Has a command pass all other arguments to pytest, as `rest`; `own` has second names of settings here."""
    parser.allow_abbrev = False
    parser.set_defaults(rest=[])
    for setting in known_settings():
        if setting.name not in without:
            keywords = setting.option_keywords() | {"action": _PassOn, "nargs": 0 if setting.is_flag else None}
            names = [own[setting.name]] if setting.name in own else []
            _complete(parser.add_argument(*names, setting.option, metavar=setting.name.upper(), **keywords), setting)


def _complete(action: argparse.Action, setting: Setting[Any]) -> None:
    # argcomplete reads this attribute.
    if setting.kind.choices:
        action.completer = lambda **_: setting.kind.choices  # type: ignore[attr-defined]


def add_limit(parser: argparse.ArgumentParser, then: str) -> None:
    """Adds `--limit`, a command's time limit; `then` says what follows, as in `list the results`."""
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
    print(lines_for_terminal(f"kerneltest {command}: {error}"), file=sys.stderr)
    return UNUSABLE_INPUT
