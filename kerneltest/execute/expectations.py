"""The expectations of the cases of a pairing with their arguments, computed once for all backends."""

import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure, convert_exceptions
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.process_state import ProcessState
from kerneltest.judge.special_values import find_special_inputs
from kerneltest.oracle.evaluation import check_all_masked, evaluate_oracle, expect
from kerneltest.oracle.expectation import Expectation, oracle_noise
from kerneltest.plan.explicit import DRAWN_FAMILY, AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.plan.slots import counted_axes, is_exact, last_blocks
from kerneltest.records.evidence import SpecialInput
from kerneltest.records.journal import Phase
from kerneltest.trace.tracing import Traced

# A store of answers with a limit of memory.

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_LATEST = 8  # the part of the memory, one in so many, for the latest answers


class BoundedStore(MutableMapping[_Key, _Value], Generic[_Key, _Value]):
    """Answers by key, up to a number of bytes as `size` counts them: the first ones stay, and of the others the latest.

    Each backend goes through the same cases in the same order. If the oldest answers made room for others, each would
    be gone just before the next backend asks for it. The latest answer is kept whatever its size.
    """

    def __init__(self, max_bytes: int, size: Callable[[_Value], int]) -> None:
        self._max_bytes, self._size = max_bytes, size
        self._first: dict[_Key, _Value] = {}
        self._latest: dict[_Key, _Value] = {}
        self._room_for_latest = self._max_bytes // _LATEST
        self._room_for_first = self._max_bytes - self._room_for_latest

    def compute_once(self, key: _Key, compute: Callable[[], _Value]) -> _Value:
        """Returns the answer of a key; computes it unless it is known."""
        if key not in self:
            self[key] = compute()
        return self[key]

    def copy(self) -> "BoundedStore[_Key, _Value]":
        """Returns another store with the same answers, which adds and forgets its own from now on."""
        other = BoundedStore[_Key, _Value](self._max_bytes, self._size)
        other._first, other._latest = dict(self._first), dict(self._latest)
        other._room_for_first, other._room_for_latest = self._room_for_first, self._room_for_latest
        return other

    def __getitem__(self, key: _Key) -> _Value:
        return self._first[key] if key in self._first else self._latest[key]

    def __setitem__(self, key: _Key, answer: _Value) -> None:
        self.pop(key, None)
        size = self._size(answer)
        if size <= self._room_for_first:
            self._first[key] = answer
            self._room_for_first -= size
            return
        self._latest[key] = answer
        self._room_for_latest -= size
        while self._room_for_latest < 0 and len(self._latest) > 1:
            del self[next(iter(self._latest))]

    def __delitem__(self, key: _Key) -> None:
        if key in self._first:
            self._room_for_first += self._size(self._first.pop(key))
        else:
            self._room_for_latest += self._size(self._latest.pop(key))

    def __iter__(self) -> Iterator[_Key]:
        yield from self._first
        yield from self._latest

    def __len__(self) -> int:
        return len(self._first) + len(self._latest)


# Families whose cases are evaluated and run twice: in each group, those most sensitive to the order of operations. The
# choice depends only on the case, so it is the same in every process.
REPEATED = frozenset({"small_integers", "normal", "one_inf", "extreme_integers", "random_mask", DRAWN_FAMILY.name})

