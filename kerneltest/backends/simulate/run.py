"""Runs one lowered Pallas call: what depends on no memory once, the rest as a tape for each case.

The interpreter goes through the IR with all programs at once. Operations on values that are known by then (indices,
masks, loop bounds) are computed; the others are put on a tape, in which loads and stores already know their elements.
So a case costs its loads, its arithmetic and its stores, and memory is checked once a signature. Where an address or a
branch depends on loaded values, it is computed and checked as the tape runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerneltest.backends.simulate.access import RMW, Action, atomic, load, store
from kerneltest.backends.simulate.memory import UNINITIALISED, UNWRITTEN, Access, Buffer, Fault, Watch, garbage
from kerneltest.backends.simulate.ops import Rule, any_operand, constant_of, rule
from kerneltest.backends.simulate.parse import Operation, Region, Type, UnknownOperationError
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict

# Loops of more turns are run as they come: their tape would hold an index array for each.
_UNROLLED = 128


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that the tape will give."""

    number: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """Pointers into one buffer."""

    buffer: int
    offset: "Array | Slot"


Value = Any  # Array | Slot | Pointer


# One entry of the tape: from the environment and its masks of undefined elements; sets its results in both.
Step = Callable[[list[Any], list[Any]], None]


class Simulation:
    """One Pallas call, ready to run any values through it.

    Args:
      body: its function.
      grid: programs along x, y and z.
      inputs, outputs: in the function's order of arguments; an output that shares an input's memory is its buffer.
      hints: for `Watch`.
      programs: the linear ids of the programs to run, by default all.
    """

    def __init__(
        self,
        body: Region,
        grid: tuple[int, int, int],
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        hints: dict[str, str],
        programs: Array | None = None,
    ) -> None:
        buffers = [*inputs, *outputs]
        self.buffers, self.grid = buffers, grid
        self.memory = list({id(buffer): buffer for buffer in buffers}.values())
        self.programs = np.arange(int(np.prod(grid)), dtype=np.int32) if programs is None else programs
        self.watch = Watch(grid, hints, self.programs)
        self.hints = hints
        self.template: list[Any] = []
        self.tape: list[Step] = []
        # Whether an address or a mask depends on loaded values, so that every access is checked as it happens.
        self.dynamic = False
        self.accesses = 0
        self.stores: list[Access] = []  # those whose elements are known
        for buffer in outputs:
            buffer.writable = True
        for buffer in buffers:
            buffer.reset()
        with np.errstate(all="ignore"):
            interpreter = _Interpreter(self, {}, {}, tape=self.tape, enabled=None)
            interpreter.enter(body, [Pointer(i, np.zeros(1, np.int64)) for i in range(len(buffers))])
        self.static_written = [buffer.written.copy() for buffer in buffers]

    def run(self, inputs: Sequence[tuple[Array, Array | None]]) -> None:
        """Runs the tape; the buffers then hold the results.

        Args:
          inputs: for each buffer that is no output, its values and the mask of its undefined elements.
        """
        self.place(inputs)
        self.execute()

    def place(self, inputs: Sequence[tuple[Array, Array | None]]) -> None:
        """Cache as it is before the first program: inputs in it, outputs unwritten."""
        given = iter(inputs)
        for buffer in self.memory:
            if buffer.output:
                buffer.data = np.full(buffer.data.size, garbage(buffer.data.dtype))
                buffer.undefined = None
            else:
                values, undefined = next(given)
                buffer.data = values.reshape(-1).copy() if buffer.writable else values.reshape(-1)
                buffer.undefined = None if undefined is None else undefined.reshape(-1).copy()

    def execute(self) -> None:
        """Runs the programs on memory as it is."""
        if self.dynamic:
            sources = self.watch.sources
            self.watch = Watch(self.grid, self.hints, self.programs)
            self.watch.sources.update(sources)
            for buffer in self.memory:
                buffer.reset()
        raced = [(fault.buffer, fault.offset) for fault in self.watch.faults.values() if fault.offset is not None]
        for buffer in self.memory:
            buffer.raced = {offset: [] for name, offset in raced if name == buffer.name}
        environment = self.template.copy()
        masks: list[Any] = [None] * len(environment)
        with np.errstate(all="ignore"):
            for step in self.tape:
                step(environment, masks)

    def faults(self) -> list[Fault]:
        """What the last run did to memory and must not."""
        values = {(b.name, offset): found for b in self.memory for offset, found in b.raced.items()}
        return [
            replace(fault, message=fault.message + _difference(values.get((fault.buffer, fault.offset or 0), [])))
            for fault in self.watch.faults.values()
        ]

    def undefined(self, buffer: Buffer) -> Array | None:
        """The verdict codes of an output's undefined elements after a run, or None."""
        found = np.zeros(buffer.data.size, np.uint8)
        if buffer.undefined is not None:
            found[buffer.undefined] = UNINITIALISED
        if buffer.output:
            written = buffer.written if self.dynamic else self.static_written[self.buffers.index(buffer)]
            found[~written if buffer.writable else slice(None)] = UNWRITTEN
        return found if found.any() else None


