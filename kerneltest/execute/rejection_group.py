"""The group of declared rejections: a call that must raise is traced and prepared, but never run."""

from collections.abc import Iterator
from dataclasses import replace

from kerneltest.backends.base import Backend
from kerneltest.core.details import Stated
from kerneltest.core.failures import Failure, format_exception
from kerneltest.core.group_names import GroupName
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.arguments import Argument, ArrayArgument, Optional, Static
from kerneltest.declare.pairing import Pairing
from kerneltest.declare.rejects import Rejection
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.verdict_digests import digest_function, digest_texts
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import marker_family
from kerneltest.plan.signatures import Signature, signature_dtypes, signatures
from kerneltest.records.journal import Phase
from kerneltest.trace.tracing import trace


class RejectionGroup(Group):
    """The group of calls that a kernel must reject."""

    name = GroupName.REJECTIONS

    def applies_to(self, backend: Backend) -> bool:
        return True

    def cases(self, item: Item) -> Iterator[AnyCase]:
        """Returns one case for each rejection, in the first dtype of the pairing."""
        pairing = item.pairing
        if pairing.rejects and item.dtype == signature_dtypes(pairing, item.depth)[0]:
            base = next(each for each in signatures(pairing, item.depth) if each.dtype == item.dtype)
            for rejection in pairing.rejects:
                family = marker_family(f"rejects_{rejection.name}", self.name)
                signature = _rejected_signature(pairing, base, rejection)
                yield Case(item.pairing_id, pairing.name, signature, family, "", item.seed)

    def arguments(self, item: Item, case: AnyCase, cache: Cache) -> None:
        return None

    def case_digest(self, item: Item, case: AnyCase, cache: Cache) -> str:
        (rejection,) = _rejections(item, case)
        cache.enter_phase(Phase.TRACING)
        try:
            rejected = trace(_with_rejected_arguments(item.pairing, rejection), case.signature, item.backend.platform)
        except Failure as failure:
            return digest_texts(("rejected", format_exception(failure.__cause__ or failure)))
        return digest_function(rejected, cache).text

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """Passes a case if tracing or preparing the call raises the declared exception.

        Raises:
          Failure: `runtime_error` for another exception, `xpass` for none.
        """
        pairing = item.pairing
        (rejection,) = _rejections(item, case)
        try:
            item.backend.prepare(
                trace(_with_rejected_arguments(pairing, rejection), case.signature, item.backend.platform)
            )
        except Failure as raised:
            if rejection.matches(raised):
                return Outcome(item.record(Verdict.PASS, case=case, compared=1))
            cause = raised.__cause__ or raised
            detail = Stated(
                "expected {expected}, got {error}", {"expected": rejection.expected, "error": format_exception(cause)}
            )
            raise Failure(Verdict.RUNTIME_ERROR, detail) from raised
        raise Failure(
            Verdict.XPASS, Stated("expected {expected}, but nothing was raised", {"expected": rejection.expected})
        )


def _rejections(item: Item, case: AnyCase) -> list[Rejection]:
    return [each for each in item.pairing.rejects if f"rejects_{each.name}" == case.family.name]


def _with_rejected_arguments(pairing: Pairing, rejection: Rejection) -> Pairing:
    """Returns the pairing with the arguments of a rejection."""
    changed: dict[str, Argument] = {}
    for name, value in rejection.arguments.items():
        if not isinstance(value, ArrayArgument):
            changed[name] = Static(((str(value), value),), named=False)
        else:
            changed[name] = Optional(value) if name in pairing.optionals else value
    return replace(pairing, arguments={**pairing.arguments, **changed}, rejects=())


def _rejected_signature(pairing: Pairing, base: Signature, rejection: Rejection) -> Signature:
    """Returns a signature with the lengths, dtypes and static arguments of a rejection."""
    leaves = _with_rejected_arguments(pairing, rejection).leaves
    names = dict(base.dtypes)
    return replace(
        base,
        dims=tuple((name, rejection.dims.get(name, length)) for name, length in base.dims),
        dtypes=tuple(
            (path, leaf.dtypes[0] if path in rejection.arguments else names[path])
            for path, leaf in leaves.items()
            if path in rejection.arguments or path in names
        ),
        statics=tuple(
            (name, option if name in pairing.optionals else str(rejection.arguments.get(name, option)))
            for name, option in base.statics
        ),
    )
