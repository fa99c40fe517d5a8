"""Applicability: which backends serve any signature of a kernel, and whether any signature reaches a Pallas call."""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kerneltest.backends.base import Backend
from kerneltest.core.details import Raised
from kerneltest.core.failures import Failure, assign_blame, check_raises_again, reraise_interrupt
from kerneltest.core.source_location import location_of_argument, relative_path, source_line
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.journal import Journal, Phase
from kerneltest.records.run_plan import innermost_function
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.tracing import Traced, trace
from kerneltest.trace.walk import primitive_name

NO_CALL = "no signature reaches a Pallas call, so there is no kernel to test"

_MOST_FAILURES = 3  # signatures that fail one after another, before the rest is taken to fail, too


class PlanTraces:
    """The traces for which one plan of a pairing asks. Later plans may be made with other settings of JAX."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.known: dict[tuple[Pairing, Signature, str], Traced | Failure] = {}

    def of(self, pairing: Pairing, signature: Signature, platform: str = "") -> Traced | Failure:
        """Returns a kernel's trace for a platform, or its failure; raises hangs, and what fails the first time only."""
        key = pairing.origin, signature, platform
        if key not in self.known:
            self.journal.enter_phase(Phase.TRACING)  # a step of its own, for which the whole time limit is left
            try:
                self.known[key] = _trace(pairing, signature, platform)
            finally:
                self.journal.enter_phase(Phase.PLANNING)
        return self.known[key]


def _trace(pairing: Pairing, signature: Signature, platform: str) -> Traced | Failure:
    try:
        return trace(pairing, signature, platform)
    except BaseException as error:
        reraise_interrupt(error)
        failure = assign_blame(error, Phase.TRACING)
        if failure.verdict is Verdict.HANG:
            raise failure from None
        check_raises_again(failure, "", lambda: trace(pairing, signature, platform))
        return failure


# The traces of the pairing that is being planned; None while a case is judged, whose steps are its own.
_PLAN: ContextVar[PlanTraces | None] = ContextVar("_PLAN", default=None)


@contextmanager
def note_traces(journal: Journal) -> Iterator[PlanTraces]:
    """Makes each trace that a plan asks for once."""
    traces = PlanTraces(journal)
    token = _PLAN.set(traces)
    try:
        yield traces
    finally:
        _PLAN.reset(token)


def trace_if_possible(pairing: Pairing, signature: Signature) -> Traced | None:
    """Returns the trace of a kernel; None if it fails. It raises as `PlanTraces.of` does."""
    plan = _PLAN.get()
    found = plan.of(pairing, signature) if plan is not None else _trace(pairing, signature, "")
    return found if isinstance(found, Traced) else None


