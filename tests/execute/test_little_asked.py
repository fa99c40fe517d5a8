"""No result of a wrong dtype or from another call passes, and no question that every kernel answers right."""

import functools
import itertools
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.applicability import note_traces, trace_if_possible
from kerneltest.plan.signatures import signatures
from kerneltest.records.journal import Journal
from kerneltest.records.schema import Record
from kerneltest.records.sharpness import Informativeness
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel
from kerneltest.trace.site_states import DimLengths
from kerneltest.trace.tracing import trace
from tests.found import records
from tests.sample import elementwise

X, BOTH, HALF = kt.array("n", "float32"), kt.array("n", ("float32", "bfloat16")), kt.array("n", "bfloat16")
SHORT = {"n": kt.dim(values=(3, 4))}


def twice(x: Any, dtype: Any = None) -> Any:
    return elementwise(lambda v: v * 2, x, dtype=dtype)


def pair(kernel: Callable[..., Any], oracle: Callable[..., Any] = lambda x: 2 * x, **declared: Any) -> Pairing:
    return kt.oracle_for(kernel, **{"x": X, "dims": SHORT, **declared})(oracle)


def findings(pairing: Pairing, group: str = "structural") -> set[tuple[str, str, str]]:
    found = (each for each in records(pairing, ["interpret"], group=group) if each.verdict.is_finding)
    return {(each.family, str(each.verdict), each.message) for each in found}


def test_a_result_is_false_where_it_is_not_ok() -> None:
    assert kt.check(pair(twice), depth="quick")
    assert not kt.check(pair(twice, lambda x: 3 * x), depth="quick")


def to_half(x: Any) -> Any:
    return twice(x, jnp.bfloat16)


def by_length(x: Any) -> Any:
    return twice(x, jnp.float32 if x.shape[0] % 2 else None)


def by_option(x: Any, dtype: str) -> Any:
    return twice(x, jnp.dtype(dtype))


def by_default(x: Any, out_dtype: Any = jnp.bfloat16) -> Any:
    return twice(x, out_dtype)


def of_int8(x: Any, w: Any) -> Any:
    return twice(x * w, jnp.bfloat16)


def index(x: Any) -> Any:
    return elementwise(lambda v: v > 0, x, dtype=jnp.int32)


def is_positive(x: Any) -> Any:
    return x > 0


# Pairings with words of the finding; "" for right ones.
DTYPES = {
    "the inputs'": (pair(twice, x=BOTH), ""),
    "half of the inputs'": (
        pair(to_half),
        "output 0 is bfloat16, but all data is float32 or wider; if this is meant, declare it with returns=",
    ),
    "half, as declared": (pair(to_half, returns="bfloat16"), ""),
    "half, as an option names it": (pair(by_option, x=X, dtype=kt.static("bfloat16")), ""),
    "half, as a default names it": (pair(by_default), ""),
    "half of mixed inputs": (pair(of_int8, lambda x, w: 2 * x * w, w=kt.array("n", "int8", domain=(-9, 9))), ""),
    "twice the inputs'": (pair(lambda x: twice(x, jnp.float32), x=HALF), ""),
    "anything": (pair(to_half, returns="any"), ""),
    "an index": (pair(index, is_positive), ""),
    "an index for a mask": (pair(index, is_positive, returns="bool"), "output 0 is int32, but returns= declares bool"),
    "an argument's": (pair(twice, x=BOTH, returns="x"), ""),
    "not an argument's": (
        pair(lambda x: twice(x, jnp.float32), x=HALF, returns="x"),
        "output 0 is float32, but returns= declares bfloat16",
    ),
    "another for odd lengths": (
        pair(by_length, x=HALF),
        "output 0 is bfloat16, but it is float32 for n=3,bfloat16, where only lengths differ",
    ),
    "of two outputs": (
        pair(twice, returns=("float32", "any")),
        "returns= declares 2 outputs, and the kernel returns 1",
    ),
}


@pytest.mark.parametrize("name", DTYPES)
def test_the_dtype_of_results(name: str) -> None:
    pairing, message = DTYPES[name]
    assert {words for _, _, words in findings(pairing)} == ({message} if message else set())


