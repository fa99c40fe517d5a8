"""The group of invariants: other ways to call a kernel, whose results are known. A registry that users extend.

An invariant is a generator. It takes a case with its plain call (`InvariantContext`) and yields variations of the call
with their expected outputs.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import jax
import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.core.details import Stated
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import DeclarationError, Failure
from kerneltest.core.fingerprint import Fingerprint, NotReusableError
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.batching import Prepare, checked_executable, is_trusted, outcome_if_pass, unchecked_executable
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_context import ExpectedOutputs, InvariantContext, OutputCheck, Outputs, Variation
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.output_comparison import BIT_FOR_BIT, CallOutputs, format_tolerance, judge_outputs
from kerneltest.execute.two_questions import VariationQuestions
from kerneltest.execute.verdict_key import failure_fingerprint, function_fingerprint, value_fingerprint
from kerneltest.judge.mismatch_evidence import output_dims
from kerneltest.oracle.evaluation import expect
from kerneltest.plan import DEPTHS
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import Family
from kerneltest.plan.families import normal as normal_values
from kerneltest.plan.production_sizes import (
    part_arguments,
    part_output,
    position_along_dims,
    position_coded_arrays,
    required_part,
)
from kerneltest.plan.signatures import Signature, order_by_variety, signatures
from kerneltest.records.journal import Phase
from kerneltest.records.schema import FormulaAnswer
from kerneltest.trace.jaxpr_digest import RULES
from kerneltest.trace.partial_arrays import format_element
from kerneltest.trace.tracing import trace
from kerneltest.trace.virtual_arrays import axis_indices

_SIGNATURES = {"quick": 1, "standard": 2, "deep": 6}  # few, since every variation costs a compilation

Vary = Callable[[InvariantContext], Iterator[Variation]]
Condition = Callable[[Pairing, Signature], bool]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A named way to vary calls.

    Attributes:
      family: the family of its cases.
      vary: the generator of variations.
      applies: whether a signature of a pairing can be varied in this way.
      rewrites: whether it rewrites the traced function, so that only backends that run this function unchanged use it.
      once: whether it has one case for each pairing and dtype, rather than one for each of several signatures.
      every_order: whether it takes as many signatures as it needs for each of two dims to be twice the longer one; if
        its depth has too few, also those of deeper ones.
      follows: whether what it runs follows from the kernel's jaxpr, unless that has rules of its own for derivatives or
        batches.
    """

    family: Family
    vary: Vary
    applies: Condition
    rewrites: bool
    once: bool
    follows: bool = False
    every_order: bool = False

    @property
    def is_built_in(self) -> bool:
        """True if the generator is kerneltest's own."""
        return self.vary.__module__.startswith("kerneltest.")

    def applies_to(self, backend: Backend) -> bool:
        """Returns whether cases of this invariant run on a backend."""
        return backend.tier.gives_values and (backend.runs_jaxpr or not self.rewrites)


INVARIANTS: dict[str, Invariant] = {}


def invariant(
    *,
    applies: Condition = lambda pairing, signature: True,
    rewrites: bool = False,
    once: bool = False,
    follows: bool = False,
    every_order: bool = False,
) -> Callable[[Vary], Vary]:
    """Registers a generator `(asked) -> variations` as an invariant; in a `conftest.py`, for every suite.

        @kt.invariant(applies=lambda pairing, signature: pairing.name == "normalised")
        def scaled(asked):
            \"\"\"Twice the input gives the same result.\"\"\"
            leaves = tuple(2 * leaf for leaf in asked.leaves)
            yield kt.Variation(asked.traced, leaves, (kt.OutputCheck("with twice the input", asked.by_oracle()),))

    Its name is the family of its cases in ids and records, and its docstring is shown in reports. If it raises an
    exception, the case ends as a `runtime_error`, or with the verdict of a `Failure`.

    Args:
      applies: whether a signature of a pairing can be varied in this way; by default every one.
      rewrites: whether it traces something other than calls of the kernel, such as a rewritten jaxpr. Then only
        backends that run the traced function unchanged use it.
      once: one case for each pairing and dtype, rather than one for each of several signatures.
      every_order: as many signatures as it takes for each of two dims to be twice the longer one, and for each static
        option to occur twice; those of deeper plans too, if the run's own are too few.
      follows: for kerneltest's own, whose verdicts are reused: what it runs follows from the kernel's jaxpr, unless
        that has rules of its own for derivatives or batches.

    Raises:
      ValueError: another module has registered the name.
    """

    def register(vary: Vary) -> Vary:
        name = vary.__name__
        known = INVARIANTS.get(name)
        if known is not None and known.vary.__module__ != vary.__module__:
            raise ValueError(f"invariant: the name {name!r} is taken by {known.vary.__module__}")
        family = Family(name, GroupName.INVARIANTS, normal_values, lambda slot: slot.is_float_data, False, True)
        INVARIANTS[name] = Invariant(family, vary, applies, rewrites, once, follows, every_order)
        return vary

    return register