class Applicability:
    """The applicability of a pairing, signature by signature. Kernels are traced only as far as an answer needs it."""

    def __init__(self, pairing: Pairing, depth: str, traces: PlanTraces) -> None:
        self._pairing, self._depth, self._traces = pairing, depth, traces

    def judge(self, backend: Backend) -> tuple[str, Traced | Failure | None]:
        """Returns why a backend serves no signature of the kernel, or "", and how the kernel is traced for it.

        The trace is that of the first signature that the backend serves, or the failure if all fail.
        """
        declared = self._pairing.on(backend.id)
        reasons, failures = list[str](), list[Failure]()
        fails_here = False  # on this platform, and not on all
        refused = set[tuple[str, object]]()  # lengths, dtypes and options: a kernel chooses its calls by one of these
        for signature in signatures(declared, self._depth):
            choices = {*signature.dims, *signature.dtypes, *signature.statics}
            if choices and choices <= refused:
                continue
            traced = general = self._traces.of(declared, signature)
            if isinstance(general, Traced) and backend.platform and general.by_platform:
                traced = self._traces.of(declared, signature, backend.platform)
            if isinstance(traced, Failure):
                reason = _refusal(traced) if traced is not general else ""
            else:
                reason = backend.unsupported_reason(traced) if traced.uses_call else NO_CALL
            if reason:
                reasons.append(reason)
                refused |= choices if reason != NO_CALL else set()  # it may need several of them to make a call
            elif isinstance(traced, Traced):
                return "", traced
            else:
                failures.append(traced)
                fails_here |= traced is not general
                if len(failures) == _MOST_FAILURES and not reasons:
                    break
        if fails_here or not reasons:
            return "", failures[-1] if failures else None
        # A signature without a call says less than one with a call that the backend does not serve.
        return next((reason for reason in reasons if reason != NO_CALL), NO_CALL), None

    def problem(self) -> str:
        """Returns a sentence if no signature has a Pallas call and an output to test; "" if one has, or may have."""
        planned, is_kernel, calls = signatures(self._pairing, self._depth), False, False
        for signature in planned:
            traced = self._traces.of(self._pairing, signature)
            if isinstance(traced, Failure) or (
                traced.uses_call and any(0 not in each.shape for each in traced.outputs)
            ):
                return ""
            is_kernel, calls = is_kernel or traced.uses_call, calls or bool(traced.calls)
        if is_kernel:
            return "every output is empty for all planned lengths, so there is nothing to compare"
        if not planned:
            return (
                "no planned lengths meet where= or select a row of a table of kt.static.from_table: declare such "
                "lengths, as in n=kt.dim(values=...), or correct where= or key="
            )
        count = f"none of its {len(planned)} signatures reaches" if len(planned) > 1 else "it never reaches"
        used = " whose result is used" if calls else ""
        return f"{count} a Pallas call{used}, so there is no kernel to test"

    def remark(self) -> str:
        """Returns a sentence if `interpret=True` is written in the kernel; "" if not, as far as it was traced."""
        place = next(self._interpreted_places(), "")
        return place and (
            f"interpret=True is written in the kernel ({place}). kerneltest replaces it, but elsewhere it keeps the "
            "kernel from being compiled: remove it"
        )

    def _interpreted_places(self) -> Iterator[str]:
        parameter = inspect.signature(self._pairing.kernel).parameters.get("interpret")
        if parameter is not None and parameter.default is True and "interpret" not in self._pairing.arguments:
            code = getattr(innermost_function(self._pairing.kernel), "__code__", None)
            if code is not None:
                yield f"{relative_path(code.co_filename)}:{code.co_firstlineno}"
        for traced in self._traces.known.values():
            for call in traced.calls if isinstance(traced, Traced) else ():
                place = location_of_argument(line_of(call.equation.source_info), "interpret")
                if _INTERPRETS.search(source_line(place)):
                    yield place


def runs_on_triton(backend: Backend, kernel: Traced) -> bool:
    """Returns whether a backend lowers a call of a kernel by JAX's Triton backend, as it does a `pallas_call`."""
    return backend.platform in ("cuda", "rocm") and any(
        primitive_name(call.equation) == "pallas_call" and call.dialect in ("any", "triton") for call in kernel.calls
    )


def reaches_kernel(traced: Traced) -> bool:
    """Returns whether a call makes a Pallas call, or has an empty array, for which it needs none."""
    return traced.uses_call or any(0 in each.shape for each in (*traced.inputs, *traced.outputs))


_INTERPRETS = re.compile(r"\binterpret\s*=\s*(?:True\b|[\w.]*InterpretParams)")
_ON_PURPOSE = re.compile(r"\b(?:raise|assert)\b")


def _refusal(failure: Failure) -> str:
    """Returns that a kernel, which asks for the platform and accepts others, refuses this one on purpose, or ""."""
    detail = failure.detail
    if not isinstance(detail, Raised) or not _ON_PURPOSE.search(source_line(detail.source)):
        return ""
    return f"the kernel refuses the platform: {detail.error}: {detail.said} ({detail.source})"


def absence(backend: Backend, kernel: Traced | Failure | None) -> str:
    """Returns why this machine cannot run a kernel on a backend, or ""."""
    if reason := backend.unavailable():
        return reason
    if isinstance(kernel, Failure):
        return str(kernel) if kernel.verdict is Verdict.UNAVAILABLE else ""
    return backend.unavailable_for(kernel) if kernel is not None else ""
