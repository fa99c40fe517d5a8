"""The settings of a run: one table of names, defaults, help texts and checks.

pytest's options and ini values, those of `kerneltest`'s commands, their help texts and their completion in a shell, the
keywords of `kt.check`, the plan, the commands that reports print and the digest by which results are reused all come
from it. A new setting is one field of `RunSettings`, or one `register_setting` in an extension. Importing this module
loads neither NumPy nor JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from kerneltest.backends.registry import ALL, select_ids
from kerneltest.core.extension_registry import Registry
from kerneltest.core.ids import RunShard
from kerneltest.plan import DEPTHS

if TYPE_CHECKING:
    from kerneltest.records.run_plan import Plan


# Types of settings: how an option's text becomes a value, which values are allowed, and how messages name them.

T = TypeVar("T")


class SettingError(ValueError):
    """A setting with a value that it cannot have, or settings that contradict each other.

    Its `problem` completes a sentence that begins with the setting: "must be an integer, not 'x'".
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name, self.problem = name, problem

    def as_option(self) -> str:
        """Returns the message with the name of the command-line option."""
        return f"{_option(self.name)} {self.problem}"


@dataclass(frozen=True, slots=True)
class SettingKind(Generic[T]):
    """A type of setting."""

    requirement: str  # completes "the setting must be"
    parse: Callable[[str], T]  # converts the text of an option or an ini value; raises ValueError
    accepts: Callable[[T], bool] = lambda value: True  # returns whether a value is allowed
    text: Callable[[T], str] = str  # converts a value back to the text of an option
    choices: tuple[str, ...] = ()  # all texts that it has, if these are few


def one_of(*words: str) -> SettingKind[str]:
    """Returns the kind of a setting that is one of a few words."""
    return SettingKind(f"one of {', '.join(words)}", str, lambda value: value in words, choices=words)


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
    """A setting and all that is known about it."""

    name: str  # of its value; the ini value is `kt_NAME`, and the option is `--kt-NAME` with dashes
    default: T  # its value if it is not given
    kind: SettingKind[T]  # its type
    help: str  # for `--help` and the guide, without the default
    ini: bool = True  # whether an ini file may set it
    # whether it decides which cases there are and how they are judged. The plan then has a field of this name, and
    # results are reused only under the same value
    planned: bool = False
    command: Literal["never", "if set", "always"] = "never"  # whether the command that reruns an item gives it

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

    def option_keywords(self) -> dict[str, Any]:
        """The keywords with which pytest and argparse declare the option."""
        text = self.help.replace("%", "%%")
        if self.is_flag:
            return {"action": "store_true", "default": None, "help": text}
        return {"default": None, "help": f"{text} (default: {self.default_text or 'none'})"}

    def parse(self, text: str) -> T:
        """Converts the text of an option; raises a SettingError."""
        try:
            return self.kind.parse(text)
        except ValueError as error:
            raise SettingError(self.name, f"must be {self.kind.requirement}, not {text!r}") from error

    def check(self, value: T) -> None:
        """Checks a value; raises a SettingError."""
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


def _setting(default: T, kind: SettingKind[T], help: str, **more: Any) -> T:  # noqa: A002
    """Returns a field of `RunSettings`; the arguments are those of `Setting`."""
    entry: T = field(default=default, metadata={"kind": kind, "help": help, **more})
    return entry


_REGISTRY: Registry[Setting[Any]] = Registry("setting", extended_by="settings")


