"""Cases to try a changed kernel on, in the simulator: what comes out, and whether that is right."""

import time
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from kerneltest.backends.registry import resolve
from kerneltest.backends.simulate.simulate import precision_of
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure, convert_exceptions
from kerneltest.core.targets import TARGETS
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_context import Asked, Share, Variation
from kerneltest.execute.variations import INVARIANTS
from kerneltest.judge.compare import Comparison, compare
from kerneltest.localize.mutation_test import Changed, Experiment, Run
from kerneltest.plan.cases import Case, slots_of
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import FAMILIES

_TELLING = ("position_coded", "normal")  # families in which hardly two values are the same
_SIGNATURES = 4  # for which there are such cases; each is a compilation


class Trial:
    """A call of the kernel, as it comes out and as it should.

    Attributes:
      case: whose values these are.
      experiment: with the kernel that is called.
      leaves: its inputs.
      plain: the unchanged kernel's run.
      comparisons: of the unchanged kernel's outputs.
    """

    def __init__(self, case: AnyCase, variation: Variation, experiment: Experiment, signed_zeros: bool) -> None:
        self.case = case
        self.experiment, self.leaves = experiment, variation.leaves
        self.plain = experiment.run(self.leaves)
        self._shares = variation.shares
        precision = precision_of(variation.traced)
        self._wanted = [share.wanted(share.take(self.plain.outputs), precision) for share in self._shares]
        self._signed_zeros = signed_zeros
        self.comparisons = self.compare(self.plain)

    def compare(self, run: Run) -> list[Comparison]:
        """Every output against what it should be."""
        return [
            compare(actual, value, bound, signed_zeros=wanted.bitwise or self._signed_zeros, others=others)
            for share, wanted in zip(self._shares, self._wanted, strict=True)
            for actual, value, bound, others in zip(
                share.take(run.outputs), wanted.values, wanted.bounds, wanted.others or repeat(()), strict=False
            )
        ]

    def is_right(self, run: Run) -> bool:
        """Whether nothing is wrong, undefined, or done to memory that must not be."""
        undefined = any(mask is not None and mask.any() for mask in run.undefined)
        return not run.faults and not undefined and not any(c.wrong.any() for c in self.compare(run))

    @property
    def is_wrong(self) -> bool:
        """Whether the unchanged kernel is wrong."""
        return not self.is_right(self.plain)

    @property
    def is_special(self) -> bool:
        """Whether no element is wrong but by a NaN or an infinity (see `special`, `lost`)."""
        rest = (c.wrong & ~special(c) & ~lost(c) for c in self.comparisons)
        return not self.plain.faults and not any(each.any() for each in rest)

    def attempt(self, changed: Changed) -> Run | None:
        """A run of the changed kernel; None where the change makes nonsense."""
        try:
            return self.experiment.run(self.leaves, changed)
        except Exception:
            return None


def special(comparison: Comparison) -> Array:
    """Which elements are NaN and should not be, or infinite and should be finite."""
    if not is_float(comparison.actual.dtype):
        return np.zeros(comparison.wrong.shape, bool)
    got, wanted = comparison.actual.astype(np.float64), comparison.expected
    return np.asarray(comparison.wrong & ((np.isnan(got) & ~np.isnan(wanted)) | (np.isinf(got) & np.isfinite(wanted))))


def lost(comparison: Comparison) -> Array:
    """Which elements should be NaN and are not."""
    if not is_float(comparison.actual.dtype):
        return np.zeros(comparison.wrong.shape, bool)
    got = comparison.actual.astype(np.float64)
    return np.asarray(comparison.wrong & np.isnan(comparison.expected) & ~np.isnan(got))


def trials(pairing: Pairing, cases: Sequence[AnyCase], family: str, target: str) -> list[Trial]:
    """The calls of some cases, and of more for the same lengths; those of the first come first.

    Args:
      pairing: what is called.
      cases: which.
      family: under which the first was recorded: an invariant's name stands for the calls that it varies.
      target: what the kernel is lowered for.

    Returns:
      Nothing where the first case's kernel cannot be simulated; other cases that cannot are left out.
    """
    found: list[Trial] = []
    for trial in _trials(pairing, [*cases, *_telling(pairing, cases)], family, target):
        if trial is None and not found:
            return []
        found += [trial] if trial is not None else []
    return found


def trials_until(
    pairing: Pairing, cases: Sequence[AnyCase], family: str, target: str, deadline: float
) -> Iterator[Trial]:
    """The calls of as many cases as there is time for; `deadline` is of `time.monotonic`."""
    for trial in _trials(pairing, cases, family, target):
        if trial is not None:
            yield trial
        if time.monotonic() > deadline:
            return


def _trials(pairing: Pairing, cases: Sequence[AnyCase], family: str, target: str) -> Iterator[Trial | None]:
    """The calls of some cases; None for one that cannot be simulated."""
    cache = Cache()
    experiments: dict[int, Experiment] = {}
    try:
        for case in cases:
            try:
                for variation in _variations(pairing, case, family, target, cache):
                    key = id(variation.traced)
                    if key not in experiments:
                        lengths = dict(case.signature.dims)
                        experiments[key] = Experiment(variation.traced, TARGETS[target], lengths)
                    with convert_exceptions("the simulation", Verdict.RUNTIME_ERROR):
                        yield Trial(case, variation, experiments[key], pairing.signed_zeros)
            except Failure:
                yield None
    finally:
        cache.pool.close()


def _variations(pairing: Pairing, case: AnyCase, family: str, target: str, cache: Cache) -> tuple[Variation, ...]:
    (backend,) = resolve([f"simulate:{target}"])
    traced = cache.traced(pairing, case.signature, backend)
    expectation, _ = cache.expected(pairing, case, traced)
    if reason := backend.unsupported_reason(traced):
        raise Failure(Verdict.UNAVAILABLE, reason)
    asked = Asked(pairing, case, backend, traced, cache.arguments(pairing, case), expectation, cache, seed=0)
    if family in INVARIANTS:
        return tuple(INVARIANTS[family].vary(asked))
    return (Variation(traced, asked.leaves, (Share("", asked.by_oracle()),)),)


def _telling(pairing: Pairing, cases: Sequence[AnyCase]) -> Iterator[Case]:
    """Cases in which a change that happens to suit plain values does not go unnoticed."""
    for signature in list(dict.fromkeys(case.signature for case in cases))[:_SIGNATURES]:
        slots = slots_of(pairing, signature).values()
        for family in map(FAMILIES.__getitem__, _TELLING):
            if any(family.applies(slot) for slot in slots):
                yield Case(cases[0].pairing_id, pairing.name, signature, family, "", 0)
