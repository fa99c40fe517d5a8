"""Plan, run, judge: one pairing on one backend, and `check` for all of them."""

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kerneltest.backends import Artifact, Backend, BackendError, Executable, resolve
from kerneltest.diagnose import Mismatch, diagnose, fed
from kerneltest.drawn import DRAWN, FUZZ, DrawnCase
from kerneltest.dtypes import Array
from kerneltest.families import NO_VALUES
from kerneltest.judge import Comparison, compare, describe
from kerneltest.limitations import outlived, quarantined, settle
from kerneltest.locate import Axis, axes_of, locate
from kerneltest.options import DEPTHS
from kerneltest.oracle import Expectation, OracleError, check_all_masked, expect
from kerneltest.pairing import Pairing
from kerneltest.plan import Case, Signature, cases, dtypes_of, groups_of, signatures, totals
from kerneltest.record import Evidence, Record
from kerneltest.trace import Traced, TraceError, trace
from kerneltest.verdicts import NO_FINDING

AnyCase = Case | DrawnCase


@dataclass(frozen=True, slots=True)
class Item:
    """What one pytest item runs: a pairing, a backend, a dtype and a family group; `fuzz` cases in group fuzz."""

    name: str
    pairing: Pairing
    pairing_id: str
    backend: Backend
    dtype: str
    group: str
    depth: str
    seed: int
    fuzz: int = 0

    def cases(self) -> Iterator[AnyCase]:
        if self.group == FUZZ:
            from kerneltest.fuzz import draws  # Hypothesis is loaded where it is used, and nowhere else

            return iter(draws(self.pairing, self.dtype, self.depth, self.seed, self.fuzz))
        return cases(self.pairing, self.dtype, self.group, self.depth, self.seed)

    def families(self) -> Mapping[str, int]:
        if self.group == FUZZ:
            return {DRAWN.name: self.fuzz}
        return totals(cases(self.pairing, self.dtype, self.group, self.depth, self.seed))


@dataclass(frozen=True, slots=True)
class Outcome:
    """A record, the case's array arguments if it is a finding, and the files of an artifact."""

    record: Record
    arguments: Mapping[str, Array] | None = None
    files: Callable[[], Mapping[str, str]] = dict


@dataclass(slots=True)
class Memory:
    """What cases share: traces and expectations of one pairing and dtype, what backends prepared.

    Compilation and the oracle are the cost, so nothing here is done twice while the same pairing and dtype are in
    hand; the next ones clear it.
    """

    owner: tuple[int, str] | None = None
    traces: dict[Signature, Traced | TraceError] = field(default_factory=dict)
    prepared: dict[tuple[str, Signature], "Future[Executable | Artifact]"] = field(default_factory=dict)
    expectations: dict[str, tuple[Mapping[str, Array], Expectation | OracleError, bool]] = field(default_factory=dict)
    repeated: set[tuple[str, Signature]] = field(default_factory=set)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_compilers()))

    def turn_to(self, pairing: Pairing, dtype: str) -> None:
        if self.owner != (id(pairing), dtype):
            self.owner = (id(pairing), dtype)
            for store in (self.traces, self.prepared, self.expectations, self.repeated):
                store.clear()

    def traced(self, pairing: Pairing, signature: Signature) -> Traced | TraceError:
        if signature not in self.traces:
            try:
                self.traces[signature] = trace(pairing, signature)
            except TraceError as error:
                self.traces[signature] = error
        return self.traces[signature]

    def preparing(self, backend: Backend, signature: Signature, traced: Traced) -> "Future[Executable | Artifact]":
        key = (backend.id, signature)
        if key not in self.prepared:
            self.prepared[key] = self.pool.submit(backend.prepare, traced)
        return self.prepared[key]

    def first(self, backend: Backend, signature: Signature) -> bool:
        """Whether this is the first case of a signature on a backend, which is run twice."""
        key = (backend.id, signature)
        if key in self.repeated:
            return False
        self.repeated.add(key)
        return True

    def expected(
        self, pairing: Pairing, case: AnyCase, traced: Traced
    ) -> tuple[Mapping[str, Array], Expectation | OracleError, bool]:
        """The case's arguments, what is expected of them, and whether that holds bit for bit."""
        if case.id not in self.expectations:
            arguments = case.fill(pairing)
            bitwise = case.family.group == "structural" and traced.exact
            found: Expectation | OracleError
            try:
                found = expect(pairing, case.signature, arguments, traced.outputs, bitwise=bitwise)
                if case.family.name == "all_masked_array":
                    check_all_masked(pairing, found)
            except OracleError as error:
                found = error
            self.expectations[case.id] = (arguments, found, bitwise)
        return self.expectations[case.id]


