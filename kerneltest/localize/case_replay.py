"""Replays of cases in the simulator, of the original kernel and of patched ones, with the results compared."""

import math
import time
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.backends.registry import resolve
from kerneltest.backends.simulate.backend import precision_of
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure, convert_exceptions
from kerneltest.core.targets import TARGETS
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_context import InvariantContext, OutputCheck, Variation
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.judge.compare import Comparison, compare
from kerneltest.localize.mutable_kernel import MutableKernel, Patch, SimulatedRun
from kerneltest.plan.cases import Case, signature_slots
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import FAMILIES
from kerneltest.trace.jax_compat.retraced_lines import keep_retraced_lines

_DISTINCTIVE = ("position_coded", "normal")  # families with hardly two equal values
_MOST_ELEMENTS = 2**20  # in the inputs and outputs of a case that is replayed
_SIGNATURES = 4  # to which cases of these families are added; each is a compilation


class CaseReplay:
    """A call of a kernel with known results.

    Attributes:
      case: the case that the values belong to.
      kernel: the kernel that is called.
      leaves: its inputs.
      original: the run of the original kernel.
      comparisons: of the outputs of the original kernel.
    """

    def __init__(self, case: AnyCase, variation: Variation, kernel: MutableKernel, signed_zeros: bool) -> None:
        self.case = case
        self.kernel, self.leaves = kernel, variation.leaves
        self.original = kernel.run(self.leaves)
        self._shares = variation.shares
        precision = precision_of(variation.traced)
        self._expected = [share.wanted(share.take(self.original.outputs), precision) for share in self._shares]
        self._signed_zeros = signed_zeros
        self.comparisons = self.compare(self.original)

    def compare(self, run: SimulatedRun) -> list[Comparison]:
        """Compares every output with the expected one."""
        return [
            compare(actual, value, bound, signed_zeros=expected.bitwise or self._signed_zeros, alternatives=others)
            for share, expected in zip(self._shares, self._expected, strict=True)
            for actual, value, bound, others in zip(
                share.take(run.outputs), expected.values, expected.bounds, expected.others or repeat(()), strict=False
            )
        ]

    def is_right(self, run: SimulatedRun) -> bool:
        """Tells whether no element is wrong or undefined, and memory was used correctly."""
        undefined = any(mask is not None and mask.any() for mask in run.undefined)
        return not run.faults and not undefined and not any(c.wrong.any() for c in self.compare(run))

    @property
    def is_wrong(self) -> bool:
        """True if the original kernel fails."""
        return not self.is_right(self.original)

    @property
    def is_special(self) -> bool:
        """True if every wrong element is so by a NaN or an infinity (see `wrongly_special`, `lost_nans`)."""
        rest = (c.wrong & ~wrongly_special(c) & ~lost_nans(c) for c in self.comparisons)
        return not self.original.faults and not any(each.any() for each in rest)

    def attempt(self, patch: Patch) -> SimulatedRun | None:
        """Runs the kernel with a patch; returns None if the patched kernel raises."""
        try:
            return self.kernel.run(self.leaves, patch)
        except Exception:
            return None


def wrongly_special(comparison: Comparison) -> Array:
    """Returns a mask of the elements that are NaN and should not be, or infinite and should be finite."""
    if not is_float(comparison.actual.dtype):
        return np.zeros(comparison.wrong.shape, bool)
    actual, expected = comparison.actual.astype(np.float64), comparison.expected
    nan = np.isnan(actual) & ~np.isnan(expected)
    infinite = np.isinf(actual) & np.isfinite(expected)
    return np.asarray(comparison.wrong & (nan | infinite))


def lost_nans(comparison: Comparison) -> Array:
    """Returns a mask of the elements that should be NaN and are not."""
    if not is_float(comparison.actual.dtype):
        return np.zeros(comparison.wrong.shape, bool)
    actual = comparison.actual.astype(np.float64)
    return np.asarray(comparison.wrong & np.isnan(comparison.expected) & ~np.isnan(actual))


