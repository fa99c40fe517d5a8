"""A jaxpr that NumPy evaluates with many edits at once, each in a row of its own.

The jaxpr is compiled once. An edit replaces some of its steps, and only the equations that replace them are compiled.
Inputs have one row, so all edits share what is computed before any of them: a value gets rows where an edit changes
it, and what depends on it is computed for all rows in one operation of NumPy (as mutant schemata do; Untch, Offutt and
Harrold, "Mutation analysis using mutant schemata", 1993).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache as cached

import jax
import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer, is_promotable
from kerneltest.localize.sites import LocatedJaxpr
from kerneltest.trace.batched_interpreter.kernel_rules import KernelRules
from kerneltest.trace.jax_compat.jaxprs import Equation, Var
from kerneltest.trace.machine import BatchedRef, CompiledJaxpr, EquationFunction, Machine, Value
from kerneltest.trace.primitives import Kind, kind_of, primitive_of
from kerneltest.trace.rewrite import interpret_calls
from kerneltest.trace.walk import iter_equations, primitive_name

_MOST_ROWS = 256  # edits that are evaluated at once
_MOST_ELEMENTS = 2**19  # in all rows of the largest value
_FACTOR, _ITERATIONS = 2, 512  # times as many iterations as the longest loop had, and more, that a loop may have
_INTERPRET = interpret_calls(True)


@dataclass(frozen=True, slots=True)
class Replacement:
    """The equations that replace another one."""

    equation: Equation
    equations: Sequence[Equation] | None = None  # they define the same variables; None not to round its results


# An edit of a jaxpr.
Edit = Sequence[Replacement]

# The outputs with an edit, and those without it, which are equal to the last bit where the edit changes nothing: sums
# of many rows may round in another order than those of one.
Compared = tuple[tuple[Array, ...], tuple[Array, ...]]


class EditableRules(KernelRules):
    """The rules of kernels without rounding, for calls as Pallas' interpreter runs them."""

    def __init__(self) -> None:
        super().__init__(promotes=True)
        self._rewritten: dict[int, Equation] = {}

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        is_new = kind_of(equation) is not Kind.KERNEL and id(equation) not in self._rewritten
        if is_new and (equations := _INTERPRET(equation)) is not None:
            self._rewritten.update((id(each), each) for each in equations)
            reads = [v for v in equation.invars if not hasattr(v, "val")]
            evaluate = compile_equations(machine, equations, reads, equation.outvars)
            kept = [number for number, v in enumerate(equation.invars) if not hasattr(v, "val")]
            return lambda operands: evaluate([operands[number] for number in kept])
        return super().rule(machine, equation)

    def unrounded(self, machine: Machine, equation: Equation) -> EquationFunction:
        """The function that evaluates an equation whose results are not rounded, or do not wrap."""
        if is_lossy_cast(equation):
            return lambda operands: operands
        evaluate = EditableRules.rule(self, machine, equation)
        if not wraps(equation):
            return evaluate
        known = primitive_of(equation)
        if known.kind is Kind.ELEMENTWISE and (function := known.numpy) is not None:  # a rule casts to its dtype
            return lambda operands: [function(*(x.astype(np.int64) for x in operands))]
        return lambda operands: evaluate([x.astype(np.int64) for x in operands])


def wraps(equation: Equation) -> bool:
    """Returns whether an equation is a sum or a product of integers in fewer than 64 bits, which may overflow."""
    known = primitive_of(equation)
    if not (known.adds or known.multiplies or known.sums) or known.kind is Kind.PRODUCT:
        return False
    dtypes = [np.dtype(v.aval.dtype) for v in (*equation.invars, *equation.outvars)]
    return all(is_integer(dtype) and dtype.itemsize < 8 for dtype in dtypes)


def is_lossy_cast(equation: Equation) -> bool:
    """Returns whether an equation is a cast that loses something even without rounding: to 8 bits, or by wrapping."""
    if primitive_name(equation) != "convert_element_type":
        return False
    source, dtype = (np.dtype(v.aval.dtype) for v in (equation.invars[0], equation.outvars[0]))
    if is_float(dtype):
        return not is_promotable(dtype)
    return is_integer(source) and is_integer(dtype) and source.itemsize > dtype.itemsize


def compile_equations(
    machine: Machine, equations: Sequence[Equation], reads: Sequence[Var], results: Sequence[Var]
) -> EquationFunction:
    """Returns the function that evaluates equations, from the variables that they read to some that they define."""
    return CompiledJaxpr(machine, _Part(equations, reads, results), False)


