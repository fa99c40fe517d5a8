"""Learns the forms of a kernel's code from a few dozen sizes.

JAX lowers a kernel for one choice of sizes. Codes at different sizes that are equal but for numbers have one form. The
tests that tell which sizes have a form are learnt from samples, and so are the formulas of its numbers. Both must
predict the code at held-out sizes.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.declare.arguments import Static
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.code_forms import Form, Forms, TestResults, align_program_ids, with_program_ids
from kerneltest.extensions.proofs.formulas import FormulaLanguage, SizeTest, evaluate_formula, formula_fitter
from kerneltest.extensions.proofs.lowered_code import LoweredCode, lower_calls
from kerneltest.extensions.proofs.polynomial import Polynomial
from kerneltest.extensions.proofs.program_slice import Undecided
from kerneltest.extensions.proofs.size_samples import (
    LIMIT,
    Row,
    admitted_lengths,
    max_elements,
    random_length,
    sample_sizes,
    sizes_beyond_int32,
)
from kerneltest.plan.signatures import Signature

_HELD_OUT = 8  # random sizes at which forms are checked
_NEW_LENGTHS = 5  # of each dim at which each form is checked
_MAX_DRAWS = 200  # to find them
_ROUNDS = 4  # of learning and checking
_MIN_LENGTHS = 4  # of each dim at which each form must be sampled
_MAX_DEPTH = 6  # tests that describe a form
_SECONDS = 60.0  # for lowering
_LARGE = 5000

# The code of one call at the sampled sizes; None if the kernel does not make the call.
Samples = dict[Row, LoweredCode[int] | None]


def learn_forms(pairing: Pairing, signature: Signature, target: Target) -> Forms:
    """Learns the forms of a kernel's code, with the dtypes and static arguments of a signature.

    Raises:
      Undecided: a number has no formula, or no test tells forms apart.
      Failure: the kernel does not lower at any of the sampled sizes.
    """
    return _FormLearner(pairing, signature, target).learn()


class _FormLearner:
    """Lowers the kernel at some sizes, and learns forms until they predict the code at others."""

    def __init__(self, pairing: Pairing, signature: Signature, target: Target) -> None:
        self.pairing, self.signature, self.target = pairing, signature, target
        self.rng = random.Random(0)
        self.seen: dict[Row, tuple[LoweredCode[int], ...]] = {}
        self.refused: dict[Row, Failure] = {}
        statics = [
            part
            for name, argument in pairing.arguments.items()
            if isinstance(argument, Static)
            for part in _integers(argument.value(dict(signature.statics)[name]))
        ]
        declared = [b for dim in pairing.dims.values() for b in (dim.block, dim.multiple_of) if b]
        most = LIMIT - 1 if max_elements(pairing) >= LIMIT else 0
        self.language = FormulaLanguage(list(pairing.dims), [*declared, *statics, 2, 16], most)
        self.until = time.monotonic() + _SECONDS

    def learn(self) -> Forms:
        """Returns the forms; raises as `learn_forms` does."""
        for row in sample_sizes(self.pairing, self.rng):
            self._lower(self._admitted_near(row))
        if not self.seen and self.refused:
            raise next(iter(self.refused.values()))
        if beyond := sizes_beyond_int32(self.pairing):
            self._learn_calls()  # raises if code grows with the sizes, which would take forever at these
            for row in beyond:
                self._lower(self._admitted_near(row))
        for _ in range(_ROUNDS):
            calls = self._learn_calls()
            if all(self._is_predicted(calls, row) for row in self._held_out_sizes(calls)):
                self._check_coverage(calls)
                return Forms(tuple(calls), self.language, len(self.seen), len(self.refused))
        raise Undecided(
            "the lowered code at held-out sizes differs from the prediction: its dependence on sizes was not found"
        )

    def _admitted_near(self, row: Row) -> Row:
        """Returns admitted sizes near some others, or these if none is found."""
        fitted = self.pairing.fit_lengths(dict(row), dict(self.signature.statics))
        return tuple(fitted.items()) if fitted else row

    def _lower(self, row: Row) -> bool:
        """Lowers the kernel at some sizes; returns whether it lowers there."""
        if time.monotonic() > self.until:
            raise Undecided(f"lowering the kernel at {len(self.seen)} sizes took more than {_SECONDS:.0f} s")
        if row not in self.seen and row not in self.refused:
            try:
                self.seen[row] = lower_calls(self.pairing, replace(self.signature, dims=row), self.target)
            except Failure as failure:
                self.refused[row] = failure
        return row in self.seen

    def _learn_calls(self) -> list[tuple[Form, ...]]:
        """Learns the forms of each call from all samples."""
        count = max(map(len, self.seen.values()))
        calls = []
        for i in range(count):
            seen = {row: codes[i] if i < len(codes) else None for row, codes in self.seen.items()}
            aligned = dict(zip(seen, align_program_ids(list(seen.values())), strict=True))
            calls.append(tuple(self._split_forms(aligned, ())))
        return calls

    def _split_forms(self, seen: Samples, when: TestResults) -> Iterator[Form]:
        """Splits samples by tests, as a decision tree does, until each part has one form.

        Raises:
          Undecided: no test splits them.
        """
        form, problem = self._fit_form(seen, when)
        if form is not None:
            yield form
            return
        best: tuple[float, SizeTest] | None = None
        numbers: dict[LoweredCode[int] | None, int] = {}
        labels = {row: numbers.setdefault(code and code.skeleton(), len(numbers)) for row, code in seen.items()}
        for test in self.language.tests(_lengths(seen)) if len(when) < _MAX_DEPTH else ():
            parts = [{row: code for row, code in seen.items() if test(dict(row)) == holds} for holds in (True, False)]
            if not all(parts):
                continue
            if len(numbers) == 1:
                cost = float(sum(self._fit_form(part, when)[0] is None for part in parts))
                cost = cost if cost < 2 else math.inf
            else:
                cost = sum(_entropy([labels[row] for row in part]) for part in parts)
            if cost < (best[0] if best else math.inf):
                best = cost, test
            if cost == 0:
                break
        if best is None:
            raise Undecided(problem or "no test on the sizes predicts the form of the lowered code")
        for holds in (True, False):
            part = {row: code for row, code in seen.items() if best[1](dict(row)) == holds}
            yield from self._split_forms(part, (*when, (best[1], holds)))

    def _fit_form(self, seen: Samples, when: TestResults) -> tuple[Form | None, str]:
        """Returns the form of samples, or None and the reason why they have no common form."""
        made = list(seen.values())
        skeletons = {None if code is None else code.skeleton() for code in made}
        if len(skeletons) > 1:
            return None, ""
        if made[0] is None:
            return Form(None, when, tuple(seen)), ""
        fit = formula_fitter(self.language, [dict(row) for row in seen])
        known: dict[tuple[int, ...], Polynomial] = {}
        for values in zip(*(code.numbers() for code in made if code is not None), strict=True):
            if values not in known:
                found = fit(values)
                if found is None:
                    examples = ", ".join(
                        f"{value} at {_format_row(row)}" for value, row in list(zip(values, seen, strict=True))[:3]
                    )
                    return None, f"a number in the lowered code has no formula of the sizes: {examples}"
                known[values] = found
        columns = iter(list(zip(*(code.numbers() for code in made if code is not None), strict=True)))
        return Form(made[0].map_numbers(lambda _: known[next(columns)]), when, tuple(seen)), ""

    def _held_out_sizes(self, calls: Sequence[tuple[Form, ...]]) -> Iterator[Row]:
        """Yields sizes at which to check forms: some at random, and a few of each form."""
        dims = self.pairing.dims
        for n in range(_HELD_OUT):
            top = (100, 1000, _LARGE)[n % 3]
            yield self._admitted_near(tuple((name, random_length(dim, self.rng, top)) for name, dim in dims.items()))
        for form in (form for call in calls for form in call):
            known = {name: {dict(row)[name] for row in form.seen} for name, dim in dims.items() if not dim.values}
            for _ in range(_MAX_DRAWS):
                if all(len(lengths) >= _NEW_LENGTHS for lengths in known.values()):
                    break
                length = self.rng.choice((4, 40, 300))
                row = self._admitted_near(
                    tuple((name, random_length(dim, self.rng, length)) for name, dim in dims.items())
                )
                fresh = row not in self.seen and row not in self.refused and form.covers(dict(row))
                if fresh and any(length not in known.get(name, {length}) for name, length in row):
                    for name, length in row:
                        known.get(name, set()).add(length)
                    yield row

    def _check_coverage(self, calls: Sequence[tuple[Form, ...]]) -> None:
        """Raises Undecided if a form was sampled at too few of the lengths that a dim can have."""
        for form in (form for call in calls for form in call):
            rows = [row for row in self.seen if form.covers(dict(row))]
            for name, dim in self.pairing.dims.items():
                known = {dict(row)[name] for row in rows}
                others = [
                    other
                    for length in admitted_lengths(dim)
                    for row in rows[:4]
                    if form.covers(other := {**dict(row), name: length}) and length not in known
                    and tuple(other.items()) not in self.refused
                    and self.pairing.admits(other, dict(self.signature.statics))
                ]  # fmt: skip
                if others and len(known) < (len(set(dim.values)) if dim.values else _MIN_LENGTHS):
                    raise Undecided(
                        f"the kernel lowers at too few lengths of {name} to find how its code depends on it"
                    )

    def _is_predicted(self, calls: Sequence[tuple[Form, ...]], row: Row) -> bool:
        """Returns whether the kernel does not lower at some sizes or its code there is as the forms predict."""
        new = row not in self.seen
        if not self._lower(row):
            return True
        made = self.seen[row]
        if len(made) > len(calls):
            return False
        for i, call in enumerate(calls):
            (form,) = (form for form in call if form.covers(dict(row)))
            code = made[i] if i < len(made) else None
            if (form.code is None) != (code is None):
                return False
            if code is not None and form.code is not None and new:
                predicted = form.code.map_numbers(lambda n: evaluate_formula(n, self.language, dict(row)))
                if predicted != with_program_ids(code, predicted):
                    return False
        return True


def _integers(value: object) -> Iterator[int]:
    """Yields the integers of a static argument that may be block lengths."""
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, int) and not isinstance(part, bool) and 1 < part <= 4096:
            yield part


def _format_row(row: Row) -> str:
    return ", ".join(f"{name}={length}" for name, length in row) or "no dims"


def _lengths(seen: Samples) -> list[int]:
    """Returns small lengths at which the form may change."""
    return sorted({length + step for row in seen for _, length in row if length <= 64 for step in (-1, 0)} - {-1})


def _entropy(labels: Sequence[object]) -> float:
    counts = Counter(labels)
    return -sum(n * math.log(n / len(labels)) for n in counts.values())
