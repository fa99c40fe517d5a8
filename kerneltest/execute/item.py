"""Items, groups of families and outcomes, the units of a run, and what declared xfails make of an outcome."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kerneltest.backends.base import Backend
from kerneltest.core.details import Detail, Unavailable
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import escape_surrogates
from kerneltest.core.fingerprint import Fingerprint, NotReusableError
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.outcomes import Xfail
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.settings import RunSettings
from kerneltest.judge.compare import Comparison
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import Family
from kerneltest.plan.signatures import Signature
from kerneltest.records.evidence import Evidence
from kerneltest.records.schema import Record
from kerneltest.trace.tracing import Traced

Place = tuple[str, str, str, str]  # a cell: backend, dtype, group, family


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a case, with its record.

    Attributes:
      arguments: the case's array arguments by path, if it is a finding.
      files: returns the text of an artifact's files, by name.
      comparison: that of the first wrong output; None if no output is wrong.
      wrong_call: the function that gave this output, and its inputs.
      claimed: the outputs of each claim, while a pass is compared with another run.
    """

    record: Record
    arguments: Mapping[str, Array] | None = None
    files: Callable[[], Mapping[str, str]] = dict
    comparison: Comparison | None = None
    wrong_call: tuple[Traced, Sequence[Array]] | None = None
    claimed: Sequence[tuple[Array, ...]] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One group of a pytest item: a pairing on a backend, in a dtype, with a group of families.

    Attributes:
      name: the node id of the pytest item, which runs all groups.
      pairing: the pairing as declared for the backend.
      lowered: the signatures that a backend of the lowering tier is planned to report on, if the run has one.
      arbiter: for an interpreter, a planned backend that simulates the lowered code, if the run has one.
    """

    name: str
    pairing: Pairing
    pairing_id: str
    backend: Backend
    dtype: str
    group: "Group"
    settings: RunSettings
    lowered: Sequence[Signature] = field(default=(), compare=False, repr=False)
    arbiter: Backend | None = field(default=None, compare=False, repr=False)

    def place(self, case: AnyCase) -> Place:
        """Returns the cell of a case."""
        return self.backend.id, self.dtype, self.group.name, case.family.name

    @property
    def depth(self) -> str:
        """The run's depth, which decides the signatures."""
        return self.settings.depth

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.settings.seed

    def cases(self) -> Iterator[AnyCase]:
        """Returns the cases, in the order in which they run."""
        return self.group.cases(self)

    def case(self, signature: Signature, family: Family) -> Case:
        """Returns the case of a signature that a family fills."""
        return Case(self.pairing_id, self.pairing.name, signature, family, "", self.seed)

    def cases_at(self, planned: Iterable[Signature], family: Family) -> Iterator[AnyCase]:
        """Yields the cases of the signatures in the item's dtype that a family fills."""
        return (self.case(signature, family) for signature in planned if signature.dtype == self.dtype)

    def families(self) -> Mapping[str, int]:
        """Returns the number of cases of each family."""
        return self.group.families(self)

    def record(
        self,
        verdict: Verdict,
        detail: Detail | str = "",
        *,
        case: AnyCase | None = None,
        family: str = "",
        compared: int = 0,
    ) -> Record:
        """Returns a record of a case, or of a family as a whole, in which so many elements or objects were compared.

        The detail is a failure's, or a remark in words; of `unavailable`, it is the reason.
        """
        if isinstance(detail, str) and verdict is Verdict.UNAVAILABLE:
            detail = Unavailable(detail)
        return Record(
            item=self.name,
            pairing=self.pairing_id,
            backend=self.backend.id,
            tier=self.backend.tier,
            dtype=self.dtype,
            group=self.group.name,
            family=case.family.name if case else family,
            signature=str(case.signature) if case else "*",
            dims=dict(case.signature.dims) if case else {},
            dtypes=dict(case.signature.dtypes) if case else {},
            statics=case.signature.static_values(self.pairing) if case else {},
            target=case.target if case else "",
            case=case.id if case else "",
            verdict=verdict,
            message=detail if isinstance(detail, str) else escape_surrogates(detail.text()),
            detail=None if isinstance(detail, str) else detail,
            evidence=Evidence() if case and verdict.is_finding else None,
            compared=compared,
        )


