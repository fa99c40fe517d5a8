"""`kt.prove`: proofs of kernels at all sizes, and counterexamples that the simulator confirms."""

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from kerneltest.backends.codegen.tiers import lower_call
from kerneltest.backends.simulate.at_scale import faults_on_zeros
from kerneltest.backends.simulate.backend import allocate_buffers, input_contents
from kerneltest.backends.simulate.memory import Fault
from kerneltest.backends.simulate.simulation import Simulation
from kerneltest.core.details import MemoryFault, Race
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.form_learning import FormLearner, Forms
from kerneltest.extensions.proofs.formulas import Sizes
from kerneltest.extensions.proofs.lowered_code import Undecided, parse_code
from kerneltest.extensions.proofs.obligations import FormVerifier, Obligation, candidate_sizes, describe_conditions
from kerneltest.extensions.proofs.solver import MISSING, available
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.trace.partial_arrays import PartialArray
from kerneltest.trace.runnable import call_arrays
from kerneltest.trace.tracing import trace

_SECONDS = 20.0  # to search for a counterexample to one obligation
_MAX_ITERATIONS = 20_000  # of a loop in a replay
_MAX_ELEMENTS = 2**22  # of all arrays together, up to which a replay allocates them
_COMBINATIONS = 64  # of listed lengths, up to which each is proved by itself


class ProofKind(StrEnum):
    """The outcomes of a proof."""

    PROVED = "proved"
    COUNTEREXAMPLE = "counterexample"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True)
class Counterexample:
    """A wrong use of memory by a kernel, which the simulator confirms.

    Attributes:
      verdict: `out_of_bounds` or `race`.
      sizes: lengths of the dims.
      programs: the program, or the two that race, by their ids along x, y and z.
      lane: of the tensor, by axis.
      access: the access or the two accesses, with their source lines.
      message: the fault in the simulator's words.
      detail: the fault as data.
    """

    verdict: Verdict
    sizes: Mapping[str, int]
    programs: tuple[tuple[int, ...], ...]
    lane: tuple[int, ...]
    access: str
    message: str
    detail: MemoryFault | Race

    @property
    def origin(self) -> str:
        """The sizes, programs, lane and access, in words."""
        sizes = ", ".join(f"{name}={length}" for name, length in self.sizes.items())
        who = " and ".join(f"({', '.join(map(str, ids))})" for ids in self.programs)
        lane = f", lane ({', '.join(map(str, self.lane))})" if self.lane else ""
        where = f"{sizes or 'the only size'}, program {who}{lane}"
        return f"first found at {where}: {self.access}"

    def __str__(self) -> str:
        return f"{self.message}\n{self.origin}"


@dataclass(frozen=True)
class Proof:
    """The answer for one Pallas call, with one choice of dtypes and static arguments.

    Attributes:
      kind: the outcome.
      call: the name of the kernel function.
      signature: the dtypes and static arguments; its lengths are irrelevant.
      conditions: of the proof, in words.
      reason: the reason why it is not decided, with the operation that stands in the way; "" for other outcomes.
      counterexample: None for other outcomes.
      seconds: the time that the answer took.
    """

    kind: ProofKind
    call: str
    signature: Signature
    conditions: tuple[str, ...] = ()
    reason: str = ""
    counterexample: Counterexample | None = None
    seconds: float = 0.0

    @property
    def options(self) -> str:
        return str(replace(self.signature, dims=()))

    def __str__(self) -> str:
        head = f"{self.call} [{self.options}]: {self.kind}"
        if self.kind is ProofKind.PROVED:
            conditions = "".join(f"\n  - {condition}" for condition in self.conditions)
            return f"{head} in bounds and without int32 overflow or races, in {self.seconds:.1f} s, if{conditions}"
        return f"{head}: {self.counterexample or self.reason}".replace("\n", "\n  ")


def prove(pairing: Pairing, *, target: str = "sm_90") -> tuple[Proof, ...]:
    """Proves that a kernel's accesses are in bounds, its indices do not overflow and its programs do not race.

    Args:
      pairing: of the kernel; the proof covers all its sizes, dtypes and static arguments.
      target: a GPU, as in backend ids.

    Returns:
      An answer for each Pallas call, with each choice of dtypes and static arguments.

    Raises:
      ValueError: the target is unknown; lists the known ones.
      ModuleNotFoundError: z3 is not installed; says how to install it.
    """
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; known are {', '.join(TARGETS)}")
    if not available():
        raise ModuleNotFoundError(MISSING)
    return tuple(proof for choice in choices(pairing) for proof in prove_choice(pairing, choice, TARGETS[target]))


def choices(pairing: Pairing) -> tuple[Signature, ...]:
    """Returns a signature for each choice of dtypes and static arguments that a standard run has."""
    found: dict[object, Signature] = {}
    for signature in signatures(pairing, "standard"):
        found.setdefault((signature.dtypes, signature.statics), signature)
    return tuple(found.values())


def prove_choice(pairing: Pairing, signature: Signature, target: Target) -> tuple[Proof, ...]:
    """Returns an answer for each Pallas call, with the dtypes and static arguments of a signature."""
    started = time.perf_counter()
    try:
        found = FormLearner(pairing, signature, target).learn()
        if not found.calls:
            raise Undecided("no Pallas call")
    except (Undecided, Failure) as reason:
        name, seconds = getattr(pairing.kernel, "__name__", pairing.name), time.perf_counter() - started
        return (Proof(ProofKind.NOT_DECIDED, name, signature, reason=str(reason), seconds=seconds),)
    learning_seconds = (time.perf_counter() - started) / len(found.calls)
    proofs = []
    for number in range(len(found.calls)):
        started = time.perf_counter()
        proof = _ProofSearch(pairing, signature, target, found, number).prove_call()
        proofs.append(replace(proof, seconds=learning_seconds + time.perf_counter() - started))
    return tuple(proofs)


