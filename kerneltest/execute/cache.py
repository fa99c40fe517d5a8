"""The cache of a process: what the cases of a pairing share, by what it is needed for."""

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field

from kerneltest.backends.base import Artifact, Backend, Executable, FastPath
from kerneltest.core.details import Mismatch
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, Guard
from kerneltest.core.fingerprint import Fingerprint
from kerneltest.core.targets import TPUS
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import JUDGED, WorkBudget
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.expectations import Expectations
from kerneltest.execute.formula import FormulaStore
from kerneltest.execute.process_state import ProcessState
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.records.evidence import Evidence
from kerneltest.records.journal import Phase
from kerneltest.records.schema import Record
from kerneltest.trace.tracing import Traced, trace, trace_in_float64, without_debugging
from kerneltest.trace.triton_kernels import is_triton_call

# The traces that cases run. A mutation test puts a tracer of mutants in the place of this one.


class Tracer:
    """Traces the kernel of a pairing as it is."""

    def trace(self, pairing: Pairing, signature: Signature, platform: str) -> Traced:
        """Returns the kernel traced for a signature, as `trace` does."""
        return trace(pairing, signature, platform)

    def trace_wide(self, pairing: Pairing, signature: Signature, own: Traced, platform: str) -> Traced | None:
        """Returns the kernel traced in float64, or None, as `trace_in_float64` does."""
        return trace_in_float64(pairing, signature, own, platform)

    def trace_variation(self, plain: Traced, make: Callable[[], Traced]) -> Traced:
        """Returns the function that `make` traces for an invariant, which varies the `plain` kernel."""
        return make()


_ANY = "any"  # the platform of a kernel whose trace is the same on all of them


class Traces:
    """The kernel of a pairing, and functions that invariants make of it, traced for each signature."""

    def __init__(self, process: ProcessState, tracer: Tracer) -> None:
        self.tracer = tracer
        self._process = process
        self._kernels: dict[tuple[Signature, str], Traced | Failure] = {}
        self._variations: dict[tuple[Signature, str], Traced] = {}

    def copy(self, process: ProcessState) -> "Traces":
        """Returns traces that start with these, and add to their own."""
        other = Traces(process, self.tracer)
        other._kernels, other._variations = dict(self._kernels), dict(self._variations)
        return other

    def of(self, pairing: Pairing, signature: Signature, backend: Backend) -> Traced:
        """Returns the kernel traced for a signature as for the platform of a backend, or raises as `trace` does."""
        # A trace for a TPU depends on its generation.
        shared = None if backend.platform in TPUS else self._kernels.get((signature, _ANY))
        known = shared or self._kernels.get((signature, backend.platform))
        if known is None:
            self._process.enter_phase(Phase.TRACING)
            self._process.journal.counts["traces"] += 1
            try:
                known = self.tracer.trace(pairing, signature, backend.platform)
                if any(is_triton_call(call.equation) for call in known.calls):
                    # On first use: it evaluates these kernels in NumPy.
                    import kerneltest.backends.simulate.triton_formula  # noqa: F401, PLC0415
            except Failure as failure:
                known = failure
            own = isinstance(known, Failure) or known.by_platform or backend.platform in TPUS
            self._kernels[signature, backend.platform if own else _ANY] = known
        if isinstance(known, Failure):
            raise known.with_traceback(None)
        return known

    def wide(self, pairing: Pairing, signature: Signature, backend: Backend, own: Traced) -> Traced | None:
        """Returns a kernel that was traced in its `own` dtypes, traced in float64; None if that is impossible."""
        self._process.enter_phase(Phase.TRACING)
        return self.tracer.trace_wide(pairing, signature, own, backend.platform if own.by_platform else "")

    def variation(self, plain: Traced, signature: Signature, name: str, make: Callable[[], Traced]) -> Traced:
        """Returns a function that an invariant makes of the `plain` kernel, traced once for a signature and a name."""
        if (signature, name) not in self._variations:
            self._variations[signature, name] = self.tracer.trace_variation(plain, make)
        return self._variations[signature, name]

    def variations(self, name: str) -> list[Traced]:
        """Returns the functions of a name that were traced for any signature."""
        return [traced for (_, known), traced in self._variations.items() if known == name]


_INTERRUPTIBLE = 0.5  # seconds: Python cannot raise into a thread that waits for a lock


class Executables:
    """The traced functions of a pairing, prepared for each backend in threads: the future of each is in `prepared`."""

    def __init__(self, process: ProcessState) -> None:
        self.prepared: dict[tuple[str, Traced], Future[Executable | Artifact]] = {}
        self._process = process
        self._fast_paths: dict[str, FastPath | None] = {}

    def copy(self, process: ProcessState) -> "Executables":
        """Returns executables that start with these, and add to their own; fast paths are shared."""
        other = Executables(process)
        other.prepared, other._fast_paths = dict(self.prepared), self._fast_paths
        return other

    def prepare(self, backend: Backend, traced: Traced) -> "Future[Executable | Artifact]":
        """Returns the future of an executable or artifact; starts its preparation on first use."""
        key = (backend.id, traced)
        if key not in self.prepared:
            self._process.journal.counts[f"prepared for {backend.id}"] += 1
            self.prepared[key] = self._process.pool.submit(_prepare, backend, traced)
        return self.prepared[key]

    def cancel_waiting(self) -> None:
        """Cancels preparations that no thread has begun."""
        self.prepared = {key: future for key, future in self.prepared.items() if not future.cancel()}

    def ready(self, backend: Backend, traced: Traced) -> Executable:
        """Returns the executable of a kernel; raises as `Backend.prepare`, or `unavailable` for the signature."""
        executable = self.wait(backend, traced)
        assert not isinstance(executable, Artifact)
        self._process.enter_phase(Phase.RUNNING)
        return executable

    def wait(self, backend: Backend, traced: Traced) -> Executable | Artifact:
        """Waits for the executable or artifact of a kernel, and returns it, or raises as `ready` does."""
        if (backend.id, traced) not in self.prepared:
            self._process.enter_phase(Phase.COMPILING)  # before it begins, since it may crash the process at once
        future = self.prepare(backend, traced)
        self._process.enter_phase(Phase.COMPILING, is_waiting=not future.done())
        try:
            while not future.done():
                wait([future], timeout=_INTERRUPTIBLE)
        except Failure as hang:  # the watchdog raised it into this thread
            given_up: Future[Executable | Artifact] = Future()
            given_up.set_exception(hang)
            self.prepared[backend.id, traced] = given_up
            self._process.pool.abandon()
            raise
        return future.result()

    def fast_path(self, backend: Backend) -> FastPath | None:
        """Returns a backend's own way to run cases without compiling each signature; None if it has none."""
        if backend.id not in self._fast_paths:
            counts, name = self._process.journal.counts, f"evaluated for {backend.id}"
            ready = functools.partial(self.ready, backend)
            self._fast_paths[backend.id] = backend.fast_path(ready, lambda: counts.update([name]))
        return self._fast_paths[backend.id]


