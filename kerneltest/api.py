"""The public functions that run a pairing without pytest: `kt.check` and `kt.assert_conforms`."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerneltest.backends.base import Backend
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, Guard
from kerneltest.core.ids import PairingId
from kerneltest.core.media import for_terminal, lines_for_terminal
from kerneltest.core.source_location import relative_path
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.oracle_for import oracle_for
from kerneltest.declare.pairing import Pairing
from kerneltest.declare.problems import explain_misuse, hide_frames
from kerneltest.execute.cache import Cache
from kerneltest.execute.fuzz_group import FuzzGroup
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item, run_single_case
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.watchdog import limit_time
from kerneltest.localize.suspect_reduction import REDUCTION_ROUNDS, reduce_suspect
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.records.evidence import BudgetPart
from kerneltest.records.schema import Record, Reproducer
from kerneltest.records.sharpness import Informativeness
from kerneltest.report.counts import contradiction_remarks
from kerneltest.report.html.page import render_card, render_result
from kerneltest.report.text.suspect_text import format_finding, format_result
from kerneltest.triage.suspects import Suspect, find_suspects

_MOST_TEXT = 100  # characters of a message in a finding's `repr`


@dataclass(frozen=True, slots=True, repr=False)
class Finding:
    """A verdict that is not a pass.

    Attributes:
      verdict, backend, family, signature, message: as recorded.
      budget: the parts of the error bound, the largest first; () if no error model judged or the model has no parts.
      arguments: the failing inputs as NumPy arrays, in the kernel's dtypes, by name (`x`, `params.w`).
      record: the whole record.
      got: the first wrong output, in the kernel's dtype; None if no output was compared.
      expected: the oracle's values for it: float64, int64 or bool, in the same shape.
      wrong: booleans, True where `got` is wrong.
    """

    verdict: Verdict
    backend: str
    family: str
    signature: str
    message: str
    budget: tuple[BudgetPart, ...]
    arguments: Mapping[str, Array]
    record: Record
    got: Array | None = None
    expected: Array | None = None
    wrong: Array | None = None

    def show(self) -> None:
        """Prints the finding: what is wrong, its inputs, and the worst element."""
        print(lines_for_terminal("\n".join(format_finding(self.record, self.arguments))))

    def __repr__(self) -> str:
        first = self.message.partition("\n")[0]
        return for_terminal(f"<Finding {self.verdict} on {self.backend}, {self.signature}: {first[:_MOST_TEXT]}>")

    def _repr_html_(self) -> str:
        title, *lines = format_finding(self.record, self.arguments)
        return render_card(title, lines)


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The result of `check`.

    Attributes:
      findings: in the order of the plan.
      cases: number of judged cases.
      seconds: total time.
      unavailable: backends that this machine cannot serve, or that can run none of the cases, with the reason.
      not_applicable: backends that do not apply to the kernel, with the reason.
      records: one for each case.
      suspects: presumed bugs, the most telling first; the findings of one bug form one suspect.
      internal_errors: cases in which kerneltest itself failed, which says nothing about the kernel.
    """

    findings: tuple[Finding, ...]
    cases: int
    seconds: float
    unavailable: Mapping[str, str]
    not_applicable: Mapping[str, str]
    records: tuple[Record, ...]
    suspects: tuple[Suspect, ...]
    internal_errors: tuple[Record, ...]

    @property
    def ok(self) -> bool:
        """True if something informative was compared, there are no findings, and kerneltest itself did not fail."""
        return not (self.findings or self.internal_errors or Informativeness(self.records).problems())

    def __bool__(self) -> bool:
        """Returns `ok`, so that `assert kt.check(pairing)` fails where it should."""
        return self.ok

    def __repr__(self) -> str:
        return format_result(self._headline(), self.suspects, self._remarks())

    def _repr_html_(self) -> str:
        return render_result(self._headline(), self.suspects, self._remarks(), good=self.ok)

    def _headline(self) -> str:
        count, suspects = len(self.findings), len(self.suspects)
        found = f"{count:,} finding{'s' * (count != 1)}"
        if suspects:
            found = f"{suspects} suspect{'s' * (suspects != 1)} ({found})"
        if failed := len(self.internal_errors):
            found += f", {failed:,} internal error{'s' * (failed != 1)}"
        return f"{'ok' if self.ok else 'not ok'}: {found} in {self.cases:,} cases, {self.seconds:.1f} s"

    def _remarks(self) -> list[str]:
        informativeness = Informativeness(self.records)
        internal = [f"kerneltest itself failed: {error.message}" for error in self.internal_errors[:1]]
        unavailable = [f"{name} unavailable: {reason}" for name, reason in self.unavailable.items()]
        whole = [f"{each.verdict} on {each.backend}: {each.message}" for each in self.findings if not each.record.case]
        others = [f"{name} not applicable: {reason}" for name, reason in self.not_applicable.items()]
        hint = "minimize=30 searches up to 30 seconds for the smallest case of each suspect and for its line"
        return [
            *[hint] * (bool(self.suspects) and not any(suspect.reproducer for suspect in self.suspects)),
            *internal,
            *whole,
            *informativeness.problems(),
            *informativeness.remarks(),
            *contradiction_remarks(self.records),
            *unavailable,
            *others,
        ]