class Group(ABC):
    """A group of families, which plans cases and judges them."""

    name: str  # the group's name in ids and reports: a `GroupName`, or that of a registered group
    shows_inputs = True  # whether a finding shows the inputs of its case

    def find_family(self, name: str) -> Family | None:
        """Returns the group's own family of a name; None if `plan.families` has it."""
        return None

    def problem(self, items: Sequence[Item]) -> str:
        """Returns a warning if this run cannot do what its options ask of this group, or "".

        The items are those selected to run, of all groups.
        """
        return ""

    def applies_to(self, backend: Backend) -> bool:
        """Returns whether a backend runs cases of this group."""
        return backend.tier.gives_values

    @abstractmethod
    def cases(self, item: Item) -> Iterator[AnyCase]:
        """Returns the cases of an item, in the order in which they run."""

    def families(self, item: Item) -> Mapping[str, int]:
        """Returns the number of cases of each family."""
        return dict(Counter(case.family.name for case in self.cases(item)))

    def ids(self, item: Item) -> Mapping[str, Sequence[str]]:
        """Returns the ids of each family's cases; {} if they are known only during the run."""
        ids: dict[str, list[str]] = {}
        for case in self.cases(item):
            ids.setdefault(case.family.name, []).append(case.id)
        return ids

    def arguments(self, item: Item, case: AnyCase, cache: Cache) -> Mapping[str, Array] | None:
        """Returns the inputs to show with a finding; None if there are none."""
        return cache.expectations.arguments(item.pairing, case) if self.shows_inputs else None

    def prepare(self, item: Item, planned: Sequence[AnyCase], cache: Cache) -> None:
        """Starts slow work, such as compilations, before the first case."""
        return

    def fingerprint(self, item: Item, case: AnyCase, cache: Cache) -> Fingerprint:
        """Returns the fingerprint of all that a verdict follows from; by default, the NotReusableError of none."""
        raise NotReusableError(f"the verdicts of the group {self.name} are not reused")

    @abstractmethod
    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """Runs one case and compares its outputs; Failure: it could not be compared."""

    def outcomes(
        self, item: Item, planned: Sequence[AnyCase], cache: Cache, judge_case: Callable[[AnyCase], Outcome]
    ) -> Iterator[Outcome]:
        """Yields the outcome of each case; `judge_case` is `judge` with declared xfails and failures applied."""
        self.prepare(item, planned, cache)
        yield from map(judge_case, planned)


# Declared xfails, applied to planned cells, to single cases, and to all cases of a family.


def unmatched_xfails(declared: Iterable[Xfail], cells: Iterable[Place]) -> tuple[Xfail, ...]:
    """Returns the xfails whose backend is planned but which match no planned cell."""
    cells = list(cells)
    return tuple(
        xfail
        for xfail in declared
        if any(fnmatchcase(backend, xfail.backend) for backend, *_ in cells)
        and not any(xfail.covers(*cell, xfail.signature) for cell in cells)
    )


def quarantine_reason(item: Item, case: AnyCase) -> str:
    """Returns the reason not to run a case, if an xfail declares that it crashes or hangs; "" if none does."""
    for xfail in item.pairing.xfail:
        if xfail.verdict in (Verdict.CRASH, Verdict.HANG) and xfail.covers(*item.place(case), str(case.signature)):
            return f"Not run: an xfail declares {xfail.verdict}. {xfail.reason} ({xfail.url})"
    return ""


def apply_xfails(declared: Iterable[Xfail], verdict: Verdict, place: Place, signature: str) -> tuple[Verdict, str]:
    """Returns a case's verdict after xfails are applied, and a sentence to add to its message (or "")."""
    covering = [xfail for xfail in declared if xfail.covers(*place, signature)]
    if not (covering and verdict.is_finding):
        return verdict, ""
    for xfail in covering:
        if verdict == xfail.verdict:
            return Verdict.XFAIL, f"Declared: {xfail.reason} ({xfail.url})"
    expected = " or ".join(dict.fromkeys(xfail.verdict for xfail in covering))
    return verdict, f"An xfail declares {expected} here, but the verdict is {verdict}."


def obsolete_xfails(
    declared: Iterable[Xfail],
    verdicts: Mapping[str, Sequence[tuple[str, Verdict]]],
    backend: str,
    dtype: str,
    group: str,
) -> dict[str, str]:
    """Returns each family with strict xfails that are obsolete there, and the reason: all cases that they cover pass.

    One failing case is enough for it to hold, since a failure may depend on the values. An xfail that names a group of
    families holds if any of them shows the failure.
    `verdicts` are the signature and verdict of every case of the group, by family.
    """
    reasons: dict[str, list[str]] = {}
    for xfail in declared:
        if not xfail.strict:
            continue
        covered = {
            family: [v for signature, v in cases if xfail.covers(backend, dtype, group, family, signature)]
            for family, cases in verdicts.items()
        }
        covered = {family: found for family, found in covered.items() if found}
        if xfail.group and covered:
            covered = {next(iter(covered)): [verdict for found in covered.values() for verdict in found]}
        for family, found in covered.items():
            if set(found) == {Verdict.PASS}:
                passed = f"An xfail declares {xfail.verdict} here, but all {len(found)} cases pass"
                reason = f"{passed}: remove or narrow it. Declared: {xfail.reason} ({xfail.url})"
                reasons.setdefault(family, []).append(reason)
    return {family: "\n".join(lines) for family, lines in reasons.items()}
