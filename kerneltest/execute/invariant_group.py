"""The group of invariants: other ways to call a kernel, whose results are known. A registry that users extend.

An invariant is a generator. It takes a case with its plain call (`CaseContext`) and yields variations of the call
with their expected outputs.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax

from kerneltest.backends.base import Backend, BatchExecutable
from kerneltest.core.failures import DeclarationError, Failure
from kerneltest.core.fingerprint import Fingerprint, NotReusableError
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.arbitration import overrule_interpreter
from kerneltest.execute.batching import Prepare, checked_executable, judge_on_either, unchecked_executable
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import CaseContext, Claim, OutputCheck, Variation, case_context, claims_of, judge_claims
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.verdict_key import failure_fingerprint, function_fingerprint, value_fingerprint
from kerneltest.oracle.expectation import Outputs
from kerneltest.plan import DEPTHS
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import Family
from kerneltest.plan.families import normal as normal_values
from kerneltest.plan.signatures import Signature, order_by_variety, signatures
from kerneltest.records.journal import Phase
from kerneltest.trace.jaxpr_digest import RULES

_SIGNATURES = {"quick": 1, "standard": 2, "deep": 6}  # few, since every variation costs a compilation

Vary = Callable[[CaseContext], Iterator[Variation]]
Condition = Callable[[Pairing, Signature], bool]
OtherCase = Callable[[Pairing, AnyCase, int, Cache], AnyCase]  # of a case of a run with a seed


@dataclass(frozen=True, slots=True)
class Invariant:
    """A named way to vary calls, with the family of its cases; the other attributes are as for `invariant`."""

    family: Family
    vary: Vary
    applies: Condition
    rewrites: bool
    once: bool
    follows: bool = False
    every_order: bool = False
    least: int = 1
    other: OtherCase | None = None
    needs: str = ""

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
    least: int = 1,
    other: OtherCase | None = None,
    needs: str = "what its applies= asks for",
) -> Callable[[Vary], Vary]:
    """Registers a generator `(context) -> variations` as an invariant; in a `conftest.py`, for every suite.

        @kt.invariant(applies=lambda pairing, signature: pairing.name == "normalised")
        def scaled(context):
            \"\"\"Twice the input gives the same result.\"\"\"
            leaves = tuple(2 * leaf for leaf in context.leaves)
            yield kt.Variation(context.traced, leaves, (kt.OutputCheck("with twice the input", context.by_oracle()),))

    Its name is the family of its cases in ids and records, and its docstring is shown in reports. If it raises an
    exception, the case ends as a `runtime_error`, or with the verdict of a `Failure`.

    Args:
      applies: whether a signature of a pairing can be varied in this way; by default every one.
      rewrites: whether it traces something other than calls of the kernel, such as a rewritten jaxpr. Then only
        backends that run the traced function unchanged use it.
      once: one case for each pairing and dtype, rather than one for each of several signatures.
      every_order: as many signatures as it takes for each of two dims to be twice the longer one, and for each static
        option to occur twice; those of deeper plans too, if the run's own are too few.
      least: the number of signatures, if there are so many, though a plan of its depth has fewer; for variations that
        cost no compilation.
      follows: for kerneltest's own, whose verdicts are reused: what it runs follows from the kernel's jaxpr, unless
        that has rules of its own for derivatives or batches.
      other: for kerneltest's own: the case with other values whose expectation it uses besides that of the plain call.
      needs: what signatures to which it does not apply lack, in words.

    Raises:
      ValueError: another module has registered the name.
    """

    def register(vary: Vary) -> Vary:
        name = vary.__name__
        known = INVARIANTS.get(name)
        if known and known.vary.__module__ != vary.__module__:
            raise ValueError(f"invariant: the name {name!r} is taken by {known.vary.__module__}")
        family = Family(name, GroupName.INVARIANTS, normal_values, lambda slot: slot.is_float_data, False, True)
        INVARIANTS[name] = Invariant(family, vary, applies, rewrites, once, follows, every_order, least, other, needs)
        return vary

    return register


# The signatures of an invariant, the most telling ones first: those of a shallower plan, and more.
def _chosen_signatures(item: Item, known: Invariant) -> list[Signature]:
    def added(depth: str) -> list[Signature]:  # by a depth, without empty dims
        shallower = {s for each in DEPTHS[: DEPTHS.index(depth)] for s in signatures(item.pairing, each)}
        own = (s for s in signatures(item.pairing, depth) if s.dtype == item.dtype and all(n for _, n in s.dims))
        return [s for s in own if s not in shallower and known.applies(item.pairing, s)]

    count = 1 if known.once else max(_SIGNATURES[item.depth], known.least)
    telling, others = order_by_variety(item.pairing, added("quick"))
    deeper = DEPTHS[1:] if known.every_order and telling else DEPTHS[1 : DEPTHS.index(item.depth) + 1]
    if known.every_order:
        others += (signature for depth in deeper for signature in added(depth))
    again, rest = order_by_variety(item.pairing, others)
    chosen = [*telling, *again, *rest]
    if known.every_order:
        count = max(count, len(telling) + len(again))
    else:
        chosen += (s for depth in deeper for part in order_by_variety(item.pairing, added(depth)) for s in part)
    return [*dict.fromkeys([*_declared_signatures(item, known), *chosen[:count]])]


# The signatures of the lengths at which the pairing declares that an invariant is asked.
def _declared_signatures(item: Item, known: Invariant) -> Iterator[Signature]:
    pairing, name = item.pairing, known.family.name
    planned = signatures(pairing, "quick")
    for lengths in pairing.invariants.get(name, ()):
        place = f"pairing {pairing.name!r}, invariants: {name}"
        found = [resized for each in planned if (resized := each.resized(pairing, lengths)) is not None]
        admitted = [each for each in found if all(length for _, length in each.dims)]
        if planned and not admitted:
            raise DeclarationError(f"{place}: where= admits no {lengths}")
        chosen = [each for each in admitted if known.applies(pairing, each)]
        if admitted and not chosen:
            raise DeclarationError(f"{place}: it does not apply to {lengths}; it needs {known.needs}")
        yield from [each for each in chosen if each.dtype == item.dtype][:1]


class InvariantGroup(Group):
    """The group of the invariants."""

    name = GroupName.INVARIANTS

    def cases(self, item: Item) -> Iterator[AnyCase]:
        """Yields cases of each invariant for the most telling signatures to which it applies, without empty dims."""
        if unknown := item.pairing.invariants.keys() - INVARIANTS:
            names = f"{', '.join(sorted(unknown))}; there are {', '.join(INVARIANTS)}"
            raise DeclarationError(f"pairing {item.pairing.name!r}, invariants: no invariant is named {names}")
        for known in INVARIANTS.values():
            if not known.applies_to(item.backend):
                continue
            for signature in _chosen_signatures(item, known):
                yield item.case(signature, known.family)

    def fingerprint(self, item: Item, case: AnyCase, cache: Cache) -> Fingerprint:
        """Returns the fingerprint of the plain call, of other values, and of further functions that are traced."""
        invariant, pairing = INVARIANTS[case.family.name], item.pairing
        if not invariant.is_built_in:
            raise NotReusableError(f"the verdicts of the invariant {case.family.name} are not reused")
        plain = value_fingerprint(pairing, case, item.backend, cache)
        try:
            if invariant.other is not None:
                other = invariant.other(pairing, case, item.seed, cache)
                plain = Fingerprint.of(plain, value_fingerprint(pairing, other, item.backend, cache))
            traced = cache.traces.of(pairing, case.signature, item.backend)
            if invariant.rewrites or (invariant.follows and RULES not in function_fingerprint(traced, cache).omits):
                return plain
            variations = tuple(invariant.vary(case_context(item, case, cache)))
        except Failure as failure:
            return Fingerprint.of(plain, failure_fingerprint(failure))
        called = ((function_fingerprint(variation.traced, cache), variation.leaves) for variation in variations)
        return Fingerprint.of(plain, *called)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        context, invariant = case_context(item, case, cache), INVARIANTS[case.family.name]
        ready = functools.partial(cache.executables.ready, item.backend)
        path = cache.executables.fast_path(item.backend)
        unchecked = functools.partial(unchecked_executable, path)

        def judge(prepare: Prepare, *, vary: Vary = invariant.vary, with_evidence: bool = True) -> Outcome:
            claims = _claims(vary, context, prepare, together=not with_evidence)
            passing = item.record(Verdict.PASS, case=case)
            return judge_claims(context, passing, claims, with_evidence=with_evidence)

        def judge_unchecked() -> Outcome:
            return judge(unchecked, with_evidence=False)

        def judge_on_fast_path() -> Outcome:
            checked_executable(context)
            return judge_unchecked()

        def judge_prepared() -> Outcome:
            if path is None or not path.is_trusted(context.traced):
                ready(context.traced)  # if the plain call does not compile, this is what to report
            return judge(ready)

        evaluated = functools.partial(judge, unchecked)
        outcome = judge_on_either(context, judge_on_fast_path, judge_prepared, judge_unchecked, evaluated)
        if not outcome.record.verdict.is_finding:
            return outcome
        if item.arbiter is None or invariant.applies_to(item.arbiter):
            return overrule_interpreter(item, context, outcome, functools.partial(judge, with_evidence=False))
        plain = judge(ready, vary=_as_it_is)
        judge_on = functools.partial(judge, vary=_as_it_is, with_evidence=False)
        if (overruled := overrule_interpreter(item, context, plain, judge_on)) is not plain:
            raise Failure(Verdict.UNAVAILABLE, f"even the plain call is {overruled.record.message}")
        return outcome


# The plain call of a case.
def _as_it_is(context: CaseContext) -> Iterator[Variation]:
    yield Variation(context.traced, context.leaves, (OutputCheck("", context.by_oracle()),))


# Runs each variation of a call on the executable that `prepare` returns, and yields what it claims. Those of one
# function run `together` on the fast path: if any fails there, each runs by itself elsewhere.
def _claims(vary: Vary, context: CaseContext, prepare: Prepare, *, together: bool) -> Iterator[Claim]:
    variations = tuple(vary(context))
    known: dict[int, Outputs] = {}
    for number, variation in enumerate(variations):
        alike = [i for i in range(number, len(variations)) if variations[i].traced is variation.traced]
        with _excuse_transformation(variation.transformation):
            executable = prepare(variation.traced)
            context.cache.process.enter_phase(Phase.RUNNING)
            if number in known:
                outputs = known.pop(number)
            elif together and isinstance(executable, BatchExecutable) and not variation.traced.calls_back():
                outputs, *others = executable.run_batch([variations[i].leaves for i in alike])
                known.update(zip(alike[1:], others, strict=True))
            else:
                outputs = executable.run(variation.leaves)
        yield from claims_of(context, {i: variations[i] for i in alike}, outputs, executable.precision)


_NOT_RUN = frozenset({Verdict.COMPILE_ERROR, Verdict.UNIMPLEMENTED, Verdict.RUNTIME_ERROR})


# Converts a failure to run what one of JAX's transformations made: the kernel itself was prepared before.
@contextmanager
def _excuse_transformation(transformation: str) -> Iterator[None]:
    try:
        yield
    except Failure as failure:
        if not transformation or failure.verdict not in _NOT_RUN:
            raise
        reason = (
            f"JAX {jax.__version__} cannot run this under {transformation}, which is not the kernel's fault: {failure}"
        )
        raise Failure(Verdict.UNAVAILABLE, reason) from failure
