"""What was green and has not changed since: its records are taken from the run that found them, or it is left out."""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from kerneltest.core.targets import Tier
from kerneltest.pytest_plugin.item import KernelItem
from kerneltest.pytest_plugin.run import RUN, Run

if TYPE_CHECKING:
    from kerneltest.records.fingerprint import Code
    from kerneltest.records.runs import Run as Ran
    from kerneltest.records.schema import Record

_WORD = "made.json"  # in a run's folder, for a moment
_NAMED = 3
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "TRITON_")  # of the environment, as their names begin


def fingerprint(item: KernelItem, config: pytest.Config, code: Code, *, told: bool) -> str:
    """What an item's verdicts follow from: code, settings, versions and the device. The plan follows from these too.

    Args:
      item: of this session.
      config: likewise.
      code: of the user's modules.
      told: the session also runs the backend that tells of what does not lower, so that this one need not.

    Returns:
      a digest; "" where some of the code cannot be read.
    """
    from kerneltest.records.fingerprint import installed
    from kerneltest.trace.tracing import environment, settings

    run, part = config.stash[RUN], item.item
    functions = (getattr(each, "func", each) for each in (part.pairing.kernel, part.pairing.oracle))
    modules = tuple(getattr(each, "__module__", "") or "" for each in functions)
    # Families, invariants and backends may be registered by any plugin.
    plugins = [each for each in config.pluginmanager.get_plugins() if isinstance(each, ModuleType)]
    home = item.getparent(pytest.Module)
    if not (digest := code.digest(modules, (*([home.obj] if home else ()), *plugins))):
        return ""
    parts = (
        digest,
        installed(),
        (part.backend.id, part.dtype, run.depth, run.seed, run.fuzz, run.prove, run.sanitize, run.orders, run.budget),
        told,
        sorted({**environment(), **settings()}.items()),
        "" if part.backend.unavailable() else sorted(part.backend.environment().items()),
        sorted(each for each in os.environ.items() if each[0].startswith(_VARIABLES)),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Changed:
    """Knows what was green and has not changed, and remembers what is green now."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._left_out: list[str] = []

    @pytest.hookimpl(trylast=True)  # once it is known what is selected
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        mine = [item for item in items if isinstance(item, KernelItem)]
        if not mine:
            return
        from kerneltest.records.fingerprint import Code

        parts = {(item.pairing_id, item.backend.id, item.dtype) for each in mine for item in each.items}
        code = Code()
        for each in mine:
            first = each.item
            told = (first.pairing_id, first.backend.lowered_by(), first.dtype) in parts
            self._run.followed[each.nodeid] = fingerprint(each, config, code, told=told)
        if not self._run.only_changed or (store := self._run.store) is None:
            return
        green = store.green()
        self._left_out = [name for name, made in self._run.followed.items() if made and green.get(name) == made]
        dropped = frozenset(self._left_out)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in dropped])
        items[:] = [item for item in items if item.nodeid not in dropped]

    def write(self) -> None:
        """Leaves word for the controller of an xdist worker."""
        if self._run.worker is not None:
            text = json.dumps({"followed": self._run.followed, "left out": self._left_out})
            written = self._run.folder / f"{_WORD}.{self._run.shard}"
            written.write_text(text, encoding="utf-8")
            written.replace(self._run.folder / _WORD)

    def read(self) -> bool:
        """Takes the word that a worker has left; whether something was left out."""
        path = self._run.folder / _WORD
        if self._run.is_xdist_controller and path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            path.unlink()
            self._run.followed, self._left_out = found["followed"], found["left out"]
        return bool(self._left_out)

    def remember(self, run: Ran) -> None:
        """Keeps what green items followed from, and their records; forgets items that are not green."""
        if (store := self._run.store) is None:
            return
        cells = run.reconciled.cells
        items: dict[str, str | None] = {}
        for each in run.plan.items:
            fine = all(cells[cell].green and each.backend not in run.plan.unavailable for cell in each.cells)
            made = self._run.followed.get(each.item)
            items[each.item] = made if fine and items.get(each.item, made) else None
        records: defaultdict[str, list[Record]] = defaultdict(list)
        if self._run.keeps_records:
            for record in run.records:
                if items.get(record.item) and record.tier is not Tier.DEVICE and not record.kept:
                    records[record.item].append(record)
        for name, found in records.items():
            store.keep(name, items[name] or "", found, run.plan.started)
        store.prune()
        store.update(items)

    def words(self) -> str:
        """What was left out, for the terminal; "" where nothing was."""
        if not (count := len(self._left_out)):
            return ""
        pairings = list(dict.fromkeys(name.partition("[")[0] for name in self._left_out))
        more = f" and {len(pairings) - _NAMED} more" if len(pairings) > _NAMED else ""
        items = "1 item" if count == 1 else f"{count} items"
        return f"--kt-changed left out {items}, green before and unchanged since: {', '.join(pairings[:_NAMED])}{more}"
