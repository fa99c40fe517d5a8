"""The formulas of calls: kernels with their floats promoted to float64, evaluated in NumPy, and what that has shown."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from kerneltest.core.details import ErrorCause, MismatchCause, Stated
from kerneltest.core.dtypes import Array, DType, cast, float_format, is_float, widen
from kerneltest.core.failures import Failure, Origin, comes_from, format_exception, warn_of_recovery
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.expectations import BoundedStore
from kerneltest.execute.process_state import ProcessState
from kerneltest.judge.compare import Comparison, agree_roughly, first_difference, is_wrong
from kerneltest.judge.formula import FORMULA_ARITHMETIC, compare_closely, fit_parameters, formula_answer
from kerneltest.numerics.bounds import limits
from kerneltest.numerics.rounding_model import is_short
from kerneltest.oracle.expectation import Expectation
from kerneltest.records.journal import Phase
from kerneltest.records.schema import FormulaAnswer
from kerneltest.trace.batched_interpreter.kernel_rules import KernelRules
from kerneltest.trace.batched_interpreter.promoted_kernel import CappedRules, FarRules, PromotedKernel, SampleArithmetic
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Literals, Traced, rounded_literals, written_decimals
from kerneltest.trace.walk import NARROW, converts_floats_to_integers, narrow_numbers

_MAX_BYTES = 2**26  # of comparisons, and of samples
_MOST_FITS = 4  # of rounded constants, by findings that these do not explain
_MOST = 2**22  # elements in the inputs of cases that are evaluated at once
_MOST_SAMPLED = 2**19  # the same, and in the outputs, of samples: all intermediate values are arrays

_T = TypeVar("_T")


class NotPromotedError(Exception):
    """A kernel cannot be evaluated with its floats promoted; says why."""


_Key = tuple[Traced, str]  # a function, and a call of it
_SamplesKey = tuple[Traced, str, SampleArithmetic]
ReadLeaves = Callable[[], Sequence[Array]]
TraceWide = Callable[[], Traced | None]
Take = Callable[[tuple[Array, ...]], tuple[Array, ...]]


class FormulaStore:
    """The kernels of a pairing with their floats promoted to float64, and answers about their formulas.

    A wrong output is judged twice, on a fast path and on the prepared executable, and again on every other backend.
    What a comparison finds without rounding is the same each time.

    Attributes:
      kernels: with their floats promoted, constants included where that is possible.
      own_kernels: the same, with the constants of the kernels' own dtypes, by their rules; the reason if there is none.
      literals: those of the kernels whose own constants are those of `kernels`, some of them rounded to 16 bits.
      outputs: of `kernels`, evaluated ahead of their cases' turn.
      samples: of `kernels` in the formula's arithmetic, ahead likewise, and of `own_kernels` in others, which each
        backend may ask for; () if there are none.
      unasked: those of them that were evaluated ahead and not asked for yet.
      room: how many more may be, by arithmetic: as many as were asked for.
      unbatched: the kernels of which several cases cannot be sampled at once.
      raising: the kernels whose callbacks raise each time.
      right: the answers for kernels and calls whose formula is not wrong.
      comparisons: with the oracle, for calls with wrong outputs; () if they cannot be made.
      fits: by constants of kernels, what they may be rounded from.
      overflowing: whether numbers of such calls are too large for the dtypes that they have in the kernel.
    """

    def __init__(self, process: ProcessState) -> None:
        self.process = process
        self.kernels: dict[Traced, PromotedKernel] = {}
        self.own_kernels: dict[tuple[Traced, type[KernelRules]], PromotedKernel | str] = {}
        self.literals: dict[Traced, Literals] = {}
        self.outputs: dict[_Key, tuple[Array, ...]] = {}
        self.samples = BoundedStore[_SamplesKey, tuple[Array, ...]](
            _MAX_BYTES, lambda found: sum(each.nbytes for each in found)
        )
        self.unasked: set[_SamplesKey] = set()
        self.room: Counter[SampleArithmetic] = Counter()
        self.unbatched: set[Traced] = set()
        self.right: dict[_Key, FormulaAnswer] = {}
        self.raising: set[Traced] = set()
        self.fits: dict[Hashable, list[Array]] = {}
        self.overflowing: dict[Hashable, bool] = {}
        self.comparisons = BoundedStore[_Key, Sequence[Comparison]](
            _MAX_BYTES, lambda found: sum(c.bytes for c in found)
        )

    def kernel(self, traced: Traced, trace_wide: TraceWide | None, rewrites: Traced | None = None) -> PromotedKernel:
        """Returns a function with its floats promoted to float64, traced in float64 if possible; or a NotPromotedError.

        A function that `rewrites` a kernel gets that one's literals as they are in float64.
        """
        if trace_wide is None:
            return self.own_kernel(traced)
        if traced not in self.kernels:
            found: PromotedKernel | str = ""
            if rewrites is not None and rewrites is not traced:
                self.kernel(rewrites, trace_wide)
                if (literals := self.literals.get(rewrites)) is not None:
                    self.literals[traced] = literals
                    found = _promote(traced, literals=literals)
            elif (wide := trace_wide()) is not None:
                found = _promote(replace(wide, sites=traced.sites), literals=written_decimals(traced))
                if (literals := rounded_literals(traced, wide)) is not None:
                    self.literals[traced] = literals
                    self.own_kernels.pop((traced, KernelRules), None)
            self.kernels[traced] = found if isinstance(found, PromotedKernel) else self.own_kernel(traced)
        return self.kernels[traced]

    def own_kernel(self, traced: Traced, kind: type[KernelRules] = KernelRules) -> PromotedKernel:
        """Returns a promoted function with the constants of its own dtypes; NotPromotedError: there is none."""
        if (key := (traced, kind)) not in self.own_kernels:
            self.own_kernels[key] = _promote(traced, kind=kind, narrows=traced in self.literals)
        found = self.own_kernels[key]
        if isinstance(found, str):
            raise NotPromotedError(found)
        return found


def whole(outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """Takes all outputs."""
    return outputs


@dataclass(frozen=True, slots=True)
class Formula:
    """The formula of a call, evaluated in NumPy, and what is known of it."""

    store: FormulaStore
    traced: Traced  # the function that is called
    key: str  # identifies the call among those of the function
    leaves: Sequence[Array]  # its inputs
    oracle: Expectation  # the oracle's values for it
    take: Take = whole  # takes the outputs to compare with these values out of all
    trace_wide: TraceWide | None = None  # traces the kernel itself in float64; None if it shall not be
    rewrites: Traced | None = None  # the kernel itself, if the function may be another
    # yields the key and the inputs of coming calls, with which this one may be evaluated
    coming: Callable[[], Iterable[tuple[str, ReadLeaves]]] = tuple

    @property
    def _kernel(self) -> PromotedKernel:
        return self.store.kernel(self.traced, self.trace_wide, self.rewrites)

    def ask(self) -> tuple[FormulaAnswer, Sequence[Comparison]]:
        """Returns whether the formula is right, and the comparison of each output if some element is wrong, else ()."""
        known, key = self.store.right, (self.traced, self.key)
        if key not in known:
            try:
                found = self._compare()
                answer = formula_answer(found)
                if is_wrong(found):
                    return answer, found
            except NotPromotedError as error:
                answer = FormulaAnswer(unanswered=str(error))
                cause = error.__cause__
                if cause is not None and self.traced.calls_back() and comes_from(cause, Origin.USER, Origin.JAX):
                    self._raise_again(str(error))  # or the exception was one of two answers
            known[key] = answer
        return known[key], ()

    # Evaluates the formula again, after the user's code has raised, and so that it must raise again.
    def _raise_again(self, said: str) -> None:
        if self.traced in self.store.raising:
            return
        self.store.raising.add(self.traced)
        with suppress(NotPromotedError):
            self._compare()
            words = "{said}; and the same inputs then gave results"
            raise Failure(Verdict.NONDETERMINISTIC, Stated(words, {"said": said}))

    def is_refused(self) -> bool:
        """Returns whether NumPy cannot evaluate the function, as far as that is known without an evaluation."""
        try:
            self.store.own_kernel(self.traced)
        except NotPromotedError:
            return True
        known = self.store.right.get((self.traced, self.key))
        return known is not None and bool(known.unanswered)

    def check_repeated(self, found: Sequence[Comparison], outputs: Sequence[Array]) -> None:
        """Evaluates a wrong formula again if Python computes it; a `nondeterministic` Failure if it varies."""
        if not self.traced.calls_back():
            return
        _, again = self.ask()
        if again and all(a.actual.tobytes() == b.actual.tobytes() for a, b in zip(found, again, strict=True)):
            return
        number, first = next((i, each) for i, each in enumerate(found) if each.wrong.any())
        second, array = again[number].actual if again else outputs[number], f"output {number} without rounding"
        raise Failure(Verdict.NONDETERMINISTIC, first_difference(array, first.actual, second, first.wrong))

    def evidence(self) -> Sequence[Comparison]:
        """Returns the comparison of each output, of special values too; () if the formula cannot be evaluated."""

        def compare() -> Sequence[Comparison]:
            found = self._compare(specials=True)
            lost = any((each.wrong & ~np.isfinite(each.actual.astype(np.float64))).any() for each in found)
            return self._compare() if lost and self._kernel.overflows(self.leaves) else found

        return self.store.comparisons.compute_once((self.traced, self.key), lambda: _unless_refused(compare, ()))

    def _compare(self, *, specials: bool = False) -> list[Comparison]:
        outputs = self.take(self._outputs())
        self.store.process.enter_phase(Phase.EXPECTING)
        return compare_closely(outputs, self.oracle, self._sample, specials=specials)

    def _sample(self, arithmetic: SampleArithmetic) -> Sequence[Array]:
        if arithmetic != FORMULA_ARITHMETIC:
            return self.own_samples(arithmetic)
        samples = self._samples(self._kernel, arithmetic)
        self.store.samples.pop((self.traced, self.key, arithmetic), None)  # their comparison is kept
        return samples

    def is_right_by(self, kind: type[KernelRules]) -> bool:
        """Returns whether the formula is right by other rules."""
        return _unless_refused(lambda: self._is_right(self.store.own_kernel(self.traced, kind)), False)

    # Whether another kernel in the place of this one gives the oracle's values, with its constants as they are.
    def _is_right(self, kernel: PromotedKernel) -> bool:
        def sample(arithmetic: SampleArithmetic) -> Sequence[Array]:
            own = replace(arithmetic, constants=False)
            return self._take_samples(self._evaluate(lambda leaves: kernel.sample_cases(leaves, own))[self.key])

        return not is_wrong(compare_closely(self._outputs_of(kernel), self.oracle, sample))

    def _outputs_of(self, kernel: PromotedKernel) -> tuple[Array, ...]:
        return self.take(self._evaluate(kernel)[self.key])

    def makes_nan(self, outputs: Sequence[Comparison]) -> bool:
        """Returns whether wrong outputs are NaN where the formula tends to what is expected, as in `limits`."""
        if not all(np.isnan(each.got[each.wrong]).all() for each in outputs):
            return False
        wide = {str(i): widen(leaf) if is_float(leaf.dtype) else leaf for i, leaf in enumerate(self.leaves)}

        def evaluate(near: Sequence[Mapping[str, Array]]) -> Iterator[tuple[Array, ...]]:
            columns = zip(*(each.values() for each in near), strict=True)
            found = _explained(lambda: self._kernel([np.stack(column) for column in columns]))
            return (self.take(row) for row in zip(*found, strict=True))

        near = _unless_refused(lambda: limits(evaluate, wide), tuple(each.got for each in outputs))
        return all(agree_roughly(o.rounded, limit)[o.wrong].all() for o, limit in zip(outputs, near, strict=True))

    def rounded_constants(self) -> MismatchCause | None:
        """Returns which numbers the kernel rounds to 16 bits, if its formula is right with them; else None."""
        narrow = narrow_numbers(self.traced.jaxpr, NARROW).items()
        rounded = {number: dtype for number, dtype in narrow if not is_short(number, float_format(dtype))}
        dtypes = (*NARROW, np.dtype(np.float32), np.dtype(np.float64))

        def kernel(numbers: Array) -> PromotedKernel:
            literals = {(d, old): new for old, new in zip(rounded, numbers.tolist(), strict=True) for d in dtypes}
            return PromotedKernel(self.traced, literals=literals, narrows=True)

        def find() -> MismatchCause | None:
            fits = self.store.fits.setdefault(tuple(rounded.items()), [])  # of earlier findings, tried first
            for number in range(min(len(fits) + 1, _MOST_FITS)):
                if number == len(fits):
                    fits.append(fit_parameters(lambda n: self._outputs_of(kernel(n)), [*rounded], self.oracle.values))
                pairs = [(new, old, to) for new, (old, to) in zip(fits[number].tolist(), rounded.items(), strict=True)]
                words = tuple(f"{new:.6g} is rounded to {to}" for new, old, to in pairs if abs(new / old - 1) > 1e-6)
                is_due = words and all(cast(np.asarray(new), to) == old for new, old, to in pairs)
                if is_due and self._is_right(kernel(fits[number])):
                    return MismatchCause(ErrorCause.CONSTANT, None, constants=words)
            return None

        return _unless_refused(lambda: _explained(find), None) if rounded else None

    def rounds_literals(self, output: DType) -> bool:
        """Returns whether some constants of the formula are rounded to 16 bits in the kernel, which an output may show.

        Integers may show it as decisions that constants make. Those of a kernel that converts floats to integers may be
        such floats, of which the constants decide the value.
        """
        decides = is_float(output) or not converts_floats_to_integers(self.traced.jaxpr.jaxpr)
        return self.traced in self.store.literals and decides

    def overflows_own_dtypes(self, *, far: bool = False) -> bool:
        """Returns whether a finite intermediate result is too large, or far too large, for its dtype in the kernel."""
        key = self.traced, self.key, FarRules if far else CappedRules
        if key not in self.store.overflowing:
            overflows = lambda: self.store.own_kernel(self.traced, key[2]).overflows(self.leaves)  # noqa: E731
            self.store.overflowing[key] = _unless_refused(lambda: _explained(overflows), False)
        return self.store.overflowing[key]

    def own_samples(self, arithmetic: SampleArithmetic) -> Sequence[Array]:
        """Returns samples of the outputs, with the constants of the kernel's own dtypes; () if that is impossible.

        They have shape (samples, *shape), and row 0 is not rounded.
        """
        self.store.process.enter_phase(Phase.EXPECTING)
        try:
            return self._samples(self.store.own_kernel(self.traced), arithmetic)
        except NotPromotedError:
            self.store.samples[self.traced, self.key, arithmetic] = ()
            return ()

    # Evaluates the outputs with those of coming calls.
    def _outputs(self) -> tuple[Array, ...]:
        kernel, known = self._kernel, self.store.outputs
        self.store.process.enter_phase(Phase.RUNNING)
        if (self.traced, self.key) not in known:
            others = itertools.islice(self.coming(), _MOST // (1 + sum(leaf.size for leaf in self.leaves)))
            known.update(((self.traced, key), outputs) for key, outputs in self._evaluate(kernel, [*others]).items())
        return known.pop((self.traced, self.key))

    # Evaluates samples with those of coming calls, which need not ask for them.
    def _samples(self, kernel: PromotedKernel, arithmetic: SampleArithmetic) -> tuple[Array, ...]:
        store, key = self.store, (self.traced, self.key, arithmetic)
        if key in store.unasked:
            store.unasked.remove(key)
            store.room[arithmetic] += 2  # its own place, and one for having asked
        if key in store.samples:
            return self._take_samples(store.samples[key])
        # Of the formula, calls with an answer need no samples any more.
        answered = (store.right, store.comparisons) if arithmetic == FORMULA_ARITHMETIC else ()
        coming = (
            each
            for each in self.coming()
            if (self.traced, each[0], arithmetic) not in store.samples
            and not any((self.traced, each[0]) in answers for answers in answered)
        )
        constants = sum(np.size(constant) for constant in self.traced.jaxpr.consts)
        size = constants + sum(leaf.size for leaf in self.leaves) + sum(math.prod(o.shape) for o in self.traced.outputs)
        most = min(store.room[arithmetic], _MOST_SAMPLED // (1 + arithmetic.rows * size))
        others = list(itertools.islice(coming, 0 if self.traced in store.unbatched else most))
        found = self._evaluate(lambda leaves: kernel.sample_cases(leaves, arithmetic), others)
        if len(found) <= len(others):
            store.unbatched.add(self.traced)  # as where cases take different branches
        ahead = {(self.traced, other, arithmetic): samples for other, samples in found.items() if other != self.key}
        store.samples.update(ahead)
        store.unasked.update(ahead)
        store.room[arithmetic] += 1 - len(ahead)
        store.samples[key] = found[self.key]
        return self._take_samples(found[self.key])

    # Evaluates this call with others, or by itself if one of them may be the cause of a failure.
    def _evaluate(
        self, evaluate: Callable[[list[Array]], tuple[Array, ...]], others: Sequence[tuple[str, ReadLeaves]] = ()
    ) -> dict[str, tuple[Array, ...]]:
        keys, inputs = [self.key, *(key for key, _ in others)], [self.leaves, *(read() for _, read in others)]
        try:
            results = _explained(lambda: evaluate([np.stack(column) for column in zip(*inputs, strict=True)]))
        except NotPromotedError:
            if not others:
                raise
            keys = keys[:1]
            results = _explained(lambda: evaluate([leaf[None] for leaf in self.leaves]))
        return {key: tuple(output[row].copy() for output in results) for row, key in enumerate(keys)}

    def _take_samples(self, samples: tuple[Array, ...]) -> tuple[Array, ...]:
        if self.take is whole or not samples:
            return samples
        rows = [self.take(tuple(output[row] for output in samples)) for row in range(len(samples[0]))]
        return tuple(np.stack(column) for column in zip(*rows, strict=True))


def _promote(traced: Traced, **options: Any) -> PromotedKernel | str:
    try:
        return _explained(lambda: PromotedKernel(traced, **options))
    except NotPromotedError as error:
        return str(error)


def _unless_refused(evaluate: Callable[[], _T], default: _T) -> _T:
    try:
        return evaluate()
    except NotPromotedError:
        return default


# Raises NotPromotedError where NumPy cannot evaluate a kernel.
def _explained(evaluate: Callable[[], _T]) -> _T:
    try:
        return evaluate()
    except NotPromotedError:
        raise
    except Exception as error:
        if isinstance(error, Failure) and error.verdict is Verdict.HANG:
            raise
        warn_of_recovery(error, "evaluating a kernel without rounding", UnknownError)
        raise NotPromotedError(f"it cannot be evaluated in NumPy: {format_exception(error)}") from error
