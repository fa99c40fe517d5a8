"""Symbolic execution of one program: its values over sizes, program ids, lanes and loop iterations.

Values are computed on demand, at given coordinates of a tensor: an operation that moves axes only moves coordinates.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.extensions.proofs import operation_rules
from kerneltest.extensions.proofs.lowered_code import (
    ACCESSES,
    LoweredCode,
    SliceBlock,
    SliceStep,
    Undecided,
    address_operands,
)
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    TRUE,
    ZERO,
    Constraint,
    Polynomial,
    all_of,
    any_of,
    at_most,
    between,
    equal,
    less,
    negate,
    symbol,
)
from kerneltest.extensions.proofs.solver import LoadedElement, Symbols
from kerneltest.extensions.proofs.symbolic_values import (
    Coordinates,
    Key,
    Requirement,
    SymbolicPointer,
    SymbolicValue,
    SymbolicValues,
    end_of,
)


@dataclass(frozen=True)
class Producer:
    """The step that defines a value.

    Attributes:
      step: the operation.
      block: the number of its block of which the value is an argument; -1 for a result of the step.
      index: of the argument or result.
    """

    step: SliceStep[Polynomial]
    block: int
    index: int


class SymbolicExecution(SymbolicValues):
    """The values of one program.

    Args:
      code: with formulas as numbers.
      symbols: takes in new names.
      declared: by the number of an array, the constraint that is declared for the integers in it.
      suffix: distinguishes the program's names from another program's.
    """

    def __init__(
        self,
        code: LoweredCode[Polynomial],
        symbols: Symbols,
        declared: Mapping[int, Callable[[Polynomial], Constraint]],
        suffix: str = "",
    ) -> None:
        super().__init__(code, symbols, suffix)
        self.declared = declared
        self.producers: dict[int, Producer] = {}
        self.loop_values: dict[int, set[int]] = {}  # by loop: the values that it defines
        self.memo: dict[Key, SymbolicValue] = {}
        self._index_values(code.body)

    def _index_values(self, block: SliceBlock[Polynomial]) -> set[int]:
        """Records type and producer of each value in a block; returns their numbers."""
        defined = set(block.arguments)
        self.types.update(zip(block.arguments, block.types, strict=True))
        for step in block.steps:
            self.types.update(zip(step.results, step.types, strict=True))
            self.producers.update((number, Producer(step, -1, i)) for i, number in enumerate(step.results))
            defined.update(step.results)
            inner: set[int] = set()
            for b, nested in enumerate(step.blocks):
                self.producers.update((number, Producer(step, b, i)) for i, number in enumerate(nested.arguments))
                inner |= self._index_values(nested)
            if inner:
                self.loop_values[id(step)] = inner
                defined |= inner
        return defined - {-1}

    # Values

    def value(self, number: int, coordinates: Coordinates = ()) -> SymbolicValue:
        if number < 0:
            raise Undecided("an address depends on a value that cannot be followed")
        key = (number, coordinates)
        if self.current:
            self.uses[self.current[-1]].append(key)
        if key not in self.memo:
            self.current.append(key)
            self.uses[key], self.requirements[key] = [], []
            try:
                self.memo[key] = self._compute(number, coordinates)
            finally:
                self.current.pop()
        return self.memo[key]

    def _compute(self, number: int, coordinates: Coordinates) -> SymbolicValue:
        """Computes a value that is not in the memo."""
        if number in self.code.body.arguments:
            return SymbolicPointer(self.code.body.arguments.index(number), ZERO)
        producer = self.producers[number]
        step = producer.step
        if producer.block >= 0:
            return self._block_argument(number, producer, coordinates)
        if step.name in ("scf.for", "scf.if", "scf.while"):
            return self._control_flow_result(number, producer, coordinates)
        if step.name == "tt.load":
            return self._load(step, coordinates)
        rule = operation_rules.RULES.get(step.name)
        found = rule(self, step, coordinates) if rule else None
        return self.unknown_value(step, number, coordinates) if found is None else found

    def _load(self, step: SliceStep[Polynomial], coordinates: Coordinates) -> SymbolicValue:
        """Returns a new name for a loaded integer, with the constraint that is declared for the array's elements."""
        number = step.results[0]
        pointer, *rest = step.operands
        has_mask, has_other = dict(step.fixed).get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[
            1:
        ]
        address = self.value(pointer, coordinates)
        assert isinstance(address, SymbolicPointer)
        mask = self.boolean(rest[0], coordinates) if has_mask else TRUE
        kind = self.types[number]
        if kind.pointer or kind.dtype == "bool":
            return self.unknown_value(step, number, coordinates)
        other = self.value(rest[-1], coordinates) if has_other and rest[-1] >= 0 else None
        name, new = self.symbols.name_for("loaded", (address, mask, other))
        value = symbol(name)
        if not new:
            return value
        self.symbols.loaded[name] = LoadedElement(address.buffer, address.offset)
        self.symbols.value_numbers[name] = number
        facts = [between(value, -end_of(kind.dtype), end_of(kind.dtype))]
        if address.buffer in self.declared:
            facts.append(any_of(negate(mask), self.declared[address.buffer](value)))
        else:
            array = self.code.arrays[address.buffer].name
            self.symbols.unknown[name] = f"tt.load at {step.place} of {array}, whose values have no declared range,"
        if isinstance(other, Polynomial):
            facts.append(any_of(mask, equal(value, other)))
        self.symbols.assume(name, *facts)
        return value

    # Control flow

    def iteration(self, step: SliceStep[Polynomial]) -> Polynomial:
        """Returns the number of a loop's current iteration, from 0."""
        return symbol(self.symbols.name_for(f"turn{self.suffix}", id(step))[0])

    def iteration_conditions(self, step: SliceStep[Polynomial], iteration: Polynomial) -> list[Constraint]:
        """Returns the constraints that hold in an iteration of a loop."""
        if step.name != "scf.for":
            return [at_most(0, iteration)]
        lower, upper, by = (self.integer(number) for number in step.operands[:3])
        if by.constant is None or by.constant < 1:
            raise Undecided(f"scf.for at {step.place} has a step that is not a positive constant")
        return [at_most(0, iteration), less(lower + iteration * by, upper)]

    def _block_argument(self, number: int, producer: Producer, coordinates: Coordinates) -> SymbolicValue:
        """Returns the value of an argument of a loop's block."""
        step = producer.step
        if step.name == "scf.for" and producer.index == 0:
            lower, _, by = (self.integer(n) for n in step.operands[:3])
            return lower + self.iteration(step) * by
        if step.name == "scf.while" and producer.block == 1:
            return self.value(step.blocks[0].yields[producer.index + 1], coordinates)
        carried = self._induction_value(number, producer, coordinates, self.iteration(step))
        return self.unknown_value(step, number, coordinates) if carried is None else carried

    def _control_flow_result(self, number: int, producer: Producer, coordinates: Coordinates) -> SymbolicValue:
        """Returns a result of a loop or a branch."""
        step = producer.step
        if step.name == "scf.if":
            then, otherwise = (self.value(block.yields[producer.index], coordinates) for block in step.blocks)
            return self.select(self.boolean(step.operands[0]), then, otherwise)
        if step.name == "scf.for":
            argument = step.blocks[0].arguments[producer.index + 1]
            name, new = self.symbols.name_for(f"turns{self.suffix}", id(step))
            iterations = symbol(name)
            if new:
                lower, upper, by = (self.integer(n) for n in step.operands[:3])
                last = self.iteration_conditions(step, iterations - 1)[1]
                ended = at_most(upper, lower + iterations * by)
                self.symbols.assume(name, at_most(0, iterations), ended, any_of(equal(iterations, 0), last))
            carried = self._induction_value(argument, Producer(step, 0, producer.index + 1), coordinates, iterations)
            if carried is not None:
                return carried
        return self.unknown_value(step, number, coordinates)

    def _induction_value(
        self, number: int, producer: Producer, coordinates: Coordinates, iteration: Polynomial
    ) -> SymbolicValue | None:
        """Returns a carried value after some iterations if each increases it by the same, else None."""
        step = producer.step
        if self.types[number].dtype == "bool" and not self.types[number].pointer:
            return None
        if step.name == "scf.for":
            initial, last = step.operands[producer.index + 2], step.blocks[0].yields[producer.index - 1]
        else:
            initial, last = step.operands[producer.index], step.blocks[1].yields[producer.index]
        start = self.value(initial, coordinates)
        offset = start.offset if isinstance(start, SymbolicPointer) else start
        assert isinstance(offset, Polynomial)
        increment = self._increment(step, number, last, coordinates, start)
        if increment is None:
            return None
        total = offset + iteration * increment
        if isinstance(start, SymbolicPointer):
            return SymbolicPointer(start.buffer, total)
        return self.require_fit(step, total, self.types[number].dtype)

    def _increment(
        self, step: SliceStep[Polynomial], number: int, last: int, coordinates: Coordinates, start: SymbolicValue
    ) -> Polynomial | None:
        """Returns the loop-invariant increment of a carried value, or None if there is none."""
        name, _ = self.symbols.name_for(f"carried{self.suffix}", (number, coordinates))
        self.symbols.value_numbers[name] = number
        before = symbol(name)
        saved = self.memo, self.uses, self.requirements, self.current
        self.memo, self.uses, self.requirements, self.current = dict(saved[0]), dict(saved[1]), dict(saved[2]), []
        self.memo[number, coordinates] = (
            SymbolicPointer(start.buffer, before) if isinstance(start, SymbolicPointer) else before
        )
        self.uses[number, coordinates], self.requirements[number, coordinates] = [], []
        try:
            after = self.value(last, coordinates)
            requirements = self.requirements_of([(last, coordinates)])
        except RecursionError:
            return None
        finally:
            self.memo, self.uses, self.requirements, self.current = saved
        if isinstance(after, SymbolicPointer):
            if not isinstance(start, SymbolicPointer) or after.buffer != start.buffer:
                return None
            after = after.offset
        if not isinstance(after, Polynomial):
            return None
        increment = after - before
        local = self.loop_values[id(step)]
        iteration = self.iteration(step).names
        if any(
            self.symbols.value_numbers.get(dependency, -1) in local or dependency in iteration
            for dependency in self.symbols.dependencies(increment.names)
        ):
            return None
        for requirement in requirements:
            if name in requirement.condition.names:
                if requirement.step.name not in ("arith.addi", "arith.subi"):
                    return None
            else:
                self.requirements[self.current[-1]].append(requirement)
        return increment

    # Requirements

    def requirements_of(self, keys: list[Key]) -> list[Requirement]:
        """Returns the requirements of some values and of those that they are computed from."""
        found: dict[Requirement, None] = {}
        seen: set[Key] = set()
        todo = list(keys)
        while todo:
            key = todo.pop()
            if key not in seen:
                seen.add(key)
                found.update(dict.fromkeys(self.requirements.get(key, ())))
                todo += self.uses.get(key, ())
        return list(found)


