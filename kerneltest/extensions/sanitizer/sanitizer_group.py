"""The group that runs signatures again under a tool that watches memory: one case for each tool and signature."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import jax

from kerneltest.backends.base import Backend
from kerneltest.core.failures import Failure
from kerneltest.core.group_names import SANITIZED
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.group_registry import register_group
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.xfails import quarantined
from kerneltest.extensions.sanitizer import SANITIZE, export
from kerneltest.extensions.sanitizer.errors import Error, failure_of
from kerneltest.extensions.sanitizer.session import Changed, Job, Place, Seen, examine
from kerneltest.extensions.sanitizer.tools import GUARDS, TOOLS, missing, serves
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import FAMILIES, Family, Rng, is_data
from kerneltest.plan.signatures import signatures
from kerneltest.plan.slots import Slot
from kerneltest.records.journal import Phase
from kerneltest.trace.accesses import defined_at, lines_of, on_device
from kerneltest.trace.tracing import Traced, device

_LINES = 4  # named in a message


def family_of(tool: str) -> Family:
    """Under what a tool's cases are recorded: every element of their arrays says where it came from."""

    def make(slot: Slot, rng: Rng) -> object:
        return FAMILIES["position_coded"].make(slot, rng)

    make.__doc__ = TOOLS[tool]
    return Family(tool, SANITIZED, make, is_data, False, True)  # type: ignore[arg-type]


_FAMILIES = {tool: family_of(tool) for tool in TOOLS}


class Sanitized(Group):
    """Signatures under compute-sanitizer's tools and between guard zones."""

    name = SANITIZED

    def __init__(self) -> None:
        self._waiting: list[AnyCase] = []
        self._seen: dict[str, Seen | Failure] = {}

    def family_named(self, name: str) -> Family | None:
        return _FAMILIES.get(name)

    def problem(self, items: Sequence[Item]) -> str:
        mine = [item for item in items if item.group.name == SANITIZED]
        asked = items[0].settings.get(SANITIZE) if items else ()
        if asked and not mine:
            return f"--kt-sanitize: {', '.join(asked)} not run: none of the available backends is a device they support"
        absent = [tool for tool in TOOLS if missing(tool) and any(tool in item.families() for item in mine)]
        return f"--kt-sanitize: {', '.join(absent)} not run: {missing(absent[0])}" if absent else ""

    def is_asked_of(self, backend: Backend) -> bool:
        return backend.tier is Tier.DEVICE and any(serves(tool, backend.id) for tool in TOOLS)

    def cases(self, item: Item) -> Iterator[AnyCase]:
        for tool in item.settings.get(SANITIZE):
            for signature in signatures(item.pairing, item.depth) if serves(tool, item.backend.id) else ():
                if signature.dtype == item.dtype:
                    yield Case(item.pairing_id, item.pairing.name, signature, _FAMILIES[tool], "", item.seed)

    def outcomes(
        self, item: Item, planned: Sequence[AnyCase], cache: Cache, judged: Callable[[AnyCase], Outcome]
    ) -> Iterator[Outcome]:
        self._waiting, self._seen = list(planned), {}
        yield from super().outcomes(item, planned, cache, judged)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """A pass where the tool found nothing in the Pallas calls of a case.

        Raises:
          Failure: what it found, or why the case could not be run under it.
        """
        tool = case.family.name
        if reason := missing(tool):
            raise Failure(Verdict.UNAVAILABLE, reason)
        if case.id not in self._seen:
            self._examine(item, case, cache)
        seen = self._seen.pop(case.id)
        if isinstance(seen, Failure):
            raise seen.with_traceback(None)
        traced = cache.traced(item.pairing, case.signature, item.backend)
        mine = [error for error in seen.errors if _accused(traced, error)]
        if mine:
            raise failure_of(tool, mine, seen.arrays, lambda error: _described(traced, error))
        if seen.failure is not None:
            raise seen.failure.with_traceback(None)
        if seen.changed:
            raise _overrun(seen.changed)
        if seen.elsewhere and tool == GUARDS:
            where = ", ".join(f"output {number}" for number in seen.elsewhere)
            raise Failure(
                Verdict.UNAVAILABLE, f"XLA does not put {where} where guard zones are; no other was written to"
            )
        return Outcome(
            item.record(Verdict.PASS, _besides(tool, seen.errors), case=case, compared=_compared(traced, seen, tool))
        )

    def _examine(self, item: Item, case: AnyCase, cache: Cache) -> None:
        """Runs a case under its tool, and with it those after it that wait for the same tool."""
        tool = case.family.name
        # With a budget the next case may be one too many.
        alike = [] if cache.process.budget is not None else [each for each in self._waiting if each.family.name == tool]
        ids = [each.id for each in alike]
        batch = alike[ids.index(case.id) :] if case.id in ids else [case]
        cases = {each.id: each for each in batch if each is case or not _quarantined(item, each)}
        jobs: list[Job] = []
        traces: dict[str, Traced] = {}
        with ExitStack() as stack:
            for each in cases.values():
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                try:
                    traces[each.id] = cache.traced(item.pairing, each.signature, item.backend)
                    jobs.append(_written(item, each, cache, traces[each.id], folder))
                except Failure as failure:
                    self._seen[each.id] = failure

            def begin(job: Job) -> None:
                cache.turn_to_case(item.name, cases[job.id])
                cache.turn_to_phase(Phase.RUNNING)

            place = _place(tool, item.backend.id)
            try:
                self._seen |= examine(place, jobs, lambda job, error: _accused(traces[job.id], error), begin)
            except Failure as failure:
                self._seen |= {job.id: failure for job in jobs}
        cache.turn_to_case(item.name, case)


