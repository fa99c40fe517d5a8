"""A pairing checked without pytest: `kt.check`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kerneltest.backends import resolve
from kerneltest.core.dtypes import Array
from kerneltest.run.item import items_of
from kerneltest.run.cache import Memory
from kerneltest.core.backend_ids import DEPTHS
from kerneltest.declare.pairing import Pairing
from kerneltest.records.schema import Record
from kerneltest.run.runner import run
from kerneltest.core.verdicts import NO_FINDING


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
