"""Counts the planned cells of runs by outcome, and lists the remarks that summaries and pages print."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kerneltest.core.details import ISSUES, NUMPY_EVALUATION, Contradicted, InternalError, NoPallasCall, Unavailable
from kerneltest.core.fingerprint import PACKAGES
from kerneltest.core.grouping import group_pairs
from kerneltest.core.ids import ANY
from kerneltest.core.verdicts import Ending, Gap, GroupName, Verdict
from kerneltest.records.run_plan import Plan
from kerneltest.records.runs import RunRecords, absent_cells, superseded_backends
from kerneltest.records.schema import Record
from kerneltest.records.sharpness import Informativeness, sharpness_remarks
from kerneltest.triage.attribution import lowering_bugs

INTERNAL_ERROR_CODE = 3  # pytest's own exit code for an error in itself

_SLOW = 300.0  # seconds
# Of the environment, in reports of internal errors.
_REPORTED = ("kerneltest", *PACKAGES, "python", "machine")
_MOST_REPORTS = 3  # distinct internal errors
_MOST_SLOW = 3  # pairings
_MOST_FAMILIES = 8  # families of a pairing
_MOST_SIGNATURES = 3  # signatures of a pairing
_MOST_REASONS = 4  # for which cases are unavailable


@dataclass(frozen=True, slots=True)
class Counts:
    """The planned cells (pairing, backend, dtype, family) of some runs, by outcome."""

    passed: int
    xfailed: int  # cells that passed except for declared xfails
    failed: int  # cells with a finding
    # cells of unavailable backends, one per pairing and backend, and cells from which a time budget dropped cases
    unavailable: int
    undefined: int  # cells in which the oracle defines no element
    gaps: int  # cells that lack a verdict for a case, or in which nothing was compared
    problems: tuple[str, ...]  # other errors in the bookkeeping
    not_run: tuple[str, ...]  # the names of expected runs that are missing
    suspects: int
    internal_errors: int = 0  # cases in which kerneltest itself failed
    inapplicable: int = 0  # pairings to which no backend of any run applies, so that they have no cell

    @property
    def planned(self) -> int:
        return self.passed + self.xfailed + self.failed + self.unavailable + self.undefined + self.gaps

    @property
    def complete(self) -> bool:
        return bool(self.planned) and not self.gaps and not self.problems and not self.internal_errors

    @property
    def exit_code(self) -> int:
        """0 if the runs are complete and have no findings, `INTERNAL_ERROR_CODE` if kerneltest failed, else 1."""
        return INTERNAL_ERROR_CODE if self.internal_errors else int(bool(self.failed) or not self.complete)

    @property
    def green(self) -> bool:
        """True if everything planned was run and there is no finding. An unavailable backend was not run."""
        return self.complete and not (self.failed or self.unavailable or self.not_run or self.inapplicable)

    def __str__(self) -> str:
        parts = [f"{self.passed} of {self.planned} cells pass"]
        for count, word in (
            (self.xfailed, "xfail"),
            (self.failed, "fail"),
            (self.gaps, "without a verdict"),
            (self.unavailable, "unavailable"),
            (self.undefined, "nothing asked"),
            (self.inapplicable, f"pairing{'s' * (self.inapplicable > 1)} that no backend of the run can test"),
        ):
            parts += [f"{count} {word}"] * bool(count)
        cells = ", ".join([*parts, *(f"{name} not run" for name in self.not_run)])
        return f"{self.suspects} suspect{'s' * (self.suspects > 1)}; {cells}" if self.suspects else cells


def count_cells(runs: Sequence[RunRecords], suspects: int = 0, legs: Sequence[str] = ()) -> Counts:
    """Counts the cells of some runs; `legs` are the names of the runs that are expected."""
    dropped = superseded_backends(runs)
    planned = {item.pairing for run in runs for item in (*run.plan.items, *run.plan.elsewhere)}
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
        undefined=endings[Gap.NOTHING_ASKED],
        gaps=sum(endings[each] for each in (Gap.MISSING, Gap.NOTHING_COMPARED, Verdict.INTERNAL_ERROR))
        + len(absent_cells(runs)),
        problems=tuple(
            f"{run.name}: {problem}" if run.name else problem for run in runs for problem in run.reconciled.problems
        ),
        not_run=tuple(leg for leg in dict.fromkeys(legs) if leg not in there),
        suspects=suspects,
        internal_errors=sum(run.reconciled.internal_errors for run in runs),
        inapplicable=len({each.pairing for run in runs for each in run.plan.not_applicable} - planned),
    )


def gaps(run: RunRecords) -> list[str]:
    """Lists the gaps in the bookkeeping of a run: its problems, then where cells lack a verdict."""
    missing = Counter((pairing, backend) for pairing, backend, _, _ in run.reconciled.missing)
    return [
        *run.reconciled.problems,
        *(f"no verdict: {' / '.join(place)} ({n:,} cell{'s' * (n > 1)})" for place, n in missing.items()),
    ]


def internal_error_remarks(run: RunRecords) -> list[str]:
    """States that kerneltest itself failed, in how many cases, and the text of a report for each exception."""
    distinct = {detail.essence: detail for detail in run.plan.internal_errors}
    for record in run.records:
        if isinstance(record.detail, InternalError):
            distinct.setdefault(record.detail.essence, record.detail)
    if not distinct:
        return []
    cases = sum(bool(record.case) and record.verdict is Verdict.INTERNAL_ERROR for record in run.records)
    where = f" in {cases:,} case{'s' * (cases > 1)}" if cases else ""
    environment = ", ".join(f"{key} {run.plan.environment[key]}" for key in _REPORTED if key in run.plan.environment)
    return [
        f"INCOMPLETE: kerneltest itself failed{where}, which says nothing about the kernels. Please report it at "
        f"{ISSUES}:",
        *(line for detail in list(distinct.values())[:_MOST_REPORTS] for line in detail.report_text().splitlines()),
        *([f"  with {environment}"] if environment else []),
    ]


def clock_warning(plan: Plan) -> str:
    """Returns a warning if a run started over a day in the future, which only a wrong clock explains; else ""."""
    try:
        started = datetime.fromisoformat(plan.started)
        started = started if started.tzinfo else started.replace(tzinfo=UTC)
        ahead = started > datetime.now(UTC) + timedelta(days=1)
    except (ValueError, OverflowError):
        return ""
    return f"the clock of this run was wrong: it started on {started:%Y-%m-%d}, which is in the future" if ahead else ""


def empty_shard_remarks(plan: Plan) -> list[str]:
    """States that a shard has nothing to run."""
    is_empty = bool(plan.shard and not plan.items)
    return [f"shard {plan.shard} is empty: the run has fewer parts (pairings in one dtype) than shards"] * is_empty


def inapplicable_backends(runs: Sequence[RunRecords]) -> list[tuple[str, str]]:
    """Lists each reason why backends are not applicable: the backends, and the reason with the number of cases."""
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


def budget_remarks(run: RunRecords) -> list[str]:
    """Lists the cases that a run dropped to meet its time budget, by pairing and backend."""
    families: dict[tuple[str, str], Counter[str]] = {}
    cases: Counter[tuple[str, str]] = Counter()
    for record in run.records:
        place = record.pairing, record.backend
        cases[place] += bool(record.case)
        if _is_left_out(record):
            families.setdefault(place, Counter())[record.family] += 1
    lines = []
    for (pairing, backend), left in families.items():
        named = ", ".join(f"{family} {count}" for family, count in left.most_common(_MOST_FAMILIES))
        more = f" and {len(left) - _MOST_FAMILIES} more families" if len(left) > _MOST_FAMILIES else ""
        lines.append(
            f"{pairing} on {backend}: {left.total()} of {cases[pairing, backend]} cases left out to meet "
            f"--kt-budget {run.plan.budget}: {named}{more}"
        )
    return lines


def _is_left_out(record: Record) -> bool:
    return isinstance(record.detail, Unavailable) and record.detail.left_out


def unserved_remarks(run: RunRecords) -> list[str]:
    """Lists the pairings that hung while they were planned, or that a backend cannot run, with reasons; then cases."""
    backends: dict[tuple[str, Verdict, str], dict[str, None]] = {}
    cases: dict[tuple[str, str], Counter[str]] = {}
    for record in run.records:
        if record.family == ANY and record.backend not in run.plan.unavailable:
            backends.setdefault((record.pairing, record.verdict, record.message), {})[record.backend] = None
        if record.case and record.verdict is Verdict.UNAVAILABLE and not _is_left_out(record):
            why, _, _ = record.message.partition("\n")
            cases.setdefault((record.pairing, why), Counter())[record.backend] += 1
    most = sorted(cases.items(), key=lambda each: -each[1].total())
    more = len(most) - _MOST_REASONS
    return [
        *(f"{pairing} {how} on {', '.join(each)}: {why}" for (pairing, how, why), each in backends.items()),
        *(
            f"{pairing}: {each.total():,} case{'s' * (each.total() > 1)} unavailable on {', '.join(each)}: {why}"
            for (pairing, why), each in most[:_MOST_REASONS]
        ),
        *[f"cases were unavailable for {more} more reason{'s' * (more > 1)}, which the records have"] * (more > 0),
    ]


def skip_remarks(run: RunRecords) -> list[str]:
    """States that pytest skipped everything, with the most frequent reason; nothing if anything was not skipped."""
    details = (record.detail for record in run.records)
    reasons = Counter(each.reason if isinstance(each, Unavailable) and each.skipped else "" for each in details)
    if "" in reasons or not reasons:
        return []
    return [f"nothing was compared, since pytest skipped everything ({reasons.most_common(1)[0][0]})"]


def reuse_remarks(run: RunRecords) -> list[str]:
    """States how many verdicts were reused from earlier runs, because nothing that they depend on has changed."""
    judged = [record.reused_from for record in run.records if record.case]
    earlier = [when for when in judged if when]
    if not earlier:
        return []
    return [
        f"{len(earlier):,} of {len(judged):,} cases were judged by earlier runs, the first on {min(earlier)[:10]}, and "
        "nothing that they depend on has changed; pytest --cache-clear runs them again"
    ]


def slow_remarks(run: RunRecords) -> list[str]:
    """Lists the slowest pairings on a backend, if they took minutes and the run had no time budget."""
    seconds = group_pairs(
        ((record.pairing, record.backend), record.seconds)
        for record in run.records
        if record.case and not (record.reused_from or run.plan.budget)
    )
    slowest = sorted(((sum(each), len(each), place) for place, each in seconds.items()), reverse=True)
    return [
        f"{pairing} on {backend}: {count:,} cases took {total:.0f} s, {total / count:.2g} s each, in all processes "
        "together; --kt-budget 60 limits that"
        for total, count, (pairing, backend) in slowest[:_MOST_SLOW]
        if total > _SLOW
    ]


def record_remarks(records: Iterable[Record]) -> list[str]:
    """Lists what records show of kernels and declarations, the remarks that call for action first."""
    known = list(records)
    return [
        *missing_call_remarks(known),
        *contradiction_remarks(known),
        *(
            f"suspected lowering bug in {count} case{'s' * (count > 1)}: {suspected.text()}"
            for suspected, count in lowering_bugs(known).most_common()
        ),
        *undefined_remarks(known),
        *Informativeness(known).remarks(),
        *sharpness_remarks(known),
    ]


def undefined_remarks(records: Iterable[Record]) -> list[str]:
    """Lists pairings whose oracle leaves most elements undefined in ordinary cases, which hides bugs."""
    defined: Counter[str] = Counter()
    undefined: Counter[str] = Counter()
    for record in records:
        if record.group in (GroupName.STRUCTURAL, GroupName.NUMERIC):
            defined[record.pairing] += record.defined
            undefined[record.pairing] += record.undefined
    return [
        f"{name}: the oracle leaves {count / (count + defined[name]):.0%} of all elements undefined in ordinary cases; "
        "bugs there stay hidden"
        for name, count in undefined.items()
        if count > defined[name]
    ]


def contradiction_remarks(records: Iterable[Record]) -> list[str]:
    """States in how many cases one evaluation contradicted another, and whose fault each kind is."""
    found = group_pairs(
        ((detail.judge, detail.other), record)
        for record in records
        if isinstance(detail := record.detail, Contradicted)
    )
    return [
        f"{len(each):,} case{'s' * (len(each) > 1)} {each[0].message} ({each[0].case} of {each[0].pairing})"
        + f". Please report it at {ISSUES}" * (other == NUMPY_EVALUATION)
        for (_, other), each in found.items()
    ]


def missing_call_remarks(records: Iterable[Record]) -> list[str]:
    """Lists pairings with signatures that never reach a Pallas call, and how many of them there are."""
    cases = [record for record in records if record.case]
    judged = group_pairs(dict.fromkeys((record.pairing, record.signature) for record in cases))
    missing = group_pairs(dict.fromkeys((r.pairing, r.signature) for r in cases if isinstance(r.detail, NoPallasCall)))
    lines = []
    for name, signatures in missing.items():
        shown = "; ".join(signatures[:_MOST_SIGNATURES]) + "; ..." * (len(signatures) > _MOST_SIGNATURES)
        lines.append(f"{name}: {len(signatures)} of {len(judged[name])} signatures never reach a pallas_call ({shown})")
    return lines
