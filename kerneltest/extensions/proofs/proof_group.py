"""The group that proves kernels over all sizes: one case for each choice of dtypes and static arguments."""

from collections.abc import Iterator
from dataclasses import replace

from kerneltest.backends.base import Backend
from kerneltest.core.failures import Failure
from kerneltest.core.group_names import PROOFS
from kerneltest.core.targets import TARGETS, Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.group_registry import register_group
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.extensions.proofs import PROVE
from kerneltest.extensions.proofs.answers import Kind, choices, prove_choice
from kerneltest.extensions.proofs.solver import MISSING, available
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import without_values


class Proofs(Group):
    """Signatures without lengths, which stand for all of them."""

    name = PROOFS
    _family = without_values("proof", name)

    def is_asked_of(self, backend: Backend) -> bool:
        return backend.tier is Tier.SIMULATE

    def cases(self, item: Item) -> Iterator[AnyCase]:
        for signature in choices(item.pairing) if item.settings.get(PROVE) else ():
            if signature.dtype == item.dtype:
                every_size = replace(signature, dims=())
                yield Case(item.pairing_id, item.pairing.name, every_size, self._family, "", item.seed)

    def arguments(self, item: Item, case: AnyCase, cache: Cache) -> None:
        return None

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """A pass with all that was proved; an undecided call of several counts for all of them.

        Raises:
          Failure: a counterexample, or why it is not decided.
        """
        if not available():
            raise Failure(Verdict.UNAVAILABLE, MISSING)
        target = TARGETS[item.backend.lowered_by().partition(":")[2]]
        proofs = prove_choice(item.pairing, case.signature, target)
        for proof in proofs:
            if proof.counterexample is not None:
                raise Failure(proof.counterexample.verdict, f"kernel {proof.call}: {proof.counterexample}")
        for proof in proofs:
            if proof.kind is Kind.NOT_DECIDED:
                raise Failure(Verdict.UNAVAILABLE, f"kernel {proof.call}: not decided: {proof.reason}")
        return Outcome(item.record(Verdict.PASS, "\n".join(map(str, proofs)), case=case, compared=len(proofs)))


register_group(Proofs(), order=60)