@pytest.mark.parametrize("returns", ["flot32", 3])
def test_a_wrong_declaration_of_results_is_refused(returns: Any) -> None:
    with pytest.raises(kt.DeclarationError, match="returns: "):
        pair(twice, returns=returns)


Rule = Callable[[Any, Any, list[bool]], Any]  # of the results of a batch, and whether the argument is batched

RULES: dict[str, tuple[Rule, str]] = {
    "right": (lambda f, x, batched: (jax.lax.map(f, x), batched[0]), ""),
    "a list": (lambda f, x, batched: ([jax.lax.map(f, x)], batched[0]), "structure of output value"),
    "one result": (lambda f, x, batched: jax.lax.map(f, x), "the kernel raised"),
    "not batched": (lambda f, x, batched: (jax.lax.map(f, x), False), "output 0 has type float32[2, 2, 3]"),
    "a shape": (lambda f, x, batched: (jax.lax.map(f, x)[:, :1], True), "output 0 has type float32[2, 1]"),
    "a dtype": (lambda f, x, batched: (jax.lax.map(f, x).astype(jnp.int8), True), "output 0 has type int8[2, 3]"),
    "values": (lambda f, x, batched: (jax.lax.map(f, x) + 1, True), "first in a batch of two"),
}


@pytest.mark.parametrize("name", RULES)
def test_a_custom_vmap_rule_is_the_kernels(name: str) -> None:
    rule, words = RULES[name]
    batched = jax.custom_batching.custom_vmap(lambda x: twice(x))
    batched.def_vmap(lambda size, flags, x: rule(twice, x, flags))
    found = findings(pair(lambda x: batched(x)), "invariants")
    assert {family for family, _, _ in found} == ({"vmapped"} if words else set())
    assert all(words in message for _, _, message in found), found


def remember(keeps_tracers: bool) -> Callable[[Any], Any]:
    known: dict[tuple[int, ...], Any] = {}

    def kernel(x: Any) -> Any:
        if isinstance(x, jax.core.Tracer) and not keeps_tracers:
            return twice(x)
        return known.setdefault(x.shape, twice(x))

    return kernel


def test_a_result_that_is_remembered_by_shape_is_found_by_calling_twice() -> None:
    ((family, verdict, message),) = findings(pair(remember(keeps_tracers=False)), "invariants")
    assert (family, verdict) == ("plain_call", "mismatch")
    assert message.startswith("called outside of jax.jit for the second time, with other values: ")


def test_a_value_that_is_kept_from_an_earlier_trace_is_the_kernels() -> None:
    found = findings(pair(remember(keeps_tracers=True)), "invariants")
    assert {verdict for _, verdict, _ in found} == {"runtime_error"}
    assert any("the kernel used a value of an earlier trace" in message for _, _, message in found), found


def test_an_oracle_of_jax_arrays_is_refused_with_the_fix() -> None:
    found = findings(pair(twice, lambda x: jnp.asarray(x) * 2))
    assert {verdict for _, verdict, _ in found} == {str(Verdict.ORACLE_ERROR)}
    assert all("returned a jax.Array of float32" in text and "write it in NumPy" in text for _, _, text in found)


@pytest.mark.parametrize(
    "oracle",
    [
        lambda x: np.asarray(jnp.asarray(x) * 2),
        lambda x: np.asarray(jnp.multiply(x, 2), np.float64),
        lambda x: np.log(np.asarray(jax.jit(jnp.exp)(x / 1e30), np.float64)) * 0 + 2 * x,
    ],
    ids=["converted", "widened", "in-part"],
)
def test_an_oracle_that_computes_with_jax_in_float32_is_refused_with_the_fix(oracle: Callable[..., Any]) -> None:
    found = findings(pair(twice, oracle), "numeric")
    assert {verdict for _, verdict, _ in found} == {str(Verdict.ORACLE_ERROR)}
    assert all("computes with JAX, in float32" in text and "write it in NumPy" in text for _, _, text in found)


def test_an_oracle_may_use_jax_in_float64() -> None:
    with jax.enable_x64(True):
        assert not findings(pair(twice, lambda x: np.asarray(jnp.asarray(x) * 2)), "numeric")


def filled(value: float) -> Callable[[Any], Any]:
    return lambda x: twice(jnp.full_like(x, value / 2))