@without_debugging()  # in each thread of the pool
def _prepare(backend: Backend, traced: Traced) -> Executable | Artifact:
    reason = backend.unsupported_reason(traced) or backend.unavailable_for(traced)
    if reason:
        raise Failure(Verdict.UNAVAILABLE, reason)
    return backend.prepare(traced)


class Batch:
    """The cases of the current group that may run at once.

    Attributes:
      cases: by signature.
      outputs: of cases that ran ahead of their turn, or what these raised, by backend and case.
    """

    def __init__(self, process: ProcessState) -> None:
        self.cases: dict[Signature, list[AnyCase]] = {}
        self.outputs: dict[tuple[str, str], tuple[Array, ...] | Exception] = {}
        self._process = process

    def later(self, case: AnyCase) -> Sequence[AnyCase]:
        """Returns the later cases of the same signature that may run in one batch with a case."""
        coming = self.cases.get(case.signature, [])
        return coming[coming.index(case) + 1 :] if self._process.compiles_ahead and case in coming else ()


_MORE = 1.5  # an error budget costs as much as several bounds
_EVIDENCE = 20.0  # work for the findings of a pairing in one dtype
_MOST_EVIDENCE = 1.0  # for one finding


@dataclass(slots=True)
class EvidenceLimits:
    """Limits of what records say about bounds and findings."""

    process: ProcessState
    work: float = _EVIDENCE  # left for the evidence of findings
    # the largest error / bound so far, by backend and family
    largest_fraction: dict[tuple[str, str], float] = field(default_factory=dict)
    known: dict[object, tuple[Mismatch, Evidence]] = field(default_factory=dict)  # by all that they follow from

    def exceeds_earlier_use(self, backend: Backend, family: str, fraction: float) -> bool:
        """Returns whether a case uses 1.5 times as much of its bound as any earlier one of its family on a backend.

        If so, later cases are compared with it.
        """
        more = fraction > _MORE * self.largest_fraction.get((backend.id, family), 0.0)
        if more:
            self.largest_fraction[backend.id, family] = fraction
        return more

    @contextmanager
    def guard(self) -> Iterator[Guard]:
        """Returns the guard for the evidence of one finding, which has a share of the work that is left for all."""
        budget = WorkBudget(min(_MOST_EVIDENCE, self.work))
        try:
            yield Guard(self.process.internal_failures, budget)
        finally:
            self.work -= JUDGED + budget.spent


class Cache:
    """The state that the cases of the current pairing and dtype share; that of the next ones replaces it.

    Compilation and the oracle dominate the cost of a run, so neither is repeated for another backend or case.

    Attributes:
      process: the state of the process that runs the cases.
      owner: identifies the pairing and the dtype; None before the first one.
      traces, executables, expectations, batch, evidence: of the pairing.
      fingerprints: of traced functions, and of the inputs and the expectations of cases, with or without bounds.
      formulas: what is known of its kernels without rounding.
      passes: the executable and the record of cases that passed, by the executable's identity and the case.
    """

    def __init__(
        self,
        process: ProcessState | None = None,
        *,
        tracer: Tracer | None = None,
        owner: tuple[int, int, str] | None = None,
    ) -> None:
        self.process = process or ProcessState()
        self._begin(owner, tracer or Tracer())

    def _begin(self, owner: tuple[int, int, str] | None, tracer: Tracer) -> None:
        self.owner = owner
        self.traces = Traces(self.process, tracer)
        self.executables = Executables(self.process)
        self.expectations = Expectations(self.process)
        self.batch = Batch(self.process)
        self.evidence = EvidenceLimits(self.process)
        self.fingerprints: dict[Traced | tuple[str, bool], Fingerprint] = {}
        self.formulas = FormulaStore(self.process)
        self.passes: dict[tuple[int, str], tuple[Executable, Record]] = {}

    def switch_to(self, pairing: Pairing, dtype: str) -> None:
        """Forgets everything that belongs to another pairing or dtype."""
        owner = id(pairing.kernel), id(pairing.oracle), dtype  # the same on all backends
        if self.owner != owner:
            self._begin(owner, self.traces.tracer)

    def branch(self) -> "Cache":
        """Returns a cache for other cases of the pairing, which starts with this one's traces and executables."""
        other = copy(self)
        other.traces, other.executables = self.traces.copy(self.process), self.executables.copy(self.process)
        other.expectations, other.evidence = Expectations(self.process), copy(self.evidence)
        return other