def register_setting(setting: Setting[T], home: str) -> Setting[T]:
    """Adds a setting of an extension, with its option and its ini value; ValueError if another one has its name.

    `home` is the module that adds it. `RunSettings.get` finds the value by the setting, which is returned.
    """
    if any(each.name == setting.name for each in SETTINGS):
        raise ValueError(f"setting: the name {setting.name!r} is kerneltest's own")
    _REGISTRY.add(setting, home)
    return setting


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of a run; `SETTINGS` describes each.

    Attributes:
      extensions: values of settings that extensions registered, by name. Those left out have their defaults.

    Raises:
      SettingError: a value is not allowed, or two settings contradict each other.
    """

    depth: str = _setting(
        "standard",
        one_of(*DEPTHS),
        "how many lengths and combinations to try: quick, standard or deep",
        planned=True,
        command="always",
    )
    seed: int = _setting(
        0,
        INTEGER,
        "seed of all random values; cases are the same on any machine",
        planned=True,
        command="always",
    )
    backends: tuple[str, ...] = _setting(
        (ALL,),
        BACKENDS,
        "comma-separated backend ids and patterns ('compile:*'); a missing backend fails if named and is skipped if "
        "'all' includes it",
    )
    fuzz: int = _setting(
        0,
        COUNT,
        "number of further cases to draw with Hypothesis for each pairing and dtype; failing ones are shrunk",
        planned=True,
        command="if set",
    )
    orders: int = _setting(
        0,
        COUNT,
        "number of random orders in which simulate:* also runs the programs of a grid, one after another",
        planned=True,
        command="if set",
    )
    timeout: int = _setting(
        600, SECONDS, "seconds that one step may take, such as tracing or compiling a kernel; 0: no limit"
    )
    minimize: float = _setting(10, SECONDS, "seconds to search for the smallest case of each suspect; 0: no search")
    budget: int = _setting(
        0,
        SECONDS,
        "seconds for each pairing on each backend; cases that do not fit are left out; 0: no limit",
        planned=True,
    )
    isolate: str = _setting(
        "device",
        one_of("always", "device", "never"),
        "which items to run in an isolated subprocess: always, device (those on a device) or never",
    )
    memory: float = _setting(
        0.0, GIBIBYTES, "memory limit of the isolated subprocess in GiB; 0: 90 % of the memory free at its start"
    )
    shard: RunShard | None = _setting(None, SHARD, "run one part of several, such as 2/3; kerneltest merge joins them")  # noqa: RUF009
    durations: str = _setting("", TEXT, "an earlier run's folder, whose durations are used to balance shards")
    report: str = _setting("", TEXT, "folder for the plan, the records and report.html")
    resume: bool = _setting(
        False, FLAG, "resume the interrupted run in the --kt-report folder: run only its unfinished cases", ini=False
    )
    changed: bool = _setting(
        False,
        FLAG,
        "leave out items that were green and whose code, settings and versions have not changed since",
        ini=False,
    )
    artifacts: bool = _setting(
        False, FLAG, "keep lowered and compiled code (.ttir, .ptx, .amdgcn) in the --kt-report folder"
    )
    extensions: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            setting.check(getattr(self, setting.name))
        for name, value in self.extensions:
            if (registered := _REGISTRY.get(name)) is None:
                raise SettingError(name, "is not a setting of kerneltest or an extension")
            registered.check(value)
        if self.fuzz and not find_spec("hypothesis"):
            raise SettingError("fuzz", "needs Hypothesis: pip install 'kerneltest[fuzz]'")
        if self.changed and self.shard is not None:
            raise SettingError(
                "changed", "and --kt-shard cannot be combined: each machine has its own record of earlier runs"
            )

    @classmethod
    def of(cls, **values: Any) -> RunSettings:
        """Returns settings from values by name, those of extensions included."""
        names = {setting.name for setting in SETTINGS}
        own = {name: value for name, value in values.items() if name in names}
        return cls(**own, extensions=tuple(sorted((name, values[name]) for name in values.keys() - own.keys())))

    def get(self, setting: Setting[T]) -> T:
        """Returns the value of a setting, whether it is a field or an extension's."""
        value: T = dict(self.extensions).get(setting.name, getattr(self, setting.name, setting.default))
        return value

    def plan_fields(self) -> Mapping[str, Any]:
        """Returns the settings that decide which cases there are and how they are judged, as fields of a plan."""
        return {setting.name: self.get(setting) for setting in known_settings() if setting.planned}

    def named_backends(self) -> frozenset[str]:
        """Returns the backends requested by name, which must be available; a SettingError if one is unknown."""
        try:
            named = frozenset(select_ids([word for word in self.backends if word != ALL]))
        except ValueError as error:
            raise SettingError("backends", f"is invalid: {error}") from error
        if not self.backends:
            raise SettingError("backends", "must name at least one backend, or 'all'")
        return named


SETTINGS: tuple[Setting[Any], ...] = tuple(
    Setting(each.name, each.default, **each.metadata) for each in fields(RunSettings) if each.metadata
)


def known_settings() -> tuple[Setting[Any], ...]:
    """Returns all settings, those of extensions last. Loads the extensions that have some."""
    return (*SETTINGS, *_REGISTRY.entries())


def option_words(source: RunSettings | Plan) -> list[str]:
    """Returns the command-line options that plan the same cases of an item as some settings, or as an earlier plan."""
    return [
        word
        for setting in known_settings()
        if setting.planned
        for word in setting.words(
            source.get(setting) if isinstance(source, RunSettings) else getattr(source, setting.name)
        )
    ]
