"""The accesses of a program: which element, when, and what must hold for that to be what the machine computes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kerneltest.extensions.proofs.evaluate import Evaluation
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    TRUE,
    ZERO,
    Condition,
    Poly,
    between,
    either,
    equal,
    every,
    negated,
    symbol,
)
from kerneltest.extensions.proofs.steps import ACCESSES, Block, Step, addressing
from kerneltest.extensions.proofs.values import Key, Need, Pointer

# The control flow around an access: a loop or a branch, and in which of its blocks the access lies.
Path = tuple[tuple[Step[Poly], int], ...]
Needed = tuple[Condition, tuple[Need, ...]]


@dataclass(frozen=True, eq=False)
class Visit:
    """What one access does in one lane of a program, at one turn of the loops around it.

    Attributes:
      step: the operation.
      kind: `load`, `store` or `atomic`.
      buffer: the number of the array.
      offset: of the element.
      reached: that control flow gets there, in a lane that there is.
      enabled: that it does something: reached, and not masked.
      deciding: what must hold, and when, for `reached` and `enabled` to be what the machine decides.
      addressing: what must hold for `offset` to be where the machine goes, in enabled lanes.
    """

    step: Step[Poly]
    kind: str
    buffer: int
    offset: Poly
    reached: Condition
    enabled: Condition
    deciding: tuple[Needed, ...]
    addressing: tuple[Need, ...]

    def __str__(self) -> str:
        return f"{self.kind} at {self.step.place}" if self.step.place else self.step.name


def visits(evaluation: Evaluation) -> list[Visit]:
    """Every access of a program."""
    return [_visit(evaluation, step, path) for step, path in _accesses(evaluation.code.body, ())]


def _accesses(block: Block[Poly], path: Path) -> Iterator[tuple[Step[Poly], Path]]:
    for step in block.steps:
        if step.name in ACCESSES:
            yield step, path
        for number, inner in enumerate(step.blocks):
            yield from _accesses(inner, (*path, (step, number)))


def _visit(e: Evaluation, step: Step[Poly], path: Path) -> Visit:
    pointer, *masks = addressing(step.name, step.operands, dict(step.fixed).get("operandSegmentSizes"))
    lanes = []
    there = []
    for axis, length in enumerate(e.types[pointer].shape):
        name = f"lane {axis} of {length}{e.suffix}"
        lanes.append(ZERO if length == ONE else symbol(name))
        if length != ONE:
            there.append(between(symbol(name), 0, length))
            e.symbols.state(name, there[-1])
    at = tuple(lanes)
    deciding: list[Needed] = []

    def decide(before: Sequence[Condition], *keys: Key) -> None:
        """Notes that a decision rests on values, which must be right wherever it is made, however it ends."""
        deciding.append((every(*before), tuple(e.cone(list(keys)))))

    for outer, block in path:
        if outer.name == "scf.for":
            turning = e.turning(outer, e.turn(outer))
            decide(there, *((number, ()) for number in outer.operands[:3]))
            there += turning
        elif outer.name == "scf.if":
            condition = e.boolean(outer.operands[0])
            decide(there, (outer.operands[0], ()))
            there.append(condition if block == 0 else negated(condition))
        else:
            there += e.turning(outer, e.turn(outer))
            going = outer.blocks[0].yields[0]
            condition = e.boolean(going)
            decide([*there, *_turn_before(e, outer, condition)], (going, ()))
            there += [condition] if block == 1 else _turn_before(e, outer, condition)
    enabling: list[Condition] = []
    for mask in masks:
        where = at if e.types[mask].shape else ()
        enabling.append(e.boolean(mask, where))
        decide(there, (mask, where))
    address = e.value(pointer, at)
    assert isinstance(address, Pointer)
    reached = every(*there) if there else TRUE
    return Visit(
        step,
        ACCESSES[step.name],
        address.buffer,
        address.offset,
        reached,
        every(*there, *enabling),
        tuple(deciding),
        tuple(e.cone([(pointer, at)])),
    )


def _turn_before(e: Evaluation, loop: Step[Poly], going: Condition) -> list[Condition]:
    """That the turn before went on, if its condition is one of nothing but the turn's number and what does not vary."""
    turn = e.turn(loop)
    (name,) = turn.names
    if any(name in e.symbols.closure([each]) for each in going.names - {name}):
        return []
    return [either(equal(turn, 0), going.over(lambda value: value.substitute({name: turn - 1})))]
