"""The invariants: other ways to call a kernel, whose results are known. A registry that users extend.

An invariant is a generator. It is asked about a case and its plain call, and yields variations (`run.asked`).
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import BIT_FOR_BIT, Claim, judge_claims, noted
from kerneltest.execute.fast_path import Prepare, checked_executable, is_trusted, keep_pass, unchecked_executable
from kerneltest.execute.invariant_context import ExpectedOutputs, InvariantContext, OutputCheck, Outputs, Variation
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import Family
from kerneltest.plan.families import normal as normal_values
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.journal import Phase

_SIGNATURES = {"quick": 1, "standard": 2, "deep": 6}  # every variation is a compilation

Vary = Callable[[InvariantContext], Iterator[Variation]]
Condition = Callable[[Pairing, Signature], bool]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A named way to vary calls.

    Attributes:
      family: under which its cases are recorded.
      vary: from what is asked to variations.
      applies: whether a signature of a pairing can be varied so.
      rewrites: it rewrites the traced function, so it is asked only of backends that run that function as it is.
      once: it is asked once a pairing and dtype, and not on several signatures.
    """

    family: Family
    vary: Vary
    applies: Condition
    rewrites: bool
    once: bool

    def is_asked_of(self, backend: Backend) -> bool:
        """Whether it says something there that the backend does not say by itself."""
        return backend.tier.gives_values and (backend.runs_jaxpr or not self.rewrites)


INVARIANTS: dict[str, Invariant] = {}


def invariant(
    *, applies: Condition = lambda pairing, signature: True, rewrites: bool = False, once: bool = False
) -> Callable[[Vary], Vary]:
    """Registers a generator `(asked) -> variations` as an invariant; in a `conftest.py`, to hold every suite to it.

        @kt.invariant(applies=lambda pairing, signature: pairing.name == "normalised")
        def scaled(asked):
            \"\"\"Twice the input gives the same result.\"\"\"
            leaves = tuple(2 * leaf for leaf in asked.leaves)
            yield kt.Variation(asked.traced, leaves, (kt.Share("with twice the input", asked.by_oracle()),))

    Its name is the family under which its cases are recorded, and its docstring is shown in reports. What it raises
    ends its case as a `runtime_error`, or with the verdict of a `Failure`.

    Args:
      applies: whether a signature of a pairing can be varied so; by default every one.
      rewrites: whether it traces something other than calls of the kernel, such as a rewritten jaxpr, so that only
        backends which run the traced function as it is are asked.
      once: whether it is asked once a pairing and dtype, and not on several signatures.

    Raises:
      ValueError: another module has registered the name.
    """

    def register(vary: Vary) -> Vary:
        name = vary.__name__
        known = INVARIANTS.get(name)
        if known is not None and known.vary.__module__ != vary.__module__:
            raise ValueError(f"invariant: the name {name!r} is taken by {known.vary.__module__}")
        family = Family(name, InvariantGroup.name, normal_values, lambda slot: slot.is_float_data, False, True)
        INVARIANTS[name] = Invariant(family, vary, applies, rewrites, once)
        return vary

    return register


class InvariantGroup(Group):
    """The group of the invariants."""

    name = "invariants"

    def cases(self, item: Item) -> Iterator[AnyCase]:
        """Each invariant on the first few signatures it applies to."""
        mine = [s for s in signatures(item.pairing, item.depth) if s.dtype == item.dtype and all(n for _, n in s.dims)]
        for each in INVARIANTS.values():
            if each.is_asked_of(item.backend):
                fitting = [signature for signature in mine if each.applies(item.pairing, signature)]
                for signature in fitting[: 1 if each.once else _SIGNATURES[item.depth]]:
                    yield Case(item.pairing_id, item.pairing.name, signature, each.family, "", item.seed)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        traced = cache.trace_for(item.pairing, case.signature, item.backend)
        expectation, _ = cache.expect(item.pairing, case, traced)
        arguments = cache.arguments(item.pairing, case)
        asked = InvariantContext(item.pairing, case, item.backend, traced, arguments, expectation, cache, item.seed)

        def judged(prepare: Prepare, *, explained: bool = True) -> Outcome:
            claims = _claims(INVARIANTS[case.family.name], asked, prepare)
            return judge_claims(item, case, arguments, claims, cache, explained=explained)

        def on_fast_path() -> Outcome:
            checked_executable(item, case, cache, traced, expectation)
            return judged(functools.partial(unchecked_executable, item.backend, cache), explained=False)

        if outcome := keep_pass(on_fast_path):
            return outcome
        if not is_trusted(item.backend, cache, traced):
            cache.executable(item.backend, traced)  # that a plain call fails is told once: others tell nothing new
        return judged(functools.partial(cache.executable, item.backend))


def _claims(invariant: Invariant, asked: InvariantContext, prepare: Prepare) -> Iterator[Claim]:
    for variation in tuple(invariant.vary(asked)):
        executable = prepare(variation.traced)
        asked.cache.enter_phase(Phase.RUNNING)
        outputs = executable.run(variation.leaves)
        for share in variation.shares:
            taken = share.take(outputs)
            wanted = share.wanted(taken, executable.precision)
            _check_shapes(share, taken, wanted)
            yield Claim(
                taken,
                wanted.values,
                wanted.bounds,
                wanted.bitwise or asked.pairing.signed_zeros,
                BIT_FOR_BIT if wanted.bitwise else noted(asked.pairing.tolerance, wanted.note),
                share.label,
                share.gradient_of,
                wanted.asked,
                wanted.others,
                wanted.budget,
            )


def _check_shapes(share: OutputCheck, taken: Outputs, wanted: ExpectedOutputs) -> None:
    shapes = [[np.shape(each) for each in arrays] for arrays in (taken, wanted.values, wanted.bounds)]
    if shapes[0] != shapes[1] or shapes[0] != shapes[2]:
        raise ValueError(
            f"the share {share.label!r} has outputs of shapes {shapes[0]}, wanted values of {shapes[1]} and bounds of "
            f"{shapes[2]}"
        )