def run(item: Item, memory: Memory, only: str = "") -> Iterator[Outcome]:
    """Every case of an item, in the plan's order; one record a cell where the backend cannot serve it.

    Args:
      item: what to run.
      memory: what it shares with other items.
      only: the id of the one case to run.
    """
    backend, pairing = item.backend, item.pairing
    planned = [case for case in item.cases() if only in ("", case.id)]
    if not planned:
        return
    memory.turn_to(pairing, item.dtype)
    reason = unserved(backend, (memory.traced(pairing, case.signature) for case in planned))
    if reason:
        for family in item.families():
            yield Outcome(_record(item, family, "unavailable", reason))
        return
    for case in planned:
        traced = memory.traced(pairing, case.signature)
        away = quarantined(pairing.limitations, backend.id, item.dtype, case.family.name, str(case.signature))
        if isinstance(traced, Traced) and not away:
            memory.preparing(backend, case.signature, traced)
    ended: dict[str, list[tuple[str, str]]] = {}
    if item.group == FUZZ:
        from kerneltest.fuzz import judge_all

        yield from judge_all(item, [case for case in planned if isinstance(case, DrawnCase)], memory)
        return
    for case in planned:
        outcome = judged(item, case, memory)
        ended.setdefault(case.family.name, []).append((str(case.signature), outcome.record.verdict))
        yield outcome
    for family, verdicts in ended.items():
        reason = outlived(pairing.limitations, verdicts, backend.id, item.dtype, family)
        if reason and not only:
            yield Outcome(_record(item, family, "unexpected_pass", reason))


def unserved(backend: Backend, traces: Iterable[Traced | TraceError]) -> str:
    """Why a backend cannot serve a kernel with these signatures, or "". Takes none where the machine lacks it."""
    reasons = (backend.refuses(traced) for traced in traces if isinstance(traced, Traced))
    return backend.unavailable() or next(filter(None, reasons), "")


def judged(item: Item, case: AnyCase, memory: Memory) -> Outcome:
    """Runs one case, planned or drawn, and judges it in the light of declared limitations."""
    started = time.perf_counter()
    outcome = _settled(item, case, _run_case(item, case, memory))
    return replace(outcome, record=replace(outcome.record, seconds=time.perf_counter() - started))


def _run_case(item: Item, case: AnyCase, memory: Memory) -> Outcome:
    reason = quarantined(item.pairing.limitations, item.backend.id, item.dtype, case.family.name, str(case.signature))
    if reason:
        return Outcome(_record(item, case, "expected", reason))
    traced = memory.traced(item.pairing, case.signature)
    if isinstance(traced, TraceError):
        filled = None if item.group == NO_VALUES else case.fill(item.pairing)
        return Outcome(_record(item, case, "runtime_error", str(traced)), filled)
    preparing = memory.preparing(item.backend, case.signature, traced)
    if item.group == NO_VALUES:
        return _taken(item, case, preparing)
    arguments, expectation, bitwise = memory.expected(item.pairing, case, traced)
    if isinstance(expectation, OracleError):
        return Outcome(_record(item, case, "oracle_error", str(expectation)), arguments)
    try:
        executable = preparing.result()
        assert not isinstance(executable, Artifact)
        leaves = [arguments[path] for path in item.pairing.leaves]
        outputs = executable.run(leaves)
        if memory.first(item.backend, case.signature):
            _check_repeated(outputs, executable.run(leaves))
    except BackendError as failure:
        return Outcome(_record(item, case, failure.verdict, str(failure)), arguments)
    comparisons = [
        compare(
            actual,
            expectation.values[i],
            expectation.bound(i, actual.dtype, executable.precision),
            signed_zeros=item.pairing.signed_zeros,
        )
        for i, actual in enumerate(outputs)
    ]
    base = _record(item, case, "pass")
    base = replace(
        base,
        compared=sum(c.compared for c in comparisons),
        used=max((c.used for c in comparisons if c.used is not None), default=None),
        tolerance="bit for bit" if bitwise else str(item.pairing.tolerance),
    )
    for number, comparison in enumerate(comparisons):
        if comparison.verdict != "pass":
            return Outcome(_mismatch(item, case.signature, base, number, comparison, arguments), arguments)
    return Outcome(base)