class Loose:
    def misfit(self, leaves: object, dims: object) -> str:
        return ""

    def bounds(self, measured: Any) -> tuple[kt.Bound, ...]:
        return tuple(kt.Bound(0.15 * np.abs(value)) for value in measured.values)


NOTHING = "nothing informative was compared: every value that the oracle expects is "

# Pairings with the problem that fails them, and the remark on them.
ASKED: dict[str, tuple[Pairing, str, str]] = {
    "much": (pair(twice), "", ""),
    "NaN": (pair(filled(np.nan), lambda x: x * np.nan), f"{NOTHING}NaN or infinite", ""),
    "infinity": (pair(filled(np.inf), lambda x: np.full_like(x, np.inf)), f"{NOTHING}NaN or infinite", ""),
    "no element": (
        pair(twice, lambda x: kt.defined(2 * x, where=np.zeros(x.shape, bool))),
        "nothing was compared: the oracle leaves all elements undefined in every case that ran",
        "",
    ),
    "one number": (pair(filled(4), lambda x: np.full_like(x, 4)), "", "every value that the oracle expects is 4"),
    "zeros": (pair(twice, x=kt.array("n", "float32", domain=(0, 0))), f"{NOTHING}0", ""),
    "one length": (pair(twice, dims={"n": kt.dim(values=(1,))}), "", "every dim has only the length 1"),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ASKED)
def test_a_pairing_that_asks_little_is_told_and_one_that_asks_nothing_fails(name: str) -> None:
    pairing, problem, remark = ASKED[name]
    result = kt.check(pairing, depth="quick")
    found = Informativeness(result.records)
    assert result.findings == ()
    assert [each.partition(": ")[2] for each in found.problems() if "whole run" not in each] == [problem] * bool(
        problem
    )
    assert result.ok is not bool(problem)
    assert all(each in repr(result) for each in found.problems())
    assert all(remark in each for each in found.remarks())
    assert len(found.remarks()) == bool(remark)


NARROW = "the oracle returns {}, so the expected values are rounded: return float64, without the cast"


def in_single(x: Any, dtype: str = "") -> Any:
    return (2 * x).astype(np.float32)


# Pairings with the dtype in whose place the oracle should return float64; "" if it is right.
NARROWED: dict[str, tuple[Pairing, str]] = {
    "float64": (pair(twice), ""),
    "float32": (pair(twice, in_single), "float32"),
    "float32 of bfloat16": (pair(twice, in_single, x=HALF), "float32"),
    "bfloat16": (pair(twice, lambda x: (2 * x).astype(jnp.bfloat16), x=HALF), "bfloat16"),
    "of two": (pair(lambda x: (twice(x), twice(x)), lambda x: (2 * x, in_single(x))), "float32"),
    "in part defined": (pair(twice, lambda x: kt.defined(in_single(x), where=x > 0)), "float32"),
    "as declared": (pair(twice, in_single, returns="float32"), ""),
    "as an argument's": (pair(twice, in_single, returns="x"), ""),
    "but otherwise declared": (pair(twice, in_single, returns="any"), "float32"),
    "as an option names it": (pair(by_option, in_single, dtype=kt.static("float32")), ""),
    "integers": (pair(index, lambda x: (x > 0).astype(np.int8)), ""),
    "booleans": (pair(index, is_positive), ""),
    "ignored": (pair(lambda x: (twice(x), twice(x)), lambda x: (2 * x, kt.ignored)), ""),
    "of integers": (pair(lambda x: twice(x, jnp.float32), in_single, x=kt.array("n", "int32", domain=(-99, 99))), ""),
}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", NARROWED)
def test_an_oracle_that_rounds_its_results_is_told_of_it_once(name: str) -> None:
    pairing, narrow = NARROWED[name]
    result = kt.check(pairing, depth="quick")
    assert result.findings == ()
    (*told,) = Informativeness(result.records).remarks()
    assert len(told) == bool(narrow)
    assert all(NARROW.format(narrow) in each for each in told)
    assert all(each in repr(result) for each in told)


def test_known_findings_are_not_told_as_asking_nothing() -> None:
    result = kt.check(pair(twice, lambda x: x * np.nan), depth="quick")
    assert result.findings
    assert Informativeness(result.records).problems() == []


