"""Replays of cases in NumPy, of the original kernel and of patched ones, with the results compared.

A formula is compared with the oracle without rounding, so that a small bound cannot hide what a change does. The
outputs with rounding must be right as well.
"""

import time
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import repeat

import numpy as np

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, convert_exceptions
from kerneltest.core.precision import XLA_CPU
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.formula_check import FORMULA_ARITHMETIC, compare_closely
from kerneltest.execute.invariant_context import OutputCheck, Variation
from kerneltest.judge.compare import compare
from kerneltest.localize.case_replay import distinctive_cases, variations
from kerneltest.localize.evaluated_kernel import EquationPatch, EvaluatedKernel, EvaluatedRun
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.trace.float64_tracing import trace_in_float64
from kerneltest.trace.scalars import UnknownError

_BACKEND = "interpret"


class EquationReplay:
    """A call of a kernel with known results, evaluated in NumPy.

    Attributes:
      case: the case that the values belong to.
      kernel: the kernel that is called.
    """

    def __init__(
        self, case: AnyCase, variation: Variation, kernel: EvaluatedKernel, formulas: Sequence[Expectation | None]
    ) -> None:
        self.case, self.kernel = case, kernel
        self._leaves, self._shares, self._formulas = variation.leaves, variation.shares, formulas
        self._original = kernel.run(self._leaves)
        precision = variation.traced.adapt_precision(XLA_CPU)
        self._expected = [share.wanted(share.take(self._original.rounded), precision) for share in self._shares]
        self.is_wrong = not self.is_right(self._original)

    @cached_property
    def _samples(self) -> tuple[Array, ...]:
        try:
            return tuple(self.kernel.sample(self._leaves, FORMULA_ARITHMETIC))
        except UnknownError:
            return tuple(output[None] for output in self._original.formula)

    def attempt(self, patch: EquationPatch) -> EvaluatedRun:
        """Returns the evaluation of the kernel with a patch."""
        return self.kernel.run(self._leaves, patch)

    def is_right(self, run: EvaluatedRun) -> bool:
        """Tells whether no element is wrong, neither with rounding nor without; a patch that raises is not right."""
        try:
            return not any(mask.any() for mask in self._wrong(run))
        except Exception:
            if run is self._original:
                raise
            return False

    def _wrong(self, run: EvaluatedRun) -> Iterator[Array]:
        """Yields masks of the wrong elements: of the outputs without rounding, then of those with rounding."""
        for share, formula in zip(self._shares, self._formulas, strict=True):
            if formula is not None:
                functions, sample = self.kernel.promoted.functions, partial(self._share_of_samples, share)
                for found in compare_closely(share.take(run.formula), formula, functions, sample):
                    yield found.wrong
        for share, expected in zip(self._shares, self._expected, strict=True):
            others = expected.others or repeat(())
            for got, value, bound, other in zip(
                share.take(run.rounded), expected.values, expected.bounds, others, strict=False
            ):
                yield compare(got, value, bound, signed_zeros=expected.bitwise, alternatives=other).wrong

    def _share_of_samples(self, share: OutputCheck) -> tuple[Array, ...]:
        """Returns samples of the original kernel, by which the bound of every mutant is widened."""
        return share.take(self._samples)


def equation_replays(
    pairing: Pairing, cases: Sequence[AnyCase], family: str, *, distinctive: bool = True, deadline: float = np.inf
) -> Iterator[EquationReplay]:
    """Yields replays of cases, and of further ones for the same lengths; without those that NumPy cannot evaluate.

    Args:
      pairing: the kernel and its oracle.
      cases: the cases.
      family: the family that the first one was recorded under: an invariant's name stands for the calls that it makes.
      distinctive: whether cases with distinctive values are added.
      deadline: when to stop, as a time of `time.monotonic`.
    """
    (backend,) = resolve([_BACKEND])
    cache = Cache()
    kernels: dict[int, EvaluatedKernel] = {}
    try:
        for case in [*cases, *(distinctive_cases(pairing, cases) if distinctive else ())]:
            if time.monotonic() > deadline:
                return
            try:
                for variation in variations(pairing, case, family, backend, cache):
                    key = id(variation.traced)
                    plain = variation.traced is cache.trace_for(pairing, case.signature, backend)
                    if key not in kernels:
                        wide = trace_in_float64(pairing, case.signature, variation.traced) if plain else None
                        kernels[key] = EvaluatedKernel(variation.traced, wide, dict(case.signature.dims))
                    formulas = [_formula(pairing, case, share, plain, cache, variation) for share in variation.shares]
                    with convert_exceptions("the evaluation", Verdict.RUNTIME_ERROR):
                        yield EquationReplay(case, variation, kernels[key], formulas)
            except (Failure, UnknownError):
                continue
    finally:
        cache.pool.close()


def _formula(
    pairing: Pairing, case: AnyCase, share: OutputCheck, plain: bool, cache: Cache, variation: Variation
) -> Expectation | None:
    """Returns the oracle's values to which a share is held without rounding; None if it is not."""
    if share.formula is not None or not plain:
        return share.formula
    return cache.expect(pairing, case, variation.traced)[0]