# The memory accesses of a program as polynomials, with the requirements under which these are what it computes.

# The control flow around an access: each loop or branch, with the number of the block that contains the access.
Path = tuple[tuple[SliceStep[Polynomial], int], ...]
Needed = tuple[Constraint, tuple[Requirement, ...]]


@dataclass(frozen=True, eq=False)
class SymbolicAccess:
    """An access by one lane of a program, in one iteration of the loops around it.

    Attributes:
      step: the operation.
      kind: `load`, `store` or `atomic`.
      buffer: the number of the array.
      offset: of the element.
      reachable: the constraint that control flow reaches the access, in an existing lane.
      enabled: the constraint that it is reached and not masked.
      decision_requirements: requirements under which the machine decides as `enabled` does, with when they apply.
      address_requirements: requirements under which the machine accesses `offset`, in enabled lanes.
    """

    step: SliceStep[Polynomial]
    kind: str
    buffer: int
    offset: Polynomial
    reachable: Constraint
    enabled: Constraint
    decision_requirements: tuple[Needed, ...]
    address_requirements: tuple[Requirement, ...]

    def __str__(self) -> str:
        return f"{self.kind} at {self.step.place}" if self.step.place else self.step.name


def symbolic_accesses(evaluation: SymbolicExecution) -> list[SymbolicAccess]:
    """Returns all accesses of a program."""
    return [_visit(evaluation, step, path) for step, path in _accesses(evaluation.code.body, ())]