def _check_repeated(outputs: Sequence[Array], again: Sequence[Array]) -> None:
    """Raises BackendError if the same inputs gave other bits the second time."""
    for number, (one, other) in enumerate(zip(outputs, again, strict=True)):
        differs = np.argwhere(one.view(f"u{one.dtype.itemsize}") != other.view(f"u{one.dtype.itemsize}"))
        if len(differs):
            at = tuple(differs[0])
            raise BackendError(
                "nondeterministic",
                f"output {number}: the same inputs gave {one[at]} and then {other[at]} at "
                f"[{', '.join(map(str, at))}]; {len(differs)} of {one.size} elements differ",
            )


def _taken(item: Item, case: AnyCase, preparing: "Future[Executable | Artifact]") -> Outcome:
    """A case of a tier that runs nothing."""
    try:
        artifact = preparing.result()
    except BackendError as failure:
        return Outcome(_record(item, case, failure.verdict, str(failure)))
    assert isinstance(artifact, Artifact)
    record = _record(item, case, "pass")
    return Outcome(
        replace(record, compared=artifact.kernels, facts=artifact.facts, advice=artifact.advice), files=artifact.files
    )


def _mismatch(
    item: Item,
    signature: Signature,
    base: Record,
    number: int,
    comparison: Comparison,
    arguments: Mapping[str, Array],
) -> Record:
    axes = _axes(item, number, comparison.actual.shape)
    place = locate(comparison, axes)
    interpreted = item.backend.tier == "interpret"
    diagnosis = diagnose(Mismatch(item.pairing, signature, arguments, number, comparison, axes, interpreted))
    special = fed(arguments) if item.group != "structural" else ""
    wrong, total = int(comparison.wrong.sum()), comparison.wrong.size
    where = f"[{', '.join(map(str, place.index))}]"
    tile = f", tile {place.tile}" if place.tile else ""
    which = f"output {number}: " if number else ""
    message = f"{which}{wrong} of {total} elements wrong"
    message += f", {place.pattern}" if place.pattern else ""
    message += f"; worst at {where}{tile}: {describe(comparison, place.index)}"
    message += f"\n{diagnosis}" if diagnosis else ""
    message += f"\n{special}" if special else ""
    evidence = Evidence(
        output=number,
        index=place.index,
        tile=place.tile,
        wrong_tiles=place.wrong_tiles,
        pattern=place.pattern,
        diagnosis=diagnosis,
        actual=_plain(comparison.actual[place.index]),
        expected=_plain(comparison.expected[place.index]),
        bound=float(comparison.bound[place.index]),
        arguments={path: _excerpt(value) for path, value in arguments.items()},
    )
    return replace(base, verdict=comparison.verdict, message=message, wrong=wrong, evidence=evidence)


def _settled(item: Item, case: AnyCase, outcome: Outcome) -> Outcome:
    record = outcome.record
    verdict, remark = settle(
        item.pairing.limitations, record.verdict, item.backend.id, item.dtype, case.family.name, str(case.signature)
    )
    message = f"{record.message}\n{remark}".strip() if remark else record.message
    record = replace(record, verdict=verdict, message=message)
    return replace(outcome, record=record, arguments=None if verdict in NO_FINDING else outcome.arguments)


def _record(item: Item, of: AnyCase | str, verdict: str, message: str = "") -> Record:
    whole = isinstance(of, str)
    return Record(
        item=item.name,
        pairing=item.pairing_id,
        backend=item.backend.id,
        dtype=item.dtype,
        group=item.group,
        family=of if isinstance(of, str) else of.family.name,
        signature="*" if isinstance(of, str) else str(of.signature),
        target="" if isinstance(of, str) else of.target,
        case="" if isinstance(of, str) else of.id,
        verdict=verdict,
        message=message,
        evidence=None if whole or verdict in NO_FINDING else Evidence(),
    )


def _axes(item: Item, output: int, shape: tuple[int, ...]) -> tuple[Axis, ...]:
    names = _output_dims(item.pairing, output, item.depth)
    return tuple(
        Axis(name or f"axis{i}", length, item.pairing.dims[name].tile if name else None)
        for i, (name, length) in enumerate(zip(names, shape, strict=True))
    )