@dataclass(frozen=True)
class _ProofSearch:
    """The search for proofs of one call's obligations and for counterexamples."""

    pairing: Pairing
    signature: Signature
    target: Target
    found: Forms
    number: int  # of the call

    def prove_call(self) -> Proof:
        call = self.found.calls[self.number]
        name = next(form.code.name for form in call if form.code is not None)
        reasons = []
        for form in call:
            if form.code is None:
                continue
            try:
                verifier = FormVerifier(self.pairing, form, self.found.language)
                obligations = verifier.obligations()
            except Undecided as reason:
                reasons.append(str(reason))
                continue
            for obligation in obligations:
                if self._is_proved(obligation):
                    continue
                found = None if verifier.depends_on_data(obligation) else self._counterexample(verifier, obligation)
                if found is not None:
                    return Proof(ProofKind.COUNTEREXAMPLE, name, self.signature, counterexample=found)
                if verifier.check(obligation.negation, {}, exact=True).kind != "unsat":
                    unknown = verifier.unknown_operations(obligation)
                    reasons.append(
                        f"{unknown} cannot be followed, and whether {obligation.violation} depends on it"
                        if unknown
                        else f"z3 does not decide whether {obligation.violation}"
                    )
        if reasons:
            return Proof(ProofKind.NOT_DECIDED, name, self.signature, reason=reasons[0])
        conditions = tuple(describe_conditions(self.pairing, self.signature, self.target, self.found, call))
        return Proof(ProofKind.PROVED, name, self.signature, conditions=conditions)

    def _is_proved(self, obligation: Obligation) -> bool:
        if obligation.is_proved({}):
            return True
        lists = {name: sorted(set(dim.values)) for name, dim in self.pairing.dims.items() if dim.values}
        if not lists or math.prod(map(len, lists.values())) > _COMBINATIONS:
            return False
        return all(
            obligation.is_proved(dict(zip(lists, row, strict=True))) for row in itertools.product(*lists.values())
        )

    def _counterexample(self, verifier: FormVerifier, obligation: Obligation) -> Counterexample | None:
        until = time.monotonic() + _SECONDS
        # Any fault refutes that an index does not overflow.
        wanted = {obligation.verdict} if obligation.about_memory else {Verdict.OUT_OF_BOUNDS, Verdict.RACE}
        for sizes in candidate_sizes(self.pairing, verifier.form):
            if time.monotonic() > until:
                return None
            if not self.pairing.admits(sizes, dict(self.signature.statics)):
                continue
            answer = verifier.check(obligation.negation, sizes)
            if answer.kind != "sat" or verifier.max_iterations(sizes) > _MAX_ITERATIONS:
                continue
            values = answer.values
            programs = tuple(
                tuple(values.get(f"program {axis}{suffix}", 0) for axis in range(3))
                for suffix in ("", "'")[: len(obligation.accesses)]
            )
            elements = verifier.loaded_elements(values, sizes)
            faults = self._replay(sizes, programs, elements, with_others=not obligation.about_memory)
            fault = next((fault for fault in faults if fault.verdict in wanted), None)
            if fault is not None:
                access = " and ".join(map(str, obligation.accesses))
                lanes = sorted(name for name in values if name.startswith("lane ") and not name.endswith("'"))
                lane = tuple(values[name] for name in lanes)
                return Counterexample(fault.verdict, dict(sizes), programs, lane, access, fault.message, fault.detail)
        return None

    def _replay(
        self,
        sizes: Sizes,
        programs: Sequence[tuple[int, ...]],
        values: Mapping[int, Mapping[int, int]],
        *,
        with_others: bool,
    ) -> list[Fault]:
        # Runs programs, by their ids along x, y and z, in the simulator, which is independent of the proof. Elements of
        # inputs without a value are 0. With a wrapped index, programs may conflict `with_others`: the first, the last
        # and those at powers of two.
        try:
            signature = replace(self.signature, dims=tuple(sizes.items()))
            call = trace(self.pairing, signature, self.target.platform).calls[self.number]
            (kernel,) = lower_call(call, self.target)
            x, y, z = kernel.grid
            chosen = {a + x * (b + y * c) for a, b, c in programs}
            if with_others:
                count = x * y * z
                others = (*range(4), *range(count - 4, count), *(2**i for i in range(count.bit_length())))
                chosen |= {other for other in others if 0 <= other < count}
            ids = np.array(sorted(chosen), np.int64)
            inputs, outputs = call_arrays(call)
            if sum(math.prod(r.shape) for r in (*inputs, *outputs)) > _MAX_ELEMENTS:
                return faults_on_zeros(call, kernel, ids)
            inputs_memory, outputs_memory, hints = allocate_buffers(call, kernel)
            simulation = Simulation(parse_code(kernel.bytecode), kernel.grid, inputs_memory, outputs_memory, hints, ids)
            arrays = [_array_with(r.shape, r.dtype, values.get(i, {})) for i, r in enumerate(inputs)]
            simulation.run(input_contents([PartialArray(array) for array in arrays]))
            return simulation.faults()
        except Failure:
            return []


def _array_with(shape: tuple[int, ...], dtype: np.dtype[Any], values: Mapping[int, int]) -> Array:
    array = np.zeros(math.prod(shape), dtype)
    for offset, value in values.items():
        if 0 <= offset < array.size:
            array[offset] = value
    return array.reshape(shape)