BLOCK = 16


def without_evaluation(judged: Sequence[Record], evaluated: Container[str]) -> list[Record]:
    """Returns records as they are if NumPy evaluates the kernel for some signatures only."""
    return [
        replace(each, expected=replace(each.expected, single=None))
        if each.expected and each.signature not in evaluated
        else each
        for each in judged
    ]


def sums_of_blocks(x: Any, *, looped: bool) -> Any:
    """Sums rows in blocks: in programs of a grid that add to one output, or in a loop."""
    m, n = x.shape
    blocks = -(-n // BLOCK)
    x = jnp.pad(x, ((0, 0), (0, blocks * BLOCK - n)))
    out = jax.ShapeDtypeStruct((m,), x.dtype)

    def add(x_ref: Any, out_ref: Any) -> None:
        is_first = pl.program_id(1) == 0
        out_ref[...] = jnp.where(is_first, 0, out_ref[...]) + x_ref[...].sum(axis=1)

    def loop(x_ref: Any, out_ref: Any) -> None:
        step = lambda j, total: total + x_ref[:, pl.ds(j * BLOCK, BLOCK)].sum(axis=1)  # noqa: E731
        out_ref[...] = jax.lax.fori_loop(0, blocks, step, jnp.zeros(m, x.dtype))

    if looped:
        return pl.pallas_call(loop, out_shape=out)(x)
    blocked, whole_rows = pl.BlockSpec((m, BLOCK), lambda i, j: (i, j)), pl.BlockSpec((m,), lambda i, j: (i,))
    return pl.pallas_call(add, grid=(1, blocks), in_specs=[blocked], out_specs=whole_rows, out_shape=out)(x)


@pytest.mark.parametrize(
    ("looped", "n", "words"),
    [
        (False, kt.dim(maximum=12), "axis 1 of the grid at {} has one program in every case"),
        (False, kt.dim(values=(16,)), "as in dims=dict(n=kt.dim(block=16))"),
        (True, kt.dim(maximum=12), "the loop at {} has one step in every case"),
        (False, kt.dim(block=16), ""),
        (True, kt.dim(values=(12, 24)), ""),
    ],
)
def test_a_grid_or_loop_that_never_goes_on_is_a_remark(looped: bool, n: Any, words: str) -> None:
    pairing = pair(
        lambda x: sums_of_blocks(x, looped=looped),
        lambda x: x.sum(axis=1),
        x=kt.array("m n", "float32", domain=(-9, 9)),
        dims=dict(m=kt.dim(values=(3, 2)), n=n),
    )
    judged = list(records(pairing, ["interpret"], group="structural"))
    found = Informativeness(judged).remarks()
    assert Informativeness(without_evaluation(judged, set())).remarks() == found  # neither needs one
    where = "tests/execute/test_little_asked.py"
    assert len(found) == bool(words)
    assert all(part in found[0] for part in words.split("{}") if words)
    assert all(where in text for text in found)


def _programs(body: Any, grid: Any) -> Any:
    """A kernel of whole arrays, whose programs find their elements themselves."""
    return lambda x: pl.pallas_call(
        lambda *refs: body(x.shape, *refs), grid=grid(*x.shape), out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)
    )(x)


def _double_block(shape: Any, x: Any, out: Any, block: int = BLOCK) -> None:
    at = pl.program_id(0) * block + jnp.arange(block)
    plgpu.store(out.at[at], 2 * plgpu.load(x.at[at], mask=at < shape[0]), mask=at < shape[0])


