"""Types of settings: how an option's text becomes a value, which values are allowed, and how messages name them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")


class SettingError(ValueError):
    """A setting with a value that it cannot have, or settings that contradict each other.

    Attributes:
      name: of the setting.
      problem: completes a sentence that begins with the setting: "must be an integer, not 'x'".
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name, self.problem = name, problem

    def as_option(self) -> str:
        """Returns the message with the name of the command-line option."""
        return f"{_option(self.name)} {self.problem}"


@dataclass(frozen=True, slots=True)
class SettingKind(Generic[T]):
    """A type of setting.

    Attributes:
      requirement: completes "the setting must be".
      parse: converts the text of an option or an ini value; raises ValueError.
      accepts: returns whether a value is allowed.
      text: converts a value back to the text of an option.
    """

    requirement: str
    parse: Callable[[str], T]
    accepts: Callable[[T], bool] = lambda value: True
    text: Callable[[T], str] = str


def one_of(*words: str) -> SettingKind[str]:
    """Returns the kind of a setting that is one of a few words."""
    return SettingKind(f"one of {', '.join(words)}", str, lambda value: value in words)


@dataclass(frozen=True, slots=True)
class RunShard:
    """One part of a run that several machines share: number `number` of `count`, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> RunShard | None:
        """Returns the shard that `i/n` names, or None for "".

        Raises:
          ValueError: the text is not `i/n` with i from 1 to n.
        """
        if not text:
            return None
        match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
        if not match or int(match[1]) > int(match[2]):
            raise ValueError(text)
        return cls(int(match[1]), int(match[2]))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


TEXT = SettingKind("text", str)
INTEGER = SettingKind("an integer", int)
COUNT = SettingKind("a non-negative integer", int, lambda value: value >= 0)
SECONDS = SettingKind("a non-negative number of seconds", int, lambda value: value >= 0)
GIBIBYTES = SettingKind("a non-negative number of GiB", float, lambda value: 0 <= value < math.inf, "{:g}".format)
FLAG: SettingKind[bool] = SettingKind("true or false", bool)
BACKENDS = SettingKind("a comma-separated list of backends", _words, lambda value: True, ",".join)
SHARD = SettingKind("i/n with 1 <= i <= n, such as 2/3 for the second of three", RunShard.parse)


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """A setting and all that is known about it.

    Attributes:
      name: of its value; the ini value is `kt_NAME`, and the option is `--kt-NAME` with dashes.
      default: its value if it is not given.
      kind: its type.
      help: for `pytest --help`, without the default.
      ini: whether an ini file may set it.
      planned: whether it decides which cases there are and how they are judged. The plan then has a field of this name,
        and results are reused only under the same value.
      command: whether the command that reruns an item gives it.
    """

    name: str
    default: T
    kind: SettingKind[T]
    help: str
    ini: bool = True
    planned: bool = False
    command: Literal["never", "if set", "always"] = "never"

    @property
    def option(self) -> str:
        """The name of the command-line option."""
        return _option(self.name)

    @property
    def default_text(self) -> str:
        """The default as the text of an option."""
        return "" if self.default is None else self.kind.text(self.default)

    @property
    def is_flag(self) -> bool:
        """True if the option takes no value."""
        return isinstance(self.default, bool)

    def parse(self, text: str) -> T:
        """Converts the text of an option.

        Raises:
          SettingError: the text has another form.
        """
        try:
            return self.kind.parse(text)
        except ValueError as error:
            raise SettingError(self.name, f"must be {self.kind.requirement}, not {text!r}") from error

    def check(self, value: T) -> None:
        """Checks a value.

        Raises:
          SettingError: it is not allowed.
        """
        if not self.kind.accepts(value):
            shown = f"{value:g}" if isinstance(value, float) else repr(value)
            raise SettingError(self.name, f"must be {self.kind.requirement}, not {shown}")

    def words(self, value: T) -> list[str]:
        """Returns the words of a command line that give the setting this value."""
        if self.command == "never" or (self.command == "if set" and value == self.default):
            return []
        return [self.option] if self.is_flag else [self.option, self.kind.text(value)]


def _option(name: str) -> str:
    return f"--kt-{name.replace('_', '-')}"
