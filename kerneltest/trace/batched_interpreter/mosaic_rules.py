"""Rules for kernels on the cores of a mesh (`pl.kernel`, `core_map`), and for Mosaic's copies, barriers and products.

Blocks run one after another. Copies are made when they start, and waiting takes no time, but for barriers between the
threads of a block: these run by turns, until each waits for others. A kernel whose blocks wait for each other may
compute something else, so these rules only serve to compare formulas, which a kernel must follow.
"""

import itertools
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.call_rules import MOST_PROGRAMS
from kerneltest.trace.batched_interpreter.memory_rules import (
    check_inside,
    memory_parts,
    operand_leaves,
    read_through,
    write_through,
)
from kerneltest.trace.jax_compat.jaxprs import Equation, core_meshes, inner_jaxprs
from kerneltest.trace.machine import (
    BatchedRef,
    EquationFunction,
    Machine,
    Rule,
    UnknownError,
    Value,
    by_row,
    copy_rows,
    is_uniform,
    scoped_memory,
)
from kerneltest.trace.primitives import PRIMITIVES, Kind


class Threads:
    """The threads of a block (warpgroups), of which one runs at a time, until it has to wait for another.

    Each is a thread of Python's as well, since the functions that evaluate its jaxpr call each other.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine, self.abandoned = machine, False
        self.turned = threading.Semaphore(0)  # released by the thread that runs when it waits, and when it ends
        self.running: _Thread
        self._shared: dict[tuple[int, int], list[BatchedRef]] = {}  # by equation, and by how often a thread met it

    def run(self, bodies: Sequence[Callable[[], object]]) -> None:
        """Runs a body for each thread. Raises an UnknownError if the threads wait for each other."""
        left = [_Thread(self, body) for body in bodies]
        try:
            while left:
                if not (ready := [thread for thread in left if thread.is_ready()]):
                    raise UnknownError("threads that wait for each other")
                for self.running in ready:
                    self.running.take_turn()
                left = [thread for thread in left if not thread.ended]
        finally:
            self.abandoned = True
            for thread in left:
                thread.go.release()
                if not thread.is_turning:  # one that is interrupted may take long
                    thread.python.join()

    def shared(self, equation: Equation, make: Callable[[], list[BatchedRef]]) -> list[BatchedRef]:
        """The memory that an equation allocates for all threads: that of the first thread which meets it."""
        met = self.running.met
        met[id(equation)] += 1
        key = id(equation), met[id(equation)]
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]


class _Thread:
    def __init__(self, threads: Threads, body: Callable[[], object]) -> None:
        machine = threads.machine
        self._threads, self._body = threads, body
        self._state = machine.program, machine.axes, machine.rows
        self.is_ready: Callable[[], bool] = lambda: True
        self.go, self.is_turning, self.ended = threading.Semaphore(0), False, False
        self._error: BaseException | None = None
        self.met: Counter[int] = Counter()
        self.waits: dict[BatchedRef, BatchedRef] = {}  # how often it has waited at each barrier of a memory
        self._wide = jax.enable_x64(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        self.python = threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)
        self.python.start()

    def take_turn(self) -> None:
        """Runs until it has to wait, or to its end. Raises what its body raises."""
        machine = self._threads.machine
        machine.program, machine.axes, machine.rows = self._state
        self.is_turning = True
        self.go.release()
        self._threads.turned.acquire()
        self.is_turning = False
        self._state = machine.program, machine.axes, machine.rows
        if self._error is not None:
            raise self._error

    def wait(self, is_ready: Callable[[], bool]) -> None:
        """Lets other threads run until a condition holds."""
        if is_ready():
            return
        self.is_ready = is_ready
        self._threads.turned.release()
        self.go.acquire()
        if self._threads.abandoned:
            raise UnknownError("a thread of a block that ended")

    def _run(self) -> None:
        self.go.acquire()
        try:
            if not self._threads.abandoned:
                with self._wide:  # JAX's settings are those of a thread
                    self._body()
        except BaseException as error:
            self._error = error
        self.ended = True
        self._threads.turned.release()


def _on_cores(machine: Machine, equation: Equation) -> EquationFunction:
    meshes, bodies = core_meshes(equation), list(inner_jaxprs(equation))
    if len(meshes) != 1 or len(bodies) != 1 or equation.params.get("external_meshes"):
        raise UnknownError("a kernel on several meshes")
    (mesh,), (body,) = meshes, bodies
    if math.prod(lengths := tuple(mesh.shape.values())) > MOST_PROGRAMS:
        raise UnknownError("too many programs")
    run_program = machine.compile(body, consts_as_arguments=True)
    aliases = {output: operand for operand, output in dict(equation.params.get("input_output_aliases", {})).items()}
    outputs = [scoped_memory(machine.rules, v.aval) for v in equation.outvars]
    scratch = [scoped_memory(machine.rules, v.aval) for v in body.invars[len(equation.invars) + len(outputs) :]]
    together = (getattr(mesh, "num_threads", None) or 1) > 1  # the last axis is that of the threads

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        rows = machine.rows_of(operands)
        given = [x if isinstance(x, BatchedRef) else BatchedRef(copy_rows(x, rows)) for x in operands]
        made = [given[aliases[i]] if i in aliases else make(rows) for i, make in enumerate(outputs)]
        outer = machine.program, machine.grid, machine.axes, machine.threads

        def run(numbers: Sequence[int]) -> None:
            machine.program = [np.array([number], np.int32) for number in numbers]
            machine.axes = {**outer[2], **dict(zip(mesh.shape, machine.program, strict=True))}
            run_program([*given, *made, *(make(rows) for make in scratch)])

        try:
            machine.grid = lengths
            for block in itertools.product(*map(range, lengths[:-1] if together else lengths)):
                if together:
                    machine.threads = Threads(machine)
                    machine.threads.run([partial(run, (*block, thread)) for thread in range(lengths[-1])])
                else:
                    run(block)
        finally:
            machine.program, machine.grid, machine.axes, machine.threads = outer
        return [memory.array for memory in made]

    return evaluate


def _axis_index(machine: Machine, equation: Equation) -> EquationFunction:
    name = equation.params["axis_name"]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        if name not in machine.axes:
            raise UnknownError(f"the axis {name}")
        return (machine.axes[name],)

    return evaluate


# The operands from `start` on, as the leaves of some trees among the parameters, in that order.
def _unflatten(equation: Equation, start: int, *names: str) -> list[Any]:
    leaves, found = operand_leaves(equation)[start:], []
    for name in names:
        tree = equation.params[name]
        count = 0 if tree is None else tree.num_leaves
        found.append(() if tree is None else tree.unflatten(leaves[:count]))
        leaves = leaves[count:]
    return found


# The function of an equation that acts on memory, if the kernel's predicate holds.
def _acting(equation: Equation, act: Callable[[Sequence[Value]], None]) -> EquationFunction:
    conditional = equation.params.get("has_user_predicate", False)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        if conditional and not is_uniform(operands[-1:]):
            raise UnknownError("rows of which only some act")
        if not conditional or operands[-1].all():
            act(operands)
        return ()

    return evaluate


def _copy(machine: Machine, equation: Equation) -> EquationFunction:
    params, to_shared = equation.params, equation.primitive.name == "copy_gmem_to_smem"
    # A copy to several blocks is one that each of them makes.
    if params.get("partitioned_axis") is not None or params.get("reduction_op"):
        raise UnknownError("a copy of which each block gets a part, or one that combines")
    has_barrier = to_shared and bool(params.get("has_barrier", True))
    names = ("src_transforms_treedef", "dst_transforms_treedef", "barrier_transforms_treedef")
    trees = _unflatten(equation, 2 + has_barrier, *names[: 2 + has_barrier])
    source, target = (memory_parts(equation, number, each, joined=True) for number, each in enumerate(trees[:2]))
    arrive = _arrival(machine, equation, 2, trees[2]) if has_barrier else None

    def act(operands: Sequence[Value]) -> None:
        for number, steps in ((0, source), (1, target)):
            check_inside(operands[number].array, steps, operands)
        write_through(operands[1], target, operands, read_through(operands[0].array, source, operands))
        if arrive is not None:
            arrive(operands)

    return _acting(equation, act)


# Counts an arrival at a barrier, the operand of a number. A single thread would wait for none but copies.
def _arrival(machine: Machine, equation: Equation, number: int, transforms: Any) -> Callable[[Sequence[Value]], None]:
    steps = memory_parts(equation, number, transforms)

    def arrive(operands: Sequence[Value]) -> None:
        if machine.threads is not None:
            write_through(operands[number], steps, operands, read_through(operands[number].array, steps, operands) + 1)

    return arrive


def _barrier_arrive(machine: Machine, equation: Equation) -> EquationFunction:
    (transforms,) = _unflatten(equation, 1, "transforms_treedef")
    return _acting(equation, _arrival(machine, equation, 0, transforms))


def _barrier_wait(machine: Machine, equation: Equation) -> EquationFunction:
    (transforms,) = _unflatten(equation, 1, "transforms_treedef")
    steps, kind = memory_parts(equation, 0, transforms), equation.invars[0].aval.dtype

    def act(operands: Sequence[Value]) -> None:
        if machine.threads is None:
            return
        barrier, thread = operands[0], machine.threads.running
        waits = thread.waits.setdefault(barrier, BatchedRef(np.zeros_like(barrier.array)))
        write_through(waits, steps, operands, read_through(waits.array, steps, operands) + 1)
        # At a barrier of several blocks, others arrive as often as this one.
        needed = kind.num_arrivals * read_through(waits.array, steps, operands)
        thread.wait(lambda: bool((read_through(barrier.array, steps, operands) >= needed).all()))

    return _acting(equation, act)


def _wgmma(machine: Machine, equation: Equation) -> EquationFunction:
    names = ("acc_transforms_tree", "a_transforms_tree", "b_transforms_tree")
    total, *factors = (memory_parts(equation, i, t) for i, t in enumerate(_unflatten(equation, 3, *names)))
    dtype = np.dtype(equation.invars[0].aval.dtype)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        a, b = (
            read_through(x.array, steps, operands) if isinstance(x, BatchedRef) else x
            for x, steps in zip(operands[1:3], factors, strict=True)
        )
        before = read_through(operands[0].array, total, operands)
        write_through(operands[0], total, operands, machine.rules.accumulate(before, a, b, dtype))
        return ()

    return evaluate


def _roll(machine: Machine, equation: Equation) -> EquationFunction:
    axis = equation.params["axis"]
    if equation.params.get("stride") is not None:
        raise UnknownError("a rotation with a stride")

    def evaluate(operands: Sequence[Array]) -> Sequence[Array]:
        return (np.stack([np.roll(x, int(shift), axis) for x, shift in by_row(operands)]),)

    return evaluate


def _nothing(machine: Machine, equation: Equation) -> EquationFunction:
    if equation.outvars:
        raise UnknownError(equation.primitive.name)
    return lambda operands: ()


def _for_formulas(rule: Rule) -> Rule:
    def checked(machine: Machine, equation: Equation) -> EquationFunction:
        if not machine.rules.promotes:
            raise UnknownError(f"{equation.primitive.name}, whose order only an interpreter knows")
        return rule(machine, equation)

    return checked


_UNORDERED: Mapping[str, Callable[[Machine, Equation], EquationFunction]] = {
    **{p.name: _nothing for p in PRIMITIVES.values() if p.kind is Kind.SYNCHRONISATION and p.name != "dma_wait"},
    **dict.fromkeys(("set_max_registers", "delay"), _nothing),
    **dict.fromkeys(("mpmd_map", "core_map"), _on_cores),
    "axis_index": _axis_index,
    **dict.fromkeys(("copy_gmem_to_smem", "copy_smem_to_gmem"), _copy),
    "barrier_arrive": _barrier_arrive,
    "barrier_wait": _barrier_wait,
    "wgmma_ref": _wgmma,
    "wgmma_accumulator_deref": lambda machine, equation: lambda operands: (operands[0].array.copy(),),
    "layout_cast": lambda machine, equation: lambda operands: operands[:1],
}
MOSAIC_RULES: Mapping[str, Rule] = {**{name: _for_formulas(rule) for name, rule in _UNORDERED.items()}, "roll": _roll}
