"""Trials: cases made for an experiment, judged in NumPy where it agrees with the backend about recorded cases."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

import numpy as np

from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.localize.equation_replay import EquationReplay, EvaluatedKernel, equation_replays
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.schema import Record

# The first that agrees with the backend; a formula takes half the time.
_JUDGES: tuple[Callable[[EquationReplay], bool], ...] = (
    attrgetter("has_wrong_formula"),
    attrgetter("is_wrong"),
    attrgetter("is_wrong_as_rounded"),
)


class Trials:
    """Judges cases made for an experiment in NumPy.

    Attributes:
      count: number of cases judged.
      most: the same, at most; further ones say nothing.
      agrees: whether NumPy finds the failing case wrong, and at most half of those that passed.
    """

    def __init__(
        self, pairing: Pairing, record: Record, failing: AnyCase, passing: Sequence[AnyCase], cache: Cache
    ) -> None:
        self._pairing, self._family, self._cache = pairing, record.family, cache.branch()
        self._finite = record.shown.expected is None or bool(np.isfinite(float(record.shown.expected)))
        self._kernels: dict[int, EvaluatedKernel] = {}
        self._judge: Callable[[EquationReplay], bool] = attrgetter("is_wrong")  # so that bad and good ones can be
        self.count, self.most = 0, sys.maxsize
        bad = list(self._replays([failing]))
        good = list(self._replays(passing)) if bad else []
        agreeing = (j for j in _JUDGES if any(map(j, bad)) and sum(map(j, good)) * 2 <= len(good))
        judge = next(agreeing, None)
        self.agrees = judge is not None
        self._judge = judge or self._judge

    @property
    def is_exhausted(self) -> bool:
        """True if no further case is judged."""
        return self.count >= self.most

    def fails(self, cases: Iterable[AnyCase]) -> bool | None:
        """Returns whether one of some cases fails; None if none of them could be judged.

        Where finite numbers are wrong, a case whose outputs are all to be NaN or infinite says nothing.
        """
        verdict = None
        for replay in () if self.is_exhausted else self._replays(cases):
            if self._judge(replay):
                return True
            verdict = False if not self._finite or replay.expects_numbers else verdict
        return verdict

    def _replays(self, cases: Iterable[AnyCase]) -> Iterator[EquationReplay]:
        for replay in equation_replays(
            self._pairing,
            cases,
            self._family,
            distinctive=False,
            cache=self._cache,
            kernels=self._kernels,
            judge=self._judge,
        ):
            self.count += 1
            yield replay
