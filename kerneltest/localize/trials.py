"""Trials: cases made for an experiment, judged in NumPy or by running them."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from kerneltest.core.ids import BackendId
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict, VerdictKind
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.runner import run_case
from kerneltest.localize.case_replay import MutableKernel, case_replays
from kerneltest.localize.equation_replay import EquationReplay, EvaluatedKernel, Judge, equation_replays
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.schema import Record
from kerneltest.triage.symptoms import symptom


class Trials(ABC):
    """Judges cases made for an experiment.

    Attributes:
      count: number of cases judged.
      most: the same, at most; further ones say nothing.
      most_signatures: signatures that an experiment may try.
      tries_values: whether cases are cheap enough for experiments on their values.
    """

    most_signatures, tries_values = 48, True

    def __init__(self) -> None:
        self.count, self.most = 0, sys.maxsize

    @property
    def is_exhausted(self) -> bool:
        """True if no further case is judged."""
        return self.count >= self.most

    def fails(self, cases: Iterable[AnyCase]) -> bool | None:
        """Returns whether one of some cases fails; None if none of them could be judged."""
        verdict = None
        for fails in () if self.is_exhausted else self._judge_all(cases):
            if fails:
                return True
            verdict = fails if verdict is None else verdict
        return verdict

    @abstractmethod
    def _judge_all(self, cases: Iterable[AnyCase]) -> Iterator[bool | None]:
        """Yields whether each case fails, and counts it; None if that says nothing."""


def find_trials(
    item: Item, record: Record, failing: AnyCase, passing: Sequence[AnyCase], cache: Cache
) -> Trials | None:
    """Returns trials that agree with a finding: in NumPy if it shows the finding, else on the finding's backend.

    `failing` is a case that fails in the same way; at most half of those that passed may fail.
    """
    if record.verdict.kind is not VerdictKind.MEMORY:
        evaluated = _EvaluatedTrials(item, record, failing, passing, cache)
        if evaluated.agrees:
            return evaluated
    if record.verdict in _OF_ACCESSES and item.backend.tier is Tier.SIMULATE:
        simulated = _AccessTrials(item, record, cache)
        if simulated.fails([failing]):
            return simulated
    if item.backend.tier not in _RUN_AGAIN:
        return None
    run = _RunTrials(item, record, cache)
    return run if run.fails([failing]) else None


_RUN_AGAIN = (Tier.INTERPRET, Tier.SIMULATE)  # a device might hang
_OF_ACCESSES = (Verdict.OUT_OF_BOUNDS, Verdict.RACE)

# The first that agrees with the backend; a formula takes half the time.
_JUDGES: tuple[Judge, ...] = (
    attrgetter("has_wrong_formula"),
    attrgetter("is_wrong"),
    attrgetter("is_wrong_as_rounded"),
)


class _EvaluatedTrials(Trials):
    # In NumPy. `agrees` tells whether it finds the failing case wrong, and at most half of those that passed.

    def __init__(self, item: Item, record: Record, failing: AnyCase, passing: Sequence[AnyCase], cache: Cache) -> None:
        super().__init__()
        self._pairing, self._family, self._cache = item.pairing, record.family, cache.branch()
        self._finite = record.shown.expected is None or bool(np.isfinite(float(record.shown.expected)))
        self._kernels: dict[int, EvaluatedKernel] = {}
        self._judge: Judge = attrgetter("is_wrong")  # so that bad and good ones can be
        bad = list(self._replays([failing]))
        good = list(self._replays(passing)) if bad else []
        agreeing = (j for j in _JUDGES if any(map(j, bad)) and sum(map(j, good)) * 2 <= len(good))
        judge = next(agreeing, None)
        self.agrees = judge is not None
        self._judge = judge or self._judge

    def _judge_all(self, cases: Iterable[AnyCase]) -> Iterator[bool | None]:
        for replay in self._replays(cases):
            if self._judge(replay):
                yield True
            else:  # where finite numbers are wrong, outputs that are all to be NaN or infinite say nothing
                yield False if not self._finite or replay.expects_numbers else None

    def _replays(self, cases: Iterable[AnyCase]) -> Iterator[EquationReplay]:
        known = {"cache": self._cache, "kernels": self._kernels}
        for replay in equation_replays(self._pairing, cases, self._family, judge=self._judge, **known):
            self.count += 1
            yield replay


class _OfSignatures(Trials):
    # Each signature is compiled: there are fewer, and no experiments on values.

    most_signatures, tries_values = 24, False


class _AccessTrials(_OfSignatures):
    # In the simulator, which goes on after a fault, so that no other access hides the one of the finding.

    def __init__(self, item: Item, record: Record, cache: Cache) -> None:
        super().__init__()
        self._target = BackendId.parse(item.backend.id).target
        self._pairing, self._record, self._cache = item.pairing, record, cache.branch()
        self._kernels: dict[int, MutableKernel] = {}

    def _judge_all(self, cases: Iterable[AnyCase]) -> Iterator[bool | None]:
        known = {"cache": self._cache, "kernels": self._kernels}
        detail = self._record.detail
        for replay in case_replays(self._pairing, cases, self._record.family, self._target, **known):
            self.count += 1
            faults = [fault.detail for fault in replay.original.faults if fault.verdict is self._record.verdict]
            yield any(fault.essence == detail.essence for fault in faults) if detail is not None else None


class _RunTrials(_OfSignatures):
    # On the backend of the finding: what fails in another way says nothing, since that may hide the failure.

    def __init__(self, item: Item, record: Record, cache: Cache) -> None:
        super().__init__()
        self._item, self._cache, self._kind = item, cache.branch(), symptom(record).kind

    def _judge_all(self, cases: Iterable[AnyCase]) -> Iterator[bool | None]:
        for case in cases:
            record = run_case(replace(self._item, dtype=case.signature.dtype), case, self._cache).record
            self.count += 1
            if record.verdict.is_finding and symptom(record).kind == self._kind:
                yield True
            else:
                yield False if record.verdict.is_green else None