def _quarantined(item: Item, case: AnyCase) -> bool:
    return bool(quarantined(item.pairing.xfail, item.backend.id, item.dtype, case.family.name, str(case.signature)))


def _place(tool: str, platform: str) -> Place:
    there = jax.devices(platform)
    x64 = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    return Place(tool, platform, there.index(device(platform)), x64)


def _written(item: Item, case: AnyCase, cache: Cache, traced: Traced, folder: Path) -> Job:
    arguments = cache.arguments(item.pairing, case)
    names = tuple(path for path, _ in case.signature.dtypes)
    cache.turn_to_phase(Phase.COMPILING)
    export.write(traced, [arguments[name] for name in names], item.backend.id, folder)
    return Job(case.id, folder, names)


def _accused(traced: Traced, error: Error) -> bool:
    """Whether an error happened in a Pallas call, and not in what XLA makes of the code around it."""
    return any(error.kernel.startswith(on_device(call.name)) for call in traced.calls if call.name)


def _described(traced: Traced, error: Error) -> str:
    """The kernel of an error: its name, and where it reads or writes, or else where it is defined."""
    fitting = (call for call in traced.calls if call.name and error.kernel.startswith(on_device(call.name)))
    call = max(fitting, key=lambda call: len(call.name))
    lines = lines_of(call, error.access)
    if not lines:
        where = defined_at(call)
        return f"kernel {call.name} ({where})" if where else f"kernel {call.name}"
    more = f" and {len(lines) - _LINES} more lines" if len(lines) > _LINES else ""
    return f"kernel {call.name}, which {error.access}s at {', '.join(lines[:_LINES])}{more},"


def _overrun(changed: Sequence[Changed]) -> Failure:
    lines = []
    for zone in changed:
        where = "past the end" if zone.side == "after" else "before the start"
        span = f"byte {zone.first:,}" if zone.first == zone.last else f"bytes {zone.first:,} to {zone.last:,}"
        count = f"{zone.count:,} byte{'s' if zone.count > 1 else ''}"
        lines.append(f"guards: the kernel wrote {count} {where} of {zone.array}: {span} {zone.side} it")
    return Failure(Verdict.OUT_OF_BOUNDS, "\n".join(lines))


def _besides(tool: str, errors: Sequence[Error]) -> str:
    """A note of errors outside the Pallas calls."""
    kernels = sorted({error.kernel or "no kernel" for error in errors})
    return (
        f"{tool} also found {len(errors)} errors outside the Pallas calls, in {', '.join(kernels)}" if kernels else ""
    )


def _compared(traced: Traced, seen: Seen, tool: str) -> int:
    return 2 * len(seen.arrays) if tool == GUARDS else len(traced.calls)


register_group(Sanitized(), order=70)
