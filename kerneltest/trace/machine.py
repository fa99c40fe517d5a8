"""The machine that evaluates jaxprs: the function for each equation is looked up once; a call then runs them in order.

A rule set says what a value is, and which function evaluates an equation on such values.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import dtypes

from kerneltest.core.dtypes import Array, DType, is_promotable
from kerneltest.numerics.device_operations import multiply_matrices
from kerneltest.trace.jax_compat.jaxprs import AbstractValue, Atom, ClosedJaxpr, Equation, Jaxpr, Var, data_of, is_key
from kerneltest.trace.jax_compat.source_lines import call_back
from kerneltest.trace.primitives import PRIMITIVES, Kind, called_jaxpr
from kerneltest.trace.rewrite import Fill
from kerneltest.trace.walk import scan_counts


class UnknownError(Exception):
    """Raised for a jaxpr with an operation that is not supported, or with a value that is not available."""


class BatchedRef:
    """The memory that a reference refers to, (rows, *shape)."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array


Value: TypeAlias = Any  # as the rule set has it
# Evaluates one equation: from its operands to its results.
EquationFunction: TypeAlias = Callable[[Sequence[Value]], Sequence[Value]]
# Evaluates an equation whose operands and one result are all arrays.
ArrayFunction: TypeAlias = Callable[..., Any]
# A function, with the variables that it reads and defines.
Step: TypeAlias = tuple[EquationFunction, Sequence[Atom], Sequence[Var]]


class RuleSet:
    """The meaning of values, and the functions that evaluate equations on them.

    Here, values are arrays with rows, or `BatchedRef`s: their first axis counts sets of inputs, or has length 1 if all
    sets share the value. Floats of 16 bits or more are computed in float64 if it `promotes`.
    """

    in_step = False  # whether rows that take different branches, or loop a different number of times, are refused

    def __init__(self, *, promotes: bool = False) -> None:
        self.promotes = promotes
        self.counts_all_updates = promotes  # atomic ones of one element, of which Pallas' interpreter loses all but one

    def rule(self, machine: "Machine", equation: Equation) -> EquationFunction:
        """The function that evaluates an equation; UnknownError if it, or one in a jaxpr of it, is not supported."""
        raise NotImplementedError

    def steps(self, machine: "Machine", jaxpr: Jaxpr) -> Iterator[Step]:
        """Yields the functions that evaluate an open jaxpr, in order."""
        for equation in jaxpr.eqns:
            yield self.rule(machine, equation), equation.invars, equation.outvars

    def promoted(self, dtype: DType) -> DType:
        """The dtype in which values that have a dtype in the jaxpr are computed."""
        return np.dtype(np.float64) if self.promotes and is_promotable(dtype) else dtype

    def dtype_of(self, aval: AbstractValue) -> DType:
        """The dtype in which a value is computed; UnknownError if NumPy lacks it, as for a semaphore or a key."""
        try:
            dtype: DType = np.dtype(aval.dtype)
        except (TypeError, AttributeError):
            raise UnknownError(str(aval)) from None
        return self.promoted(dtype)

    def constant(self, value: Any, dtype: Any = None) -> Value:
        """A constant of a jaxpr as a value; `dtype` is that of a literal. A key's value is its data."""
        array = np.asarray(data_of(value), dtype)
        return array[None].astype(self.promoted(array.dtype), copy=False)

    def decisions(self, value: Value) -> Array:
        """The numbers by which a branch is chosen, or booleans that continue a loop: one for each row."""
        return np.asarray(value)

    def leave_loop(self, equation: Equation, steps: int) -> None:
        """Notes that rows leave a loop without a fixed number of steps after so many."""

    def multiply(self, a: Array, b: Array, dtype: DType) -> Array:
        return multiply_matrices(a, b, dtype)

    def accumulate(self, total: Array, a: Array, b: Array, dtype: DType) -> Array:
        """The sum of an accumulator, which has a dtype in the jaxpr, and a product of matrices."""
        return self.updating(np.add, dtype)(total, self.multiply(a, b, self.promoted(dtype)))

    def updating(self, function: Callable[..., Array], dtype: DType) -> Callable[..., Array]:
        """The function by which memory of a dtype is updated, in place of NumPy's."""
        return function

    def item(self, value: Value, i: int) -> Value:
        """A value's part for one iteration of a scan."""
        return value[:, i]

    def stack(self, values: Sequence[Value], aval: AbstractValue) -> Value:
        """The results of a scan's iterations as one value of a type."""
        if not values:
            return np.zeros((1, *aval.shape), self.dtype_of(aval))
        rows = rows_of(values)
        return np.stack([np.broadcast_to(x, (rows, *x.shape[1:])) for x in values], axis=1)


