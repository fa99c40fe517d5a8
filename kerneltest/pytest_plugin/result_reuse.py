"""The folders in pytest's cache that keep results of a run for the next one."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kerneltest.records.result_cache import ResultCache


class ResultReuse:
    """The parts of pytest's cache for compiled code and for green items."""

    def __init__(self, config: pytest.Config) -> None:
        """Initialises the instance for the cache of a session."""
        self._cache: pytest.Cache | None = getattr(config, "cache", None)

    @functools.cached_property
    def cache_folder(self) -> Path | None:
        """Kerneltest's folder in pytest's cache, created on first use; None without a cache."""
        try:
            return None if self._cache is None else self._cache.mkdir("kerneltest")
        except OSError as error:
            warnings.warn(f"kerneltest caches no compiled code: {error}", pytest.PytestWarning, stacklevel=2)
            return None

    @property
    def results_folder(self) -> Path | None:
        """The folder of green items; None without pytest's cache."""
        return None if self.cache_folder is None else self.cache_folder / "green"

    @property
    def store(self) -> ResultCache | None:
        """The store of green items; None without pytest's cache."""
        from kerneltest.records.result_cache import ResultCache

        return None if self.results_folder is None else ResultCache(self.results_folder)
