"""The forms of a kernel's code: what it looks like at which sizes, with a formula for every number that varies.

The lowered code is of one choice of sizes. It is looked at in a few dozen choices: those alike but for their numbers
are one form. Which sizes have which form is learnt from them, and so are the formulas; both must then foretell the
code at sizes that were kept out.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.declare.arguments import Static
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.formulas import FormulaLanguage, Sizes, SizeTest, evaluate_formula, formula_fitter
from kerneltest.extensions.proofs.lowered_code import LoweredCode, lower_calls
from kerneltest.extensions.proofs.polynomial import Polynomial
from kerneltest.extensions.proofs.program_slice import SliceStep, Undecided
from kerneltest.extensions.proofs.size_samples import (
    LIMIT,
    Row,
    admitted_lengths,
    max_elements,
    random_length,
    rows,
    sizes_beyond_int32,
)
from kerneltest.plan.signatures import Signature

_HELD_OUT, _ROUNDS, _NEW_LENGTHS, _MIN_LENGTHS, _MAX_DRAWS, _MAX_DEPTH, _SECONDS = 8, 4, 5, 4, 200, 6, 60.0
_LARGE = 5000

TestResults = tuple[tuple[SizeTest, bool], ...]


@dataclass(frozen=True)
class Form:
    """The code of a Pallas call at some sizes.

    Attributes:
      code: its numbers are formulas of sizes; None where these sizes make no such call.
      when: tests on the sizes, and whether they hold.
      seen: sizes at which the code was looked at.
    """

    code: LoweredCode[Polynomial] | None
    when: TestResults
    seen: tuple[Row, ...]

    def covers(self, sizes: Sizes) -> bool:
        """Whether the code has this form at some sizes."""
        return all(test(sizes) == holds for test, holds in self.when)

    def __str__(self) -> str:
        return " and ".join(test.describe(holds) for test, holds in self.when) or "all sizes"


@dataclass(frozen=True)
class Forms:
    """All forms of a kernel's calls.

    Attributes:
      calls: for each Pallas call, in order, its forms.
      language: that their formulas are made of.
      seen: at how many sizes the code was looked at.
      refused: at how many others it does not lower.
    """

    calls: tuple[tuple[Form, ...], ...]
    language: FormulaLanguage
    seen: int
    refused: int


def learn_forms(pairing: Pairing, signature: Signature, target: Target) -> Forms:
    """The forms of a kernel's code, with the dtypes and static arguments of a signature.

    Raises:
      Undecided: a number has no formula, or what tells forms apart is not found.
      Failure: the kernel does not lower at any size that was tried.
    """
    return _FormLearner(pairing, signature, target).learn()


class _FormLearner:
    """Looks at the code at some sizes, and learns forms until they foretell it at others."""

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
        for row in rows(self.pairing, self.rng):
            self._lower(self._fitted(row))
        if not self.seen and self.refused:
            raise next(iter(self.refused.values()))
        if beyond := sizes_beyond_int32(self.pairing):
            self._learn_calls()  # raises where code grows with the sizes, which huge ones would make endless
            for row in beyond:
                self._lower(self._fitted(row))
        for _ in range(_ROUNDS):
            calls = self._learn_calls()
            if all(self._is_predicted(calls, row) for row in self._held_out_sizes(calls)):
                self._check_coverage(calls)
                return Forms(tuple(calls), self.language, len(self.seen), len(self.refused))
        raise Undecided(
            "the lowered code at sizes kept out was not what it is at others: no rule for its form was found"
        )

    def _fitted(self, row: Row) -> Row:
        """Sizes near some that the pairing admits, or these where it admits none."""
        fitted = self.pairing.fitted(dict(row), dict(self.signature.statics))
        return tuple(fitted.items()) if fitted else row

    def _lower(self, row: Row) -> bool:
        """Looks at the code at some sizes; whether it lowers there."""
        if time.monotonic() > self.until:
            raise Undecided(f"lowering the kernel at {len(self.seen)} sizes took over {_SECONDS:.0f} s")
        if row not in self.seen and row not in self.refused:
            try:
                self.seen[row] = lower_calls(self.pairing, replace(self.signature, dims=row), self.target)
            except Failure as failure:
                self.refused[row] = failure
        return row in self.seen

    def _learn_calls(self) -> list[tuple[Form, ...]]:
        """The forms of each call, learnt from all that was seen."""
        count = max(map(len, self.seen.values()))
        calls = []
        for i in range(count):
            seen = {row: made[i] if i < len(made) else None for row, made in self.seen.items()}
            aligned = dict(zip(seen, _align_program_ids(list(seen.values())), strict=True))
            calls.append(tuple(self._split_forms(aligned, ())))
        return calls

    def _split_forms(self, seen: dict[Row, LoweredCode[int] | None], when: TestResults) -> Iterator[Form]:
        """Splits what was seen until each part has one form.

        Raises:
          Undecided: no test splits it.
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
            raise Undecided(problem or "no rule tells at which sizes the lowered code has which form")
        for holds in (True, False):
            part = {row: code for row, code in seen.items() if best[1](dict(row)) == holds}
            yield from self._split_forms(part, (*when, (best[1], holds)))

    def _fit_form(self, seen: dict[Row, LoweredCode[int] | None], when: TestResults) -> tuple[Form | None, str]:
        """The one form of all that was seen, or why it is not one."""
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
        """Sizes to check forms at: some at random, and a few of each form."""
        dims = self.pairing.dims
        for n in range(_HELD_OUT):
            top = (100, 1000, _LARGE)[n % 3]
            yield self._fitted(tuple((name, random_length(dim, self.rng, top)) for name, dim in dims.items()))
        for form in (form for call in calls for form in call):
            known = {name: {dict(row)[name] for row in form.seen} for name, dim in dims.items() if not dim.values}
            for _ in range(_MAX_DRAWS):
                if all(len(lengths) >= _NEW_LENGTHS for lengths in known.values()):
                    break
                length = self.rng.choice((4, 40, 300))
                row = self._fitted(tuple((name, random_length(dim, self.rng, length)) for name, dim in dims.items()))
                fresh = row not in self.seen and row not in self.refused and form.covers(dict(row))
                if fresh and any(length not in known.get(name, {length}) for name, length in row):
                    for name, length in row:
                        known.get(name, set()).add(length)
                    yield row

    def _check_coverage(self, calls: Sequence[tuple[Form, ...]]) -> None:
        """Raises Undecided if a form was seen at too few lengths of a dim, of which it has more."""
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
                        f"the kernel lowers at too few lengths of {name} to tell how its code depends on it"
                    )

    def _is_predicted(self, calls: Sequence[tuple[Form, ...]], row: Row) -> bool:
        """Whether the code at some sizes is what the forms say, or does not lower."""
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
                told = form.code.map_numbers(lambda n: evaluate_formula(n, self.language, dict(row)))
                if told != with_program_ids(code, told):
                    return False
        return True


