"""The settings of a run: one table of names, defaults, help texts and checks.

pytest's options and ini values, the keywords of `kt.check`, the plan, the commands that reports print and the digest by
which results are reused all come from it. A new setting is one field of `RunSettings`, or one `register_setting` in an
extension. Importing this module loads neither NumPy nor JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from kerneltest.backends.registry import ALL, select_ids
from kerneltest.core.extension_registry import Registry
from kerneltest.execute.setting_types import (
    BACKENDS,
    COUNT,
    FLAG,
    GIBIBYTES,
    INTEGER,
    SECONDS,
    SHARD,
    TEXT,
    RunShard,
    Setting,
    SettingError,
    SettingKind,
    one_of,
)
from kerneltest.plan.boundaries import DEPTHS

if TYPE_CHECKING:
    from kerneltest.records.run_plan import Plan

T = TypeVar("T")


def _setting(default: T, kind: SettingKind[T], help: str, **more: Any) -> T:  # noqa: A002
    """Returns a field of `RunSettings`; the arguments are those of `Setting`."""
    entry: T = field(default=default, metadata={"kind": kind, "help": help, **more})
    return entry


_REGISTRY: Registry[Setting[Any]] = Registry("setting", extended_by="settings")


def register_setting(setting: Setting[T], home: str) -> Setting[T]:
    """Adds a setting of an extension, with its option and its ini value.

    Args:
      setting: to add.
      home: the module that adds it.

    Returns:
      The setting, by which `RunSettings.get` finds its value.

    Raises:
      ValueError: another setting has the name.
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
    seed: int = _setting(0, INTEGER, "seed of all random values", planned=True, command="always")
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
    timeout: int = _setting(600, SECONDS, "seconds that one step of a case may take, such as compiling; 0: no limit")
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
        """Returns the backends that must be available, since they were requested by name or pattern.

        Raises:
          SettingError: a name or a pattern matches no backend, or there is none.
        """
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
