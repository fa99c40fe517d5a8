"""Planning: the items of a pairing, the backends that do not apply to it, and the plan of a run."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import kerneltest.execute.invariants  # noqa: F401 - registers them
from kerneltest.backends.base import Backend, UnavailableBackend
from kerneltest.core.details import InternalError
from kerneltest.core.extension_registry import AFTER_BUILT_IN, Registry
from kerneltest.core.failures import Failure, underlying_hang
from kerneltest.core.ids import ANY, ItemId
from kerneltest.core.processes import show_warnings_once
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing, matches_backend
from kerneltest.execute.applicability import Applicability, PlanTraces, absence, note_traces, runs_on_triton
from kerneltest.execute.cache import Cache
from kerneltest.execute.fuzz_group import FuzzGroup
from kerneltest.execute.invariant_group import InvariantGroup
from kerneltest.execute.item import Group, Item, Outcome, unmatched_xfails
from kerneltest.execute.kernel_numbers import with_learned_blocks
from kerneltest.execute.production_group import ProductionGroup
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.value_groups import RejectionGroup, SignatureGroup, ValueGroup, lowered_signatures
from kerneltest.plan.cases import find_shortfalls
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import GROUPS
from kerneltest.plan.signatures import signature_dtypes
from kerneltest.records.journal import Journal, Phase
from kerneltest.records.run_plan import (
    UNKNOWN_PROJECT,
    NotApplicable,
    Plan,
    PlannedItem,
    Project,
    describe_pairing,
    digest_ids,
)
from kerneltest.trace.jax_environment import jax_environment, jax_settings
from kerneltest.trace.tracing import (
    TRITON_IS_DEPRECATED,
    Traced,
    device_problem,
    version_problem,
    without_debugging,
)

# The groups of families of a run, built-in, by extensions and by users.

ALL_GROUPS: Registry[Group] = Registry("group", extended_by="groups")  # in the order in which an item runs them


def register_group(group: Group, *, order: int = AFTER_BUILT_IN) -> Group:
    """Registers a group of families, so that runs plan and judge its cases; in the root folder's `conftest.py`.

    Args:
      group: with a name that no other group has; it is returned.
      order: its position in an item; those of kerneltest are 10 to 90.

    Raises:
      ValueError: the name is taken.
    """
    ALL_GROUPS.add(group, type(group).__module__, order)
    return group


for _order, _group in (
    (10, SignatureGroup()),
    *((20, ValueGroup(name)) for name in GROUPS),
    (30, InvariantGroup()),
    (40, ProductionGroup()),
    (50, RejectionGroup()),
    (90, FuzzGroup()),
):
    register_group(_group, order=_order)


class UnavailableGroup(Group):
    """The `count` cases of a backend that this machine cannot serve, or for which none could be planned: one item."""

    name = ANY

    def __init__(self, count: int) -> None:
        self.count = count

    def cases(self, item: Item) -> Iterator[AnyCase]:
        return iter(())

    def families(self, item: Item) -> Mapping[str, int]:
        return {ANY: self.count}

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        raise AssertionError("an unavailable backend has no cases")


@dataclass(frozen=True, slots=True)
class PairingPlan:
    """The plan of a pairing."""

    items: tuple[Item, ...]  # in order, with backends innermost, since they share traces and expectations
    not_applicable: tuple[NotApplicable, ...]
    problem: str = ""  # why there is nothing to test, whatever the backend; "" if there is something
    remark: str = ""  # on the kernel's source; "" for none
    on_triton: tuple[str, ...] = ()  # backends that lower a `pallas_call` of it by JAX's deprecated Triton backend
    seconds: float = 0.0  # the time that planning took


@without_debugging()
@show_warnings_once()
def plan_pairing(
    pairing: Pairing,
    pairing_id: str,
    backends: Sequence[Backend],
    settings: RunSettings,
    journal: Journal | None = None,
) -> PairingPlan:
    """Plans one pairing on the backends of a run; a journal notes the steps, so that `limit_time` can end one.

    If it hangs, each available backend has one item, which ends as a `hang`.
    """
    started = time.monotonic()
    pairing.is_planned, journal = True, journal or Journal()
    device_problem()  # JAX must find its devices before kernels are traced, which get other answers from them
    journal.start(pairing_id)
    journal.enter_phase(Phase.PLANNING)
    try:
        with note_traces(journal) as traces:
            pairing = with_learned_blocks(pairing)
            plan = _plan(pairing, pairing_id, backends, settings, traces)
    except Exception as error:
        if (hang := underlying_hang(error)) is None:
            raise
        reasons = {backend: _undeclared(pairing, backend) for backend in backends}
        plan = PairingPlan(
            tuple(_absent_item(pairing, pairing_id, each, hang, 1, settings) for each in backends if not reasons[each]),
            tuple(NotApplicable(pairing_id, each.id, reason, 0) for each, reason in reasons.items() if reason),
        )
    finally:
        journal.stop()
    return replace(plan, seconds=time.monotonic() - started)


def _undeclared(pairing: Pairing, backend: Backend) -> str:
    declared = not pairing.backends or matches_backend(pairing.backends, backend.id)
    return "" if declared else f"declared only for {', '.join(pairing.backends)}"


def _absent_item(
    pairing: Pairing, pairing_id: str, backend: Backend, failure: Failure, count: int, settings: RunSettings
) -> Item:
    missing = backend if backend.unavailable() else UnavailableBackend(backend, failure)
    name, declared = str(ItemId.of(pairing_id, backend.id)), pairing.on(backend.id)
    return Item(name, declared, pairing_id, missing, ANY, UnavailableGroup(count), settings)


def _plan(
    pairing: Pairing, pairing_id: str, backends: Sequence[Backend], settings: RunSettings, traces: PlanTraces
) -> PairingPlan:
    journal = traces.journal
    applicability = Applicability(pairing, settings.depth, traces)
    available: list[Backend] = []
    on_triton: list[str] = []
    absent: list[Item] = []
    not_applicable: list[NotApplicable] = []
    for backend in backends:
        journal.enter_phase(Phase.PLANNING)
        kernel = None
        if not (reason := _undeclared(pairing, backend)):
            reason, kernel = applicability.judge(backend)
        count = 0
        for item in _items(pairing, pairing_id, [backend], settings, journal):
            journal.enter_phase(Phase.PLANNING)
            count += sum(item.families().values())
        if reason:
            not_applicable.append(NotApplicable(pairing_id, backend.id, reason, count))
        elif reason := absence(backend, kernel):
            failure = Failure(Verdict.UNAVAILABLE, reason)
            absent.append(_absent_item(pairing, pairing_id, backend, failure, count, settings))
        else:
            available.append(backend)
        if not reason and isinstance(kernel, Traced) and runs_on_triton(backend, kernel):
            on_triton.append(backend.id)
    items = (*_items(pairing, pairing_id, available, settings, journal), *absent)
    return PairingPlan(items, tuple(not_applicable), applicability.problem(), applicability.remark(), tuple(on_triton))


# Each group of a backend in a dtype is a step of its own in the journal, so that a long plan is not taken for a hang.
def _items(
    pairing: Pairing, pairing_id: str, backends: Sequence[Backend], settings: RunSettings, journal: Journal
) -> Iterator[Item]:
    declared = {backend.id: pairing.on(backend.id) for backend in backends}
    dtypes = {name: signature_dtypes(each, settings.depth) for name, each in declared.items()}
    backends = [each if declared[each.id].reproducible else each.with_program_orders(0) for each in backends]
    for dtype in dict.fromkeys(dtype for each in dtypes.values() for dtype in each):
        served = [backend for backend in backends if dtype in dtypes[backend.id]]
        simulator = next((backend for backend in served if backend.tier is Tier.SIMULATE), None)
        for group in ALL_GROUPS.entries():
            if isinstance(group, FuzzGroup) and not (settings.fuzz and pairing.leaves):
                continue  # without arrays there are no values to draw
            for backend in served:
                journal.enter_phase(Phase.PLANNING)
                if group.applies_to(backend):
                    name, own = str(ItemId.of(pairing_id, backend.id, dtype)), declared[backend.id]
                    lowered = lowered_signatures(own, settings.depth) if backend.lowering_backend() else ()
                    arbiter = simulator if backend.tier is Tier.INTERPRET else None
                    item = Item(name, own, pairing_id, backend, dtype, group, settings, lowered, arbiter)
                    if isinstance(group, FuzzGroup) or next(item.cases(), None) is not None:
                        yield item


def _deprecated(plans: Sequence[PairingPlan]) -> str:
    """Returns what the kernels of a plan lose when JAX removes its Triton backend, or ""."""
    found = [plan for plan in plans if plan.on_triton and plan.items]
    if not found or not TRITON_IS_DEPRECATED:
        return ""
    backends = dict.fromkeys(name for plan in found for name in plan.on_triton)
    count = f"{len(found)} pairings, the first" if len(found) > 1 else "pairing"
    return (
        f"JAX will remove Pallas on Triton, and {count} {found[0].items[0].pairing_id}, will then lose "
        f"{', '.join(backends)}: docs/how-to/mosaic-gpu.md is the way to Mosaic GPU, "
        "and docs/how-to/triton.md the way to Triton itself"
    )


def build_plan(
    plans: Sequence[PairingPlan],
    items: Sequence[Item],
    node_ids: Sequence[str],
    settings: RunSettings,
    *,
    run: str,
    project: Project = UNKNOWN_PROJECT,
    problems: tuple[str, ...] = (),
    internal_errors: tuple[InternalError, ...] = (),
) -> Plan:
    """Returns the plan of a run with an id."""
    whole = (i.backend.wrapped if isinstance(i.backend, UnavailableBackend) else i.backend for i in items)
    backends = {backend.id: backend for backend in whole}
    reasons = {name: backend.unavailable() for name, backend in backends.items()}
    facts = {name: backend.environment() for name, backend in backends.items() if not reasons[name]}
    pairings = {item.pairing_id: item.pairing.origin for item in items}
    warnings = [version_problem(), *(group.problem(items) for group in ALL_GROUPS.entries())]
    warnings += [f"{each.items[0].pairing_id}: {each.remark}" for each in plans if each.items and each.remark]
    planned = {item.pairing_id for item in items if item.dtype != ANY}
    for name, pairing in pairings.items():
        if name not in planned:  # where the pairing hung, so may its declaration
            continue
        warnings += [f"{name} is asked little: {reason}" for reason in find_shortfalls(pairing, settings.depth)]
        if not pairing.xfail:
            continue
        runnable = [item for item in items if item.pairing_id == name and not reasons[item.backend.id]]
        cells = [
            (item.backend.id, item.dtype, item.group.name, family) for item in runnable for family in item.families()
        ]
        warnings += [
            f"an xfail of {name} ({xfail}) matches nothing planned" for xfail in unmatched_xfails(pairing.xfail, cells)
        ]
    return Plan(
        items=tuple(plan_entry(item, name) for item, name in zip(items, node_ids, strict=True)),
        environment={
            **jax_environment(),
            **jax_settings(),
            **({"warning": "; ".join(filter(None, warnings))} if any(warnings) else {}),
            **({"deprecated": text} if (text := _deprecated(plans)) else {}),
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
        run=run,
        project=project,
        problems=problems,
        internal_errors=internal_errors,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        pairings={name: describe_pairing(pairing) for name, pairing in pairings.items()},
        **settings.plan_fields(),
    )


def plan_entry(item: Item, name: str) -> PlannedItem:
    """Returns an item's entry in the plan; `name` is the node id of the pytest item."""
    digests = {family: digest_ids(ids) for family, ids in item.group.ids(item).items()}
    parts = (item.pairing_id, item.backend.id, item.backend.tier, item.dtype, item.group.name)
    return PlannedItem(name, *parts, item.families(), digests)
