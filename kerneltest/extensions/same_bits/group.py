"""The group of claims about bits: one case for each claim of `invariant_to=` and signature."""

import functools
from collections.abc import Iterator
from dataclasses import replace

from kerneltest.backends.base import Backend
from kerneltest.core.failures import Failure
from kerneltest.core.fingerprint import Fingerprint, NotReusableError
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariants import trace_gradient
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.planning import register_group
from kerneltest.execute.verdict_key import failure_fingerprint, function_fingerprint
from kerneltest.extensions.same_bits.certificate import Refuted, certify
from kerneltest.extensions.same_bits.ways import CLAIMS, Call, chosen, reverse_programs
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import Family, marker_family
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.journal import Phase
from kerneltest.trace.tracing import Traced


class SameBitsGroup(Group):
    """Claims about bits. A jaxpr decides on them, so interpreters stand for every backend that runs it."""

    name = GroupName.BITS
    shows_inputs = False  # until `judge` finds some

    def applies_to(self, backend: Backend) -> bool:
        return backend.tier is Tier.INTERPRET

    def cases(self, item: Item) -> Iterator[AnyCase]:
        planned = [each for each in signatures(item.pairing, item.depth) if each.dtype == item.dtype]
        for family, claim in CLAIMS.items():
            for signature in chosen(claim, item.pairing, planned, item.depth) if claim.made_by(item.pairing) else ():
                yield item.case(signature, marker_family(family, self.name))

    def find_family(self, name: str) -> Family | None:
        return marker_family(name, self.name) if name in CLAIMS else None

    def fingerprint(self, item: Item, case: AnyCase, cache: Cache) -> Fingerprint:
        try:
            questions = CLAIMS[case.family.name].questions(call := _call(item, case, cache), case.signature)
            traces = [t for q in questions for t in (call.trace(q.signature), *(way.traced for way in q.ways))]
            return Fingerprint.of(tuple(function_fingerprint(traced, cache) for traced in traces))
        except Failure as failure:
            return failure_fingerprint(failure)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """Passes a claim that expressions certify; values whose bits differ have their own signature."""
        cache.process.enter_phase(Phase.RUNNING)
        found = certify(item, case, _call(item, case, cache))
        if isinstance(found, Refuted):
            record = item.record(Verdict.NONDETERMINISTIC, found.detail, case=replace(case, signature=found.signature))
            return Outcome(replace(record, case=case.id), found.arguments)
        try:
            words = f"{found.words}; kernel {self.fingerprint(item, case, cache).text}"
        except NotReusableError as error:
            raise Failure(Verdict.UNAVAILABLE, f"not certified: code that the jaxpr does not show ({error})") from None
        return Outcome(item.record(Verdict.PASS, words, case=case, compared=found.compared))


# What the ways of a case call: the kernel, or its gradient, of which the invariants of gradients have the same traces.
def _call(item: Item, case: AnyCase, cache: Cache) -> Call:
    def kernel(signature: Signature) -> Traced:
        return cache.traces.of(item.pairing, signature, item.backend)

    def gradient(signature: Signature) -> Traced:
        plain = kernel(signature)
        pull_back = functools.partial(trace_gradient, item.pairing, signature, plain)
        return cache.traces.variation(plain, signature, "gradient", pull_back)

    def backwards(signature: Signature) -> Traced:
        plain, make = kernel(signature), functools.partial(reverse_programs, called(signature))
        return cache.traces.variation(plain, signature, f"{called.__name__} backwards", make)

    called = gradient if (is_gradient := CLAIMS[case.family.name].of_gradient) else kernel
    return Call(item.pairing, kernel, called, backwards, is_gradient)


register_group(SameBitsGroup(), order=65)
