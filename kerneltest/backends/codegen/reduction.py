"""Reduction of a kernel to the smallest part that still does not lower, as a script of plain Pallas."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import jax

from kerneltest.backends.codegen.tiers import lower_call
from kerneltest.core.details import Detail, NotBuilt, ResourceExceeded
from kerneltest.core.failures import Failure, exception_text, format_exception
from kerneltest.core.targets import Target
from kerneltest.core.work_budget import LOWERED, WorkBudget
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.jax_compat.source_lines import equations_being_lowered, line_of_nested
from kerneltest.trace.jaxpr_source import NoSourceError, Variable, lowering_script
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.walk import JaxprBody, JaxprStep, inline_jaxpr, is_literal, iter_steps, primitive_name


@dataclass(frozen=True, slots=True)
class ReducedProgram:
    """A part of a kernel that fails by itself."""

    # Python that imports only JAX and Pallas and needs no GPU. It exits with JAX's error and code 1 while the part does
    # not lower, and with 0 once it does.
    script: str
    equations: int  # the number of the kernel's equations that are left
    total: int  # the number of equations in the kernel, at any depth
    line: str  # FILE:LINE of the user's source for the one that fails, or ""


def reduce_program(traced: Traced, target: Target, failure: Failure, budget: WorkBudget) -> ReducedProgram | None:
    """Returns the smallest part of a kernel that does not lower, as Pallas; None if none is found."""
    found = _failing_call(traced, target, failure)
    if found is None:
        return None
    call, error = found
    path = equations_being_lowered(error)
    if not path:
        return None
    kernel = inline_jaxpr(call.equation.params["jaxpr"])
    search = _ReductionSearch(target, call.grid, _Kind.of(error), budget)
    part = next((part for part in _starts(kernel, path) if search.fails(part)), None)
    if part is None:
        return None
    part = search.drop_steps(part)
    text = _header(error, target) + search.script(part, search.shorten_axes(part))
    return ReducedProgram(text, _size(part), _size(kernel.steps), line_of_nested(path))


Part = tuple[JaxprStep, ...]


# Returns the first Pallas call that does not lower and JAX's exception, if that is the cause of `failure`.
def _failing_call(traced: Traced, target: Target, failure: Failure) -> tuple[Call, BaseException] | None:
    if "mosaic_gpu" in traced.dialects:
        return None
    for call in traced.calls:
        try:
            lower_call(call, target)
        except Failure as again:
            is_same = again.verdict is failure.verdict and _error_of(again.detail) == _error_of(failure.detail)
            return (call, again.__cause__) if is_same and again.__cause__ is not None else None
    return None


def _error_of(detail: Detail) -> tuple[object, ...]:
    if isinstance(detail, NotBuilt):
        return NotBuilt, detail.error, detail.primitive, _words(detail.said)
    if isinstance(detail, ResourceExceeded):
        return ResourceExceeded, detail.resource, _words(detail.said)
    return (detail,)


_LONGEST = 1000  # characters of an error that are compared


# Returns the words of JAX's error, without numbers, quoted names, shapes, brackets, and the dump after it.
def _words(text: str) -> frozenset[str]:
    said = re.sub(r'"[^"]*"|(?<=<)(?:\d+x)+', "", "\n".join(text.splitlines()[:2])[:_LONGEST])
    brackets = 1
    while brackets:
        said, brackets = re.subn(r"\([^()]*\)", "", said)
    return frozenset(re.findall(r"[A-Za-z]\w*", said))


# The properties of an error to preserve: its class, its words, and the primitive that was being lowered.
@dataclass(frozen=True, slots=True)
class _Kind:
    error: type[BaseException]
    words: frozenset[str]
    primitive: str

    @classmethod
    def of(cls, error: BaseException) -> "_Kind":
        path = equations_being_lowered(error)
        return cls(type(error), _words(exception_text(error)), primitive_name(path[-1]) if path else "")


# Yields parts of a kernel that may fail by themselves. First the failing equation with more and more of the steps that
# it depends on, then the same for the loop or conditional around it, and so on. A lowering rule may lower equations of
# its own, so the failing equation is the last one of `path` that belongs to the kernel.
def _starts(body: JaxprBody, path: Sequence[Equation]) -> Iterator[Part]:
    places = (_enclosing_steps(body, equation) for equation in reversed(path))
    for steps, at in next(filter(None, places), []):
        yield from _slices(steps, at)


# Returns the steps and the index in them of an equation, then of each equation around it, from the inside out.
def _enclosing_steps(body: JaxprBody, failing: Equation) -> list[tuple[Part, int]]:
    for at, step in enumerate(body.steps):
        if step.equation is failing:
            return [(body.steps, at)]
        for inner in step.bodies:
            if found := _enclosing_steps(inner, failing):
                return [*found, (body.steps, at)]
    return []


# Yields a step, then that with the steps that define its operands, then with those that define theirs, ...
def _slices(steps: Part, at: int) -> Iterator[Part]:
    source = {result: i for i, step in enumerate(steps) for result in step.results if result is not None}
    chosen, new = {at}, {at}
    while new:
        yield tuple(steps[i] for i in sorted(chosen))
        new = {source[v] for i in new for v in steps[i].operands if not is_literal(v) and v in source} - chosen
        chosen |= new


# Tries parts of a kernel, each as the script that users would get.
@dataclass(frozen=True, slots=True)
class _ReductionSearch:
    target: Target
    grid: tuple[int, ...]
    kind: _Kind
    budget: WorkBudget

    def script(self, part: Part, lengths: Mapping[int, int]) -> str:
        return lowering_script(part, self.target, self.grid, lengths)

    def fails(self, part: Part, lengths: Mapping[int, int] = MappingProxyType({})) -> bool:
        """Checks whether a part fails with the kernel's error; never once the budget is spent."""
        if self.budget.is_over():
            return False
        self.budget.spend(LOWERED)
        try:
            exec(compile(self.script(part, lengths), "<cut>", "exec"), {"__name__": "__main__"})
        except NoSourceError:
            return False
        except Exception as error:
            return _Kind.of(error) == self.kind
        return False

    def drop_steps(self, part: Part) -> Part:
        """Returns a part without the steps, at any depth, that the error does not need."""
        count = _size(part) // 2
        while count:
            steps = list(iter_steps(part))
            for start in range(0, len(steps), count):
                dropped = steps[start : start + count]
                smaller = next(filter(self.fails, _drop(part, dropped)), None)
                if smaller is not None:
                    part = smaller
                    break
            else:
                count //= 2
        return part

    def shorten_axes(self, part: Part) -> dict[int, int]:
        """Returns a replacement for each length of an axis: the least with which the part fails, each used once."""
        lengths = {length: length for length in sorted(_lengths(part))}
        for length in lengths:
            others = (other for other in (2, 3, 4, 8, 16, 32, 64) if other < length and other not in lengths.values())
            shorter = (other for other in others if self.fails(part, {**lengths, length: other}))
            lengths[length] = next(shorter, length)
        return lengths