def _difference(values: Sequence[Any]) -> str:
    if len(values) < 2:
        return ""
    distinct = list(dict.fromkeys(str(value) for value in values))
    return f"; all write {distinct[0]}" if len(distinct) == 1 else f"; they write {' and '.join(distinct[:2])}"


class _Interpreter:
    """Goes through regions. With a tape, what is not known yet goes on it; without, everything is known."""

    def __init__(
        self,
        simulation: Simulation,
        environment: dict[int, Value],
        types: dict[int, Type],
        *,
        tape: list[Step] | None,
        enabled: Value | None,
    ) -> None:
        self.simulation = simulation
        self.environment = environment
        self.types = types
        self.tape = tape
        self.enabled = enabled  # (programs,) bool: those that the control flow lets act; None for all
        self.masks: dict[int, Any] = {}  # without a tape: undefined elements, by id of the array

    # Values

    def slot(self, content: Any = None) -> Slot:
        self.simulation.template.append(content)
        return Slot(len(self.simulation.template) - 1)

    def apply(self, made: Rule, operands: Sequence[Value], results: int = 1) -> tuple[Value, ...]:
        """Computes an operation now, or puts it on the tape."""
        if not any(isinstance(operand, Slot) for operand in operands):
            found = made.compute(*operands)
            found = found if isinstance(found, tuple) else (found,)
            if self.tape is None:
                masks = [self.masks.get(id(operand)) for operand in operands]
                if any(mask is not None for mask in masks):
                    mask = made.undefined(operands, [None if m is None else m[1] for m in masks])
                    for value in found:
                        self.masks[id(value)] = (value, mask)
            return found
        assert self.tape is not None
        ins = [operand.number if isinstance(operand, Slot) else self.slot(operand).number for operand in operands]
        outs = [self.slot() for _ in range(results)]
        self.tape.append(_step(made, ins, [out.number for out in outs]))
        return tuple(outs)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Per program, `yes` where the condition (programs,) holds."""
        if yes is no:
            return yes
        if isinstance(yes, Pointer):
            return Pointer(yes.buffer, self.select(condition, yes.offset, no.offset))

        def choose(c: Array, a: Array, b: Array) -> Array:
            return np.where(c.reshape(-1, *(1,) * (max(a.ndim, b.ndim) - 1)), a, b)

        def undefined(values: Sequence[Any], masks: Sequence[Any]) -> Any:
            a, b = (np.zeros((1,) * v.ndim, bool) if m is None else m
                    for v, m in zip(values[1:], masks[1:], strict=True))  # fmt: skip
            return choose(values[0], a, b)

        return self.apply(Rule(choose, undefined), [condition, yes, no])[0]

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        if a is None or b is None:
            return b if a is None else a
        return self.apply(Rule(np.logical_and, any_operand), [a, b])[0]

    # Control flow

    def enter(self, region: Region, arguments: Sequence[Value]) -> list[Value]:
        """Runs a region; what it yields."""
        self.environment.update(zip(region.arguments, arguments, strict=True))
        self.types.update(zip(region.arguments, region.types, strict=True))
        for op in region.operations[:-1]:
            self.operation(op)
        return [self.environment[number] for number in region.yields]

    def operation(self, op: Operation) -> None:
        """Runs one operation."""
        operands = [self.environment[number] for number in op.operands]
        match op.name:
            case "scf.for":
                results: Sequence[Value] = self.loop(op, operands)
            case "scf.if":
                results = self.branch(op, operands[0])
            case "scf.while":
                results = self.repeat(op, operands)
            case "tt.load":
                results = [self.load(op, operands)]
            case "tt.store":
                results = self.store(op, operands)
            case "tt.atomic_rmw" | "tt.atomic_cas":
                results = [self.atomic(op, operands)]
            case "tt.get_program_id":
                results = [self.program_id(op.attributes["axis"])]
            case "tt.get_num_programs":
                results = [np.full(1, self.simulation.grid[op.attributes["axis"]], np.int32)]
            case "tt.print" | "tt.debug_barrier" | "tt.assert":
                results = []
            case _:
                results = self.compute(op, operands)
        self.environment.update(zip(op.results, results, strict=True))
        self.types.update(zip(op.results, op.types, strict=True))

    def compute(self, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        if not operands and (value := constant_of(op)) is not None:
            return [value]
        if op.name == "tt.addptr":
            pointer, delta = operands
            moved = Rule(lambda a, b: a + b.astype(np.int64), any_operand)
            return [Pointer(pointer.buffer, self.apply(moved, [pointer.offset, delta])[0])]
        made = rule(op, tuple(self.types[number] for number in op.operands))
        pointers = [operand for operand in operands if isinstance(operand, Pointer)]
        if not pointers:
            return self.apply(made, operands, len(op.results))
        if len({pointer.buffer for pointer in pointers}) > 1 or op.name in ("tt.ptr_to_int", "tt.int_to_ptr"):
            raise UnknownOperationError(f"{op.name} on pointers into several buffers is not simulated ({op.place})")
        if op.name == "tt.bitcast":
            return operands
        offsets = [operand.offset if isinstance(operand, Pointer) else operand for operand in operands]
        return [Pointer(pointers[0].buffer, offset) for offset in self.apply(made, offsets, len(op.results))]

    def program_id(self, axis: int) -> Array:
        x, y, _ = self.simulation.grid
        programs = self.simulation.programs
        ids: Array = (programs % x, programs // x % y, programs // (x * y))[axis].astype(np.int32)
        return ids[:1] if self.simulation.grid[axis] == 1 else ids

    def loop(self, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        lower, upper, step, *carried = operands
        (region,) = op.regions
        if any(isinstance(bound, Slot) for bound in (lower, upper, step)):
            return self.later(op, operands)
        trips = np.maximum(-(-(upper.astype(np.int64) - lower) // step), 0)
        if self.tape is not None and trips.size and int(trips.max()) > _UNROLLED:
            return self.later(op, operands)
        outer = self.enabled
        for turn in range(int(trips.max()) if trips.size else 0):
            active = trips > turn
            all_active = bool(active.all())
            self.enabled = outer if all_active else self.both(outer, active)
            found = self.enter(region, [(lower + turn * step).astype(lower.dtype), *carried])
            carried = found if all_active else [self.select(active, a, b) for a, b in zip(found, carried, strict=True)]
        self.enabled = outer
        return carried

    def branch(self, op: Operation, condition: Value) -> Sequence[Value]:
        then, otherwise = op.regions[0], op.regions[1] if len(op.regions) > 1 else None
        if not isinstance(condition, Slot) and (condition.all() or not condition.any()):
            taken = then if condition.all() else otherwise
            return self.enter(taken, []) if taken is not None and taken.operations else []
        outer = self.enabled
        self.enabled = self.both(outer, condition)
        yes = self.enter(then, [])
        no: Sequence[Value] = []
        if otherwise is not None and otherwise.operations:
            self.enabled = self.both(outer, self.apply(Rule(np.logical_not, any_operand), [condition])[0])
            no = self.enter(otherwise, [])
        self.enabled = outer
        return [self.select(condition, a, b) for a, b in zip(yes, no, strict=True)]

    def repeat(self, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        if self.tape is not None:
            return self.later(op, operands)
        before, after = op.regions
        outer, carried = self.enabled, list(operands)
        going: Array | None = None
        results: Sequence[Value] = []
        while True:
            self.enabled = self.both(outer, going)
            condition, *passed = self.enter(before, carried)
            results = passed if going is None else [
                self.select(going, a, b) for a, b in zip(passed, results, strict=True)
            ]  # fmt: skip
            going = condition if going is None else going & condition
            acting = going if self.enabled is None else going & self.enabled
            if not acting.any():
                self.enabled = outer
                return results
            self.enabled = self.both(outer, going)
            found = self.enter(after, passed)
            carried = [self.select(going, a, b) for a, b in zip(found, carried, strict=True)]

    def later(self, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        """Control flow that depends on values of the tape: an interpreter of its own when the tape gets there."""
        assert self.tape is not None
        self.simulation.dynamic = True
        captured = {number: self.environment[number] for number in _captured(op) if number in self.environment}
        slots = {number: (value.offset if isinstance(value, Pointer) else value) for number, value in captured.items()}
        ins = {number: v if isinstance(v, Slot) else self.slot(v) for number, v in slots.items()}
        enabled = self.enabled if isinstance(self.enabled, Slot) or self.enabled is None else self.slot(self.enabled)
        kinds = [value.buffer if isinstance(value, Pointer) else None for value in self._carried(op, operands)]
        outs = [self.slot() for _ in op.results]
        types, simulation = dict(self.types), self.simulation

        def run(environment: list[Any], masks: list[Any]) -> None:
            known: dict[int, Value] = {}
            inner = _Interpreter(
                simulation,
                known,
                dict(types),
                tape=None,
                enabled=None if enabled is None else environment[enabled.number],
            )
            for number, slot in ins.items():
                array = environment[slot.number]
                if masks[slot.number] is not None:
                    inner.masks[id(array)] = (array, masks[slot.number])
                value = captured[number]
                known[number] = Pointer(value.buffer, array) if isinstance(value, Pointer) else array
            inner.operation(op)
            for out, number in zip(outs, op.results, strict=True):
                found = known[number]
                array = found.offset if isinstance(found, Pointer) else found
                environment[out.number] = array
                masks[out.number] = inner.masks[id(array)][1] if id(array) in inner.masks else None

        self.tape.append(run)
        return [
            out if kind is None else Pointer(kind, out)
            for out, kind in zip(outs, kinds or [None] * len(outs), strict=True)
        ]

    @staticmethod
    def _carried(op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        carried = operands[3:] if op.name == "scf.for" else operands
        return carried if len(carried) == len(op.results) else [None] * len(op.results)

    # Cache

    def touch(
        self, op: Operation, kind: str, action: Action, pointer: Pointer, mask: Value | None, extras: Sequence[Value]
    ) -> Value:
        """One access of all programs: checked, then carried out by `action`, now or as the tape runs."""
        simulation = self.simulation
        where = [pointer.offset, *(part for part in (mask, self.enabled) if part is not None)]
        if self.tape is None:
            access = self.access(kind, op, pointer.buffer, where)
            values, undefined = action(
                access, simulation.watch.see(access), extras, [self.masks.get(id(e), (e, None))[1] for e in extras]
            )
            if undefined is not None:
                self.masks[id(values)] = (values, undefined)
            return values
        if kind == "load" and mask is not None and not extras:
            simulation.watch.sources[f"a masked load without `other` at {op.place}"] = None
        known = not any(isinstance(part, Slot) for part in where)
        simulation.dynamic = simulation.dynamic or not known
        fixed = self.access(kind, op, pointer.buffer, where) if known else None
        unread = simulation.watch.see(fixed) if fixed is not None else None
        if fixed is not None and kind == "store":
            simulation.stores.append(fixed)
        ins = [self.number(part) for part in where]
        more = [self.number(extra) for extra in extras]
        out = self.slot()

        def run(environment: list[Any], masks: list[Any]) -> None:
            access, missing = fixed, unread
            if access is None:
                access = self.access(kind, op, pointer.buffer, [environment[i] for i in ins])
                self.check_address(access, [masks[i] for i in ins])
            if simulation.dynamic:
                missing = simulation.watch.see(access)
            environment[out.number], masks[out.number] = action(
                access, missing, [environment[i] for i in more], [masks[i] for i in more]
            )

        self.tape.append(run)
        return out

    def number(self, value: Value) -> int:
        return value.number if isinstance(value, Slot) else self.slot(value).number

    def access(self, kind: str, op: Operation, buffer: int, where: Sequence[Array]) -> Access:
        """An access from its offsets and what enables it."""
        simulation = self.simulation
        offset, *enabling = where
        enabled = np.ones((1,) * offset.ndim, bool)
        for each in enabling:
            enabled = enabled & each.reshape(*each.shape, *(1,) * (offset.ndim - each.ndim))
        shape = np.broadcast_shapes(offset.shape, enabled.shape)
        if simulation.buffers[buffer].writable:
            shape = (simulation.programs.size, *shape[1:])  # who it was matters
        simulation.accesses += 1
        return Access(
            kind,
            simulation.accesses,
            simulation.buffers[buffer],
            np.broadcast_to(offset, shape),
            np.broadcast_to(enabled, shape),
            op.place,
        )

    def check_address(self, access: Access, masks: Sequence[Array | None]) -> None:
        if any(mask is not None and mask.any() for mask in masks):
            self.simulation.watch.add(
                Verdict.UNINITIALISED,
                access.buffer.name,
                f"the address or the mask of a {access.kind} at {access.buffer.name} was computed from memory that was "
                f"never written, at {access.place}",
            )

    def load(self, op: Operation, operands: Sequence[Value]) -> Value:
        pointer, *rest = operands
        has_mask, has_other = op.attributes.get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[1:]
        mask = rest[0] if has_mask else None
        return self.touch(op, "load", load, pointer, mask, rest[-1:] if has_other else [])

    def store(self, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        pointer, value, *mask = operands
        self.touch(op, "store", store, pointer, mask[0] if mask else None, [value])
        return []

    def atomic(self, op: Operation, operands: Sequence[Value]) -> Value:
        pointer, *rest = operands
        if op.name == "tt.atomic_cas":
            return self.touch(op, "atomic", atomic("cas"), pointer, None, rest)
        kind = RMW[op.attributes["atomic_rmw_op"]]
        return self.touch(op, "atomic", atomic(kind), pointer, rest[1] if len(rest) > 1 else None, rest[:1])


def _step(made: Rule, ins: Sequence[int], outs: Sequence[int]) -> Step:
    single = outs[0] if len(outs) == 1 else None

    def run(environment: list[Any], masks: list[Any]) -> None:
        operands = [environment[i] for i in ins]
        found = made.compute(*operands)
        undefined = [masks[i] for i in ins]
        mask = made.undefined(operands, undefined) if any(m is not None for m in undefined) else None
        if single is not None:
            environment[single] = found[0] if isinstance(found, tuple) else found
            masks[single] = mask
            return
        for out, value in zip(outs, found, strict=True):
            environment[out], masks[out] = value, mask

    return run


def _captured(op: Operation) -> set[int]:
    """The numbers of the values that an operation and its regions use."""
    found = set(op.operands)
    for region in op.regions:
        for inner in region.operations:
            found |= _captured(inner)
    return found
