"""Proof obligations of a form: accesses in bounds, integers that do not wrap, and programs that do not race."""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.dims import Axis, AxisExpression
from kerneltest.declare.domains import Interval
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.form_learning import (
    LIMIT,
    Form,
    Forms,
    largest_sizes,
    lengths_near_blocks,
    max_length,
)
from kerneltest.extensions.proofs.formulas import Atom, FormulaLanguage, Sizes, index_forms
from kerneltest.extensions.proofs.lowered_code import ACCESSES, Undecided, address_operands
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    ZERO,
    Constraint,
    Polynomial,
    all_of,
    any_of,
    between,
    equal,
    product,
    symbol,
)
from kerneltest.extensions.proofs.solver import SolverAnswer, check
from kerneltest.extensions.proofs.symbolic_execution import Block, Key, Requirement, Step, SymbolicExecution, Symbols
from kerneltest.plan.signatures import Signature

# Constraints that a declaration implies for sizes and values, and sizes at which to look for counterexamples.


def size_constraints(pairing: Pairing, shapes: Iterator[tuple[Polynomial, ...]]) -> list[Constraint]:
    """Returns the constraints that hold of every admitted size, and of arrays of these shapes."""
    conditions = []
    open_ended = {name for name, dim in pairing.dims.items() if max_length(dim) is None}
    for name, dim in pairing.dims.items():
        length = symbol(name)
        if dim.values:
            conditions.append(any_of(*(equal(length, value) for value in sorted(set(dim.values)))))
            continue
        greatest = max_length(dim)
        conditions += [length >= dim.minimum, length < LIMIT if greatest is None else length <= greatest]
        if dim.multiple_of > 1:
            conditions.append(equal(Atom(name, "rest", dim.multiple_of).symbol, 0))
    for shape in dict.fromkeys(shapes):
        count = product(shape)
        if any(name == dim or f"({dim}" in name for name in count.names for dim in open_ended):
            conditions.append(count < LIMIT)
    return conditions


def candidate_sizes(pairing: Pairing, form: Form) -> Iterator[Sizes]:
    """Yields admitted sizes of a form: small ones first, then the largest."""
    rng = random.Random(1)
    small = sorted(dict.fromkeys(form.seen), key=lambda row: math.prod(n + 1 for _, n in row))
    few = {
        name: sorted(set(dim.values)) or sorted({dim.fit(n) for n in lengths_near_blocks(dim)})
        for name, dim in pairing.dims.items()
    }
    corners = list(itertools.islice(itertools.product(*few.values()), 4096))
    corners = rng.sample(corners, min(len(corners), 24))
    found = [*map(dict, small), *(dict(zip(few, row, strict=True)) for row in corners)]
    found.sort(key=lambda sizes: math.prod(n + 1 for n in sizes.values()))
    for row in dict.fromkeys(tuple(sizes.items()) for sizes in (*found, *largest_sizes(pairing))):
        if form.covers(dict(row)) and all(pairing.dims[n].admits(x) or x in pairing.dims[n].values for n, x in row):
            yield dict(row)


def atom_facts(pairing: Pairing, language: FormulaLanguage, names: Iterator[str]) -> list[Constraint]:
    """Returns the constraints that hold of the atoms among some names."""
    found: list[Constraint] = []
    for name in names:
        atom = language.atoms.get(name)
        if atom is not None:
            greatest = max_length(pairing.dims[atom.dim])
            found += atom.facts()
            if atom.kind != "rest":  # the others grow with the length
                found.append(atom.symbol <= atom.value(LIMIT - 1 if greatest is None else greatest))
    return found


def length_polynomial(axis: Axis) -> Polynomial:
    """Returns the length of an axis of an argument."""
    match axis:
        case int():
            return ONE * axis
        case str():
            return symbol(axis)
        case AxisExpression():
            terms = (product([length_polynomial(factor) for factor in term]) for term in axis.terms)
            return sum(terms, ONE * axis.extra)