@functools.lru_cache(maxsize=64)
def _output_dims(pairing: Pairing, output: int, depth: str) -> tuple[str, ...]:
    """The dims of an output's axes, from its shapes over signatures. Traced again, since only a finding needs it."""
    shapes, lengths = [], []
    for signature in signatures(pairing, depth):
        try:
            shapes.append(trace(pairing, signature).outputs[output].shape)
        except TraceError:
            continue
        lengths.append(dict(signature.dims))
        if len(shapes) > 1 and all(axes_of(shapes, lengths)):
            break
    return axes_of(shapes, lengths)


def _plain(value: Any) -> float | int | bool:
    number = value.item() if hasattr(value, "item") else value
    return number if isinstance(number, (bool, int)) else float(number)


def _excerpt(value: Array) -> str:
    with np.printoptions(threshold=40, edgeitems=3, precision=6, linewidth=100):
        return f"{value.dtype.name}{list(value.shape)} {value.astype(np.float64) if value.dtype != bool else value}"


def _compilers() -> int:
    """How many compilations to run side by side: the processors, shared among xdist's workers."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict that is not a pass.

    Attributes:
      verdict, backend, family, signature, message: as recorded.
      arguments: the failing inputs, by name.
      record: all that was recorded.
    """

    verdict: str
    backend: str
    family: str
    signature: str
    message: str
    arguments: Mapping[str, Array]
    record: Record


@dataclass(frozen=True, slots=True)
class Result:
    """What `check` found.

    Attributes:
      findings: in the plan's order.
      cases: how many were judged.
      seconds: in all.
      unavailable: backend to reason.
      records: one a case.
    """

    findings: tuple[Finding, ...]
    cases: int
    seconds: float
    unavailable: Mapping[str, str]
    records: tuple[Record, ...]

    @property
    def ok(self) -> bool:
        """Whether something was compared and nothing was found."""
        return not self.findings and any(record.compared for record in self.records)


def check(
    pairing: Pairing,
    *,
    backends: Sequence[str] = ("interpret",),
    depth: str = "standard",
    seed: int = 0,
    case: str = "",
    orders: int = 0,
) -> Result:
    """Runs a pairing without pytest.

    Args:
      pairing: what to check.
      backends: ids, such as `interpret` or `cuda`.
      depth: `quick`, `standard` or `deep`.
      seed: of all random values.
      case: the id of the one case to run, as a finding shows it; by default all.
      orders: on `simulate:*`, in how many random orders programs are also run one after another.

    Raises:
      ValueError: an unknown backend or depth (lists the known ones), or a case that is not in the plan.
    """
    if depth not in DEPTHS:
        raise ValueError(f"unknown depth {depth!r}; known are {', '.join(DEPTHS)}")
    memory, started = Memory(), time.perf_counter()
    outcomes = [
        outcome
        for item in items_of(pairing, pairing.name, resolve(backends, orders), depth, seed)
        for outcome in run(item, memory, case)
    ]
    memory.pool.shutdown()
    if case and not outcomes:
        raise ValueError(f"{pairing.name} has no case {case} at depth {depth} with seed {seed}")
    records = tuple(outcome.record for outcome in outcomes)
    findings = tuple(
        Finding(r.verdict, r.backend, r.family, r.signature, r.message, outcome.arguments or {}, r)
        for outcome, r in zip(outcomes, records, strict=True)
        if r.verdict not in NO_FINDING
    )
    unavailable = {r.backend: r.message for r in records if r.verdict == "unavailable"}
    judged = sum(1 for record in records if record.case)
    return Result(findings, judged, time.perf_counter() - started, unavailable, records)


def items_of(
    pairing: Pairing, pairing_id: str, backends: Sequence[Backend], depth: str, seed: int, fuzz: int = 0
) -> Iterator[Item]:
    """A pairing's items, backends innermost, so that they share traces and the oracle's answers."""
    drawn = (FUZZ,) if fuzz and pairing.leaves else ()  # without arrays there are no values to draw
    for dtype in dtypes_of(pairing, depth):
        for group in (NO_VALUES, *groups_of(pairing, dtype, depth), *drawn):
            for backend in backends:
                if (group == NO_VALUES) != (backend.tier in ("lower", "compile")):
                    continue
                name = f"{pairing_id}[{backend.id}-{dtype}-{group}]"
                yield Item(name, pairing, pairing_id, backend, dtype, group, depth, seed, fuzz)
