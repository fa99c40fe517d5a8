"""Learns the forms of a kernel's code from a few dozen sizes.

JAX lowers a kernel for one choice of sizes. Codes at different sizes that are equal but for numbers have one form. The
tests that tell which sizes have a form are learnt from samples, and so are the formulas of its numbers. Both must
predict the code at held-out sizes.
"""

import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.declare.arguments import Static
from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.formulas import FormulaLanguage, Sizes, SizeTest, evaluate_formula, formula_fitter
from kerneltest.extensions.proofs.lowered_code import LoweredCode, SliceStep, Undecided, lower_calls
from kerneltest.extensions.proofs.polynomial import Polynomial
from kerneltest.plan.signatures import Signature, covering_array

# Sizes at which to lower a kernel: around the lengths at which its form may change, random ones and the largest.

LIMIT = 2**31
"""Arrays without declared bounds are assumed to have fewer elements."""
_SAMPLES, _BEYOND = 48, 8

Row = tuple[tuple[str, int], ...]


def max_length(dim: Dim) -> int | None:
    """Returns the greatest length of a dim, or None if none is declared."""
    known = dim.values or [each for each in (dim.maximum, dim.production) if each is not None]
    return max(known, default=None)


def lengths_near_blocks(dim: Dim) -> list[int]:
    """Returns lengths around one and two blocks, which may not be admitted."""
    block = dim.block or 16
    return [dim.minimum, 1, block - 1, block, block + 1, 2 * block + 1]