def _signatures(item: Item, invariant: Invariant, depth: str) -> list[Signature]:
    """Returns the signatures of a depth to which an invariant applies, without empty dims."""
    own = (s for s in signatures(item.pairing, depth) if s.dtype == item.dtype and all(n for _, n in s.dims))
    return [signature for signature in own if invariant.applies(item.pairing, signature)]


def _deeper_signatures(item: Item, invariant: Invariant) -> Iterator[Signature]:
    for depth in DEPTHS[DEPTHS.index(item.depth) + 1 :]:
        yield from _signatures(item, invariant, depth)


class InvariantGroup(Group):
    """The group of the invariants."""

    name = GroupName.INVARIANTS

    def cases(self, item: Item) -> Iterator[AnyCase]:
        """Yields cases of each invariant for the most telling signatures to which it applies, without empty dims."""
        for each in INVARIANTS.values():
            if each.applies_to(item.backend):
                telling, others = order_by_variety(item.pairing, _signatures(item, each, item.depth))
                count = 1 if each.once else _SIGNATURES[item.depth]
                if each.every_order and telling:  # without, no deeper signatures are computed
                    known = {*telling, *others}
                    others += (other for other in _deeper_signatures(item, each) if other not in known)
                again, rest = order_by_variety(item.pairing, others)
                if each.every_order:
                    count = max(count, len(telling) + len(again))
                for signature in [*telling, *again, *rest][:count]:
                    yield Case(item.pairing_id, item.pairing.name, signature, each.family, "", item.seed)

    def fingerprint(self, item: Item, case: AnyCase, cache: Cache) -> Fingerprint:
        """Returns the fingerprint of the plain call and of the functions that the invariant traces in addition."""
        invariant, pairing = INVARIANTS[case.family.name], item.pairing
        if not invariant.is_built_in:
            raise NotReusableError(f"the verdicts of the invariant {case.family.name} are not reused")
        plain = value_fingerprint(pairing, case, item.backend, cache)
        try:
            traced = cache.trace_for(pairing, case.signature, item.backend)
            if invariant.rewrites or (invariant.follows and RULES not in function_fingerprint(traced, cache).omits):
                return plain
            expectation, _ = cache.expect(pairing, case, traced)
            arguments = cache.arguments(pairing, case)
            asked = InvariantContext(pairing, case, item.backend, traced, arguments, expectation, cache, item.seed)
            variations = tuple(invariant.vary(asked))
        except Failure as failure:
            return Fingerprint.of(plain, failure_fingerprint(failure))
        return Fingerprint.of(plain, *(function_fingerprint(variation.traced, cache) for variation in variations))

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        traced = cache.trace_for(item.pairing, case.signature, item.backend)
        expectation, _ = cache.expect(item.pairing, case, traced)
        arguments = cache.arguments(item.pairing, case)
        asked = InvariantContext(item.pairing, case, item.backend, traced, arguments, expectation, cache, item.seed)

        def judge(prepare: Prepare, *, with_evidence: bool = True) -> Outcome:
            answers: list[FormulaAnswer] = []
            claims = _run_variations(INVARIANTS[case.family.name], asked, prepare, answers)
            outcome = judge_outputs(item, case, arguments, claims, cache, with_evidence=with_evidence)
            return replace(outcome, record=replace(outcome.record, formula=next(iter(answers), None)))

        def judge_on_fast_path() -> Outcome:
            checked_executable(item, case, cache, traced, expectation)
            return judge(functools.partial(unchecked_executable, item.backend, cache), with_evidence=False)

        if outcome := outcome_if_pass(judge_on_fast_path):
            return outcome
        if not is_trusted(item.backend, cache, traced):
            cache.executable(item.backend, traced)  # if the plain call does not compile, this is the failure to report
        return judge(functools.partial(cache.executable, item.backend))


def _run_variations(
    invariant: Invariant, asked: InvariantContext, prepare: Prepare, answers: list[FormulaAnswer]
) -> Iterator[CallOutputs]:
    """Runs each variation of a call, and yields its outputs with their expected values.

    Args:
      invariant: which makes the variations.
      asked: the plain call.
      prepare: returns the executable of a variation.
      answers: gets the answers about their formulas.
    """
    for variation in tuple(invariant.vary(asked)):
        with _excuse_transformation(variation.transformation):
            executable = prepare(variation.traced)
            asked.cache.enter_phase(Phase.RUNNING)
            outputs = executable.run(variation.leaves)
        for share in variation.shares:
            part = share.take(outputs)
            wanted = share.wanted(part, executable.precision)
            _check_shapes(share, part, wanted)
            claim = CallOutputs(
                part,
                wanted.values,
                wanted.bounds,
                wanted.bitwise or asked.pairing.signed_zeros,
                BIT_FOR_BIT if wanted.bitwise else format_tolerance(asked.pairing.tolerance, wanted.note),
                share.label,
                share.gradient_of,
                wanted.asked,
                wanted.others,
                wanted.budget,
            )
            yield from VariationQuestions(asked, variation, share, answers).judge(claim, executable.precision)