@explain_misuse
def check(
    pairing: Pairing,
    *,
    backends: str | Sequence[str] = ("interpret",),
    depth: str = "standard",
    seed: int = 0,
    case: str = "",
    orders: int = 0,
    minimize: float = 0,
    timeout: int = 600,
) -> Result:
    """Runs a pairing without pytest and writes no files.

        result = kt.check(matmul_oracle, backends=["interpret", "simulate:gfx942"], depth="quick")
        assert result.ok, result.findings[0].message

    Args:
      pairing: what to check.
      backends: ids, such as `interpret` or `cuda`, or patterns of them; one or several.
      depth: `quick`, `standard` or `deep`.
      seed: of all random values.
      case: id of the only case to run, as a finding shows it; "" runs all cases. Ids depend on the path of the
        pairing's file, relative to the current folder.
      orders: number of random orders in which `simulate:*` also runs the programs of a grid, one after another.
      minimize: seconds to search for the smallest case of each suspect, and for the source of its wrong values.
      timeout: seconds that one step of a case may take, such as tracing the kernel; the case is then a `hang`. Compiled
        code that does not return ends the process, unless it keeps all of Python from running. 0 for no limit.

    Returns:
      The findings with their inputs as NumPy arrays, the suspects, counts, and a record of each case.

    Raises:
      TypeError: `pairing` is not a pairing.
      ValueError: a setting is not allowed, a backend is unknown, or the plan has no such case.
    """
    __tracebackhide__ = True
    if not isinstance(pairing, Pairing):
        name = "" if getattr(pairing, "__module__", "") == oracle_for.__module__ else getattr(pairing, "__name__", "")
        given = f"the function {name}" if name else f"a {type(pairing).__name__}"
        raise TypeError(f"kt.check takes a pairing, not {given}; decorate its oracle, as in @kt.oracle_for"
                        f"({name or 'kernel'}, x=kt.array(\"n\")), and check that")  # fmt: skip
    settings, chosen = _settle(backends, orders, depth=depth, seed=seed, minimize=minimize, timeout=timeout)
    cache, started = Cache(), time.perf_counter()
    with limit_time(cache.process.journal, timeout, owns_process=False):
        planned = plan_pairing(pairing, pairing_id(pairing), chosen, settings, cache.process.journal)
        cache.process.planned = frozenset((item.pairing_id, item.backend.id, item.dtype) for item in planned.items)
        outcomes = [outcome for item in planned.items for outcome in run_item(item, cache, case)]
        records = tuple(outcome.record for outcome in outcomes)
        guard = Guard(cache.process.internal_failures)
        search = functools.partial(_find_suspects, records, planned.items, cache, minimize)
        none: tuple[Suspect, ...] = ()
        found = guard.collect("searching for suspects", search, none)
    beside = [planned.items[0].record(f.verdict, f.detail) for f in cache.process.take_internal_failures()]
    cache.process.pool.close()
    if case and not outcomes:
        raise ValueError(
            f"{pairing_id(pairing)} has no case {case} at depth {depth} with seed {seed}; ids depend on the pairing's "
            "name, and on the path of its file relative to the folder in which the run was started"
        )
    findings = tuple(_finding(outcome) for outcome, r in zip(outcomes, records, strict=True) if r.verdict.is_finding)
    lacking = [record for record in records if record.verdict is Verdict.UNAVAILABLE]
    judged = [record for record in records if record.case and record.verdict is not Verdict.UNAVAILABLE]
    served = {record.backend for record in judged}
    unavailable = {r.backend: r.message for r in lacking if not r.case or r.backend not in served}
    not_applicable = {each.backend: each.reason for each in planned.not_applicable}
    seconds = time.perf_counter() - started
    internal = tuple(record for record in (*records, *beside) if record.verdict is Verdict.INTERNAL_ERROR)
    return Result(findings, len(judged), seconds, unavailable, not_applicable, records, found, internal)


