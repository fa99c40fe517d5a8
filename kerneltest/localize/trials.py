"""Trials: cases made for an experiment, judged in NumPy where the failing case fails there too."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.runner import run_case
from kerneltest.localize.equation_replay import EquationReplay, EvaluatedKernel, equation_replays
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.schema import Record
from kerneltest.shrink.shrinker import resembles


class Trials:
    """Judges cases made for an experiment.

    NumPy does if the failing case fails there, too: with and without the roundings of the kernel's dtypes, or only with
    them if that agrees better with cases that passed on the backend. Otherwise the backend does.

    Attributes:
      count: number of cases judged.
      in_numpy: whether NumPy judges.
    """

    def __init__(self, item: Item, failing: AnyCase, passing: Sequence[AnyCase], record: Record, cache: Cache) -> None:
        self._item, self._record, self._cache = item, record, cache.branch()
        self._kernels: dict[int, EvaluatedKernel] = {}
        self.count = 0
        shown = [(replay.is_wrong, replay.is_wrong_as_rounded) for replay in self._replays([failing])]
        asked = [(replay.is_wrong, replay.is_wrong_as_rounded) for replay in self._replays(passing)]
        self.in_numpy = any(is_wrong for is_wrong, _ in shown)
        contradicted, rounded = (sum(column) for column in zip(*asked, strict=True)) if asked else (0, 0)
        self._only_rounded = contradicted > rounded and any(is_wrong for _, is_wrong in shown)

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
        for replay in self._replays(cases):
            yield replay.is_wrong_as_rounded if self._only_rounded else replay.is_wrong

    def _replays(self, cases: Iterable[AnyCase]) -> Iterator[EquationReplay]:
        return equation_replays(
            self._item.pairing,
            cases,
            family=self._record.family,
            distinctive=False,
            cache=self._cache,
            kernels=self._kernels,
        )

    def _judge_on_backend(self, case: AnyCase) -> bool | None:
        item = replace(self._item, dtype=case.signature.dtype)
        record = run_case(item, case, self._cache).record
        return resembles(self._record, record) if record.verdict.is_judgement else None
