"""What a run will do: the items of a pairing, what is not for it, and the plan as it is written down."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import kerneltest.execute.invariants  # noqa: F401 - they register themselves
from kerneltest.backends.base import Backend
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.declare.platforms import speaks_of
from kerneltest.execute.cache import Cache
from kerneltest.execute.fuzz import Drawn
from kerneltest.execute.group_registry import registered_groups
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.xfails import unmatched
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import dtypes_of, signatures
from kerneltest.records.schema import ANY, NotApplicable, Plan, PlannedItem, digest
from kerneltest.records.sources import describe
from kerneltest.trace.tracing import Traced, environment, settings, trace, version_problem, without_debugging


class Absent(Group):
    """All that a backend would be asked, on a machine that lacks it: one item, which ends as unavailable.

    Attributes:
      count: how many cases these are.
    """

    name = ANY

    def __init__(self, count: int) -> None:
        self.count = count

    def cases(self, item: Item) -> Iterator[AnyCase]:
        return iter(())

    def families(self, item: Item) -> Mapping[str, int]:
        return {ANY: self.count}

    def ids(self, item: Item) -> Mapping[str, Sequence[str]]:
        return {}

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        raise AssertionError("a backend that is absent has no cases")


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a run asks of a pairing.

    Attributes:
      depth, seed: of the run.
      fuzz: how many cases to draw for each dtype.
      prove: whether to prove kernels over all sizes as well.
      sanitize: the tools under which to run device cases as well.
    """

    depth: str
    seed: int = 0
    fuzz: int = 0
    prove: bool = False
    sanitize: tuple[str, ...] = ()

    def item(self, name: str, pairing: Pairing, pairing_id: str, backend: Backend, dtype: str, group: Group) -> Item:
        """A part of what a pytest item runs."""
        settings = (self.depth, self.seed, self.fuzz, self.prove, self.sanitize)
        return Item(name, pairing, pairing_id, backend, dtype, group, *settings)


@dataclass(frozen=True, slots=True)
class PairingPlan:
    """What will be done with a pairing.

    Attributes:
      items: in order: backends innermost, so that they share traces and the oracle's answers.
      not_applicable: backends that are not for its kernel.
    """

    items: tuple[Item, ...]
    not_applicable: tuple[NotApplicable, ...]


@without_debugging()
def plan_pairing(
    pairing: Pairing,
    pairing_id: str,
    backends: Sequence[Backend],
    depth: str,
    seed: int,
    fuzz: int = 0,
    prove: bool = False,
    sanitize: Sequence[str] = (),
) -> PairingPlan:
    """Plans one pairing on some backends.

    Args:
      pairing, pairing_id: with the node id by which pytest knows it.
      backends: to plan for.
      depth, seed, fuzz, prove, sanitize: as in `Extent`.
    """
    extent = Extent(depth, seed, fuzz, prove, tuple(sanitize))
    traced = _first_traced(pairing, depth)
    served: list[Backend] = []
    absent: list[Item] = []
    not_applicable: list[NotApplicable] = []
    for backend in backends:
        there = pairing.on(backend.id)
        mine = _first_traced(there, depth, backend.platform) if traced and traced.by_platform else traced
        reason = _unsupported_reason(backend, mine)
        if pairing.backends and not speaks_of(pairing.backends, backend.id):
            reason = f"declared for {', '.join(pairing.backends)} alone"
        count = sum(sum(i.families().values()) for i in _items(pairing, pairing_id, [backend], extent))
        if reason:
            not_applicable.append(NotApplicable(pairing_id, backend.id, reason, count))
        elif backend.unavailable():
            name = f"{pairing_id}[{backend.id}]"
            absent.append(extent.item(name, there, pairing_id, backend, ANY, Absent(count)))
        else:
            served.append(backend)
    items = (*_items(pairing, pairing_id, served, extent), *absent)
    return PairingPlan(items, tuple(not_applicable))


def _unsupported_reason(backend: Backend, traced: Traced | None) -> str:
    if traced is not None and not traced.calls:
        return "the function holds no Pallas call as it is traced here, so there is no kernel to test"
    return backend.unsupported_reason(traced) if traced is not None else ""