def _double_row(x: Any) -> Any:
    row = pl.BlockSpec((None, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    body = lambda x_ref, out_ref: out_ref.__setitem__(..., 2 * x_ref[...])  # noqa: E731
    return pl.pallas_call(body, grid=len(x), in_specs=[row], out_specs=row, out_shape=shape)(x)


def _short_row(x: Any) -> Any:
    assert x.shape[1] <= BLOCK
    part = pl.BlockSpec((x.shape[0], BLOCK), lambda j: (0, j))
    body = lambda x_ref, out_ref: out_ref.__setitem__(..., 2 * x_ref[...])  # noqa: E731
    return pl.pallas_call(body, grid=pl.cdiv(x.shape[1], BLOCK), in_specs=[part], out_specs=part, out_shape=x)(x)


def _pipeline(x: Any) -> Any:
    block, far = pl.BlockSpec((8, 128), lambda i: (i, 0)), pl.BlockSpec(memory_space=pl.ANY)

    def body(x_ref: Any, out_ref: Any) -> None:
        step = lambda x, out: out.__setitem__(..., 2 * x[...])  # noqa: E731
        pltpu.emit_pipeline(step, grid=(len(x) // 8,), in_specs=[block], out_specs=[block])(x_ref, out_ref)

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, in_specs=[far], out_specs=far, out_shape=shape)(x)


_BY_PROGRAM = _programs(_double_block, lambda n: (pl.cdiv(n, BLOCK),))
_BY_FOUR = _programs(functools.partial(_double_block, block=4 * BLOCK), lambda n: (pl.cdiv(n, 4 * BLOCK),))
_CONSTANT = _programs(functools.partial(_double_block, block=8 * BLOCK), lambda n: (1,))
_HERE = "tests/execute/test_little_asked.py"

# A kernel, its argument, its lengths, a backend that runs it, and the remark.
SINGLE_PROGRAMS: dict[str, tuple[Any, str, dict[str, Any], str, str]] = {
    "a grid of programs that find their block": (
        _BY_FOUR,
        "n",
        {"n": kt.dim(block=16, maximum=100)},
        "interpret",
        "axis 0 of the grid at {} has one program in every case; lengths of n past 39 would have more",
    ),
    "the same without a declared block, which traces show": (
        _BY_FOUR,
        "n",
        {"n": kt.dim(maximum=100)},
        "interpret",
        "",
    ),
    "blocks past which the kernel takes no length": (_short_row, "b n", {"n": kt.dim(maximum=16)}, "interpret", ""),
    "the same with lengths that are all in one block": (_BY_FOUR, "n", {"n": kt.dim(maximum=40)}, "interpret", ""),
    "the same with two lengths": (_BY_PROGRAM, "n", {"n": kt.dim(values=(8, 12))}, "interpret", ""),
    "the same with two blocks": (_BY_PROGRAM, "n", {"n": kt.dim(maximum=30)}, "interpret", ""),
    "a grid that no length changes": (_CONSTANT, "n", {"n": kt.dim(maximum=100)}, "interpret", ""),
    "one row": (
        _double_row,
        "b n",
        {"b": kt.dim(values=(1,))},
        "interpret",
        "axis 0 of the grid at {} has one program in every case, and b only the length 1; plan longer ones",
    ),
    "rows": (_double_row, "b n", {"b": kt.dim(values=(1, 3))}, "interpret", ""),
    "a pipeline": (_pipeline, "n 128", {"n": kt.dim(values=(8,))}, "interpret-tpu", "the loop at {} has one step"),
    "a pipeline of two steps": (_pipeline, "n 128", {"n": kt.dim(values=(8, 16))}, "interpret-tpu", ""),
}


@pytest.mark.parametrize("name", SINGLE_PROGRAMS)
def test_a_grid_or_pipeline_that_never_goes_on_is_a_remark_whoever_finds_the_blocks(name: str) -> None:
    kernel, axes, dims, backend, words = SINGLE_PROGRAMS[name]
    pairing = pair(kernel, x=kt.array(axes, "float32", domain=(-9, 9)), dims=dims)
    judged = list(records(pairing, [backend], group="structural"))
    assert not any(each.verdict.is_finding for each in judged)
    found = Informativeness(judged).remarks()
    assert len(found) == bool(words)
    assert all(part in found[0] and _HERE in found[0] for part in words.split("{}") if words)


def _random(x: Any) -> Any:
    """Doubles by a branch of values, beside a random number that NumPy does not have."""

    def body(x_ref: Any, out_ref: Any) -> None:
        pltpu.prng_seed(0)
        bits = pltpu.prng_random_bits(x_ref.shape)
        value = jax.lax.cond((x_ref[...] > 99).any(), lambda: x_ref[...], lambda: 2 * x_ref[...])
        out_ref[...] = value + 0.0 * (bits > 0)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def test_a_kernel_that_numpy_refuses_is_told_to_have_no_such_remarks() -> None:
    result = kt.check(pair(_random, x=kt.array("n", "float32", domain=(-9, 9))), backends=["interpret-tpu"])
    assert not result.findings
    (found,) = Informativeness(result.records).remarks()
    assert "NumPy cannot evaluate the kernel, so no remark tells whether a mask or branch" in found


def _kernel(rule: Any) -> Any:
    """A kernel that doubles blocks of 16 elements, each by a rule from the block, the lanes' positions and n."""

    def double(x: Any) -> Any:
        n, blocks = len(x), -(-len(x) // BLOCK)

        def body(x_ref: Any, out_ref: Any) -> None:
            lanes = pl.program_id(0) * BLOCK + jnp.arange(BLOCK)
            out_ref[...] = rule(x_ref, lanes, n)

        block = pl.BlockSpec((BLOCK,), lambda i: (i,))
        whole = jnp.pad(x, (0, blocks * BLOCK - n))
        shape = jax.ShapeDtypeStruct(whole.shape, x.dtype)
        return pl.pallas_call(body, grid=(blocks,), in_specs=[block], out_specs=block, out_shape=shape)(whole)[:n]

    return double


_TAIL = _kernel(lambda x, lanes, n: jnp.where(lanes < n, 2 * x[...], 0))
_WHOLE_BLOCKS = _kernel(lambda x, lanes, n: jnp.where(lanes < -(-n // BLOCK) * BLOCK, 2 * x[...], 0))
_MASK = _kernel(lambda x, lanes, n: 2 * plgpu.load(x.at[jnp.arange(BLOCK)], mask=lanes < n, other=0.0))
_NOTHING = _kernel(
    lambda x, lanes, n: 2 * x[...] + plgpu.load(x.at[jnp.arange(0)], mask=jnp.arange(0) < n, other=0.0).sum()
)
_FIRST = _kernel(lambda x, lanes, n: jnp.where(lanes[0] < 3 * BLOCK, 2 * x[...], x[...] + x[...]))
_FAR = _kernel(lambda x, lanes, n: jax.lax.cond(lanes[0] < 3 * BLOCK, lambda: 2 * x[...], lambda: x[...] + x[...]))
_SIGN = _kernel(lambda x, lanes, n: jax.lax.cond((x[...] < 0).any(), lambda: 2 * x[...], lambda: x[...] + x[...]))
_ELEMENTS = _kernel(lambda x, lanes, n: jnp.where(x[...] < 0, 2 * x[...], x[...] + x[...]))
_LENGTH = lambda x: elementwise(lambda v: jnp.where(jnp.arange(len(v)) < len(v), 2 * v, 0), x)  # noqa: E731
_AROUND = lambda x: elementwise(lambda v: v + v, jnp.where(jnp.arange(len(x)) < len(x), x, 0))  # noqa: E731
_WHOLE, _TWO, _ANY = kt.dim(multiple_of=BLOCK), kt.dim(values=(16, 32)), kt.dim(block=BLOCK)
_OTHERS = "in every case, and every length of n is a multiple of 16; plan others, as in dims=dict(n=kt.dim(block=16))"
_DECIDE = "plan other lengths if these decide it"


def _loop(start: Any, goes_on: Any, step: Any) -> Any:
    """A kernel that doubles its values, with a loop of which two integers determine the steps."""

    def double(v: Any) -> Any:
        n = len(v)
        _, total = jax.lax.while_loop(
            lambda carried: goes_on(n, *carried[0]),
            lambda carried: (step(n, *carried[0]), carried[1] + v),
            (tuple(map(jnp.int32, start(n))), jnp.zeros_like(v)),
        )
        return 2 * v + 0 * total

    return lambda x: elementwise(double, x)


_FLAGGED = _loop(lambda n: (0, 0), lambda n, done, i: done == 0, lambda n, done, i: ((i + 1 >= n).astype(int), i + 1))
_BISECTED = _loop(lambda n: (0, n), lambda n, low, high: high - low > 1, lambda n, low, high: (low, (low + high) // 2))
_ONCE = _loop(lambda n: (5, 0), lambda n, a, b: b < n, lambda n, a, b: (a - 3, n))

# A kernel, its lengths, the domain of its values, and the remark.
SINGLE_STATES: dict[str, tuple[Any, Any, tuple[int, int], str]] = {
    "a condition of whole blocks": (_TAIL, _WHOLE, (-9, 9), f"the condition of `where` at {{}} is true {_OTHERS}"),
    "a mask of whole blocks": (_MASK, _TWO, (-9, 9), f"the mask of the load at {{}} is on {_OTHERS}"),
    "a condition with a tail": (_TAIL, _ANY, (-9, 9), ""),
    "a mask with a tail": (_MASK, _ANY, (-9, 9), ""),
    "a condition that no length changes": (_WHOLE_BLOCKS, _ANY, (-9, 9), ""),
    "a condition of the first blocks": (_FIRST, _TWO, (-9, 9), f"is true in every case; {_DECIDE}"),
    "a branch of far blocks": (_FAR, _TWO, (-9, 9), f"the branch at {{}} is always taken; {_DECIDE}"),
    "a branch of longer lengths": (_FAR, kt.dim(values=(16, 64)), (-9, 9), ""),
    "a branch of values": (_SIGN, _ANY, (1, 9), "the branch at {} is never taken; plan other lengths or values if"),
    "a branch of both signs": (_SIGN, _ANY, (-9, 9), ""),
    "a condition of the length of the block": (_LENGTH, kt.dim(minimum=2), (-9, 9), ""),
    "a condition around the kernel": (_AROUND, _TWO, (-9, 9), ""),
    "a condition of elements": (_ELEMENTS, _ANY, (1, 9), ""),
    "a mask of no element": (_NOTHING, _TWO, (-9, 9), ""),
    "a loop with a flag": (_FLAGGED, _TWO, (-9, 9), ""),
    "a loop that bisects": (_BISECTED, _TWO, (-9, 9), ""),
    "a loop of one step": (_ONCE, _TWO, (-9, 9), "the loop at {} has one step in every case"),
}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", SINGLE_STATES)
def test_a_mask_or_branch_with_one_state_is_a_remark(name: str) -> None:
    kernel, n, domain, words = SINGLE_STATES[name]
    pairing = pair(kernel, lambda x: 2 * x, x=kt.array("n", "float32", domain=domain), dims=dict(n=n))
    judged = list(records(pairing, ["interpret"], group="structural"))
    assert not any(each.verdict.is_finding for each in judged)
    found = Informativeness(judged).remarks()
    assert len(found) == bool(words)
    assert all(part in found[0] for part in words.split("{}") if words)
    for signature in {each.signature for each in judged if found}:
        assert Informativeness(without_evaluation(judged, {signature})).remarks() == found


@pytest.mark.parametrize("kernel", [_TAIL, _MASK, _FIRST, _FAR, _SIGN, _ELEMENTS, _FLAGGED, _ONCE])
def test_states_do_not_depend_on_how_cases_are_batched(kernel: Any) -> None:
    pairing = pair(kernel, dims={"n": kt.dim(values=(BLOCK,))})
    cases = np.linspace(1, 9, 4 * BLOCK, dtype=np.float32).reshape(4, BLOCK)
    remarks = set()
    for batch, make in itertools.product((1, 4), (BatchedKernel, PromotedKernel)):
        traced = trace(pairing, signatures(pairing, "quick")[0])
        for start in range(0, len(cases), batch):
            make(traced)([cases[start : start + batch]])
        remarks.add(traced.sites.remarks([call.equation for call in traced.calls], {"n": DimLengths(BLOCK, [BLOCK])}))
    (found,) = remarks
    assert found.evaluated is not None


def test_a_plan_asks_for_a_trace_once_and_another_plan_again() -> None:
    pairing = pair(lambda x: twice(x, jnp.result_type(float)))
    signature = signatures(pairing, "quick")[0]
    dtypes = []
    for wide in (False, True):
        with jax.enable_x64(wide), note_traces(Journal()):
            traced = trace_if_possible(pairing, signature)
            assert traced is trace_if_possible(pairing, signature)
            dtypes += [str(each.dtype) for each in traced.outputs] if traced else []
    assert dtypes == ["float32", "float64"]
