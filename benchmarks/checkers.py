"""Ways to check a kernel, each timed to its first finding: two that people write by hand, and kerneltest's."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kerneltest.backends.base import Artifact
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure
from kerneltest.declare.arguments import ArrayArgument, Static
from kerneltest.declare.dims import Dim, length_of
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Outcome
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.plan.signatures import Signature
from kerneltest.trace.tracing import Traced, trace
from kerneltest.trace.walk import iter_equations, primitive_name

BACKENDS = ("interpret", "simulate:sm_90")
EXAMPLES = 100
# What tutorials type in: rtol and atol alike.
CLOSE, LOOSE = 1e-5, 1e-2


@dataclass(frozen=True, slots=True)
class Found:
    """How a check of one kernel ended.

    Attributes:
      seconds: to the first finding, or in all where there is none.
      finding: its words; "" where there is none.
    """

    seconds: float
    finding: str = ""


def tolerance_of(traced: Traced) -> float:
    """What a tutorial types in for this kernel: the loose one for matrix products."""
    products = any(primitive_name(equation) == "dot_general" for equation, _ in iter_equations(traced.jaxpr.jaxpr))
    return LOOSE if products else CLOSE


def tutorial(pairing: Pairing, run: "Run | None" = None) -> Found:
    """`assert_allclose` on normal float32 inputs of whole blocks, each static option once; `run` runs the kernel."""
    started = time.perf_counter()
    for statics in one_at_a_time(pairing):
        signature = signature_of(pairing, {name: nice_length(axis) for name, axis in pairing.dims.items()}, statics)
        rng = np.random.default_rng(0)
        leaves = [
            rng.standard_normal(signature.shape(leaf)).astype(np.float32)
            if is_float(leaf)
            else rng.integers(0, integers_below(leaf, signature), signature.shape(leaf)).astype(leaf.dtypes[0])
            for leaf in pairing.leaves.values()
        ]
        if problem := disagreement(pairing, signature, leaves, run):
            return Found(time.perf_counter() - started, problem)
    return Found(time.perf_counter() - started)


def hypothesis(pairing: Pairing, run: "Run | None" = None) -> Found:
    """A property of lengths from 1 to 200, static options and float32 values, `EXAMPLES` times or until it fails.

    `run` runs the kernel.
    Values are normal from a drawn seed, or drawn one by one between -10 and 10, where the typed-in tolerances hold.
    """
    lengths = {
        name: st.sampled_from(axis.values) if axis.values else st.integers(1, 200)
        for name, axis in pairing.dims.items()
    }
    options = {name: st.sampled_from([option for option, _ in s.options]) for name, s in statics_of(pairing)}

    def values(leaf: ArrayArgument, signature: Signature) -> st.SearchStrategy[Array]:
        shape = signature.shape(leaf)
        if not is_float(leaf):
            return hnp.arrays(leaf.dtypes[0], shape, elements=st.integers(0, integers_below(leaf, signature) - 1))
        seeded = st.integers(0, 2**32 - 1).map(lambda s: np.random.default_rng(s).standard_normal(shape, np.float32))
        return st.one_of(seeded, hnp.arrays(np.float32, shape, elements=st.floats(-10, 10, width=32)))

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def agrees(data: st.DataObject) -> None:
        dims = {name: data.draw(strategy) for name, strategy in lengths.items()}
        statics = {name: data.draw(strategy) for name, strategy in options.items()}
        signature = signature_of(pairing, dims, statics)
        leaves = [data.draw(values(leaf, signature)) for leaf in pairing.leaves.values()]
        if problem := disagreement(pairing, signature, leaves, run):
            raise AssertionError(problem)

    started = time.perf_counter()
    try:
        agrees()
    except AssertionError as error:
        return Found(time.perf_counter() - started, str(error))
    return Found(time.perf_counter() - started)


def kerneltest(pairing: Pairing, depth: str) -> dict[str, Found]:
    """kerneltest's items in order until a finding: on `interpret` alone, and with `simulate` beside it.

    One pass serves both: what interpret alone takes is the time spent on its items.
    """
    cache, clock = Cache(), dict.fromkeys(BACKENDS, 0.0)
    alone: Found | None = None
    both: Found | None = None
    for item in plan_pairing(pairing, pairing.name, resolve(BACKENDS), RunSettings(depth=depth)).items:
        if both and item.backend.id != BACKENDS[0]:
            continue
        started = time.perf_counter()
        finding = next(findings(run_item(item, cache)), None)
        clock[item.backend.id] += time.perf_counter() - started
        if finding is None:
            continue
        record = finding.record
        words = f"{record.verdict}: {record.family}, {record.signature}, on {record.backend}"
        both = both or Found(sum(clock.values()), words)
        if item.backend.id == BACKENDS[0]:
            alone = Found(clock[BACKENDS[0]], words)
            break
    cache.process.pool.close()
    return {"interpret": alone or Found(clock[BACKENDS[0]]), "both": both or Found(sum(clock.values()))}


def findings(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    return (outcome for outcome in outcomes if outcome.record.verdict.is_finding)


# From a pairing, a signature and the kernel's arguments to its traced form and its outputs.
Run = Callable[[Pairing, Signature, Sequence[Array]], tuple[Traced, Sequence[Array]]]


def run_interpreted(pairing: Pairing, signature: Signature, leaves: Sequence[Array]) -> tuple[Traced, Sequence[Array]]:
    """Runs a kernel on interpret mode."""
    (backend,) = resolve(["interpret"])
    traced = trace(pairing, signature)
    executable = backend.prepare(traced)
    assert not isinstance(executable, Artifact)
    return traced, executable.run(leaves)


def disagreement(pairing: Pairing, signature: Signature, leaves: Sequence[Array], run: Run | None = None) -> str:
    """Returns how a kernel differs from its oracle, as `assert_allclose` would show it; "" if they agree.

    `run` runs the kernel; by default, interpret mode does.
    """
    named = dict(zip(pairing.leaves, leaves, strict=True))
    try:
        traced, outputs = (run or run_interpreted)(pairing, signature, leaves)
    except Failure as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    wide = {path: widen(value) for path, value in named.items()}
    values = pairing.assemble(wide, dict(signature.dims), dict(signature.statics), oracle=True)
    tolerance = tolerance_of(traced)
    with np.errstate(all="ignore"):
        expected = pairing.call_oracle(values)
        close = np.isclose(outputs[0].astype(np.float64), expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    return "" if close.all() else f"{int((~close).sum())} of {close.size} elements not close, {signature}"


def statics_of(pairing: Pairing) -> list[tuple[str, Static]]:
    return [(name, argument) for name, argument in pairing.arguments.items() if isinstance(argument, Static)]


def one_at_a_time(pairing: Pairing) -> Iterator[dict[str, str]]:
    """The first option of every static argument, then each other option with the rest at the first."""
    first = {name: static.options[0][0] for name, static in statics_of(pairing)}
    yield first
    for name, static in statics_of(pairing):
        for option, _ in static.options[1:]:
            yield first | {name: option}


def nice_length(axis: Dim) -> int:
    """Two whole blocks; 128 where there is no block; the largest of listed lengths."""
    return max(axis.values) if axis.values else 2 * axis.block if axis.block else 128


def is_float(leaf: ArrayArgument) -> bool:
    """Returns whether an argument may be in float32. If not, it holds integers."""
    return "float32" in leaf.dtypes


def integers_below(leaf: ArrayArgument, signature: Signature) -> int:
    """Returns the exclusive upper limit of an integer argument: the indexed length, or that of its dtype for data."""
    if leaf.role == "data":
        return int(np.iinfo(leaf.dtypes[0]).max) + 1
    return length_of(leaf.bound, dict(signature.dims))


def signature_of(pairing: Pairing, dims: dict[str, int], statics: dict[str, str]) -> Signature:
    """Returns a signature in float32, except for integer arguments."""
    dtypes = tuple((path, "float32" if is_float(leaf) else leaf.dtypes[0]) for path, leaf in pairing.leaves.items())
    return Signature(tuple(dims.items()), dtypes, tuple(statics.items()), "float32" if dtypes else "static")
