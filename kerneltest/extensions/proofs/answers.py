"""`prove`: what can be said of a kernel at all sizes."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kerneltest.backends.simulate.memory import Fault
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs import domain
from kerneltest.extensions.proofs.claims import TENSOR, Claim, Subject
from kerneltest.extensions.proofs.forms import Form, Forms, forms
from kerneltest.extensions.proofs.replay import replayed
from kerneltest.extensions.proofs.sizes import top
from kerneltest.extensions.proofs.solver import MISSING, Solver, available
from kerneltest.extensions.proofs.steps import lengths
from kerneltest.extensions.proofs.undecided import Undecided
from kerneltest.plan.signatures import Signature, signatures

_SECONDS = 20.0  # to look for a counterexample to one claim
_TURNS = 20_000  # of a loop that a replay goes through


class Kind(StrEnum):
    """The three answers."""

    PROVED = "proved"
    COUNTEREXAMPLE = "counterexample"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True)
class Counterexample:
    """Where a kernel does to memory what it must not, as the simulator saw it.

    Attributes:
      verdict: `out_of_bounds` or `race`.
      sizes: lengths of the dims.
      programs: one, or the two that race, by their ids along x, y and z.
      lane: of the tensor, by axis.
      access: which one, with its source line.
      message: what the simulator says.
    """

    verdict: Verdict
    sizes: Mapping[str, int]
    programs: tuple[tuple[int, ...], ...]
    lane: tuple[int, ...]
    access: str
    message: str

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={length}" for name, length in self.sizes.items())
        who = " and ".join(f"({', '.join(map(str, ids))})" for ids in self.programs)
        lane = f", lane ({', '.join(map(str, self.lane))})" if self.lane else ""
        where = f"at {sizes or 'the only size'}, program {who}{lane}"
        return f"{self.message}\nthe first sizes at which z3 finds it: {where}: {self.access}"


@dataclass(frozen=True)
class Proof:
    """What was said of one Pallas call, with one choice of dtypes and static arguments.

    Attributes:
      kind: the answer.
      call: the kernel function's name.
      signature: the dtypes and static arguments; its lengths do not count.
      conditions: under which it was proved.
      reason: why it is not decided, with the operation that stands in the way.
      counterexample: if there is one.
      seconds: that it took.
    """

    kind: Kind
    call: str
    signature: Signature
    conditions: tuple[str, ...] = ()
    reason: str = ""
    counterexample: Counterexample | None = None
    seconds: float = 0.0

    @property
    def options(self) -> str:
        """The dtypes and the static arguments."""
        return str(replace(self.signature, dims=()))

    def __str__(self) -> str:
        head = f"{self.call} [{self.options}]: {self.kind}"
        if self.kind is Kind.PROVED:
            held = "".join(f"\n  - {condition}" for condition in self.conditions)
            return f"{head} in bounds, without int32 wraps and free of races, in {self.seconds:.1f} s, given that{held}"
        return f"{head}: {self.counterexample or self.reason}".replace("\n", "\n  ")


def prove(pairing: Pairing, *, target: str = "sm_90") -> tuple[Proof, ...]:
    """Proves a kernel's accesses in bounds, its index arithmetic free of wraps and its programs apart, at all sizes.

    Args:
      pairing: whose kernel it is; all its dtypes and static arguments are taken.
      target: a GPU, as in backend ids.

    Returns:
      An answer for each Pallas call, with each choice of dtypes and static arguments.

    Raises:
      ValueError: an unknown target; lists the known ones.
      ModuleNotFoundError: z3 is not installed; says how to.
    """
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; known are {', '.join(TARGETS)}")
    if not available():
        raise ModuleNotFoundError(MISSING)
    return tuple(proof for each in choices(pairing) for proof in prove_choice(pairing, each, TARGETS[target]))


def choices(pairing: Pairing) -> tuple[Signature, ...]:
    """A signature for each choice of dtypes and static arguments that a standard run makes."""
    found: dict[object, Signature] = {}
    for each in signatures(pairing, "standard"):
        found.setdefault((each.dtypes, each.statics), each)
    return tuple(found.values())


def prove_choice(pairing: Pairing, signature: Signature, target: Target) -> tuple[Proof, ...]:
    """The same for one choice."""
    started = time.perf_counter()
    try:
        found = forms(pairing, signature, target)
    except (Undecided, Failure) as reason:
        seconds = time.perf_counter() - started
        return (Proof(Kind.NOT_DECIDED, _name(pairing), signature, reason=str(reason), seconds=seconds),)
    learnt = (time.perf_counter() - started) / max(len(found.calls), 1)
    if not found.calls:
        return (Proof(Kind.NOT_DECIDED, _name(pairing), signature, reason="no Pallas call", seconds=learnt),)
    proofs = []
    for number, call in enumerate(found.calls):
        started = time.perf_counter()
        proof = _Search(pairing, signature, target, found, number).proof(call)
        proofs.append(replace(proof, seconds=learnt + time.perf_counter() - started))
    return tuple(proofs)


def _name(pairing: Pairing) -> str:
    return getattr(pairing.kernel, "__name__", pairing.name)


@dataclass(frozen=True)
class _Search:
    """Looks for proofs of one call's claims, and for counterexamples."""

    pairing: Pairing
    signature: Signature
    target: Target
    found: Forms
    number: int

    def proof(self, call: Sequence[Form]) -> Proof:
        name = next(form.code.name for form in call if form.code is not None)
        reasons = []
        for form in call:
            if form.code is None:
                continue
            try:
                subject = Subject(self.pairing, form, self.found.language, Solver())
                claims = subject.claims()
            except Undecided as reason:
                reasons.append(str(reason))
                continue
            for claim in claims:
                if self._holds(subject, claim):
                    continue
                found = None if subject.depends_on_data(claim) else self._counterexample(subject, claim)
                if found is not None:
                    return Proof(Kind.COUNTEREXAMPLE, name, self.signature, counterexample=found)
                if subject.ask(claim.broken, {}, exact=True).kind != "never":
                    reasons.append(_in_the_way(subject, claim))
        if reasons:
            return Proof(Kind.NOT_DECIDED, name, self.signature, reason=reasons[0])
        return Proof(Kind.PROVED, name, self.signature, conditions=tuple(self._conditions(call)))

    def _holds(self, subject: Subject, claim: Claim) -> bool:
        if claim.holds({}):
            return True
        rows = list(domain.listed(self.pairing))
        return bool(rows) and all(claim.holds(row) for row in rows)

    def _counterexample(self, subject: Subject, claim: Claim) -> Counterexample | None:
        """The first that the simulator confirms."""
        until = time.monotonic() + _SECONDS
        for sizes in domain.examples(self.pairing, subject.form, self.found.language):
            if time.monotonic() > until:
                return None
            if not self.pairing.admits(sizes, dict(self.signature.statics)):
                continue
            answer = subject.ask(claim.broken, sizes)
            if answer.kind != "model" or subject.turns(sizes) > _TURNS:
                continue
            values = subject.values(answer, sizes)
            programs = tuple(values.program(suffix) for suffix in ("", "'")[: len(claim.visits)])
            faults = replayed(
                self.pairing,
                self.signature,
                self.target,
                self.number,
                sizes,
                programs,
                values.loaded(),
                beside=not claim.direct,
            )
            fault = _confirming(claim, faults)
            if fault is not None:
                access = " and ".join(map(str, claim.visits))
                return Counterexample(fault.verdict, dict(sizes), programs, values.lane(), access, fault.message)
        return None

    def _conditions(self, call: Sequence[Form]) -> Iterator[str]:
        made = [form for form in call if form.code is not None]
        count = f"as it had at the {self.found.seen} sizes that were lowered"
        if self.found.refused:
            count += f" ({self.found.refused} more did not lower)"
        yield f"at all sizes the code lowered for {self.target} has {_forms(made, len(call))}, {count}"
        if any(map(_grows, made)):
            yield f"no tensor has more than {TENSOR} elements: Triton refuses those"
        cut = ", ".join(
            f"{name} is declared in blocks of {dim.block}" for name, dim in self.pairing.dims.items() if dim.block
        )
        yield f"dtypes and static arguments are {replace(self.signature, dims=())}" + (f", and {cut}" if cut else "")
        if limits := "; ".join(_limits(self.pairing)):
            yield f"lengths are as declared: {limits}"
        if free := domain.assumption(self.pairing):
            yield free
        for path, leaf in self.pairing.leaves.items():
            if leaf.kind.counts and any(array.leaf == path for form in call if form.code for array in form.code.arrays):
                below = "" if leaf.kind.includes_end else " - 1"
                yield f"elements of {path} are from 0 to {leaf.bound}{below}"
        if self.pairing.where:
            yield f"{', '.join(self.pairing.where.of)} are related as where= says at the sizes that were lowered"


