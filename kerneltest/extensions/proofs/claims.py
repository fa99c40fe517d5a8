"""What is to be proved of a form: accesses in bounds, integers that do not wrap, programs that stay apart."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.core.verdicts import Verdict
from kerneltest.declare.axes import Axis, Extent
from kerneltest.declare.domains import Interval
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs import domain
from kerneltest.extensions.proofs.code import Code
from kerneltest.extensions.proofs.delinearise import indices
from kerneltest.extensions.proofs.evaluate import Evaluation
from kerneltest.extensions.proofs.forms import Form
from kerneltest.extensions.proofs.formulas import Language
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    Condition,
    Poly,
    at_most,
    between,
    either,
    equal,
    every,
    less,
    negated,
    product,
    symbol,
)
from kerneltest.extensions.proofs.solver import Answer, Solver
from kerneltest.extensions.proofs.steps import Block, Step
from kerneltest.extensions.proofs.symbols import Symbols
from kerneltest.extensions.proofs.undecided import Undecided
from kerneltest.extensions.proofs.values import Need
from kerneltest.extensions.proofs.visits import Visit, visits

Given = Mapping[str, int]
TENSOR = 2**20
"""The most elements that Triton lets a tensor have: longer ones do not lower."""


@dataclass(frozen=True)
class Claim:
    """Something to be proved of one access, or of two.

    Attributes:
      verdict: what it is where it does not hold: `out_of_bounds` or `race`.
      says: in words.
      visits: the accesses.
      broken: conditions that hold together where it does not.
      holds: whether it can be proved, for all sizes or for some lengths.
      direct: whether it is about memory; else about what addresses are computed from.
    """

    verdict: Verdict
    says: str
    visits: tuple[Visit, ...]
    broken: tuple[Condition, ...]
    holds: Callable[[Given], bool]
    direct: bool = True


@dataclass(frozen=True)
class Values:
    """A model of what breaks a claim, in terms of the kernel."""

    answer: Answer
    known: Given
    symbols: Symbols

    def program(self, suffix: str) -> tuple[int, ...]:
        """A program's ids along x, y and z."""
        return tuple(self.answer.values.get(f"program {axis}{suffix}", 0) for axis in range(3))

    def lane(self) -> tuple[int, ...]:
        """The lane of the first access, by axis."""
        lanes = {n: v for n, v in self.answer.values.items() if n.startswith("lane ") and not n.endswith("'")}
        return tuple(lanes[name] for name in sorted(lanes))

    def loaded(self) -> dict[int, dict[int, int]]:
        """By array, what must stand at some of its elements."""
        found: dict[int, dict[int, int]] = {}
        for name, place in self.symbols.loaded.items():
            offset = place.offset.substitute(self.known).substitute(self.answer.values).constant
            if name in self.answer.values and offset is not None:
                found.setdefault(place.buffer, {})[offset] = self.answer.values[name]
        return found