_BYTES_PER_ELEMENT = 16  # its value in the kernel's dtype and in float64, or its value and its bound
_GRADIENT_BYTES = 64  # for each number: its value, and two spreads with what they are made of
_MAX_GRADIENTS = 2**27  # bytes
_MAX_EXPECTATIONS = 3 * 2**27
_MAX_EVALUATIONS = 2**28


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A case's arguments by path with the oracle's outputs, and where each is defined, before these have bounds."""

    arguments: Mapping[str, Array]
    outputs: tuple[tuple[Array, ...], tuple[Array, ...]]


@dataclass(frozen=True)
class CachedExpectation:
    """A case's arguments by path with the expectation for them, or the oracle's failure.

    If `bitwise`, outputs must equal it bit for bit.
    """

    pairing: Pairing
    signature: Signature
    arguments: Mapping[str, Array]
    expectation: Expectation | Failure
    bitwise: bool

    @functools.cached_property
    def noise(self) -> float:
        """The absolute error that float64 rounding in the oracle may leave in a zero."""
        return oracle_noise(self.arguments)

    @functools.cached_property
    def special_inputs(self) -> tuple[SpecialInput, ...]:
        """The special values among the arguments."""
        counted = counted_axes(self.pairing, self.signature)
        return find_special_inputs(self.arguments, last_blocks(self.pairing), counted)


# Approximate sizes in bytes.
def _expectation_size(expected: CachedExpectation) -> int:
    values = () if isinstance(expected.expectation, Failure) else expected.expectation.values
    return _BYTES_PER_ELEMENT * sum(array.size for array in (*expected.arguments.values(), *values))


def _evaluation_size(known: Evaluation) -> int:
    return _BYTES_PER_ELEMENT * sum(array.size for array in (*known.arguments.values(), *known.outputs[0]))


def _gradient_size(expected: Expectation) -> int:
    return _GRADIENT_BYTES * sum(value.size for value in expected.values)


class Expectations:
    """The expectations of the cases of a pairing in one dtype.

    Attributes:
      cases: the expectation of each case, with its arguments, by its id.
      evaluations: the oracle's values for cases whose expectation has not been needed yet.
      gradients: the oracle's gradients, by case and label of the check.
      filled: the arguments of cases that are to run in a batch.
      failures: of a family or of the oracle, by phase and case. They stay, since a second try may not fail.
    """

    def __init__(
        self,
        process: ProcessState,
        cases: BoundedStore[str, CachedExpectation] | None = None,
        gradients: BoundedStore[tuple[str, str], Expectation] | None = None,
    ) -> None:
        self._process = process
        self.cases = BoundedStore(_MAX_EXPECTATIONS, _expectation_size) if cases is None else cases
        self.gradients = BoundedStore(_MAX_GRADIENTS, _gradient_size) if gradients is None else gradients
        self.evaluations = BoundedStore[str, Evaluation](_MAX_EVALUATIONS, _evaluation_size)
        self.filled: dict[str, Mapping[str, Array]] = {}
        self.failures: dict[tuple[Phase, str], Failure] = {}

    def of(self, pairing: Pairing, case: AnyCase, traced: Traced) -> tuple[Expectation, bool]:
        """Returns the expectation of a case, and whether it holds bit for bit; Failure: the oracle failed."""
        arguments = self.arguments(pairing, case)
        bitwise = case.family.structural and traced.exact and is_exact(pairing, case.signature, arguments)
        known = self.cases.get(case.id)
        if known is None or known.bitwise != bitwise:  # the kernel may be exact on one platform only
            self.filled.pop(case.id, None)
            self._process.journal.counts["oracle evaluations"] += 1
            evaluated = self.evaluations.pop(case.id, None)

            def evaluate() -> Expectation:
                expected = expect(
                    pairing,
                    case.signature,
                    arguments,
                    traced.outputs,
                    bitwise=bitwise,
                    repeat=case.family.name in REPEATED,
                    known=None if evaluated is None else evaluated.outputs,
                    names=traced.output_names,
                )
                if case.family.name == "all_masked_array":
                    check_all_masked(pairing, case.target, expected)
                return expected

            expectation: Expectation | Failure
            try:
                expectation = self._attempt(Phase.EXPECTING, case, evaluate)
            except Failure as failure:
                expectation = failure
            self.cases[case.id] = CachedExpectation(pairing, case.signature, arguments, expectation, bitwise)
        expected = self.cases[case.id]
        if isinstance(expected.expectation, Failure):
            raise expected.expectation.with_traceback(None)
        return expected.expectation, expected.bitwise

    def evaluate(self, pairing: Pairing, case: AnyCase, traced: Traced, arguments: Mapping[str, Array]) -> Evaluation:
        """Evaluates the oracle on a case, once for its fingerprint and its expectation; Failure: it raised."""
        expected = self.cases.get(case.id)
        if expected is not None and isinstance(known := expected.expectation, Expectation):
            return Evaluation(expected.arguments, (known.values, known.defined))
        if case.id not in self.evaluations:
            wide = {path: widen(value) for path, value in arguments.items()}
            evaluate = functools.partial(
                evaluate_oracle, pairing, case.signature, wide, traced.outputs, traced.output_names
            )
            answer = self._attempt(Phase.EXPECTING, case, evaluate, f"oracle {pairing.name}")
            self.evaluations[case.id] = Evaluation(arguments, answer)
        return self.evaluations[case.id]

    def noise(self, case: AnyCase, arguments: Mapping[str, Array]) -> float:
        """Returns the absolute error that float64 rounding in the oracle may leave in a zero."""
        expected = self.cases.get(case.id)
        if expected is not None and expected.arguments is arguments:
            return expected.noise
        return oracle_noise(arguments)

    def inputs(self, pairing: Pairing, case: AnyCase) -> tuple[Array, ...]:
        """Returns a case's array arguments in the order in which the kernel takes them."""
        arguments = self.arguments(pairing, case)
        return tuple(arguments[path] for path, _ in case.signature.dtypes)

    def arguments(self, pairing: Pairing, case: AnyCase) -> Mapping[str, Array]:
        """Returns a case's array arguments by path; Failure: its family raised, so the kernel is not to blame."""
        if (expected := self.cases.get(case.id)) is not None:
            return expected.arguments
        if (evaluated := self.evaluations.get(case.id)) is not None:
            return evaluated.arguments
        if (filled := self.filled.get(case.id)) is not None:
            return filled
        return self._attempt(Phase.FILLING, case, functools.partial(case.fill, pairing), f"family {case.family.name}")

    # Returns what a function of the user computes in a phase; `user`, if given, names it in what it raises.
    def _attempt(self, phase: Phase, case: AnyCase, compute: Callable[[], _Value], user: str = "") -> _Value:
        self._process.enter_phase(phase)
        if failure := self.failures.get((phase, case.id)):
            raise failure.with_traceback(None)
        converted = convert_exceptions(user, Verdict.ORACLE_ERROR, with_source=True) if user else nullcontext()
        try:
            with converted:
                return compute()
        except Failure as failure:
            self.failures[phase, case.id] = failure
            raise
