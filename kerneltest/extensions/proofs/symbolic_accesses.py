"""The memory accesses of a program as polynomials, with the requirements under which these are what it computes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kerneltest.extensions.proofs.polynomial import (
    ONE,
    TRUE,
    ZERO,
    Constraint,
    Polynomial,
    all_of,
    any_of,
    between,
    equal,
    negate,
    symbol,
)
from kerneltest.extensions.proofs.program_slice import ACCESSES, SliceBlock, SliceStep, address_operands
from kerneltest.extensions.proofs.symbolic_execution import SymbolicExecution
from kerneltest.extensions.proofs.symbolic_values import Key, Requirement, SymbolicPointer

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