def random_length(dim: Dim, rng: random.Random, longest: int) -> int:
    """Returns a random admitted length, log-uniform up to `longest`."""
    if dim.values:
        return rng.choice(dim.values)
    length = round(math.exp(rng.uniform(0, math.log(longest))))
    block = dim.block or 16
    if rng.random() < 0.3:
        length = max(length // block, 1) * block
    return _fit_length(dim, length, rng)


def _fit_length(dim: Dim, length: int, rng: random.Random) -> int:
    if dim.values:
        return length
    fitting = dim.fit(length)
    if dim.multiple_of > 1 or length < dim.minimum:
        fitting = rng.choice((fitting, dim.fit(dim.minimum + (length - 1) * dim.multiple_of)))
    if dim.maximum is not None and fitting > dim.maximum - dim.multiple_of:
        fitting = dim.fit(rng.randint(dim.minimum, dim.maximum))
    return fitting


def admitted_lengths(dim: Dim) -> list[int]:
    """Returns a few dozen admitted lengths, short and long."""
    if dim.values:
        return sorted(set(dim.values))
    lengths = [dim.minimum + n * dim.multiple_of for n in (*range(40), 100, 1000, 4001)]
    return sorted({dim.fit(length) for length in lengths if dim.admits(dim.fit(length))})


def _length_generators(dim: Dim) -> list[Callable[[random.Random], int]]:
    if dim.values:
        return [lambda _, value=value: value for value in dim.values]  # type: ignore[misc]
    b = dim.block or 16
    ways: list[Callable[[random.Random], int]] = [
        lambda rng: rng.randrange(b + 1, 9 * b) // 2 * 2 + 1,
        lambda rng: b * rng.randrange(2, 12),
        lambda rng: rng.randrange(2, max(b, 3)),
        lambda rng: 1,
        lambda rng: b,
    ]
    return [*ways, lambda rng: 0] if dim.minimum == 0 else ways


def sample_sizes(pairing: Pairing, rng: random.Random) -> list[Row]:
    """Returns sizes to learn from: a pairwise covering of the generators of lengths, and random ones."""
    ways = [_length_generators(dim) for dim in pairing.dims.values()]
    chosen = covering_array([tuple(range(len(each))) for each in ways], 2)
    rng.shuffle(chosen)
    found = []
    for numbers in chosen[:_SAMPLES]:
        lengths = [way[number](rng) for way, number in zip(ways, numbers, strict=True)]
        fitted = (_fit_length(dim, x, rng) for dim, x in zip(pairing.dims.values(), lengths, strict=True))
        found.append(tuple(zip(pairing.dims, fitted, strict=True)))
    few = [
        tuple((name, random_length(dim, rng, 300)) for name, dim in pairing.dims.items())
        for _ in range(max(4, 12 - len(found)))
    ]
    return list(dict.fromkeys([*found, *few]))


def largest_sizes(pairing: Pairing) -> list[dict[str, int]]:
    """Returns sizes at which one or more dims have their greatest length."""
    rows = []
    names = list(pairing.dims)
    for count in range(1, len(names) + 1):
        for chosen in itertools.combinations(names, count):
            for other in (1, 3, 65):
                sizes = {n: d.fit(other) if not d.values else min(d.values, key=lambda v: abs(v - other))
                         for n, d in pairing.dims.items()}  # fmt: skip
                for number, name in enumerate(chosen):
                    dim = pairing.dims[name]
                    greatest = max_length(dim)
                    if greatest is not None:
                        sizes[name] = greatest if dim.values else dim.fit(greatest)
                        continue
                    rest = math.prod(n for other_name, n in sizes.items() if other_name not in chosen[number:])
                    share = int(((LIMIT - 1) / max(rest, 1)) ** (1 / (count - number)))
                    sizes[name] = max(share // dim.multiple_of * dim.multiple_of, dim.fit(dim.minimum))
                rows.append(sizes)
    return rows


# Forms of a kernel's code: equal code but for numbers, each of which is a formula of the sizes.

TestResults = tuple[tuple[SizeTest, bool], ...]


@dataclass(frozen=True)
class Form:
    """The code of a Pallas call at some sizes."""

    # with formulas of the sizes as numbers; None if the kernel makes no such call at these sizes
    code: LoweredCode[Polynomial] | None
    when: TestResults  # tests on the sizes that have this form, with their results
    seen: tuple[Row, ...]  # the sampled sizes that have it

    def covers(self, sizes: Sizes) -> bool:
        """Returns whether the code has this form at some sizes."""
        return all(test(sizes) == holds for test, holds in self.when)

    def __str__(self) -> str:
        return " and ".join(test.describe(holds) for test, holds in self.when) or "all sizes"


@dataclass(frozen=True)
class Forms:
    """All forms of a kernel's calls."""

    calls: tuple[tuple[Form, ...], ...]  # the forms of each Pallas call, in order
    language: FormulaLanguage  # of their formulas
    seen: int  # the number of sampled sizes at which the kernel lowers
    refused: int  # the number of those at which it does not


def _align_program_ids(codes: Sequence[LoweredCode[int] | None]) -> list[LoweredCode[int] | None]:
    # So that all read the same program ids: lowering replaces one by 0 if the grid has one program along its axis.
    groups: dict[LoweredCode[int], dict[int, LoweredCode[int]]] = {}
    for i, code in enumerate(codes):
        if code is not None:
            zeros = [
                replace(step, name="arith.constant", numbers=(0,), fixed=()) if _is_program_id(step) else step
                for step in code.body.steps
            ]
            groups.setdefault(_with_steps(code, zeros).skeleton(), {})[i] = code
    aligned = list(codes)
    for group in groups.values():
        columns = zip(*(code.body.steps for code in group.values()), strict=True)
        steps = [max(column, key=_is_program_id) for column in columns]
        for i, code in group.items():
            aligned[i] = _with_program_ids(code, steps)
    return aligned


def _with_program_ids(code: LoweredCode[int], like: Sequence[SliceStep[int]]) -> LoweredCode[int]:
    if len(code.body.steps) != len(like):
        return code

    def is_replaced(own: SliceStep[int], other: SliceStep[int]) -> bool:
        if not _is_program_id(other) or own.name != "arith.constant" or own.numbers != (0,):
            return False
        return own.results == other.results and own.types == other.types and code.grid[dict(other.fixed)["axis"]] == 1

    pairs = zip(code.body.steps, like, strict=True)
    return _with_steps(code, [other if is_replaced(own, other) else own for own, other in pairs])


def _is_program_id(step: SliceStep[int]) -> bool:
    return step.name == "tt.get_program_id"


def _with_steps(code: LoweredCode[int], steps: Sequence[SliceStep[int]]) -> LoweredCode[int]:
    return replace(code, body=replace(code.body, steps=tuple(steps)))


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


class FormLearner:
    """Lowers a kernel at some sizes, and learns forms until they predict the code at others."""

    def __init__(self, pairing: Pairing, signature: Signature, target: Target) -> None:
        self.pairing, self.signature, self.target = pairing, signature, target
        self.rng = random.Random(0)
        self.seen: dict[Row, tuple[LoweredCode[int], ...]] = {}
        self.refused: dict[Row, Failure] = {}
        statics = [
            part
            for name, argument in pairing.arguments.items()
            if isinstance(argument, Static)
            for value in [argument.value(dict(signature.statics)[name])]
            for part in (value if isinstance(value, tuple) else (value,))
            if isinstance(part, int) and not isinstance(part, bool) and 1 < part <= 4096  # may be block lengths
        ]
        declared = [b for dim in pairing.dims.values() for b in (dim.block, dim.multiple_of) if b]
        # The greatest number of elements of an array with all dims, counting 1 for those without a bound.
        self.is_large = math.prod(max_length(dim) or 1 for dim in pairing.dims.values()) >= LIMIT
        most = LIMIT - 1 if self.is_large else 0
        self.language = FormulaLanguage(list(pairing.dims), [*declared, *statics, 2, 16], most)
        self.until = time.monotonic() + _SECONDS

    def learn(self) -> Forms:
        """Returns the forms. Undecided: no formula for a number, or no test for forms; Failure: it lowers nowhere."""
        for row in sample_sizes(self.pairing, self.rng):
            self._lower(self._admitted_near(row))
        if not self.seen and self.refused:
            raise next(iter(self.refused.values()))
        largest = largest_sizes(self.pairing) if self.is_large else []
        if beyond := [tuple(sizes.items()) for sizes in largest if math.prod(sizes.values()) >= LIMIT]:
            self._learn_calls()  # raises if code grows with the sizes, which would take forever at these
            for row in list(dict.fromkeys(beyond))[:_BEYOND]:
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
        fitted = self.pairing.fit_lengths(dict(row), dict(self.signature.statics))
        return tuple(fitted.items()) if fitted else row

    def _lower(self, row: Row) -> bool:
        if time.monotonic() > self.until:
            raise Undecided(f"lowering the kernel at {len(self.seen)} sizes took more than {_SECONDS:.0f} s")
        if row not in self.seen and row not in self.refused:
            try:
                self.seen[row] = lower_calls(self.pairing, replace(self.signature, dims=row), self.target)
            except Failure as failure:
                self.refused[row] = failure
        return row in self.seen

    def _learn_calls(self) -> list[tuple[Form, ...]]:
        calls = []
        for codes in itertools.zip_longest(*self.seen.values()):
            aligned = dict(zip(self.seen, _align_program_ids(codes), strict=True))
            calls.append(tuple(self._split_forms(aligned, ())))
        return calls

    def _split_forms(self, seen: Samples, when: TestResults) -> Iterator[Form]:
        # By tests, as a decision tree does, until each part has one form.
        form, problem = self._fit_form(seen, when)
        if form is not None:
            yield form
            return
        best: tuple[float, SizeTest] | None = None
        numbers: dict[LoweredCode[int] | None, int] = {}
        labels = {row: numbers.setdefault(code and code.skeleton(), len(numbers)) for row, code in seen.items()}
        near = {length + step for row in seen for _, length in row if length <= 64 for step in (-1, 0)} - {-1}
        for test in self.language.tests(sorted(near)) if len(when) < _MAX_DEPTH else ():
            parts = _split(seen, test)
            if not all(parts):
                continue
            if len(numbers) == 1:
                cost = float(sum(self._fit_form(part, when)[0] is None for part in parts))
                cost = cost if cost < 2 else math.inf
            else:
                counts = ((n, len(part)) for part in parts for n in Counter(labels[row] for row in part).values())
                cost = -sum(n * math.log(n / size) for n, size in counts)  # the entropy
            if cost < (best[0] if best else math.inf):
                best = cost, test
            if cost == 0:
                break
        if best is None:
            raise Undecided(problem or "no test on the sizes predicts the form of the lowered code")
        for holds, part in zip((True, False), _split(seen, best[1]), strict=True):
            yield from self._split_forms(part, (*when, (best[1], holds)))

    def _fit_form(self, seen: Samples, when: TestResults) -> tuple[Form | None, str]:
        # Or None and the reason why they have no common form.
        made = list(seen.values())
        skeletons = {None if code is None else code.skeleton() for code in made}
        if len(skeletons) > 1:
            return None, ""
        if made[0] is None:
            return Form(None, when, tuple(seen)), ""
        fit = formula_fitter(self.language, [dict(row) for row in seen])
        known: dict[tuple[int, ...], Polynomial] = {}
        columns = list(zip(*(code.numbers() for code in made if code is not None), strict=True))
        for values in columns:
            if values not in known:
                found = fit(values)
                if found is None:
                    examples = ", ".join(
                        f"{value} at {', '.join(f'{name}={length}' for name, length in row) or 'no dims'}"
                        for value, row in list(zip(values, seen, strict=True))[:3]
                    )
                    return None, f"a number in the lowered code has no formula of the sizes: {examples}"
                known[values] = found
        formulas = map(known.__getitem__, columns)
        return Form(made[0].map_numbers(lambda _: next(formulas)), when, tuple(seen)), ""

    def _held_out_sizes(self, calls: Sequence[tuple[Form, ...]]) -> Iterator[Row]:
        # Some at random, and a few of each form.
        dims = self.pairing.dims
        for n in range(_HELD_OUT):
            top = (100, 1000, _LARGE)[n % 3]
            yield self._admitted_near(tuple((name, random_length(dim, self.rng, top)) for name, dim in dims.items()))
        for form in itertools.chain(*calls):
            known = {name: {dict(row)[name] for row in form.seen} for name, dim in dims.items() if not dim.values}
            for _ in range(_MAX_DRAWS):
                if all(len(lengths) >= _NEW_LENGTHS for lengths in known.values()):
                    break
                length = self.rng.choice((4, 40, 300))
                row = self._admitted_near(tuple((n, random_length(dim, self.rng, length)) for n, dim in dims.items()))
                fresh = row not in self.seen and row not in self.refused and form.covers(dict(row))
                if fresh and any(length not in known.get(name, {length}) for name, length in row):
                    for name, length in row:
                        known.get(name, set()).add(length)
                    yield row

    def _check_coverage(self, calls: Sequence[tuple[Form, ...]]) -> None:
        """Raises Undecided if a form was sampled at too few of the lengths that a dim can have."""
        for form in itertools.chain(*calls):
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
        for call, code in itertools.zip_longest(calls, made):
            (form,) = (form for form in call if form.covers(dict(row)))
            if (form.code is None) != (code is None):
                return False
            if code is not None and form.code is not None and new:
                predicted = form.code.map_numbers(lambda n: evaluate_formula(n, self.language, dict(row)))
                if predicted != _with_program_ids(code, predicted.body.steps):
                    return False
        return True


def _split(seen: Samples, test: SizeTest) -> tuple[Samples, Samples]:
    parts: tuple[Samples, Samples] = {}, {}
    for row, code in seen.items():
        parts[not test(dict(row))][row] = code
    return parts
