"""The planned cells of some runs counted by how they ended, as a summary and its badge show them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kerneltest.core.details import Unavailable
from kerneltest.core.group_names import GroupName
from kerneltest.core.verdicts import Ending, Gap, Verdict
from kerneltest.records.overlay import superseded_backends
from kerneltest.records.run_plan import Plan
from kerneltest.records.runs import RunRecords
from kerneltest.records.schema import Record
from kerneltest.triage.attribution import lowering_bugs

_SLOW = 300.0  # seconds
_MOST_SLOW = 3  # pairings that are told
_MOST_FAMILIES = 8  # of a pairing


@dataclass(frozen=True, slots=True)
class Counts:
    """The planned cells (pairing, backend, dtype, family) of some runs by how they ended.

    Attributes:
      passed, xfailed, failed: cells that passed, passed but for declared xfails, have a finding.
      unavailable: cells of backends that were not there, one for each pairing and backend, and of which a budget left
        cases out.
      unasked: cells in which the oracle asks nothing.
      gaps: cells without a verdict for every case, or in which nothing was compared.
      problems: what else is wrong with the bookkeeping.
      not_run: runs that should be there and are not.
      suspects: what is thought to be wrong, in how many things.
    """

    passed: int
    xfailed: int
    failed: int
    unavailable: int
    unasked: int
    gaps: int
    problems: tuple[str, ...]
    not_run: tuple[str, ...]
    suspects: int

    @property
    def planned(self) -> int:
        return self.passed + self.xfailed + self.failed + self.unavailable + self.unasked + self.gaps

    @property
    def complete(self) -> bool:
        return bool(self.planned) and not self.gaps and not self.problems

    @property
    def green(self) -> bool:
        """Whether all that should have been run was, and nothing was found. An absent backend was not run."""
        return self.complete and not self.failed and not self.unavailable and not self.not_run

    def __str__(self) -> str:
        parts = [f"{self.passed} of {self.planned} cells pass"]
        for count, word in (
            (self.xfailed, "xfail"),
            (self.failed, "fail"),
            (self.gaps, "without a verdict"),
            (self.unavailable, "unavailable"),
            (self.unasked, "asked nothing"),
        ):
            parts += [f"{count} {word}"] * bool(count)
        cells = ", ".join([*parts, *(f"{name} not run" for name in self.not_run)])
        return f"{self.suspects} suspect{'s' * (self.suspects > 1)}; {cells}" if self.suspects else cells


def count(runs: Sequence[RunRecords], suspects: int = 0, legs: Sequence[str] = ()) -> Counts:
    """Counts the cells of some runs. One that several runs planned counts in each that served it.

    Args:
      runs: what there is.
      suspects: how many things are thought to be wrong in them.
      legs: names of runs that there should be.
    """
    dropped = superseded_backends(runs)
    endings: Counter[Ending] = Counter(
        status.verdict
        for number, run in enumerate(runs)
        for (pairing, backend, _, _), status in run.reconciled.cells.items()
        if (number, pairing, backend) not in dropped
    )
    there = {run.name for run in runs}
    return Counts(
        passed=endings[Verdict.PASS],
        xfailed=endings[Verdict.XFAIL],
        failed=sum(n for ending, n in endings.items() if isinstance(ending, Verdict) and ending.is_finding),
        unavailable=endings[Verdict.UNAVAILABLE],
        unasked=endings[Gap.NOTHING_ASKED],
        gaps=endings[Gap.MISSING] + endings[Gap.NOTHING_COMPARED],
        problems=tuple(f"{run.name}: {each}" if run.name else each for run in runs for each in run.reconciled.problems),
        not_run=tuple(leg for leg in dict.fromkeys(legs) if leg not in there),
        suspects=suspects,
    )


def gaps(run: RunRecords) -> list[str]:
    """What is wrong with the bookkeeping of a run: its problems, then the cells that lack a verdict."""
    return [*run.reconciled.problems, *(f"no verdict: {' / '.join(cell)}" for cell in run.reconciled.missing)]


def future(plan: Plan) -> str:
    """What to say of a run that began later than now; "" for others. A day is left to clocks that are set wrong."""
    try:
        started = datetime.fromisoformat(plan.started)
        started = started if started.tzinfo else started.replace(tzinfo=UTC)
        ahead = started > datetime.now(UTC) + timedelta(days=1)
    except (ValueError, OverflowError):
        return ""
    return f"the clock of this run was wrong: it began on {started:%Y-%m-%d}, which is in the future" if ahead else ""


def not_applicable(runs: Sequence[RunRecords]) -> list[tuple[str, str]]:
    """Each reason once why backends are not for kernels: the backends, and the reason with how much it leaves out."""
    cases: dict[str, dict[tuple[str, str], int]] = {}
    for run in runs:
        for each in run.plan.not_applicable:
            cases.setdefault(each.reason, {})[each.pairing, each.backend] = each.cases
    lines = []
    for reason, by_place in sorted(cases.items(), key=lambda pair: -sum(pair[1].values())):
        backends = ", ".join(dict.fromkeys(backend for _, backend in by_place))
        pairings = len({pairing for pairing, _ in by_place})
        count = f"{pairings} pairing{'s' * (pairings > 1)}, {sum(by_place.values()):,} cases"
        lines.append((backends, f"{reason} ({count})"))
    return lines


def left_out(run: RunRecords) -> list[str]:
    """What a run left out of its plan to keep to its budget, by pairing and backend."""
    families: dict[tuple[str, str], Counter[str]] = {}
    cases: Counter[tuple[str, str]] = Counter()
    for record in run.records:
        place = record.pairing, record.backend
        cases[place] += bool(record.case)
        if isinstance(record.detail, Unavailable) and record.detail.left_out:
            families.setdefault(place, Counter())[record.family] += 1
    lines = []
    for (pairing, backend), left in families.items():
        named = ", ".join(f"{family} {count}" for family, count in left.most_common(_MOST_FAMILIES))
        more = f" and {len(left) - _MOST_FAMILIES} more families" if len(left) > _MOST_FAMILIES else ""
        lines.append(
            f"{pairing} on {backend}: {left.total()} of {cases[pairing, backend]} cases left out, to keep to "
            f"--kt-budget {run.plan.budget}: {named}{more}"
        )
    return lines


def kept(run: RunRecords) -> list[str]:
    """How many cases an earlier run judged, of which nothing has changed since."""
    judged = [record.reused_from for record in run.records if record.case]
    earlier = [when for when in judged if when]
    if not earlier:
        return []
    return [
        f"{len(earlier):,} of {len(judged):,} cases were judged by earlier runs, the first on {min(earlier)[:10]}, and "
        "nothing they follow from has changed; pytest --cache-clear runs them again"
    ]


def slow(run: RunRecords) -> list[str]:
    """The pairings that took longest on a backend, where that is minutes and the run had no budget."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for record in run.records if not run.plan.budget else ():
        if record.case and not record.reused_from:
            seconds.setdefault((record.pairing, record.backend), []).append(record.seconds)
    slowest = sorted(((sum(each), len(each), place) for place, each in seconds.items()), reverse=True)
    return [
        f"{pairing} on {backend} took {taken:.0f} s ({count} cases at {taken / count:.2g} s); --kt-budget 60 thins it"
        for taken, count, (pairing, backend) in slowest[:_MOST_SLOW]
        if taken > _SLOW
    ]


def hardly_asked(records: Iterable[Record]) -> list[str]:
    """Pairings whose oracle asks nothing of most of what the kernel gives for ordinary values: that hides its bugs."""
    asked: Counter[str] = Counter()
    unasked: Counter[str] = Counter()
    for record in records:
        if record.group in (GroupName.STRUCTURAL, GroupName.NUMERIC):
            asked[record.pairing] += record.defined
            unasked[record.pairing] += record.undefined
    return [
        f"{name}: the oracle asks nothing of {count / (count + asked[name]):.0%} of all elements in ordinary cases; "
        "bugs there stay hidden"
        for name, count in unasked.items()
        if count > asked[name]
    ]


def suspected_lowerings(records: Sequence[Record]) -> list[str]:
    """Where backends disagree such that a lowering is suspected, what most cases show first."""
    return [
        f"suspected lowering bug in {count} case{'s' * (count > 1)}: {suspected.text()}"
        for suspected, count in lowering_bugs(records).most_common()
    ]