def replay_cases(pairing: Pairing, cases: Sequence[AnyCase], family: str, target: str) -> list[CaseReplay]:
    """Replays cases, and further ones for the same lengths; those of the first case come first.

    Args:
      pairing: the kernel and its oracle.
      cases: the cases.
      family: the family that the first one was recorded under: an invariant's name stands for the calls that it makes.
      target: the GPU that the kernel is lowered for.

    Returns:
      The replays of all cases that can be simulated; none if the first one cannot.
    """
    replays: list[CaseReplay] = []
    for each in _replays(pairing, [*cases, *distinctive_cases(pairing, cases)], family, target):
        if each is None and not replays:
            return []
        replays += [each] if each is not None else []
    return replays


def replay_until(
    pairing: Pairing, cases: Sequence[AnyCase], family: str, target: str, deadline: float
) -> Iterator[CaseReplay]:
    """Replays as many cases as there is time for. The deadline is a time of `time.monotonic`."""
    for each in _replays(pairing, cases, family, target):
        if each is not None:
            yield each
        if time.monotonic() > deadline:
            return


def _replays(pairing: Pairing, cases: Sequence[AnyCase], family: str, target: str) -> Iterator[CaseReplay | None]:
    """Replays cases, with None for one that cannot be simulated."""
    (backend,) = resolve([f"simulate:{target}"])
    cache = Cache()
    kernels: dict[int, MutableKernel] = {}
    try:
        for case in cases:
            try:
                for variation in variations(pairing, case, family, backend, cache):
                    key = id(variation.traced)
                    if key not in kernels:
                        kernels[key] = MutableKernel(variation.traced, TARGETS[target], dict(case.signature.dims))
                    with convert_exceptions("the simulation", Verdict.RUNTIME_ERROR):
                        yield CaseReplay(case, variation, kernels[key], pairing.signed_zeros)
            except Failure:
                yield None
    finally:
        cache.pool.close()


def variations(pairing: Pairing, case: AnyCase, family: str, backend: Backend, cache: Cache) -> Iterator[Variation]:
    """Yields the calls of a case: those of an invariant, or one that is compared with the oracle.

    Args:
      pairing: the kernel and its oracle.
      case: the case.
      family: its family, or the invariant's name.
      backend: the backend for which the kernel is traced.
      cache: of the pairing.

    Raises:
      Failure: the kernel cannot be traced, or the backend does not support it.
    """
    traced = cache.trace_for(pairing, case.signature, backend)
    if reason := backend.unsupported_reason(traced):
        raise Failure(Verdict.UNAVAILABLE, reason)
    if sum(math.prod(each.shape) for each in (*traced.inputs, *traced.outputs)) > _MOST_ELEMENTS:
        raise Failure(Verdict.UNAVAILABLE, "too large to be replayed")
    expectation, _ = cache.expect(pairing, case, traced)
    asked = InvariantContext(pairing, case, backend, traced, cache.arguments(pairing, case), expectation, cache, seed=0)
    if family in INVARIANTS:
        with keep_retraced_lines():
            calls = list(INVARIANTS[family].vary(asked))
        yield from calls
    else:
        yield Variation(traced, asked.leaves, (OutputCheck("", asked.by_oracle()),))


def distinctive_cases(pairing: Pairing, cases: Sequence[AnyCase]) -> Iterator[Case]:
    """Yields extra cases with distinctive values, so that a mutant cannot pass by coincidence."""
    for signature in list(dict.fromkeys(case.signature for case in cases))[:_SIGNATURES]:
        slots = signature_slots(pairing, signature).values()
        for family in map(FAMILIES.__getitem__, _DISTINCTIVE):
            if any(family.applies(slot) for slot in slots):
                yield Case(cases[0].pairing_id, pairing.name, signature, family, "", 0)