def _accesses(block: SliceBlock[Polynomial], path: Path) -> Iterator[tuple[SliceStep[Polynomial], Path]]:
    for step in block.steps:
        if step.name in ACCESSES:
            yield step, path
        for number, inner in enumerate(step.blocks):
            yield from _accesses(inner, (*path, (step, number)))


def _visit(e: SymbolicExecution, step: SliceStep[Polynomial], path: Path) -> SymbolicAccess:
    pointer, *masks = address_operands(step.name, step.operands, dict(step.fixed).get("operandSegmentSizes"))
    lanes = []
    there = []
    for axis, length in enumerate(e.types[pointer].shape):
        name = f"lane {axis} of {length}{e.suffix}"
        lanes.append(ZERO if length == ONE else symbol(name))
        if length != ONE:
            there.append(between(symbol(name), 0, length))
            e.symbols.assume(name, there[-1])
    at = tuple(lanes)
    decision_requirements: list[Needed] = []

    def decide(before: Sequence[Constraint], *keys: Key) -> None:
        """Records the values on which a decision depends; they must not wrap wherever it is made."""
        decision_requirements.append((all_of(*before), tuple(e.requirements_of(list(keys)))))

    for outer, block in path:
        if outer.name == "scf.for":
            iteration_conditions = e.iteration_conditions(outer, e.iteration(outer))
            decide(there, *((number, ()) for number in outer.operands[:3]))
            there += iteration_conditions
        elif outer.name == "scf.if":
            condition = e.boolean(outer.operands[0])
            decide(there, (outer.operands[0], ()))
            there.append(condition if block == 0 else negate(condition))
        else:
            there += e.iteration_conditions(outer, e.iteration(outer))
            going = outer.blocks[0].yields[0]
            condition = e.boolean(going)
            decide([*there, *_previous_iteration(e, outer, condition)], (going, ()))
            there += [condition] if block == 1 else _previous_iteration(e, outer, condition)
    enabling: list[Constraint] = []
    for mask in masks:
        where = at if e.types[mask].shape else ()
        enabling.append(e.boolean(mask, where))
        decide(there, (mask, where))
    address = e.value(pointer, at)
    assert isinstance(address, SymbolicPointer)
    reachable = all_of(*there) if there else TRUE
    return SymbolicAccess(
        step,
        ACCESSES[step.name],
        address.buffer,
        address.offset,
        reachable,
        all_of(*there, *enabling),
        tuple(decision_requirements),
        tuple(e.requirements_of([(pointer, at)])),
    )


def _previous_iteration(e: SymbolicExecution, loop: SliceStep[Polynomial], going: Constraint) -> list[Constraint]:
    """Returns that the previous iteration continued, if that depends only on its number and loop invariants."""
    iteration = e.iteration(loop)
    (name,) = iteration.names
    if any(name in e.symbols.dependencies([each]) for each in going.names - {name}):
        return []
    return [any_of(equal(iteration, 0), going.map_polynomials(lambda value: value.substitute({name: iteration - 1})))]
