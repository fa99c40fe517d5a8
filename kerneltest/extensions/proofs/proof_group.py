"""The group that proves kernels at all sizes: one case for each choice of dtypes and static arguments.

The rest of the room is imported only by a run that proves.
"""

from collections.abc import Iterator
from dataclasses import replace

from kerneltest.backends.base import Backend
from kerneltest.core.failures import Failure
from kerneltest.core.ids import BackendId
from kerneltest.core.targets import TARGETS, Tier
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.planning import register_group
from kerneltest.extensions.proofs import PROVE
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import marker_family


class ProofGroup(Group):
    """Proofs, one for each signature without lengths."""

    name = GroupName.PROOFS
    shows_inputs = False
    _family = marker_family("proof", name)

    def applies_to(self, backend: Backend) -> bool:
        return backend.tier is Tier.SIMULATE

    def cases(self, item: Item) -> Iterator[AnyCase]:
        if not item.settings.get(PROVE):
            return
        from kerneltest.extensions.proofs.proof_search import choices

        yield from item.cases_at((replace(choice, dims=()) for choice in choices(item.pairing)), self._family)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """Passes a signature whose calls are all proved; raises the Failure of a counterexample or an open call."""
        from kerneltest.extensions.proofs.proof_search import ProofKind, prove_choice
        from kerneltest.extensions.proofs.solver import MISSING, available

        if not available():
            raise Failure(Verdict.UNAVAILABLE, MISSING)
        target = TARGETS[BackendId.parse(item.backend.lowering_backend()).target]
        proofs = prove_choice(item.pairing, case.signature, target)
        for proof in proofs:
            if (found := proof.counterexample) is not None:
                raise Failure(found.verdict, replace(found.detail, kernel=proof.call, others=(found.origin,)))
        for proof in proofs:
            if proof.kind is ProofKind.NOT_DECIDED:
                raise Failure(Verdict.UNAVAILABLE, f"kernel {proof.call}: not decided: {proof.reason}")
        return Outcome(item.record(Verdict.PASS, "\n".join(map(str, proofs)), case=case, compared=len(proofs)))


register_group(ProofGroup(), order=60)
