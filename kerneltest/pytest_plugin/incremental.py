"""Incremental runs: the records of unchanged green items are reused, and `--kt-changed` leaves those items out."""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from kerneltest.core.targets import Tier
from kerneltest.pytest_plugin.kernel_item import KernelItem
from kerneltest.pytest_plugin.pytest_run import RUN, PytestRun

if TYPE_CHECKING:
    from kerneltest.records.fingerprint import Fingerprint
    from kerneltest.records.runs import RunRecords as RecordedRun
    from kerneltest.records.schema import Record

_DIGESTS = "made.json"  # in the run's folder, from a worker to its controller
_SHOWN_PAIRINGS = 3
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "TRITON_")  # prefixes of environment variables


def item_digest(item: KernelItem, config: pytest.Config, code: Fingerprint, *, lowering_reported: bool) -> str:
    """Returns a digest of all that an item's plan and verdicts follow from: code, settings, versions and the device.

    Args:
      item: of this session.
      config: of this session.
      code: the user's modules.
      lowering_reported: whether this session also runs the backend that reports lowering failures.

    Returns:
      16 hexadecimal digits; "" if some of the code cannot be read.
    """
    from kerneltest.records.fingerprint import installed_versions
    from kerneltest.trace.tracing import jax_environment, jax_settings

    run, part = config.stash[RUN], item.item
    functions = (getattr(each, "func", each) for each in (part.pairing.kernel, part.pairing.oracle))
    modules = tuple(getattr(each, "__module__", "") or "" for each in functions)
    # Any plugin may register families, invariants and backends.
    plugins = [each for each in config.pluginmanager.get_plugins() if isinstance(each, ModuleType)]
    home = item.getparent(pytest.Module)
    if not (digest := code.digest(modules, (*([home.obj] if home else ()), *plugins))):
        return ""
    parts = (
        digest,
        installed_versions(),
        (part.backend.id, part.dtype, sorted(run.settings.plan_fields().items())),
        lowering_reported,
        sorted({**jax_environment(), **jax_settings()}.items()),
        "" if part.backend.unavailable() else sorted(part.backend.environment().items()),
        sorted(each for each in os.environ.items() if each[0].startswith(_VARIABLES)),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class IncrementalPlugin:
    """Computes the digests of the selected items, and stores the green items at the end of the run."""

    def __init__(self, run: PytestRun) -> None:
        self._run, self._reuse = run, run.reuse
        self._left_out: list[str] = []  # node ids

    @pytest.hookimpl(trylast=True)  # once the selection is known
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kernel_items = [item for item in items if isinstance(item, KernelItem)]
        if not kernel_items:
            return
        from kerneltest.records.fingerprint import Fingerprint

        parts = {(part.pairing_id, part.backend.id, part.dtype) for item in kernel_items for part in item.items}
        code = Fingerprint()
        for item in kernel_items:
            first = item.item
            reported = (first.pairing_id, first.backend.lowering_backend(), first.dtype) in parts
            self._reuse.digests[item.nodeid] = item_digest(item, config, code, lowering_reported=reported)
        if not self._run.settings.changed or (store := self._reuse.store) is None:
            return
        green = store.green()
        self._left_out = [name for name, digest in self._reuse.digests.items() if digest and green.get(name) == digest]
        dropped = frozenset(self._left_out)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in dropped])
        items[:] = [item for item in items if item.nodeid not in dropped]

    def send_to_controller(self) -> None:
        """Writes the digests of an xdist worker to the run's folder."""
        if self._run.role.is_worker:
            text = json.dumps({"digests": self._reuse.digests, "left out": self._left_out})
            folder = self._run.folder.path
            temporary = folder / f"{_DIGESTS}.{self._run.role.name}"
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(folder / _DIGESTS)

    def receive(self) -> bool:
        """Reads the digests that a worker has written. Returns whether items were left out."""
        path = self._run.folder.path / _DIGESTS
        if self._run.role.is_controller and path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            path.unlink()
            self._reuse.digests, self._left_out = found["digests"], found["left out"]
        return bool(self._left_out)

    def store_green_items(self, run: RecordedRun) -> None:
        """Stores the digests and the records of green items; drops items that are not green."""
        if (store := self._reuse.store) is None:
            return
        cells = run.reconciled.cells
        items: dict[str, str | None] = {}
        for each in run.plan.items:
            green = all(cells[cell].green and each.backend not in run.plan.unavailable for cell in each.cells)
            digest = self._reuse.digests.get(each.item)
            items[each.item] = digest if green and items.get(each.item, digest) else None
        records: defaultdict[str, list[Record]] = defaultdict(list)
        if self._run.records_are_complete:
            for record in run.records:
                if items.get(record.item) and record.tier is not Tier.DEVICE and not record.reused_from:
                    records[record.item].append(record)
        for name, found in records.items():
            store.keep(name, items[name] or "", found, run.plan.started)
        store.prune()
        store.update(items)

    def summary(self) -> str:
        """Returns a line about the items that were left out, or ""."""
        if not (count := len(self._left_out)):
            return ""
        pairings = list(dict.fromkeys(name.partition("[")[0] for name in self._left_out))
        hidden = len(pairings) - _SHOWN_PAIRINGS
        more = f" and {hidden} more" if hidden > 0 else ""
        items = "1 item" if count == 1 else f"{count} items"
        shown = ", ".join(pairings[:_SHOWN_PAIRINGS])
        return f"--kt-changed left out {items}, green before and unchanged since: {shown}{more}"