def _finding(outcome: Outcome) -> Finding:
    r, compared = outcome.record, outcome.comparison
    arrays = (compared.actual, compared.expected, compared.wrong) if compared is not None else (None, None, None)
    given = outcome.arguments or {}
    return Finding(r.verdict, r.backend, r.family, r.signature, r.message, r.error_budget, given, r, *arrays)


@hide_frames
def _settle(backends: str | Sequence[str], orders: int, **others: Any) -> tuple[RunSettings, tuple[Backend, ...]]:
    words = (backends,) if isinstance(backends, str) else tuple(backends)
    return RunSettings(backends=words, orders=orders, **others), resolve(words, orders)


def _find_suspects(
    records: Sequence[Record], items: Sequence[Item], cache: Cache, seconds: float
) -> tuple[Suspect, ...]:
    blocks = {i.pairing_id: {name: d.block for name, d in i.pairing.dims.items() if d.block} for i in items[:1]}
    smallest: list[Reproducer] = []
    for _ in range(REDUCTION_ROUNDS if seconds else 0):
        for each in find_suspects(records, blocks, smallest):
            if each.reproducer is None and (found := reduce_suspect(items, each.findings, cache, seconds, smallest)):
                smallest.append(found.reproducer)
    return find_suspects(records, blocks, smallest)


def pairing_id(pairing: Pairing) -> str:
    """Returns the node id that pytest gives a pairing if it runs in the current folder: the oracle's file and name."""
    code = getattr(pairing.oracle, "__code__", None)
    return str(PairingId(relative_path(code.co_filename), pairing.name)) if code is not None else pairing.name


@explain_misuse
def assert_conforms(pairing: Pairing, case: ExplicitCase, backends: Sequence[str] = ("interpret",)) -> None:
    """Judges a drawn case as an ordinary run would. For tests with `@given`; use `@settings(deadline=None)`.

    Args:
      pairing: the case's.
      case: from `cases(pairing)`.
      backends: ids of backends that compute values.

    Raises:
      AssertionError: the case has a finding, or a backend is unavailable; the message says which and why.
      Failure: kerneltest itself failed (`internal_error`).
      ValueError: a backend is unknown or computes no values.
    """
    if case.pairing_id != pairing.name:
        raise ValueError(f"the case belongs to pairing {case.pairing_id}, not to {pairing.name}")
    for backend in resolve(backends):
        if not backend.tier.gives_values:
            raise ValueError(f"{backend.id} computes no values; choose interpret, simulate:TARGET or a device")
        dtype = case.signature.dtype
        item = Item(pairing.name, pairing, pairing.name, backend, dtype, FuzzGroup(), RunSettings())
        cache = _cache(pairing, dtype)
        reason = backend.unavailable()
        if reason:
            record = item.record(Verdict.UNAVAILABLE, reason)
        else:
            record = run_single_case(item, case, cache, owns_process=False).record
        cache.expectations.cases.clear()  # there may be thousands of examples, and they rarely recur
        if record.verdict is Verdict.UNAVAILABLE:
            raise AssertionError(f"{backend.id} unavailable: {record.message}")
        if record.verdict is Verdict.INTERNAL_ERROR and record.detail is not None:
            raise Failure(record.verdict, record.detail)
        if record.verdict.is_finding:
            raise AssertionError(f"{record.verdict} on {backend.id}, {record.signature}: {record.message}")


@functools.lru_cache(maxsize=16)
def _cache(pairing: Pairing, dtype: str) -> Cache:
    # All examples of a pairing and dtype share it.
    return Cache()