_NOT_RUN = frozenset({Verdict.COMPILE_ERROR, Verdict.UNIMPLEMENTED, Verdict.RUNTIME_ERROR})


@contextmanager
def _excuse_transformation(transformation: str) -> Iterator[None]:
    """Converts a failure to run what one of JAX's transformations made: the kernel itself was prepared before."""
    try:
        yield
    except Failure as failure:
        if not transformation or failure.verdict not in _NOT_RUN:
            raise
        reason = (
            f"JAX {jax.__version__} cannot run this under {transformation}, which is not the kernel's fault: {failure}"
        )
        raise Failure(Verdict.UNAVAILABLE, reason) from failure


def _check_shapes(share: OutputCheck, part: Outputs, wanted: ExpectedOutputs) -> None:
    outputs, values, bounds = ([np.shape(each) for each in arrays] for arrays in (part, wanted.values, wanted.bounds))
    if outputs != values or outputs != bounds:
        raise DeclarationError(
            f"the check {share.label!r} has outputs of shapes {outputs}, expected values of shapes {values} and bounds "
            f"of shapes {bounds}, which must be equal"
        )


# A check of `needs=` and `batch_dims=`: the inputs on which they say an output element depends must be all of them.

_CHECKED = 5  # elements of each output
_ROUNDING = 1e-9  # relative difference in float64, since an oracle sums a part in another order


def find_derived_axis(pairing: Pairing, dtype: str, depth: str, outputs: Sequence[ShapeDtype]) -> str:
    """Returns an axis of an output whose length varies and is not a dim, as `axis 0 of output 1`; "" if there is none.

    Args:
      pairing, dtype, depth: determine the planned signatures.
      outputs: shapes of the outputs at production sizes.
    """
    short = trace(pairing, next(each for each in signatures(pairing, depth) if each.dtype == dtype)).outputs
    for number, (one, other) in enumerate(zip(short, outputs, strict=True)):
        for axis, name in enumerate(output_dims(pairing, number, depth)):
            if not name and one.shape[axis] != other.shape[axis]:
                return f"axis {axis} of output {number}"
    return ""


@functools.lru_cache(maxsize=256)
def check_needs(pairing: Pairing, dtype: str, depth: str) -> None:
    """Checks that the oracle gives the same values for parts of its inputs as for whole ones, for a planned signature.

    Raises:
      Failure: `oracle_error`; names the element and both values.
    """
    planned = [each for each in signatures(pairing, depth) if each.dtype == dtype]
    signature = max(planned, key=lambda each: min((n for _, n in each.dims), default=0))
    outputs, inputs = trace(pairing, signature).outputs, position_coded_arrays(pairing, signature)
    everything = required_part(pairing, signature, {})
    whole = expect(pairing, signature, part_arguments(pairing, everything, inputs), outputs, bitwise=True).values
    for number, values in enumerate(whole):
        names = output_dims(pairing, number, depth)
        for offset in np.unique(np.linspace(0, values.size - 1, _CHECKED).astype(np.int64)) if values.size else ():
            index = [int(i) for i in axis_indices(offset, values.shape)]
            part = required_part(pairing, signature, position_along_dims(names, index))
            shapes = tuple(part_output(part, each, output_dims(pairing, i, depth)) for i, each in enumerate(outputs))
            arguments = part_arguments(pairing, part, inputs)
            in_part = expect(pairing, part.signature, arguments, shapes, bitwise=True).values[number]
            value = in_part[tuple(i - part.start.get(name, 0) for i, name in zip(index, names, strict=True))]
            if not np.isclose(values[tuple(index)], value, rtol=_ROUNDING, atol=0, equal_nan=True):
                detail = Stated(
                    "output {output}{element} needs more than batch_dims= and needs= say of {dims}: the oracle gives "
                    "{whole} for the whole input, and {part} for the part ({signature})",
                    {
                        "output": number,
                        "element": format_element(values.shape, int(offset)),
                        "dims": ", ".join(pairing.needs),
                        "whole": str(values[tuple(index)]),
                        "part": str(value),
                        "signature": str(signature),
                    },
                )
                raise Failure(Verdict.ORACLE_ERROR, detail)