def _size(steps: Part) -> int:
    return sum(1 for _ in iter_steps(steps))


# Yields a part without some steps: their results become inputs, or an operand of a single one takes its place.
def _drop(part: Part, dropped: Sequence[JaxprStep]) -> Iterator[Part]:
    smaller = _remove(part, {id(step) for step in dropped}, {})
    if smaller:
        yield smaller
    results = [result for step in dropped for result in step.results if result is not None]
    if len(dropped) == len(results) == 1:
        (result,) = results
        same_type = [v for v in dropped[0].operands if v.aval.str_short() == result.aval.str_short()]
        yield from (_remove(part, {id(dropped[0])}, {result: v}) for v in same_type)


def _remove(steps: Part, dropped: Collection[int], instead: Mapping[Variable, Variable]) -> Part:
    def read(values: Sequence[Variable]) -> tuple[Variable, ...]:
        return tuple(v if is_literal(v) else instead.get(v, v) for v in values)

    return tuple(
        replace(
            step,
            operands=read(step.operands),
            bodies=tuple(
                replace(body, steps=_remove(body.steps, dropped, instead), results=read(body.results))
                for body in step.bodies
            ),
        )
        for step in steps
        if id(step) not in dropped
    )


def _lengths(part: Part) -> set[int]:
    variables = (v for step in iter_steps(part) for v in (*step.operands, *step.results) if v is not None)
    return {n for v in variables for n in getattr(v.aval, "shape", ()) if isinstance(n, int) and n > 1}


def _header(error: BaseException, target: Target) -> str:
    lines = [f"JAX {jax.__version__} does not lower this for {target.id}:"]
    lines += format_exception(error).splitlines()[:2]
    lines += ["It needs no GPU. It exits with that error and code 1, or with 0 once it lowers."]
    return "".join(f"# {ascii(line)[1:-1]}\n" for line in lines)
