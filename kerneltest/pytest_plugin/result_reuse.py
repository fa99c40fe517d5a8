"""Results of earlier runs that this run may take over."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kerneltest.pytest_plugin.executor import ItemResult

if TYPE_CHECKING:
    from kerneltest.execute.item import Item
    from kerneltest.pytest_plugin.worker import ItemWorker
    from kerneltest.records.result_cache import ResultCache


class ResultReuse:
    """Green items of earlier runs.

    Attributes:
      digests: of all that the verdicts of an item follow from, by node id; "" if some of that cannot be read.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Initialises the instance for the cache of a session."""
        self._cache: pytest.Cache | None = getattr(config, "cache", None)
        self.digests: dict[str, str] = {}

    @functools.cached_property
    def cache_folder(self) -> Path | None:
        """Kerneltest's folder in pytest's cache, created on first use; None without a cache."""
        try:
            return None if self._cache is None else self._cache.mkdir("kerneltest")
        except OSError as error:
            warnings.warn(f"kerneltest caches no compiled code: {error}", pytest.PytestWarning, stacklevel=2)
            return None

    @property
    def store(self) -> ResultCache | None:
        """The store of green items; None without pytest's cache."""
        from kerneltest.records.result_cache import ResultCache

        return None if self.cache_folder is None else ResultCache(self.cache_folder / "green")

    def take_over(self, item: Item, node_id: str, worker: ItemWorker) -> ItemResult | None:
        """Copies the records of an item from the run that judged it, if nothing has changed since.

        Devices always run again: the device itself may have changed.

        Args:
          item: one group of the pytest item.
          node_id: of the pytest item.
          worker: of this process, which writes the records.

        Returns:
          The earlier result; None if the item has to run.
        """
        from kerneltest.core.targets import Tier
        from kerneltest.core.verdicts import Verdict

        digest, store = self.digests.get(node_id), self.store
        if not digest or store is None or item.backend.tier is Tier.DEVICE:
            return None
        if (known := store.records(node_id, digest)) is None:
            return None
        worker.writer.copy(known.lines)
        return ItemResult(str(Verdict.PASS), known.families)