def element_constraint(pairing: Pairing, path: str) -> Callable[[Polynomial], Constraint] | None:
    """Returns the constraint that is declared for each integer in the argument of a path, or None."""
    leaf = pairing.leaves.get(path)
    if leaf is None:
        return None
    if leaf.kind.counts:
        end = length_polynomial(leaf.bound) + (1 if leaf.kind.includes_end else 0)
        least = leaf.least if leaf.sentinel is None else min(leaf.sentinel, leaf.least)
        return (lambda value: between(value, least, end)) if leaf.sentinel is None or leaf.sentinel < 0 else None
    if leaf.kind.is_mask and leaf.mask_values == (0, 1):
        return lambda value: between(value, 0, 2)
    domain = leaf.interval(leaf.dtypes[0])
    if leaf.kind.is_data and isinstance(leaf.domain, Interval) and max(abs(domain.low), abs(domain.high)) < 2**62:
        return lambda value: between(value, -int(-domain.low // 1), int(domain.high // 1) + 1)
    return None


# The memory accesses of a program as polynomials, with the requirements under which these are what it computes.

# The control flow around an access: each loop or branch, with the number of the block that contains the access.
Path = tuple[tuple[Step, int], ...]


@dataclass(frozen=True, eq=False)
class SymbolicAccess:
    """An access by one lane of a program, in one iteration of the loops around it."""

    step: Step  # the operation
    kind: str  # `load`, `store` or `atomic`
    buffer: int  # the number of the array
    offset: Polynomial  # of the element
    # the constraint that control flow reaches the access, in an existing lane, and that it is not masked
    enabled: Constraint
    # under which the machine decides as `enabled` does, and those under which it accesses `offset`; with the constraint
    # under which they apply
    requirements: tuple[tuple[Constraint, tuple[Requirement, ...]], ...]

    def __str__(self) -> str:
        return f"{self.kind} at {self.step.place}" if self.step.place else self.step.name


def _accesses(block: Block, path: Path = ()) -> Iterator[tuple[Step, Path]]:
    for step in block.steps:
        if step.name in ACCESSES:
            yield step, path
        for number, inner in enumerate(step.blocks):
            yield from _accesses(inner, (*path, (step, number)))


def _access(e: SymbolicExecution, step: Step, path: Path) -> SymbolicAccess:
    pointer, *masks = address_operands(step.name, step.operands, dict(step.fixed).get("operandSegmentSizes"))
    lanes: list[Polynomial] = []
    there: list[Constraint] = []
    requirements = []
    for axis, length in enumerate(e.types[pointer].shape):
        lane = ZERO
        if length != ONE:
            name = f"lane {axis} of {length}{e.suffix}"
            lane = symbol(name)
            there.append(between(lane, 0, length))
            e.symbols.assume(name, there[-1])
        lanes.append(lane)
    at = tuple(lanes)

    def decide(before: Sequence[Constraint], *keys: Key) -> None:
        """Records the values on which a decision depends; they must not wrap wherever it is made."""
        requirements.append((all_of(*before), e.requirements_of(*keys)))

    for outer, block in path:
        if outer.name == "scf.for":
            iteration_conditions = e.iteration_conditions(outer, e.iteration(outer))
            decide(there, *((number, ()) for number in outer.operands[:3]))
            there += iteration_conditions
        elif outer.name == "scf.if":
            condition = e.boolean(outer.operands[0])
            decide(there, (outer.operands[0], ()))
            there.append(condition if block == 0 else ~condition)
        else:
            there += e.iteration_conditions(outer, e.iteration(outer))
            going = outer.blocks[0].yields[0]
            condition = e.boolean(going)
            continued = _previous_iteration(e, outer, condition)
            decide([*there, *continued], (going, ()))
            there += [condition] if block == 1 else continued
    enabling: list[Constraint] = []
    for mask in masks:
        where = at if e.types[mask].shape else ()
        enabling.append(e.boolean(mask, where))
        decide(there, (mask, where))
    address = e.pointer(pointer, at)
    there += enabling
    decide(there, (pointer, at))
    return SymbolicAccess(
        step, ACCESSES[step.name], address.buffer, address.offset, all_of(*there), tuple(requirements)
    )


def _previous_iteration(e: SymbolicExecution, loop: Step, going: Constraint) -> list[Constraint]:
    """Returns that the previous iteration continued, if that depends only on its number and loop invariants."""
    iteration = e.iteration(loop)
    (name,) = iteration.names
    if any(name in e.symbols.dependencies([each]) for each in going.names - {name}):
        return []
    return [equal(iteration, 0) | going.map_polynomials(lambda value: value.substitute({name: iteration - 1}))]


MAX_TENSOR = 2**20
"""The number of elements that Triton allows in a tensor; kernels with longer ones do not lower."""


@dataclass(frozen=True)
class Obligation:
    """A property of one access, or of two, that must be proved."""

    verdict: Verdict  # of a violation: `out_of_bounds` or `race`
    violation: str  # the violation in words
    accesses: tuple[SymbolicAccess, ...]  # one or two
    negation: tuple[Constraint, ...]  # constraints that hold together exactly where the property is violated
    # whether the property can be proved, at all sizes or at those with given lengths
    is_proved: Callable[[Sizes], bool]
    # whether it is about accesses; otherwise it is about the integers that addresses are computed from
    about_memory: bool = True


class FormVerifier:
    """The obligations of a form with code, and queries about them; raises Undecided if the code cannot be followed."""

    def __init__(self, pairing: Pairing, form: Form, language: FormulaLanguage) -> None:
        assert form.code is not None
        self.code, self.pairing, self.form, self.language = form.code, pairing, form, language
        self.symbols = Symbols()
        shapes = [array.shape for array in self.code.arrays]
        shapes += [tuple(map(length_polynomial, leaf.shape)) for leaf in pairing.leaves.values()]
        self._premises = [*size_constraints(pairing, iter(shapes)), *(t.condition(h) for t, h in form.when)]
        written = {array.allocation for array in self.code.arrays if array.is_output}
        declared = {
            i: constraint
            for i, array in enumerate(self.code.arrays)
            if array.allocation not in written and (constraint := element_constraint(pairing, array.leaf))
        }
        self.execution = SymbolicExecution(self.code, self.symbols, declared)
        tensors = {product(kind.shape) for kind in self.execution.types.values()}
        self._premises += [size <= MAX_TENSOR for size in sorted(tensors, key=str) if size.constant is None]
        other = SymbolicExecution(self.code, self.symbols, declared, "'")
        self.accesses, self._other_program = (
            [_access(e, step, path) for step, path in _accesses(self.code.body)] for e in (self.execution, other)
        )
        for access in self.accesses:
            if access.kind != "load" and not self.code.arrays[access.buffer].is_output:
                raise Undecided(f"{self.code.arrays[access.buffer].name}, which is not an output, has a {access}")
        self._answers: dict[tuple[object, ...], SolverAnswer] = {}
        self._in_bounds: dict[tuple[SymbolicAccess, tuple[tuple[str, int], ...]], int | None] = {}

    def check(self, constraints: Sequence[Constraint], given: Sizes, *, exact: bool = False) -> SolverAnswer:
        """Checks whether constraints can hold together at admitted sizes with the `given` lengths of some dims."""
        known = self._atom_values(given)
        premises = self._with_facts([*self._premises, *constraints])
        key = (tuple(premises), tuple(known.items()), exact)
        if key not in self._answers:
            if known:
                premises = [premise.map_polynomials(lambda p: p.substitute(known)) for premise in premises]
            self._answers[key] = check(premises, exact=exact)
        return self._answers[key]

    def _with_facts(self, constraints: list[Constraint]) -> list[Constraint]:
        found = dict.fromkeys(constraints)
        names: set[str] = set()
        while new := {name for constraint in found for name in constraint.names} - names:
            names |= new
            found.update(dict.fromkeys(self.symbols.facts(new)))
            found.update(dict.fromkeys(atom_facts(self.pairing, self.language, iter(sorted(new)))))
        return list(found)

    def _atom_values(self, given: Sizes) -> dict[str, int]:
        return {a.name: a.value(given[a.dim]) for a in self.language.atoms.values() if a.dim in given}

    def is_impossible(self, constraints: Sequence[Constraint], given: Sizes) -> bool:
        """Returns whether constraints cannot hold together at admitted sizes with the given lengths."""
        return self.check(constraints, given).kind == "unsat"

    def loaded_elements(self, values: Mapping[str, int], sizes: Sizes) -> dict[int, dict[int, int]]:
        """Returns the elements that must have some values for loaded integers to have theirs, by array and offset."""
        found: dict[int, dict[int, int]] = {}
        known = {**values, **self._atom_values(sizes)}
        for name, element in self.symbols.loaded.items():
            offset = element.offset.substitute(known).constant
            if name in values and offset is not None:
                found.setdefault(element.buffer, {})[offset] = values[name]
        return found

    def max_iterations(self, sizes: Sizes) -> int:
        """Returns the iterations of the longest loop at some sizes, without loops whose bounds these do not give."""
        known, most = self._atom_values(sizes), 0
        for step in self.code.body.all_steps():
            if step.name == "scf.for":
                bounds = [self.execution.integer(number).substitute(known).constant for number in step.operands[:3]]
                lower, upper, by = bounds
                if lower is not None and upper is not None and by:
                    most = max(most, (upper - lower) // by)
        return most

    def unknown_operations(self, obligation: Obligation) -> str:
        """Names the operations about whose results too little is known to decide an obligation."""
        names = self._names(obligation)
        return " and ".join(dict.fromkeys(self.symbols.unknown[n] for n in sorted(names) if n in self.symbols.unknown))

    def depends_on_data(self, obligation: Obligation) -> bool:
        """Returns whether an obligation depends on loaded values without a declared range, which may be impossible."""
        return not self._names(obligation).isdisjoint(self.symbols.loaded.keys() & self.symbols.unknown.keys())

    def _names(self, obligation: Obligation) -> set[str]:
        return self.symbols.dependencies({name for each in obligation.negation for name in each.names})

    def obligations(self) -> list[Obligation]:
        """Returns all obligations. Undecided if the premises, which imply anything then, contradict each other."""
        tautologies = ([access.enabled | ~access.enabled] for access in self.accesses)
        rows = [dict(row) for row in self.form.seen]
        if not all(any(self.check(each, row).kind == "sat" for row in rows) for each in tautologies):
            raise Undecided("the sizes at which the kernel was lowered contradict the premises of the proof")
        found = [obligation for access in self.accesses for obligation in self._bounds_obligations(access)]
        for i, access in enumerate(self.accesses):
            found += [
                self._race_obligation(access, other)
                for other in self._other_program[i:]
                if self._may_conflict(access, other)
            ]
        return found

    def _bounds_obligations(self, access: SymbolicAccess) -> list[Obligation]:
        size = product(self.code.arrays[access.buffer].shape)
        outside = (access.enabled, ~between(access.offset, 0, size))
        name = self.code.arrays[access.buffer].name
        obligations = [
            Obligation(
                Verdict.OUT_OF_BOUNDS,
                f"{access} leaves {name}",
                (access,),
                outside,
                lambda given: self.is_impossible(outside, given) or self._in_bounds_form(access, given) is not None,
            )
        ]
        for when, requirements in access.requirements:
            wrong = [~requirement.condition for requirement in requirements]
            if requirements and not self.is_impossible([when, any_of(*wrong)], {}):
                obligations += [self._range_obligation(access, requirement, when) for requirement in requirements]
        return obligations

    def _range_obligation(self, access: SymbolicAccess, requirement: Requirement, when: Constraint) -> Obligation:
        negation = (when, ~requirement.condition)

        def is_proved(given: Sizes) -> bool:
            if self.is_impossible(negation, given):
                return True
            # It is also if it is an offset into an array whose offsets all fit the value's type.
            value, arrays = requirement.value, (self.code.arrays[access.buffer], *self.code.arrays)
            return value is not None and any(
                self.is_impossible([when, product(shape) > requirement.end], given)
                and any(self.is_impossible([when, ~within], given) for _, within in self._forms(value, shape, given))
                for shape in (array.shape for array in arrays)
            )

        where = f" at {requirement.step.place}" if requirement.step.place else ""
        violation = f"{requirement.step.name}{where}, for the {access}, leaves the range of its type"
        return Obligation(Verdict.OUT_OF_BOUNDS, violation, (access,), negation, is_proved, about_memory=False)

    def _forms(
        self, offset: Polynomial, shape: Sequence[Polynomial], given: Sizes
    ) -> list[tuple[tuple[Polynomial, ...], Constraint]]:
        """Returns ways to write an offset as indices, each with the constraint that these are within their axes."""
        known = self._atom_values(given)
        lengths = [length.substitute(known) for length in shape]
        return [
            (form, all_of(*(between(index, 0, n) for index, n in zip(form, lengths, strict=True))))
            for form in index_forms(offset.substitute(known), lengths)
        ]

    def _in_bounds_form(self, access: SymbolicAccess, given: Sizes) -> int | None:
        """Returns the number of the index form of an access whose indices are all within their axes, or None."""
        key = (access, tuple(given.items()))
        if key not in self._in_bounds:
            forms = self._forms(access.offset, self.code.arrays[access.buffer].shape, given)
            self._in_bounds[key] = next(
                (i for i, (_, within) in enumerate(forms) if self.is_impossible([access.enabled, ~within], given)), None
            )
        return self._in_bounds[key]

    def _may_conflict(self, one: SymbolicAccess, other: SymbolicAccess) -> bool:
        """Returns whether two accesses are to the same memory, one of them writes, and they are not both atomic."""
        kinds = {one.kind, other.kind}
        shared = self.code.arrays[one.buffer].allocation == self.code.arrays[other.buffer].allocation
        return shared and kinds not in ({"load"}, {"atomic"})

    def _race_obligation(self, one: SymbolicAccess, other: SymbolicAccess) -> Obligation:
        distinct, ranges = [], []
        for axis, length in enumerate(self.code.grid):
            if length != ONE:
                programs = symbol(f"program {axis}"), symbol(f"program {axis}'")
                distinct.append(~equal(*programs))
                ranges += [between(program, 0, length) for program in programs]
        both = (one.enabled, other.enabled, any_of(*distinct) if distinct else equal(1, 0), *ranges)
        same = (*both, equal(one.offset, other.offset))
        array, other_array = self.code.arrays[one.buffer], self.code.arrays[other.buffer]

        def is_proved(given: Sizes) -> bool:
            if self.is_impossible(same, given):
                return True
            twin = self.accesses[self._other_program.index(other)]
            form, other_form = self._in_bounds_form(one, given), self._in_bounds_form(twin, given)
            if form is None or other_form is None or array.shape != other_array.shape:
                return False
            a, _ = self._forms(one.offset, array.shape, given)[form]
            b, _ = self._forms(other.offset, array.shape, given)[other_form]
            return self.is_impossible([*both, *map(equal, a, b)], given)

        violation = f"{one} and {other} access the same element of {array.name}"
        return Obligation(Verdict.RACE, violation, (one, other), same, is_proved)


# The conditions of a proof, in words.


def describe_conditions(
    pairing: Pairing, signature: Signature, target: Target, found: Forms, call: Sequence[Form]
) -> Iterator[str]:
    """Yields the conditions of a proof of one call of a kernel."""
    present = [form for form in call if form.code is not None]
    count = f"as at the {found.seen} sizes that were lowered"
    if found.refused:
        count += f" ({found.refused} more did not lower)"
    forms = "one form"
    if len(call) > 1:
        absent = "; no call at other sizes" if len(present) < len(call) else ""
        forms = f"{len(present)} form{'s' if len(present) > 1 else ''} ({'; '.join(map(str, present))}{absent})"
    yield f"the code lowered for {target} has {forms} at all sizes, {count}"
    steps = (step for form in present if form.code for step in form.code.body.all_steps())
    if any(length.constant is None for step in steps for kind in step.types for length in kind.shape):
        yield f"no tensor has more than {MAX_TENSOR} elements, which is Triton's limit"
    cut = ", ".join(f"{name} is declared in blocks of {dim.block}" for name, dim in pairing.dims.items() if dim.block)
    yield f"dtypes and static arguments are {replace(signature, dims=())}" + (f", and {cut}" if cut else "")
    if limits := "; ".join(_declared_limits(pairing)):
        yield f"lengths are as declared: {limits}"
    if free := ", ".join(name for name, dim in pairing.dims.items() if max_length(dim) is None):
        yield f"every array has fewer than 2^31 elements ({free} can be of any length)"
    read = {array.leaf for form in call if form.code for array in form.code.arrays}
    for path, leaf in pairing.leaves.items():
        if leaf.kind.counts and path in read:
            below = "" if leaf.kind.includes_end else " - 1"
            least = leaf.least if leaf.sentinel is None else min(leaf.sentinel, leaf.least)
            yield f"elements of {path} are from {least} to {leaf.bound}{below}"
    if pairing.where:
        yield f"{', '.join(pairing.where.parameters)} satisfy where= as at the sizes that were lowered"


def _declared_limits(pairing: Pairing) -> Iterator[str]:
    for name, dim in pairing.dims.items():
        if dim.values:
            yield f"{name} is {' or '.join(map(str, sorted(set(dim.values))))}"
            continue
        greatest = max_length(dim)
        parts = [f"{name} from {dim.minimum}" + (f" to {greatest}" if greatest is not None else "")]
        if dim.multiple_of > 1:
            parts.append(f"a multiple of {dim.multiple_of}")
        yield ", ".join(parts)