def _forms(made: Sequence[Form], count: int) -> str:
    """Where which forms are, and nothing of one that is everywhere."""
    if count == 1:
        return "one form"
    where = "; ".join(map(str, made))
    none = ", and none elsewhere" if len(made) < count else ""
    return f"{len(made)} form{'s' if len(made) > 1 else ''} ({where}{none})"


def _grows(form: Form) -> bool:
    """Whether a form has a tensor whose length depends on the sizes."""
    assert form.code is not None
    return any(length.constant is None for length in lengths(form.code.body))


def _limits(pairing: Pairing) -> Iterator[str]:
    for name, dim in pairing.dims.items():
        if dim.values:
            yield f"{name} is {' or '.join(map(str, sorted(set(dim.values))))}"
            continue
        greatest = top(dim)
        parts = [f"{name} from {dim.minimum}" + (f" to {greatest}" if greatest is not None else "")]
        if dim.multiple_of > 1:
            parts.append(f"a multiple of {dim.multiple_of}")
        yield ", ".join(parts)


def _confirming(claim: Claim, faults: Sequence[Fault]) -> Fault | None:
    """What the simulator saw that shows a claim to be wrong: where an index wraps, anything."""
    wanted = {claim.verdict} if claim.direct else {Verdict.OUT_OF_BOUNDS, Verdict.RACE}
    return next((fault for fault in faults if fault.verdict in wanted), None)


def _in_the_way(subject: Subject, claim: Claim) -> str:
    """Why a claim is neither proved nor refuted."""
    unknown = subject.unknown(claim)
    if unknown:
        return f"{unknown} stands in the way: whether {claim.says} depends on it"
    return f"z3 does not decide whether {claim.says}"
