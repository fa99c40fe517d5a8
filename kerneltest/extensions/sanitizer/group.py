"""The group that runs signatures under tools that watch memory: one case for each tool and signature."""

import dataclasses
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import jax
from jax import export

from kerneltest.backends.base import Backend
from kerneltest.core.details import Access, MemoryFault, Visit
from kerneltest.core.dtypes import Array, is_packed
from kerneltest.core.failures import Failure, format_exception
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Group, Item, Outcome, quarantine_reason
from kerneltest.execute.planning import register_group
from kerneltest.extensions.sanitizer import SANITIZE
from kerneltest.extensions.sanitizer.processes import (
    ExportedCase,
    GuardZoneWrite,
    KernelSite,
    SanitizedCase,
    SanitizerError,
    ToolSetup,
    failure_of,
    run_cases,
)
from kerneltest.extensions.sanitizer.tools import GUARDS, TOOLS, reason_missing, supports
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import FAMILIES, Family, Rng, is_data
from kerneltest.plan.signatures import signatures
from kerneltest.plan.slots import Slot
from kerneltest.records.journal import Phase
from kerneltest.trace.cost_model import access_lines, definition_line, device_name
from kerneltest.trace.platform_dispatch import abstract_platform
from kerneltest.trace.runnable import runnable
from kerneltest.trace.tracing import Traced, kernel_device

# Export of a traced kernel and a case's inputs to a folder, for a process that does not import the user's code.

# The custom calls of Pallas have no compatibility guarantee across versions of JAX; both processes use the same one.
_CALLS = ("__gpu$xla.gpu.triton", "triton_kernel_call", "mosaic_gpu_v2", "mosaic_gpu")
_CHECKS = [export.DisabledSafetyCheck.custom_call(name) for name in _CALLS]


def write_kernel(traced: Traced, leaves: Sequence[Array], platform: str, folder: Path) -> None:
    """Writes a traced kernel, lowered for `cuda` or `rocm`, to `folder`, with its inputs; raises a Failure."""
    if traced.eager:
        raise Failure(
            Verdict.UNAVAILABLE, "a kernel that is called outside jax.jit cannot be exported to another process"
        )
    packed = next((each for each in (*traced.inputs, *traced.outputs) if is_packed(each.dtype)), None)
    if packed is not None:
        raise Failure(Verdict.UNAVAILABLE, f"elements of {packed.dtype} have no addresses of their own")
    shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype) for i in traced.inputs]
    function = jax.jit(runnable(traced, interpret=False))
    try:
        with abstract_platform("" if _has_device(platform) else platform):
            exported = export.export(function, platforms=[platform], disabled_checks=_CHECKS)(*shapes)
    except Exception as error:  # other groups report kernels that do not lower
        line = format_exception(error).splitlines()[0]
        raise Failure(Verdict.UNAVAILABLE, f"JAX cannot export the kernel: {line}") from error
    with (folder / "exported.pickle").open("wb") as file:
        pickle.dump(dataclasses.replace(exported, _get_vjp=None), file)
    for number, leaf in enumerate(leaves):
        leaf.tofile(folder / f"{number}.bin")


def _has_device(platform: str) -> bool:
    try:
        return bool(jax.devices(platform))
    except RuntimeError:
        return False


def family_of(tool: str) -> Family:
    """Returns the family of a tool's cases, whose values encode the position of each element."""

    def make(slot: Slot, rng: Rng) -> object:
        return FAMILIES["position_coded"].make(slot, rng)

    make.__doc__ = TOOLS[tool]
    return Family(tool, GroupName.SANITIZED, make, is_data, False, True)  # type: ignore[arg-type]


_FAMILIES = {tool: family_of(tool) for tool in TOOLS}


