"""Other ways to call a kernel, whose results are known: the registry of invariants that users extend.

An invariant is a generator. From what it is asked about, a case and its plain call, it makes `Variation`s: a function
traced anew, what goes into it, and what each share of its outputs should be.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.tiers import Tier
from kerneltest.declare.bounds import Precision
from kerneltest.declare.pairing import Pairing
from kerneltest.jaxprs.trace import Traced
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.cases import Case
from kerneltest.plan.drawn import AnyCase
from kerneltest.plan.families import Family
from kerneltest.plan.families import normal as normal_values
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.run.cache import Cache
from kerneltest.run.claims import BIT_FOR_BIT, Claim, judge_claims
from kerneltest.run.item import Group, Item, Outcome

Outputs = tuple[Array, ...]

_SIGNATURES = {"quick": 1, "standard": 2, "deep": 6}  # every variation is a compilation


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a share of outputs should be.

    Attributes:
      values: float64, int64 or bool, an array for each output.
      bounds: how far each element may be off.
      bitwise: whether not a bit may differ, the sign of a zero included.
    """

    values: Outputs
    bounds: Outputs
    bitwise: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a variation's outputs, and what it should be.

    Attributes:
      label: the call that it stands for, in words.
      wanted: what it should be, from the share itself and what its backend does to numbers; `Asked.by_oracle` and
        `Asked.as_plain_call` make these.
      take: the share, from all outputs.
      gradient_of: the leaf that each output is a gradient with respect to.
    """

    label: str
    wanted: Callable[[Outputs, Precision], Wanted]
    take: Callable[[Outputs], Outputs] = lambda outputs: outputs
    gradient_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Variation:
    """Another call of a kernel.

    Attributes:
      traced: the function.
      leaves: its inputs.
      shares: the parts of its outputs.
    """

    traced: Traced
    leaves: tuple[Array, ...]
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What an invariant is asked about.

    Attributes:
      pairing, case, backend: to vary.
      traced: the plain call, traced.
      arguments: the case's array arguments, by path.
      expectation: the oracle's answer for them.
      cache: what the cases of the pairing share.
      seed: of the run.
    """

    pairing: Pairing
    case: AnyCase
    backend: Backend
    traced: Traced
    arguments: Mapping[str, Array]
    expectation: Expectation
    cache: Cache
    seed: int

    @property
    def leaves(self) -> Outputs:
        """The array arguments, in the pairing's order."""
        return tuple(self.arguments[path] for path in self.pairing.leaves)

    def once(self, name: str, make: Callable[[], Traced]) -> Traced:
        """What `make` traces for this signature: compiled once, whatever the values."""
        key = (self.case.signature, name)
        if key not in self.cache.varied:
            self.cache.varied[key] = make()
        return self.cache.varied[key]

    def at(self, signature: Signature) -> Traced:
        """The kernel traced for another signature."""
        return self.cache.traced(self.pairing, signature)

    def by_oracle(self, expectation: Expectation | None = None) -> Callable[[Outputs, Precision], Wanted]:
        """What the oracle says: by default of the case, within its bound."""
        chosen = expectation or self.expectation
        return lambda share, precision: Wanted(chosen.values, chosen.all_bounds(share, precision))

    def as_plain_call(
        self, part: Callable[[Outputs], Outputs] = lambda outputs: outputs
    ) -> Callable[[Outputs, Precision], Wanted]:
        """What the plain call gives, or a part of it: bit for bit on a device, and by the oracle's bound elsewhere.

        Code for a CPU sums in an order that depends on the whole shape, whatever the kernel says.
        """

        def wanted(share: Outputs, precision: Precision) -> Wanted:
            if self.backend.tier is not Tier.DEVICE:
                bounds = self.expectation.all_bounds(self.traced.outputs, precision)
                return Wanted(part(self.expectation.values), part(bounds))
            values = tuple(map(widen, part(self.cache.executable(self.backend, self.traced).run(self.leaves))))
            return Wanted(values, tuple(np.zeros(value.shape) for value in values), bitwise=True)

        return wanted


Vary = Callable[[Asked], Iterator[Variation]]
Condition = Callable[[Pairing, Signature], bool]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A named way to vary calls.

    Attributes:
      family: under which its cases are recorded.
      vary: from what is asked to variations.
      applies: whether a signature of a pairing can be varied so.
      rewrites: it rewrites the traced function, so it is asked only of backends that run that function as it is.
    """

    family: Family
    vary: Vary
    applies: Condition
    rewrites: bool

    def is_asked_of(self, backend: Backend) -> bool:
        """Whether it says something there that the backend does not say by itself."""
        return backend.tier.gives_values and (backend.runs_jaxpr or not self.rewrites)


INVARIANTS: dict[str, Invariant] = {}


def invariant(
    *, applies: Condition = lambda pairing, signature: True, rewrites: bool = False
) -> Callable[[Vary], Vary]:
    """Registers a generator `(asked) -> variations` as an invariant under its own name.

        @kt.invariant(applies=lambda pairing, signature: pairing.name == "normalise")
        def scaled(asked):
            \"\"\"Twice the input gives the same result.\"\"\"
            leaves = tuple(2 * leaf for leaf in asked.leaves)
            yield kt.Variation(asked.traced, leaves, (kt.Share("twice the input", asked.by_oracle()),))

    Args:
      applies: whether a signature of a pairing can be varied so.
      rewrites: whether it traces something else than calls of the kernel, such as a rewritten jaxpr.

    Raises:
      ValueError: another module has registered the name.
    """

    def register(vary: Vary) -> Vary:
        name = vary.__name__
        known = INVARIANTS.get(name)
        if known is not None and known.vary.__module__ != vary.__module__:
            raise ValueError(f"invariant: the name {name!r} is taken by {known.vary.__module__}")
        family = Family(name, Varied.name, normal_values, lambda slot: slot.is_float_data, False, True)
        INVARIANTS[name] = Invariant(family, vary, applies, rewrites)
        return vary

    return register


class Varied(Group):
    """The group of the invariants."""

    name = "invariants"

    def cases(self, item: Item) -> Iterator[AnyCase]:
        """Each invariant on the first few signatures it applies to."""
        mine = [s for s in signatures(item.pairing, item.depth) if s.dtype == item.dtype and all(n for _, n in s.dims)]
        for each in INVARIANTS.values():
            if each.is_asked_of(item.backend):
                fitting = [signature for signature in mine if each.applies(item.pairing, signature)]
                for signature in fitting[: _SIGNATURES[item.depth]]:
                    yield Case(item.pairing_id, item.pairing.name, signature, each.family, "", item.seed)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        traced = cache.traced(item.pairing, case.signature)
        expectation, _ = cache.expected(item.pairing, case, traced)
        arguments = cache.arguments(item.pairing, case)
        asked = Asked(item.pairing, case, item.backend, traced, arguments, expectation, cache, item.seed)
        made = tuple(INVARIANTS[case.family.name].vary(asked))
        return judge_claims(item, case, arguments, _claims(asked, made))


def _claims(asked: Asked, made: tuple[Variation, ...]) -> Iterator[Claim]:
    for variation in made:
        executable = asked.cache.executable(asked.backend, variation.traced)
        outputs = executable.run(variation.leaves)
        for share in variation.shares:
            taken = share.take(outputs)
            wanted = share.wanted(taken, executable.precision)
            yield Claim(
                taken,
                wanted.values,
                wanted.bounds,
                wanted.bitwise or asked.pairing.signed_zeros,
                BIT_FOR_BIT if wanted.bitwise else str(asked.pairing.tolerance),
                share.label,
                share.gradient_of,
            )
