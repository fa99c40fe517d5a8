"""Mutants of a kernel: the places in its jaxpr where operators apply, and the jaxpr with one of them applied.

A mutant is like one edit of the source. It changes all equations of one primitive from one place in the source, in any
signature, so that it is the same mutant at all lengths.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from jax.extend.core import jaxpr_as_fun

from kerneltest.backends.base import Agree, Executable, Inputs
from kerneltest.backends.interpret import Interpret, evaluate
from kerneltest.backends.jitted import NumpyExecutable, NumpyPath
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Tracer
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.localize.edits import EquationChange
from kerneltest.localize.operators import Operator
from kerneltest.localize.sites import LocatedJaxpr, Site, locate_equations
from kerneltest.plan.signatures import Signature
from kerneltest.trace.jax_compat.jaxprs import ClosedJaxpr
from kerneltest.trace.tracing import Traced, analyze


@dataclass(frozen=True, slots=True, order=True)
class KernelMutant:
    """A kernel with one change."""

    # file, line, column: the place of the code that is changed; lines count from 1
    file: str
    line: int
    column: int
    operator: str
    primitive: str  # the primitive of the equations that are changed
    phrase: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


def find_mutants(jaxpr: ClosedJaxpr, operators: Collection[Operator]) -> Iterator[KernelMutant]:
    """Yields the mutants of a jaxpr with located equations, in the order of its equations, some more than once."""
    for site in LocatedJaxpr(jaxpr).sites():
        for operator in operators:
            for change in _changes(operator, site):
                yield KernelMutant(*_place(site), operator.name, site.name, change.phrase)


def apply_mutant(jaxpr: ClosedJaxpr, mutant: KernelMutant) -> ClosedJaxpr | None:
    """Returns a jaxpr with the mutant's change, None if it has none of its equations; raises what making it raises."""
    operator = OPERATORS.get(mutant.operator)
    assert operator is not None
    place = mutant.file, mutant.line, mutant.column
    return LocatedJaxpr(jaxpr).change(
        lambda site: site.name == mutant.primitive and bool(site.frames) and _place(site) == place,
        partial(_changes, operator),
        mutant.phrase,
    )


def _changes(operator: Operator, site: Site) -> Iterator[EquationChange]:
    # Several arrays of a call may have the same change; the phrase stands for the last one.
    assert operator.plant is not None
    yield from {change.phrase: change for change in operator.plant(site)}.values()


def _place(site: Site) -> tuple[str, int, int]:
    # One edit of the source changes what a helper computes, whoever calls it: only the innermost frame counts.
    location, column = site.frames[0]
    file, _, line = location.rpartition(":")
    return file, int(line), column


# A tracer that gives a mutant in place of the kernel, and a backend that evaluates it without a compiler.


@dataclass(slots=True)
class LocatedTraces(Tracer):
    """Traces of a kernel with located equations, from which all of its mutants are made."""

    plain: dict[tuple[Signature, str], Traced] = field(default_factory=dict)
    # those in float64, by signature; None for a signature without one
    wide: dict[tuple[Signature, str], Traced | None] = field(default_factory=dict)

    def trace(self, pairing: Pairing, signature: Signature, platform: str) -> Traced:
        key = signature, platform
        if key not in self.plain:
            traced = Tracer.trace(self, pairing, signature, platform)
            self.plain[key] = _located(traced)
        return self.plain[key]

    def trace_wide(self, pairing: Pairing, signature: Signature, own: Traced, platform: str) -> Traced | None:
        key = signature, platform
        if key not in self.wide:
            traced = Tracer.trace_wide(self, pairing, signature, own, platform)
            self.wide[key] = traced and _located(traced)
        return self.wide[key]

    def trace_variation(self, plain: Traced, make: Callable[[], Traced]) -> Traced:
        return _located(make())


@dataclass(slots=True)
class MutantTracer(Tracer):
    """Gives the traces of one mutant."""

    originals: LocatedTraces  # the kernel's own traces
    mutant: KernelMutant  # the mutant to apply to them
    changed: dict[Traced, Traced] = field(default_factory=dict)  # the traces that differ from the kernel's, with those
    problem: str = ""  # why the mutant could not be made for some signature; "" if it could

    def trace(self, pairing: Pairing, signature: Signature, platform: str) -> Traced:
        original = self.originals.trace(pairing, signature, platform)
        return self._mutated_or(original, original)

    def trace_wide(self, pairing: Pairing, signature: Signature, own: Traced, platform: str) -> Traced | None:
        wide = self.originals.trace_wide(pairing, signature, self.changed.get(own, own), platform)
        if wide is None or own not in self.changed:
            return wide
        return self._mutate(wide)

    def trace_variation(self, plain: Traced, make: Callable[[], Traced]) -> Traced:
        traced = make()
        if plain in self.changed:
            return traced  # it was made from the mutant
        return self._mutated_or(traced, self.originals.trace_variation(plain, lambda: traced))

    def _mutated_or(self, original: Traced, located: Traced) -> Traced:
        mutated = self._mutate(located)
        if mutated is None:
            return original
        self.changed[mutated] = original
        return mutated

    def _mutate(self, traced: Traced) -> Traced | None:
        try:
            jaxpr = apply_mutant(traced.jaxpr, self.mutant)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
            return None
        return None if jaxpr is None else mutate_trace(traced, jaxpr)


def _located(traced: Traced) -> Traced:
    return replace(mutate_trace(traced, locate_equations(traced.jaxpr)), function=traced.function)


def mutate_trace(traced: Traced, jaxpr: ClosedJaxpr) -> Traced:
    """Returns a trace with another jaxpr; its calls keep the languages that the kernel's have."""
    mutated = analyze(jaxpr, jaxpr_as_fun(jaxpr), traced.inputs)
    pairs = zip(mutated.calls, traced.calls, strict=True)
    calls = tuple(replace(new, dialect=old.dialect, evidence=old.evidence) for new, old in pairs)
    return replace(mutated, calls=calls, by_platform=traced.by_platform, eager=traced.eager)


class _UncheckedPath(NumpyPath):
    """Evaluations whose results are final, for a mutant and for the kernel that it is compared with."""

    def prepare_checked(self, traced: Traced, inputs: Inputs, agree: Agree) -> NumpyExecutable | None:
        return self.prepare_unchecked(traced)

    def is_trusted(self, traced: Traced) -> bool:
        return True


class EvaluatedInterpret(Interpret):
    """Pallas' interpreter, evaluated in NumPy wherever that is possible, also for wrong results."""

    def prepare(self, traced: Traced) -> Executable:
        try:
            evaluation = evaluate(traced)
        except Failure:
            raise
        except Exception:  # an operation that only JAX's own interpreter has
            evaluation = None
        return super().prepare(traced) if evaluation is None else evaluation

    def fast_path(self, compiled: Callable[[Traced], Executable], count: Callable[[], None]) -> NumpyPath:
        return _UncheckedPath(evaluate, compiled, count)
