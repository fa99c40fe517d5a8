"""Reuse by a worker: of items that were green under the same key, and of the records of a run that it resumes."""

import functools
from collections.abc import Mapping, Sequence

from kerneltest.core.targets import Tier
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.verdict_key import verdict_key
from kerneltest.pytest_plugin.executor import WorkerSetup
from kerneltest.records.item_keys import KeyWriter, keys_before
from kerneltest.records.result_cache import CachedResult, ResultCache
from kerneltest.records.resume import discard_item, read_item
from kerneltest.records.schema import Record


class ItemReuse:
    """The results of earlier runs that the items of one worker may reuse."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._keys = KeyWriter(setup.folder, setup.shard)

    def find_key(self, parts: Sequence[Item], cache: Cache) -> str:
        """Returns the key of an item; "" if its verdicts must not be reused, or if no run can.

        Args:
          parts: the item's groups.
          cache: that the item runs with.
        """
        if not self._setup.writes_keys:
            return ""
        try:
            return verdict_key(parts, cache)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:  # a `NotReusableError`, or what the case itself reports when it runs
            return ""

    def write_key(self, name: str, key: str) -> None:
        """Notes the key with which an item runs, for the end of the run and for one that resumes it."""
        if self._setup.writes_keys:
            self._keys.write(name, key)

    def take_over(self, item: Item, name: str, key: str) -> CachedResult | None:
        """Returns the records of an item that was green under a key; None if it has to run.

        Devices always run again, since the device itself may have changed.
        """
        if self._setup.results is None or item.backend.tier is Tier.DEVICE:
            return None
        return ResultCache(self._setup.results).records(name, key)

    def resume(self, name: str, key: str) -> list[Record]:
        """Returns the records of an item in the run that this one resumes. Deletes them if they have another key."""
        if not self._setup.settings.resume:
            return []
        if key and self._keys_before.get(name) == key:
            return read_item(self._setup.folder, name)
        discard_item(self._setup.folder, name)
        return []

    @functools.cached_property
    def _keys_before(self) -> Mapping[str, str]:
        return keys_before(self._setup.folder)
