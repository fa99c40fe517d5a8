"""Trials: cases made for an experiment, judged in NumPy where the failing case fails there too."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.runner import run_case
from kerneltest.localize.equation_replay import EvaluatedKernel, equation_replays
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.schema import Record
from kerneltest.shrink.shrinker import resembles


class Trials:
    """Judges cases made for an experiment: in NumPy if the failing case fails there, or else on its backend."""

    def __init__(self, item: Item, failing: AnyCase, record: Record, cache: Cache) -> None:
        self._item, self._record, self._cache = item, record, cache.branch()
        self._kernels: dict[int, EvaluatedKernel] = {}
        self.count = 0
        self.in_numpy = True
        self.in_numpy = bool(self.fails([failing]))

    def fails(self, cases: Iterable[AnyCase]) -> bool | None:
        """Returns whether one of some cases fails; None if none of them could be judged."""
        found = None
        for is_wrong in self._judge_in_numpy(cases) if self.in_numpy else map(self._judge_on_backend, cases):
            self.count += 1
            if is_wrong:
                return True
            found = found if is_wrong is None else False
        return found

    def _judge_in_numpy(self, cases: Iterable[AnyCase]) -> Iterator[bool]:
        for replay in equation_replays(
            self._item.pairing,
            cases,
            family=self._record.family,
            distinctive=False,
            cache=self._cache,
            kernels=self._kernels,
        ):
            yield replay.is_wrong

    def _judge_on_backend(self, case: AnyCase) -> bool | None:
        item = replace(self._item, dtype=case.signature.dtype)
        record = run_case(item, case, self._cache).record
        return resembles(self._record, record) if record.verdict.is_judgement else None