class SanitizedGroup(Group):
    """Signatures under the tools of compute-sanitizer and between guard zones."""

    name = GroupName.SANITIZED

    def __init__(self) -> None:
        self._pending: list[AnyCase] = []
        self._results: dict[str, SanitizedCase | Failure] = {}

    def find_family(self, name: str) -> Family | None:
        return _FAMILIES.get(name)

    def problem(self, items: Sequence[Item]) -> str:
        mine = [item for item in items if item.group.name == GroupName.SANITIZED]
        asked = items[0].settings.get(SANITIZE) if items else ()
        if asked and not mine:
            return f"--kt-sanitize: {', '.join(asked)} not run: none of the available backends is a device they support"
        absent = [tool for tool in TOOLS if reason_missing(tool) and any(tool in item.families() for item in mine)]
        return f"--kt-sanitize: {', '.join(absent)} not run: {reason_missing(absent[0])}" if absent else ""

    def applies_to(self, backend: Backend) -> bool:
        return backend.tier is Tier.DEVICE and any(supports(tool, backend.id) for tool in TOOLS)

    def cases(self, item: Item) -> Iterator[AnyCase]:
        for tool in item.settings.get(SANITIZE):
            if supports(tool, item.backend.id):
                yield from item.cases_at(signatures(item.pairing, item.depth), _FAMILIES[tool])

    def outcomes(
        self, item: Item, planned: Sequence[AnyCase], cache: Cache, judge_case: Callable[[AnyCase], Outcome]
    ) -> Iterator[Outcome]:
        self._pending, self._results = list(planned), {}
        yield from super().outcomes(item, planned, cache, judge_case)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """Passes a case in whose Pallas calls the tool found no error."""
        tool = case.family.name
        if reason := reason_missing(tool):
            raise Failure(Verdict.UNAVAILABLE, reason)
        if case.id not in self._results:
            self._run(item, case, cache)
        result = self._results.pop(case.id)
        if isinstance(result, Failure):
            raise result.with_traceback(None)
        traced = cache.traces.of(item.pairing, case.signature, item.backend)
        errors = [error for error in result.errors if _is_in_kernel(traced, error)]
        if errors:
            raise failure_of(tool, errors, result.arrays, lambda error: _site(traced, error))
        if result.failure is not None:
            raise result.failure.with_traceback(None)
        if result.zone_writes:
            raise _overrun(result.zone_writes)
        if result.unguarded and tool == GUARDS:
            arrays = ", ".join(f"output {number}" for number in result.unguarded)
            raise Failure(
                Verdict.UNAVAILABLE, f"XLA does not put {arrays} between guard zones; no other zone was written to"
            )
        compared = 2 * len(result.arrays) if tool == GUARDS else len(traced.calls)
        return Outcome(item.record(Verdict.PASS, _note(tool, result.errors), case=case, compared=compared))

    def _run(self, item: Item, case: AnyCase, cache: Cache) -> None:
        tool, platform = case.family.name, item.backend.id
        # With a time budget, the next case may not run at all.
        pending = self._pending if cache.process.budget is None else []
        batch = [other for other in pending if other.family.name == tool]
        ids = [other.id for other in batch]
        batch = batch[ids.index(case.id) :] if case.id in ids else [case]
        cases = {other.id: other for other in batch if other is case or not quarantine_reason(item, other)}
        exported: list[ExportedCase] = []
        traces: dict[str, Traced] = {}
        with ExitStack() as stack:
            for case_id, other in cases.items():
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                try:
                    traces[case_id] = cache.traces.of(item.pairing, other.signature, item.backend)
                    arguments = cache.expectations.arguments(item.pairing, other)
                    names = tuple(path for path, _ in other.signature.dtypes)
                    cache.process.enter_phase(Phase.COMPILING)
                    write_kernel(traces[case_id], [arguments[name] for name in names], platform, folder)
                    exported.append(ExportedCase(case_id, folder, names))
                except Failure as failure:
                    self._results[case_id] = failure

            def begin(started: ExportedCase) -> None:
                cache.process.begin_case(item.name, cases[started.id])
                cache.process.enter_phase(Phase.RUNNING)

            def concerns(ended: ExportedCase, error: SanitizerError) -> bool:
                return _is_in_kernel(traces[ended.id], error)

            x64 = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
            setup = ToolSetup(tool, platform, jax.devices(platform).index(kernel_device(platform)), x64)
            try:
                self._results |= run_cases(setup, exported, concerns, begin)
            except Failure as failure:
                self._results |= {ended.id: failure for ended in exported}
        cache.process.begin_case(item.name, case)


# Rather than in code that XLA generates around the Pallas calls.
def _is_in_kernel(traced: Traced, error: SanitizerError) -> bool:
    return any(error.kernel.startswith(device_name(call.name)) for call in traced.calls if call.name)


def _site(traced: Traced, error: SanitizerError) -> KernelSite:
    calls = (call for call in traced.calls if call.name and error.kernel.startswith(device_name(call.name)))
    call = max(calls, key=lambda call: len(call.name))
    return KernelSite(call.name, access_lines(call, error.access), definition_line(call))


def _overrun(writes: Sequence[GuardZoneWrite]) -> Failure:
    lines, elements = [], []
    for zone in writes:
        where = "past the end" if zone.side == "after" else "before the start"
        span = f"byte {zone.first:,}" if zone.first == zone.last else f"bytes {zone.first:,} to {zone.last:,}"
        count = f"{zone.count:,} byte{'s' if zone.count > 1 else ''}"
        elements.append(f"{span} {zone.side} it")
        lines.append(f"guards: the kernel wrote {count} {where} of {zone.array}: {elements[-1]}")
    first, *others = lines
    detail = MemoryFault("", Visit(Access.STORE), writes[0].array.name, elements[0], words=first, others=tuple(others))
    return Failure(Verdict.OUT_OF_BOUNDS, detail)


def _note(tool: str, errors: Sequence[SanitizerError]) -> str:
    kernels = ", ".join(sorted({error.kernel or "no kernel" for error in errors}))
    return f"{tool} also found {len(errors)} errors outside the Pallas calls, in {kernels}" if kernels else ""


register_group(SanitizedGroup(), order=70)