def _first_traced(pairing: Pairing, depth: str, platform: str = "") -> Traced | None:
    """What tells for whom a kernel is: the first signature that can be traced; None where the first few cannot."""
    for signature in signatures(pairing, depth)[:3]:
        try:
            return trace(pairing, signature, platform)
        except Failure:
            continue
    return None


def _items(pairing: Pairing, pairing_id: str, backends: Sequence[Backend], extent: Extent) -> Iterator[Item]:
    there = {backend.id: pairing.on(backend.id) for backend in backends}
    dtypes = [dtypes_of(each, extent.depth) for each in there.values()]
    for dtype in dict.fromkeys(dtype for each in dtypes for dtype in each):
        for group in registered_groups():
            if isinstance(group, Drawn) and not (extent.fuzz and pairing.leaves):
                continue  # without arrays there are no values to draw
            for backend in backends:
                if group.is_asked_of(backend) and dtype in dtypes_of(there[backend.id], extent.depth):
                    name = f"{pairing_id}[{backend.id}-{dtype}]"
                    item = extent.item(name, there[backend.id], pairing_id, backend, dtype, group)
                    if isinstance(group, Drawn) or next(item.cases(), None) is not None:
                        yield item


def plan_of(
    plans: Sequence[PairingPlan],
    items: Sequence[Item],
    node_ids: Sequence[str],
    *,
    depth: str,
    seed: int,
    fuzz: int,
    prove: bool,
    sanitize: Sequence[str] = (),
    orders: int,
    budget: int,
    run: str,
    problems: tuple[str, ...] = (),
) -> Plan:
    """The plan of a run as it is written down.

    Args:
      plans: of the pairings that were collected.
      items: those selected to run.
      depth, seed, fuzz, prove, sanitize, orders, budget: of the run.
      node_ids: the names that select them.
      run: the run's id.
      problems: what was wrong with the collection.
    """
    backends = {item.backend.id: item.backend for item in items}
    reasons = {name: backend.unavailable() for name, backend in backends.items()}
    facts = {name: backend.environment() for name, backend in backends.items() if not reasons[name]}
    pairings = {item.pairing_id: item.pairing.origin for item in items}
    warnings = [version_problem(), *(group.problem(items) for group in registered_groups())]
    for name, pairing in pairings.items():
        if not pairing.xfail:
            continue
        there = [item for item in items if item.pairing_id == name and not reasons[item.backend.id]]
        cells = [(item.backend.id, item.dtype, family) for item in there for family in item.families()]
        warnings += [
            f"an xfail of {name} ({xfail}) matches nothing planned" for xfail in unmatched(pairing.xfail, cells)
        ]
    return Plan(
        items=tuple(planned_item(item, name) for item, name in zip(items, node_ids, strict=True)),
        seed=seed,
        depth=depth,
        environment={
            **environment(),
            **settings(),
            **({"warning": "; ".join(filter(None, warnings))} if any(warnings) else {}),
            **{f"{name}: {key}": str(value) for name, each in facts.items() for key, value in each.items()},
        },
        unavailable={name: reason for name, reason in reasons.items() if reason},
        not_applicable=tuple(
            each for plan in plans for each in plan.not_applicable if each.pairing in pairings or not plan.items
        ),
        xfail={
            name: tuple(f"{xfail}: {xfail.reason} ({xfail.url})" for xfail in pairing.xfail)
            for name, pairing in pairings.items()
            if pairing.xfail
        },
        fuzz=fuzz,
        prove=prove,
        sanitize=tuple(sanitize),
        orders=orders,
        budget=budget,
        run=run,
        problems=problems,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        pairings={name: describe(pairing) for name, pairing in pairings.items()},
    )


def planned_item(item: Item, name: str) -> PlannedItem:
    """What an item will do, as a plan writes it."""
    digests = {family: digest(ids) for family, ids in item.group.ids(item).items()}
    parts = (item.pairing_id, item.backend.id, item.backend.tier, item.dtype, item.group.name)
    return PlannedItem(name, *parts, item.families(), digests)
