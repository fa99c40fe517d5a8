"""What the cases of a pairing share: traces, the oracle's answers, prepared executables."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from kerneltest.backends import Artifact, Backend, Executable
from kerneltest.plan.drawn import AnyCase
from kerneltest.core.dtypes import Array
from kerneltest.oracle.expectation import Expectation, OracleError, check_all_masked, expect
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature
from kerneltest.jaxprs.trace import Traced, TraceError, trace


@dataclass(slots=True)
class Memory:
    """What cases share: traces and expectations of one pairing and dtype, what backends prepared.

    Compilation and the oracle are the cost, so nothing here is done twice while the same pairing and dtype are in
    hand; the next ones clear it.
    """

    owner: tuple[int, str] | None = None
    traces: dict[Signature, Traced | TraceError] = field(default_factory=dict)
    prepared: dict[tuple[str, Traced], "Future[Executable | Artifact]"] = field(default_factory=dict)
    expectations: dict[str, tuple[Mapping[str, Array], Expectation | OracleError, bool]] = field(default_factory=dict)
    repeated: set[tuple[str, Signature]] = field(default_factory=set)
    varied: dict[tuple[Signature, str], Traced] = field(default_factory=dict)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_compilers()))

    def turn_to(self, pairing: Pairing, dtype: str) -> None:
        if self.owner != (id(pairing), dtype):
            self.owner = (id(pairing), dtype)
            for store in (self.traces, self.prepared, self.expectations, self.repeated, self.varied):
                store.clear()

    def traced(self, pairing: Pairing, signature: Signature) -> Traced | TraceError:
        if signature not in self.traces:
            try:
                self.traces[signature] = trace(pairing, signature)
            except TraceError as error:
                self.traces[signature] = error
        return self.traces[signature]

    def preparing(self, backend: Backend, traced: Traced) -> "Future[Executable | Artifact]":
        """What a backend makes, or is making, of a traced kernel."""
        key = (backend.id, traced)
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


def _compilers() -> int:
    """How many compilations to run side by side: the processors, shared among xdist's workers."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)