class Subject:
    """A form, and the questions that can be asked about it.

    Args:
      pairing: declares sizes and values.
      form: with code.
      language: of its formulas.
      solver: to ask.
    """

    def __init__(self, pairing: Pairing, form: Form, language: Language, solver: Solver) -> None:
        assert form.code is not None
        self.code: Code[Poly] = form.code
        self.pairing, self.form, self.language, self.solver = pairing, form, language, solver
        self.symbols = Symbols()
        shapes = [array.shape for array in self.code.arrays]
        shapes += [tuple(map(_length, leaf.shape)) for leaf in pairing.leaves.values()]
        self.domain = [*domain.admitted(pairing, iter(shapes)), *(t.condition(h) for t, h in form.when)]
        written = {array.shares for array in self.code.arrays if array.made}
        declared = {
            i: about
            for i, array in enumerate(self.code.arrays)
            if array.shares not in written and (about := _about(pairing, array.leaf))
        }
        self.first = Evaluation(self.code, self.symbols, declared)
        tensors = {product(kind.shape) for kind in self.first.types.values()}
        self.domain += [at_most(size, TENSOR) for size in sorted(tensors, key=str) if size.constant is None]
        self.visits = visits(self.first)
        self.others = visits(Evaluation(self.code, self.symbols, declared, "'"))
        for visit in self.visits:
            if visit.kind != "load" and not self.code.arrays[visit.buffer].made:
                raise Undecided(f"a {visit} to {self.code.arrays[visit.buffer].name}, which is no output")
        self._answers: dict[tuple[object, ...], Answer] = {}
        self._indices: dict[tuple[Visit, tuple[tuple[str, int], ...]], int | None] = {}

    # Questions

    def ask(self, conditions: Sequence[Condition], given: Given, *, exact: bool = False) -> Answer:
        """Whether conditions can hold together at admitted sizes, with some lengths given."""
        known = {a.name: a.value(given[a.dim]) for a in self.language.atoms.values() if a.dim in given}
        all_of = self._with_facts([*self.domain, *conditions])
        key = (tuple(all_of), tuple(known.items()), exact)
        if key not in self._answers:
            changed = [condition.over(lambda p: p.substitute(known)) for condition in all_of] if known else all_of
            self._answers[key] = self.solver.ask(changed, exact=exact)
        return self._answers[key]

    def _with_facts(self, conditions: list[Condition]) -> list[Condition]:
        found = dict.fromkeys(conditions)
        names: set[str] = set()
        while new := {name for condition in found for name in condition.names} - names:
            names |= new
            found.update(dict.fromkeys(self.symbols.facts(new)))
            found.update(dict.fromkeys(domain.facts(self.pairing, self.language, iter(sorted(new)))))
        return list(found)

    def never(self, conditions: Sequence[Condition], given: Given) -> bool:
        return self.ask(conditions, given).kind == "never"

    def values(self, answer: Answer, sizes: Given) -> Values:
        """What a model says."""
        return Values(answer, self._known(sizes), self.symbols)

    def turns(self, sizes: Given) -> int:
        """How many turns the longest loop takes at some sizes, as far as these say."""
        known, most = self._known(sizes), 0
        for step in self._loops(self.code.body):
            bounds = [self.first.integer(number).substitute(known).constant for number in step.operands[:3]]
            lower, upper, by = bounds
            if lower is not None and upper is not None and by:
                most = max(most, (upper - lower) // by)
        return most

    def _loops(self, block: Block[Poly]) -> Iterator[Step[Poly]]:
        for step in block.steps:
            if step.name == "scf.for":
                yield step
            for inner in step.blocks:
                yield from self._loops(inner)

    def unknown(self, claim: Claim) -> str:
        """The operations that make values of which too little is known for a claim."""
        names = self.symbols.closure({name for condition in claim.broken for name in condition.names})
        return " and ".join(dict.fromkeys(self.symbols.unknown[n] for n in sorted(names) if n in self.symbols.unknown))

    def depends_on_data(self, claim: Claim) -> bool:
        """Whether a claim depends on loaded values of which nothing is declared: that some break it tells nothing."""
        names = self.symbols.closure({name for condition in claim.broken for name in condition.names})
        return not names.isdisjoint(self.symbols.loaded.keys() & self.symbols.unknown.keys())

    # Claims

    def claims(self) -> list[Claim]:
        """All that is to be proved.

        Raises:
          Undecided: what is taken for granted contradicts itself, so that anything would follow.
        """
        if not all(map(self._is_possible, self.visits)):
            raise Undecided("the sizes that were lowered contradict what is taken for granted of all sizes")
        found = [claim for visit in self.visits for claim in self._of_one(visit)]
        for i, visit in enumerate(self.visits):
            found += [self._of_two(visit, other) for other in self.others[i:] if self._conflict(visit, other)]
        return found

    def _is_possible(self, visit: Visit) -> bool:
        anything = either(visit.enabled, negated(visit.enabled))
        return any(self.ask([anything], dict(row)).kind == "model" for row in self.form.seen)

    def _of_one(self, visit: Visit) -> list[Claim]:
        size = product(self.code.arrays[visit.buffer].shape)
        outside = (visit.enabled, negated(between(visit.offset, 0, size)))
        name = self.code.arrays[visit.buffer].name
        claims = [
            Claim(
                Verdict.OUT_OF_BOUNDS,
                f"{visit} leaves {name}",
                (visit,),
                outside,
                lambda given: self.never(outside, given) or self._way(visit, given) is not None,
            )
        ]
        for when, needs in (*visit.deciding, (visit.enabled, visit.addressing)):
            wrong = [negated(need.holds) for need in needs]
            if needs and not self.never([when, either(*wrong)], {}):
                claims += [self._fits(visit, need, when) for need in needs]
        return claims

    def _fits(self, visit: Visit, need: Need, when: Condition) -> Claim:
        broken = (when, negated(need.holds))

        def holds(given: Given) -> bool:
            if self.never(broken, given):
                return True
            return need.value is not None and any(
                self._lies_within(need.value, array.shape, when, need, given)
                for array in (self.code.arrays[visit.buffer], *self.code.arrays)
            )

        where = f" at {need.step.place}" if need.step.place else ""
        says = f"{need.step.name}{where}, for the {visit}, leaves the range of its type"
        return Claim(Verdict.OUT_OF_BOUNDS, says, (visit,), broken, holds, direct=False)

    def _lies_within(self, value: Poly, shape: tuple[Poly, ...], when: Condition, need: Need, given: Given) -> bool:
        """Whether a value is an offset into an array of some shape, all of which its type can hold."""
        if not self.never([when, less(need.end, product(shape))], given):
            return False
        known = self._known(given)
        return any(
            self.never([when, negated(_inside(way, shape, known))], given)
            for way in indices(value.substitute(known), [n.substitute(known) for n in shape])
        )

    def _known(self, given: Given) -> dict[str, int]:
        return {a.name: a.value(given[a.dim]) for a in self.language.atoms.values() if a.dim in given}

    def _way(self, visit: Visit, given: Given) -> int | None:
        """Which way to write an access' offset as indices has them all within their axes, None if none has."""
        key = (visit, tuple(given.items()))
        if key not in self._indices:
            shape, known = self.code.arrays[visit.buffer].shape, self._known(given)
            ways = list(indices(visit.offset.substitute(known), [n.substitute(known) for n in shape]))
            inside = (
                i
                for i, way in enumerate(ways)
                if self.never([visit.enabled, negated(_inside(way, shape, known))], given)
            )
            self._indices[key] = next(inside, None)
        return self._indices[key]

    def _conflict(self, one: Visit, other: Visit) -> bool:
        """Whether two accesses may be of one element, and one of them writes."""
        kinds = {one.kind, other.kind}
        shared = self.code.arrays[one.buffer].shares == self.code.arrays[other.buffer].shares
        return shared and kinds not in ({"load"}, {"atomic"})

    def _of_two(self, one: Visit, other: Visit) -> Claim:
        apart = [
            negated(equal(symbol(f"program {axis}"), symbol(f"program {axis}'")))
            for axis, length in enumerate(self.code.grid)
            if length != ONE
        ]
        both = (one.enabled, other.enabled, *([either(*apart)] if apart else [equal(1, 0)]), *self._programs())
        same = (*both, equal(one.offset, other.offset))

        def holds(given: Given) -> bool:
            if self.never(same, given):
                return True
            mine, theirs = self._way(one, given), self._way(self._twin(other), given)
            if (
                mine is None
                or theirs is None
                or self.code.arrays[one.buffer].shape != self.code.arrays[other.buffer].shape
            ):
                return False
            known = self._known(given)
            shape = [n.substitute(known) for n in self.code.arrays[one.buffer].shape]
            a = list(indices(one.offset.substitute(known), shape))[mine]
            b = list(indices(other.offset.substitute(known), shape))[theirs]
            return self.never([*both, *map(equal, a, b)], given)

        array = self.code.arrays[one.buffer].name
        says = f"{one} and {other} touch one element of {array}"
        return Claim(Verdict.RACE, says, (one, other), same, holds)

    def _twin(self, other: Visit) -> Visit:
        return self.visits[self.others.index(other)]

    def _programs(self) -> list[Condition]:
        return [
            between(symbol(f"program {axis}{suffix}"), 0, length)
            for axis, length in enumerate(self.code.grid)
            for suffix in ("", "'")
            if length != ONE
        ]


def _length(axis: Axis) -> Poly:
    match axis:
        case int():
            return ONE * axis
        case str():
            return symbol(axis)
        case Extent():
            terms = (product([_length(factor) for factor in term]) for term in axis.terms)
            return sum(terms, ONE * axis.more)


def _inside(way: Sequence[Poly], shape: Sequence[Poly], known: Given) -> Condition:
    return every(*(between(index, 0, n.substitute(known)) for index, n in zip(way, shape, strict=True)))


def _about(pairing: Pairing, path: str) -> Callable[[Poly], Condition] | None:
    """What is declared of the integers in an argument."""
    leaf = pairing.leaves.get(path)
    if leaf is None:
        return None
    if leaf.kind.counts:
        end = _length(leaf.bound) + (1 if leaf.kind.includes_end else 0)
        return lambda value: between(value, 0, end)
    if leaf.kind.is_mask and leaf.mask_values == (0, 1):
        return lambda value: between(value, 0, 2)
    domain = leaf.interval(leaf.dtypes[0])
    if leaf.kind.is_data and isinstance(leaf.domain, Interval) and max(abs(domain.low), abs(domain.high)) < 2**62:
        return lambda value: between(value, -int(-domain.low // 1), int(domain.high // 1) + 1)
    return None
