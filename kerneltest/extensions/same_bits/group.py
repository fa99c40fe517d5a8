"""The group of claims about bits: one case for each claim of `invariant_to=` and signature.

The rest of the room is imported only for pairings that make a claim.
"""

from collections.abc import Iterator

from kerneltest.backends.base import Backend
from kerneltest.core.failures import Failure
from kerneltest.core.fingerprint import Fingerprint, NotReusableError
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.planning import register_group
from kerneltest.execute.verdict_key import failure_fingerprint, function_fingerprint
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import marker_family
from kerneltest.plan.signatures import signatures
from kerneltest.records.journal import Phase


class SameBitsGroup(Group):
    """Claims about bits. A jaxpr decides on them, so interpreters stand for every backend that runs it."""

    name = GroupName.BITS

    def applies_to(self, backend: Backend) -> bool:
        return backend.tier is Tier.INTERPRET

    def cases(self, item: Item) -> Iterator[AnyCase]:
        if not item.pairing.invariant_to:
            return
        from kerneltest.extensions.same_bits.ways import CLAIMS, chosen

        planned = [each for each in signatures(item.pairing, item.depth) if each.dtype == item.dtype]
        for family, claim in CLAIMS.items():
            for signature in chosen(claim, item.pairing, planned, item.depth) if claim.made_by(item.pairing) else ():
                yield item.case(signature, marker_family(family, self.name))

    def arguments(self, item: Item, case: AnyCase, cache: Cache) -> None:
        return None

    def fingerprint(self, item: Item, case: AnyCase, cache: Cache) -> Fingerprint:
        from kerneltest.extensions.same_bits.certificate import kernels

        try:
            made = kernels(item, case, lambda signature: cache.traces.of(item.pairing, signature, item.backend))
        except Failure as failure:
            return failure_fingerprint(failure)
        return Fingerprint.of(tuple(function_fingerprint(traced, cache) for traced in made))

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """Passes a claim that expressions certify, with a digest of the kernel at all lengths.

        Raises:
          Failure: values were found whose bits differ, or there is no answer.
        """
        from kerneltest.extensions.same_bits.certificate import certify

        cache.process.enter_phase(Phase.RUNNING)
        found = certify(item, case, lambda signature: cache.traces.of(item.pairing, signature, item.backend))
        try:
            digest = self.fingerprint(item, case, cache).text
        except NotReusableError as error:
            raise Failure(Verdict.UNAVAILABLE, f"not certified: code that the jaxpr does not show ({error})") from None
        words = f"{found.words}; kernel {digest}"
        return Outcome(item.record(Verdict.PASS, words, case=case, compared=found.compared))


register_group(SameBitsGroup(), order=70)
