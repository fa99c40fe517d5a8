"""`--kt-changed`: items that were green, and of which nothing has changed since, are left out and named."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.pytest_plugin.item import KernelItem
from kerneltest.pytest_plugin.run import RUN, Run

if TYPE_CHECKING:
    from kerneltest.records.code import Code
    from kerneltest.records.runs import Run as Ran

_WORD = "made.json"  # in a run's folder, for a moment
_NAMED = 3


def fingerprint(item: KernelItem, config: pytest.Config, code: Code) -> str:
    """What an item's verdicts follow from: code, settings, versions and the device. The plan follows from these too."""
    from kerneltest.jaxprs.trace import environment, settings
    from kerneltest.records.code import installed

    run, part = config.stash[RUN], item.item
    functions = (getattr(each, "func", each) for each in (part.pairing.kernel, part.pairing.oracle))
    modules = [getattr(each, "__module__", "") or "" for each in functions]
    if (module := item.getparent(pytest.Module)) is not None:
        modules.append(module.obj.__name__)
    parts = (
        code.digest([*modules, *_conftests(config)]),
        installed(),
        (part.backend.id, part.dtype, run.depth, run.seed, run.fuzz, run.prove, run.sanitize, run.orders, run.budget),
        sorted({**environment(), **settings()}.items()),
        "" if part.backend.unavailable() else sorted(part.backend.environment().items()),
        os.environ.get("XLA_FLAGS", ""),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _conftests(config: pytest.Config) -> list[str]:
    """The modules that may register families, invariants and backends."""
    plugins = (getattr(plugin, "__file__", None) and plugin for plugin in config.pluginmanager.get_plugins())
    return [each.__name__ for each in plugins if each and str(each.__file__).endswith("conftest.py")]


class Changed:
    """Leaves out what was green and has not changed, where that is asked for; keeps in mind what the others are."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._made: dict[str, str] = {}
        self._left_out: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        from kerneltest.records.code import Code

        code = Code()
        self._made = {i.nodeid: fingerprint(i, config, code) for i in items if isinstance(i, KernelItem)}
        if not self._run.only_changed:
            return
        green = _read(self._store)
        self._left_out = [name for name, made in self._made.items() if green.get(name) == made]
        dropped = frozenset(self._left_out)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in dropped])
        items[:] = [item for item in items if item.nodeid not in dropped]

    @property
    def _store(self) -> Path:
        """What each item was when it was last green."""
        kept = self._run.kept()
        return (kept if kept is not None else self._run.folder) / "green.json"

    def write(self) -> None:
        """Leaves word for the controller of an xdist worker."""
        if self._run.worker is not None:
            text = json.dumps({"made": self._made, "left out": self._left_out})
            (self._run.folder / _WORD).write_text(text, encoding="utf-8")

    def read(self) -> bool:
        """Takes the word that a worker has left; whether something was left out."""
        if self._run.is_xdist_controller:
            found = _read(self._run.folder / _WORD)
            self._made, self._left_out = found.get("made", {}), found.get("left out", [])
            (self._run.folder / _WORD).unlink(missing_ok=True)
        return bool(self._left_out)

    def remember(self, run: Ran) -> None:
        """Keeps what the green items of a run are, and forgets those that are not green."""
        cells = run.reconciled.cells
        items: dict[str, bool] = {}
        for each in run.plan.items:
            fine = all(cells[cell].green and each.backend not in run.plan.unavailable for cell in each.cells)
            items[each.item] = items.get(each.item, True) and fine
        green = _read(self._store)
        for name, fine in items.items():
            green.pop(name, None)
            if fine and name in self._made:
                green[name] = self._made[name]
        written = self._store.with_suffix(".tmp")
        try:
            written.write_text(json.dumps(green, indent=0), encoding="utf-8")
            written.replace(self._store)
        except OSError:
            return  # as without a cache: the next run runs all

    def words(self) -> str:
        """What was left out, for the terminal; "" where nothing was."""
        if not (count := len(self._left_out)):
            return ""
        pairings = list(dict.fromkeys(name.partition("[")[0] for name in self._left_out))
        more = f" and {len(pairings) - _NAMED} more" if len(pairings) > _NAMED else ""
        items = "1 item" if count == 1 else f"{count} items"
        return f"--kt-changed left out {items}, green before and unchanged since: {', '.join(pairings[:_NAMED])}{more}"


def _read(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