@dataclass(frozen=True, slots=True)
class _Part:
    # A part of a jaxpr, as the machine compiles it.
    eqns: Sequence[Equation]
    invars: Sequence[Var]
    outvars: Sequence[Var]
    constvars: Sequence[Var] = ()


@dataclass(frozen=True, slots=True)
class _Step:
    # A step of a compiled jaxpr in an edit.
    jaxpr: CompiledJaxpr
    number: int
    function: EquationFunction  # from the values of `reads`
    reads: Sequence[Var] | None  # None for the operands of the step
    widens: bool  # whether its results have another dtype than those of the step


class EditableJaxpr:
    """A located jaxpr, compiled by some rules, that is evaluated as it is or with edits."""

    def __init__(self, located: LocatedJaxpr, rules: EditableRules) -> None:
        self._rules = rules
        self._machine = Machine(rules)
        self._compiled = self._machine.compile(located.jaxpr)
        values = (v for equation, _ in iter_equations(located.jaxpr) for v in (*equation.invars, *equation.outvars))
        largest = max((math.prod(getattr(v.aval, "shape", ())) for v in values), default=1)
        self._most_rows = min(_MOST_ROWS, max(_MOST_ELEMENTS // max(largest, 1), 1))
        self._places: dict[int, list[tuple[CompiledJaxpr, int]]] = {}
        for jaxpr, compiled in self._machine.compiled():
            for number, equation in enumerate(jaxpr.eqns):
                self._places.setdefault(id(equation), []).append((compiled, number))

    def evaluate(self, leaves: Sequence[Array], edit: Edit = ()) -> tuple[Array, ...]:
        """Returns the outputs, with the equations of an edit replaced."""
        return self._run_steps(leaves, self._steps(edit))

    def _run_steps(self, leaves: Sequence[Array], steps: Sequence[_Step]) -> tuple[Array, ...]:
        with ExitStack() as stack:
            for step in steps:
                stack.callback(step.jaxpr.replace_step(step.number, _alone(step), step.reads or ()))
            return tuple(output[0] for output in self._run(leaves, edited=bool(steps)))

    def evaluate_all(self, leaves: Sequence[Array], edits: Iterable[Callable[[], Edit]]) -> Iterator[Compared | None]:
        """Yields the outputs with each of some edits and without it; None for one that cannot be made, or raises."""
        original = cached(lambda: self.evaluate(leaves))
        pending: list[list[_Step] | None] = []
        for edit in edits:
            try:
                pending.append(self._steps(edit()))
            except Exception:  # an edit may be invalid
                pending.append(None)
            if len(pending) == self._most_rows:
                yield from self._evaluate_rows(leaves, pending, original)
                pending = []
        yield from self._evaluate_rows(leaves, pending, original)

    def _evaluate_rows(
        self, leaves: Sequence[Array], edits: Sequence[list[_Step] | None], original: Callable[[], tuple[Array, ...]]
    ) -> Sequence[Compared | None]:
        found: list[Compared | None] = [None] * len(edits)
        together: list[tuple[int, list[_Step]]] = []
        for number, steps in enumerate(edits):
            # A row of another dtype would have all rows computed in that dtype.
            if steps is not None and (self._most_rows == 1 or any(step.widens for step in steps)):
                with suppress(Exception):  # an edit may be invalid
                    found[number] = self._run_steps(leaves, steps), original()
            elif steps is not None:
                together.append((number, steps))
        for number, outputs in self._evaluate_together(leaves, together):
            found[number] = outputs
        return found

    def _evaluate_together(
        self, leaves: Sequence[Array], edits: Sequence[tuple[int, list[_Step]]]
    ) -> Iterator[tuple[int, Compared]]:
        # Yields the numbers of the edits that do not raise, with their outputs. The first row has no edit.
        if not edits:
            return
        try:
            outputs = self._run_together(leaves, [[], *(steps for _, steps in edits)])
        except Exception:  # rows that cannot be evaluated together, or an edit that raises far from its place
            half = len(edits) // 2
            for part in (edits[:half], edits[half:]) if half else ():
                yield from self._evaluate_together(leaves, part)
            return
        original = tuple(output[0] for output in outputs)
        for row, (number, _) in enumerate(edits, 1):
            if row not in self._machine.given_up:
                yield number, (tuple(output[row if len(output) > 1 else 0] for output in outputs), original)

    def _run_together(self, leaves: Sequence[Array], edits: Sequence[list[_Step]]) -> list[Value]:
        changed: dict[tuple[int, int], list[tuple[int, _Step]]] = {}
        for row, steps in enumerate(edits):
            for step in steps:
                changed.setdefault((id(step.jaxpr), step.number), []).append((row, step))
        with ExitStack() as stack, self._numbered_rows(np.arange(len(edits))):
            for changes in changed.values():
                more = list(dict.fromkeys(v for _, step in changes for v in step.reads or ()))
                replace = _in_rows(self._machine, changes, more)
                stack.callback(changes[0][1].jaxpr.replace_step(changes[0][1].number, replace, more))
            return self._run(leaves)

    @contextmanager
    def _numbered_rows(self, rows: Array) -> Iterator[None]:
        self._machine.rows = rows
        self._machine.given_up.clear()
        try:
            yield
        finally:
            self._machine.rows = None

    def _run(self, leaves: Sequence[Array], *, edited: bool = True) -> list[Value]:
        # A loop of an edited kernel that takes far longer than those of the kernel has no end.
        longest = self._machine.longest_loop
        self._machine.most_iterations = _FACTOR * longest + _ITERATIONS if edited else math.inf
        given = [x.astype(np.float64) if is_promotable(x.dtype) else x for x in leaves]
        try:
            with jax.enable_x64(True), np.errstate(all="ignore"):
                return self._compiled([leaf[None] for leaf in given])
        finally:
            self._machine.longest_loop = longest if edited else self._machine.longest_loop

    def _steps(self, edit: Edit) -> list[_Step]:
        return [step for replacement in edit for step in self._steps_of(replacement)]

    def _steps_of(self, replacement: Replacement) -> Iterator[_Step]:
        equation, equations = replacement.equation, replacement.equations
        places = self._places.get(id(equation), ())
        if not places:
            return
        if equations is None:
            reads, function = None, self._rules.unrounded(self._machine, equation)
        else:
            made = {v for each in equations for v in each.outvars}
            used = (v for each in equations for v in each.invars if not hasattr(v, "val"))
            reads = list(dict.fromkeys(v for v in used if v not in made))
            with jax.enable_x64(True):
                function = compile_equations(self._machine, equations, reads, equation.outvars)
        for jaxpr, number in places:
            yield _Step(
                jaxpr, number, function, reads, equations is None and (is_lossy_cast(equation) or wraps(equation))
            )


def _alone(step: _Step) -> Callable[[EquationFunction], EquationFunction]:
    count = len(step.reads or ())
    return lambda old: lambda operands: step.function(operands[0 if step.reads is None else len(operands) - count :])


def _in_rows(
    machine: Machine, changes: Sequence[tuple[int, _Step]], more: Sequence[Var]
) -> Callable[[EquationFunction], EquationFunction]:
    # A step that runs as it is for all rows, and then again, changed, for those of its edits.
    at = {v: number - len(more) for number, v in enumerate(more)}
    reads = [(row, step.function, step.reads and [at[v] for v in step.reads]) for row, step in changes]

    def make(old: EquationFunction) -> EquationFunction:
        def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
            rows = machine.rows
            assert rows is not None
            number_of = {int(row): number for number, row in enumerate(rows)}
            own = operands[: len(operands) - len(more)]
            here = [(number_of[row], function, numbers) for row, function, numbers in reads if row in number_of]
            memories = {id(x): x.array for x in operands if isinstance(x, BatchedRef) and x.array.flags.writeable}
            before = [(array, array.copy()) for array in memories.values() if here and len(array) == len(rows)]
            results = old(own)
            if here:
                results = [np.array(np.broadcast_to(x, (len(rows), *x.shape[1:]))) for x in results]
            for number, function, numbers in here:
                for array, old_content in before:
                    array[number] = old_content[number]
                used = own if numbers is None else [operands[k] for k in numbers]
                part = [_row(value, number, len(rows)) for value in used]
                machine.rows = rows[number : number + 1]
                try:
                    for whole, some in zip(results, function(part), strict=True):
                        whole[number] = some[0]
                except Exception:
                    machine.given_up.add(int(rows[number]))
                finally:
                    machine.rows = rows
            return results

        return evaluate

    return make


def _row(value: Value, number: int, rows: int) -> Value:
    # A row of a value. Memory that all rows share is read-only.
    array = value.array if isinstance(value, BatchedRef) else value
    part = array[number : number + 1] if len(array) == rows else array[:]
    if isinstance(value, BatchedRef):
        part.flags.writeable = part.flags.writeable and len(array) == rows
        return BatchedRef(part)
    return part