def _align_program_ids(made: Sequence[LoweredCode[int] | None]) -> list[LoweredCode[int] | None]:
    """Codes that differ in nothing but in which program ids they ask for, made alike."""
    alike: dict[LoweredCode[int], list[int]] = {}
    for i, code in enumerate(made):
        if code is not None:
            alike.setdefault(_without_program_ids(code).skeleton(), []).append(i)
    aligned = list(made)
    for numbers in alike.values():
        columns = zip(*(code.body.steps for i in numbers if (code := made[i]) is not None), strict=True)
        steps = tuple(max(column, key=lambda step: step.name == "tt.get_program_id") for column in columns)
        for i in numbers:
            code = made[i]
            assert code is not None
            aligned[i] = with_program_ids(code, replace(code, body=replace(code.body, steps=steps)))
    return aligned


def _without_program_ids(code: LoweredCode[int]) -> LoweredCode[int]:
    steps = tuple(
        replace(step, name="arith.constant", numbers=(0,), fixed=()) if step.name == "tt.get_program_id" else step
        for step in code.body.steps
    )
    return replace(code, body=replace(code.body, steps=steps))


def with_program_ids(code: LoweredCode[int], like: LoweredCode[int]) -> LoweredCode[int]:
    """The code with a program id for the 0 that stands for it where there is one program along its axis."""
    if len(code.body.steps) != len(like.body.steps):
        return code
    steps = tuple(
        theirs if _replaces(mine, theirs, code.grid) else mine
        for mine, theirs in zip(code.body.steps, like.body.steps, strict=True)
    )
    return replace(code, body=replace(code.body, steps=steps))


def _replaces(mine: SliceStep[int], theirs: SliceStep[int], grid: tuple[int, ...]) -> bool:
    if theirs.name != "tt.get_program_id" or mine.name != "arith.constant" or mine.numbers != (0,):
        return False
    return mine.results == theirs.results and mine.types == theirs.types and grid[dict(theirs.fixed)["axis"]] == 1


def _integers(value: object) -> Iterator[int]:
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, int) and not isinstance(part, bool) and 1 < part <= 4096:
            yield part


def _format_row(row: Row) -> str:
    return ", ".join(f"{name}={length}" for name, length in row) or "no dims"


def _lengths(seen: dict[Row, LoweredCode[int] | None]) -> list[int]:
    """Small lengths at which the form may change."""
    return sorted({length + step for row in seen for _, length in row if length <= 64 for step in (-1, 0)} - {-1})


def _entropy(labels: Sequence[object]) -> float:
    counts = Counter(labels)
    return -sum(n * math.log(n / len(labels)) for n in counts.values())
