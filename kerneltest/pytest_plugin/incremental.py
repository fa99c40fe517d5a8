"""Incremental runs: green items are stored under their keys, and `--kt-changed` leaves out those with the same key."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from kerneltest.core.ids import ItemId
from kerneltest.core.targets import Tier
from kerneltest.pytest_plugin.hook_guard import guard_hooks
from kerneltest.pytest_plugin.kernel_item import KernelItem, PairingItem
from kerneltest.pytest_plugin.pytest_run import PytestRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kerneltest.records.result_cache import ResultCache
    from kerneltest.records.runs import RunRecords
    from kerneltest.records.schema import Record

_LEFT_OUT = "left-out.json"  # in the run's folder, from a worker to its controller
_SHOWN_PAIRINGS = 3


class IncrementalPlugin:
    """Leaves out unchanged items if asked to, and stores the green items at the end of the run."""

    def __init__(self, run: PytestRun) -> None:
        self._run = run
        self._left_out: list[str] = []  # node ids

    @pytest.hookimpl(trylast=True)  # once the selection is known
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not self._run.settings.changed or (results := self._results()) is None:
            return
        kernel_items = [item for item in items if isinstance(item, KernelItem)]
        self._left_out = list(self._unchanged(kernel_items, results.green()))
        dropped = frozenset(self._left_out)

        by_pairing = [item for item in items if isinstance(item, PairingItem) and item.items]
        left_out = {item for item in by_pairing if all(part.name in dropped for part in item.items)}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]

    def _results(self) -> ResultCache | None:
        if (folder := self._run.dispatcher.store_folder) is None:
            return None
        from kerneltest.core.files import DiskStore
        from kerneltest.records.result_cache import ResultCache

        return ResultCache(DiskStore(folder))

    def _unchanged(self, items: Sequence[KernelItem], green: dict[str, str]) -> Iterator[str]:
        if not any(item.nodeid in green for item in items):
            return
        from kerneltest.execute.cache import Cache
        from kerneltest.execute.process_state import ProcessState
        from kerneltest.execute.verdict_key import find_key

        planned = frozenset((p.pairing_id, p.backend.id, p.dtype) for item in items for p in item.items)
        cache = Cache(process=ProcessState(planned=planned))
        try:
            for item in items:
                if item.nodeid in green and find_key(item.items, cache) == green[item.nodeid]:
                    yield item.nodeid
        finally:
            cache.process.pool.close()

    def send_to_controller(self) -> None:
        """Writes the items that an xdist worker has left out to the run's folder."""
        if self._run.role.is_worker:
            folder = self._run.folder.path
            temporary = folder / f"{_LEFT_OUT}.{self._run.role.name}"
            temporary.write_text(json.dumps(self._left_out), encoding="utf-8")
            temporary.replace(folder / _LEFT_OUT)

    def receive(self) -> bool:
        """Reads the items that a worker has left out. Returns whether there are any."""
        path = self._run.folder.path / _LEFT_OUT
        if self._run.role.is_controller and path.exists():
            self._left_out = json.loads(path.read_text(encoding="utf-8"))
            path.unlink()
        return bool(self._left_out)

    def store_green_items(self, run: RunRecords) -> None:
        """Stores the keys and the records of green items; drops items that are not green."""
        if (results := self._results()) is None:
            return
        from kerneltest.records.result_cache import read_keys

        cells, keys = run.reconciled.cells, read_keys(self._run.folder.path)
        items: dict[str, str | None] = {}
        for item in run.plan.items:
            green = all(cells[cell].green and item.backend not in run.plan.unavailable for cell in item.cells)
            key = keys.get(item.item)
            items[item.item] = key if green and items.get(item.item, key) else None
        records: defaultdict[str, list[Record]] = defaultdict(list)
        if self._run.dispatcher.records_are_complete:
            for record in run.records:
                if items.get(record.item) and record.tier is not Tier.DEVICE and not record.reused_from:
                    records[record.item].append(record)
        for name, found in records.items():
            results.keep(name, items[name] or "", found, run.plan.started)
        results.store.prune()
        results.update(items)

    def summary(self) -> str:
        if not (count := len(self._left_out)):
            return ""
        pairings = list(dict.fromkeys(ItemId.parse(name).pairing for name in self._left_out))
        hidden = len(pairings) - _SHOWN_PAIRINGS
        more = f" and {hidden} more" if hidden > 0 else ""
        items = "1 item" if count == 1 else f"{count} items"
        shown = ", ".join(pairings[:_SHOWN_PAIRINGS])
        return f"--kt-changed left out {items}, green before and unchanged since: {shown}{more}"

    guard_hooks(vars())