def unwritten_memory(shape: Sequence[int], dtype: DType) -> Array:
    """Unwritten memory with the content that Pallas' interpreter gives it: NaN, the least integer, or False."""
    return np.full(shape, Fill(nan=True)(dtype), dtype)


def pad_unwritten(array: Array, lengths: Sequence[int]) -> Array:
    """Extends an array (rows, *shape) at its ends to (rows, *lengths), with unwritten memory."""
    whole = unwritten_memory((len(array), *lengths), array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    return whole


def scoped_memory(rules: RuleSet, aval: AbstractValue) -> Callable[[int], BatchedRef]:
    """The function from a number of rows to unwritten memory of a type. Memory of barriers counts arrivals."""
    shape = tuple(aval.shape)
    if jnp.issubdtype(aval.dtype, dtypes.extended) and not is_key(aval):
        return lambda rows: BatchedRef(np.zeros((rows, *shape), np.int64))
    dtype = rules.dtype_of(aval)
    if str(getattr(aval, "memory_space", "")).lower() == "regs":  # an accumulator
        return lambda rows: BatchedRef(np.zeros((rows, *shape), dtype))
    return lambda rows: BatchedRef(unwritten_memory((rows, *shape), dtype))


def copy_rows(array: Array, rows: int) -> Array:
    """A copy of an array that has a number of rows, or one row for all."""
    return np.repeat(array, rows, 0) if len(array) < rows else array.copy()


def rows_of(values: Sequence[Value]) -> int:
    """The number of rows that some values have together."""
    return max((len(value.array if isinstance(value, BatchedRef) else value) for value in values), default=1)


def is_uniform(values: Sequence[Array]) -> bool:
    """Returns whether every array has a single row."""
    return all(len(value) == 1 for value in values)


def by_row(arrays: Sequence[Array]) -> Iterator[list[Array]]:
    """Yields the arrays of each row in turn, without their row axis."""
    for row in range(rows_of(arrays)):
        yield [array[row if len(array) > 1 else 0] for array in arrays]


def run_by_group(
    machine: "Machine", keys: Array, values: Sequence[Value], run: Callable[[Any, list[Value]], Sequence[Array]]
) -> Sequence[Array]:
    """Runs each group of rows that share a key by itself, joins the results, and writes back what it does to memory."""
    groups = np.unique(keys)
    if len(groups) == 1:
        return run(groups[0], list(values))
    if machine.rules.in_step:
        raise UnknownError("rows that take different branches")
    results: list[Array] = []
    numbers = machine.rows
    for key in groups:
        rows = np.flatnonzero(keys == key)
        part = [_select_rows(value, rows, len(keys)) for value in values]
        try:
            machine.rows = numbers if numbers is None else numbers[rows]
            made = run(key, part)
        finally:
            machine.rows = numbers
        for whole, some in zip(values, part, strict=True):
            if isinstance(whole, BatchedRef) and whole.array.flags.writeable:
                if len(whole.array) != len(keys):
                    raise UnknownError("memory that is shared by rows with different control flow")
                whole.array[rows] = some.array
        if not results:
            results = [np.empty((len(keys), *each.shape[1:]), each.dtype) for each in made]
        for each, result in zip(made, results, strict=True):
            result[rows] = each
    return results


def _select_rows(value: Value, rows: Array, count: int) -> Value:
    if isinstance(value, BatchedRef):
        part = value.array[rows] if len(value.array) == count else np.repeat(value.array, len(rows), 0)
        part.flags.writeable = value.array.flags.writeable
        return BatchedRef(part)
    return value[rows] if len(value) == count else value


class Machine:
    """Evaluates jaxprs by a rule set. `substitutions` are variables that take the value of an earlier one.

    While a Pallas call runs, `program` is the current program's number along each axis of the grid, (1,) each, and
    `axes` are its numbers along the named axes of the meshes on which it runs; `threads` are those of its block, if
    there are several. `rows` are the numbers of the rows that are evaluated, in order, if steps treat them differently,
    else None; those with a loop of over `most_iterations` are `given_up`, and their loops end at once from then on.
    `longest_loop` is the largest number of iterations so far.
    """

    def __init__(self, rules: RuleSet, substitutions: Mapping[Var, Var] | None = None) -> None:
        self.rules = rules
        self.substitutions = substitutions or {}
        self.program: Sequence[Array] = ()
        self.grid: Sequence[int] = ()
        self.axes: Mapping[str, Array] = {}
        self.threads: Any = None  # of `batched_interpreter.mosaic_rules`
        self.rows: Array | None = None
        self.most_iterations, self.longest_loop = math.inf, 0
        self.given_up: set[int] = set()
        # By the jaxpr's id, with the jaxpr itself to keep that id in use.
        self._compiled: dict[int, tuple[Jaxpr, CompiledJaxpr]] = {}

    def compile(self, jaxpr: Jaxpr, *, consts_as_arguments: bool = False) -> "CompiledJaxpr":
        """Prepares a jaxpr, open or closed, for evaluation. Its constants may become its first arguments."""
        if id(jaxpr) not in self._compiled:
            self._compiled[id(jaxpr)] = jaxpr, CompiledJaxpr(self, jaxpr, consts_as_arguments)
        return self._compiled[id(jaxpr)][1]

    def compiled(self) -> Iterator[tuple[Jaxpr, "CompiledJaxpr"]]:
        """Yields the jaxprs that it has prepared so far."""
        yield from self._compiled.values()

    def gives_up(self) -> bool:
        """Returns whether all the rows that are evaluated are given up."""
        return bool(self.given_up) and self.rows is not None and self.given_up.issuperset(self.rows.tolist())

    def rows_of(self, values: Sequence[Value]) -> int:
        """The number of rows that some values have together, or will have."""
        return max(rows_of(values), 1 if self.rows is None else len(self.rows))


# From a machine and an equation to the function that evaluates the equation.
Rule = Callable[[Machine, Equation], EquationFunction]


class CompiledJaxpr:
    """A jaxpr with the functions that evaluate its equations."""

    def __init__(self, machine: Machine, jaxpr: Jaxpr, consts_as_arguments: bool) -> None:
        consts = [] if consts_as_arguments or not isinstance(jaxpr, ClosedJaxpr) else list(jaxpr.consts)
        jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
        if not consts_as_arguments and len(consts) != len(jaxpr.constvars):
            raise UnknownError("constants without values")
        self._rules = machine.rules
        self._slots: dict[Var, int] = {}
        self._initial: list[Value] = []  # the content of the slots before a call
        for variable, const in zip(jaxpr.constvars, consts, strict=False):
            self._slot(variable, self._rules.constant(const))
        self._inputs = [self._slot(v) for v in (*(jaxpr.constvars if consts_as_arguments else ()), *jaxpr.invars)]
        self._steps: list[tuple[EquationFunction, list[int], list[int]]] = []
        for function, reads, defines in self._rules.steps(machine, jaxpr):
            self._steps.append((function, [self._slot(v) for v in reads], [self._slot(v) for v in defines]))
            for variable in defines if machine.substitutions else ():
                if variable in machine.substitutions:
                    self._slots[variable] = self._slots[machine.substitutions[variable]]
        self._outputs = [self._slot(variable) for variable in jaxpr.outvars]

    def _slot(self, variable: Atom, value: Value = None) -> int:
        if hasattr(variable, "val"):
            self._initial.append(self._rules.constant(variable.val, getattr(variable.aval, "dtype", None)))
            return len(self._initial) - 1
        if variable not in self._slots:
            self._slots[variable] = len(self._initial)
            self._initial.append(value)
        return self._slots[variable]

    def replace_step(
        self, number: int, make: Callable[[EquationFunction], EquationFunction], more: Sequence[Var]
    ) -> Callable[[], None]:
        """Replaces the function of a step, by its number, and returns a function that restores it.

        `make` makes the new function from the old one. It gets the step's operands, and then those in `more`, further
        variables of the jaxpr.
        """
        old = function, reads, defines = self._steps[number]
        self._steps[number] = make(function), [*reads, *map(self._slot, more)], defines

        def restore() -> None:
            self._steps[number] = old

        return restore

    def __call__(self, arguments: Sequence[Value]) -> list[Value]:
        values = self._initial.copy()
        for slot, argument in zip(self._inputs, arguments, strict=True):
            values[slot] = argument
        for function, inputs, outputs in self._steps:
            results = function([values[i] for i in inputs])
            if len(outputs) == 1:  # the common case, without a loop
                values[outputs[0]] = results[0]
            elif outputs:
                for slot, result in zip(outputs, results, strict=True):
                    values[slot] = result
        return [values[i] for i in self._outputs]


# Rules for control flow, for calls, and for the number of the current program.


def _call(machine: Machine, equation: Equation) -> EquationFunction:
    inner = called_jaxpr(equation)
    if inner is None:
        raise UnknownError("a call without a jaxpr")
    return machine.compile(inner)


def _cond(machine: Machine, equation: Equation) -> EquationFunction:
    branches = [machine.compile(branch) for branch in equation.params["branches"]]
    decisions = machine.rules.decisions

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        index, *rest = operands
        keys = np.clip(decisions(index).astype(np.int64), 0, len(branches) - 1)
        if len(keys) == 1:
            return branches[int(keys[0])](rest)
        return run_by_group(machine, keys, rest, lambda key, part: branches[int(key)](part))

    return evaluate


def _while(machine: Machine, equation: Equation) -> EquationFunction:
    params = equation.params
    count = params["cond_nconsts"]
    start = count + params["body_nconsts"]
    condition, body = machine.compile(params["cond_jaxpr"]), machine.compile(params["body_jaxpr"])
    decisions, leave = machine.rules.decisions, partial(machine.rules.leave_loop, equation)

    def evaluate(operands: Sequence[Value], first: int = 0) -> Sequence[Value]:
        carried = list(operands[start:])
        for iteration in itertools.count(first):
            machine.longest_loop = max(machine.longest_loop, iteration)
            if iteration > machine.most_iterations:
                if machine.rows is None:
                    raise UnknownError("a loop without end")
                machine.given_up.update(machine.rows.tolist())
            if machine.gives_up():
                return carried
            going = decisions(condition([*operands[:count], *carried])[0])
            if len(going) > 1 and going.any() and not going.all():
                whole = [*operands[:start], *carried]
                leave(iteration)
                return run_by_group(machine, going, whole, partial(evaluate_group, iteration))
            if not going.any():
                leave(iteration)
                return carried
            carried = body([*operands[count:start], *carried])
        raise AssertionError

    def evaluate_group(first: int, goes_on: bool, operands: Sequence[Value]) -> Sequence[Value]:
        return evaluate(operands, first) if goes_on else operands[start:]

    return evaluate


def _scan(machine: Machine, equation: Equation) -> EquationFunction:
    params = equation.params
    body, length = machine.compile(params["jaxpr"]), params["length"]
    fixed, carry = scan_counts(params)
    order = range(length)[::-1] if params["reverse"] else range(length)
    avals, item, stack = [v.aval for v in equation.outvars[carry:]], machine.rules.item, machine.rules.stack

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        consts, carried, xs = operands[:fixed], list(operands[fixed : fixed + carry]), operands[fixed + carry :]
        stacked: list[list[Value]] = []
        for i in order:
            results = body([*consts, *carried, *(item(x, i) for x in xs)])
            carried = results[:carry]
            stacked.append(results[carry:])
        if params["reverse"]:
            stacked.reverse()
        return [*carried, *(stack([results[k] for results in stacked], aval) for k, aval in enumerate(avals))]

    return evaluate


def _run_scoped(machine: Machine, equation: Equation) -> EquationFunction:
    inner = equation.params["jaxpr"]
    body = machine.compile(inner, consts_as_arguments=True)
    fresh = [scoped_memory(machine.rules, v.aval) for v in inner.invars]
    is_shared = bool(equation.params.get("collective_axes"))
    if is_shared and not machine.rules.promotes:
        raise UnknownError("memory that programs share")

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        rows = machine.rows_of(operands)

        def make_all() -> list[BatchedRef]:
            return [make(rows) for make in fresh]

        shares = is_shared and machine.threads is not None
        return body([*operands, *(machine.threads.shared(equation, make_all) if shares else make_all())])

    return evaluate


def _run_state(machine: Machine, equation: Equation) -> EquationFunction:
    inner, is_given = equation.params["jaxpr"], equation.params["is_initialized"]
    body, fresh = machine.compile(inner), [scoped_memory(machine.rules, v.aval) for v in inner.invars]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        rows, given = machine.rows_of(operands), iter(operands)
        choices = zip(is_given, fresh, strict=True)
        memory = [_initialized(next(given), rows) if known else make(rows) for known, make in choices]
        body(memory)
        return [reference.array for reference in memory]

    return evaluate


# Memory that a body changes; a reference is memory of what is around it.
def _initialized(value: Value, rows: int) -> BatchedRef:
    return value if isinstance(value, BatchedRef) else BatchedRef(copy_rows(value, rows))


def call_python(machine: Machine, equation: Equation) -> EquationFunction:
    """Calls back into Python, for a single row only, since a callback may change state."""
    callback, dtypes = equation.params["callback"], [machine.rules.dtype_of(v.aval) for v in equation.outvars]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        if not is_uniform(operands):
            raise UnknownError("a callback with several rows")
        results = call_back(callback, [x[0].copy() for x in operands])  # it may keep its arguments, and write to them
        return [np.array(result, dtype)[None] for result, dtype in zip(results, dtypes, strict=True)]

    return evaluate


_CONTROL: Mapping[str, Rule] = {
    "program_id": lambda machine, e: lambda _: (machine.program[e.params["axis"]],),
    "num_programs": lambda machine, e: lambda _: (np.array([machine.grid[e.params["axis"]]], np.int32),),
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "run_scoped": _run_scoped,
    "run_state": _run_state,
    **{primitive.name: _call for primitive in PRIMITIVES.values() if primitive.kind is Kind.CALL},
}


def control_rule(machine: Machine, equation: Equation) -> EquationFunction:
    """The rule for a call, a loop, a branch, or the number of the current program; UnknownError for anything else."""
    name = equation.primitive.name
    if name not in _CONTROL:
        raise UnknownError(name)
    return _CONTROL[name](machine, equation)
