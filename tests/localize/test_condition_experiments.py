"""Conditions by experiment: what was planted is named exactly, from one failing case."""

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.fuzz_group import FuzzGroup
from kerneltest.execute.item import Item
from kerneltest.execute.settings import RunSettings
from kerneltest.localize.condition_experiments import features_of, find_condition
from kerneltest.plan.cases import Case, signature_slots, value_cases
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.plan.families import FAMILIES, GROUPS
from kerneltest.plan.signatures import signatures
from kerneltest.records.schema import ConfirmedCondition
from tests.made_runs import WRONG, made_record
from tests.sample import elementwise, whole

DTYPES = ("float32", "bfloat16", "int32", "int8")
DIMS = {"m": kt.dim(block=4), "n": kt.dim(block=8)}
Sizes = Callable[..., bool]  # of the lengths m and n and the options mode, step and dtype


def planted(is_wrong: Sizes) -> Pairing:
    """A sum of two matrices that is off by 64 for some signatures."""

    def kernel(x: jax.Array, y: jax.Array, mode: str, step: int) -> jax.Array:
        (m, n), dtype = x.shape, str(x.dtype)
        off = 64 if is_wrong(m=m, n=n, mode=mode, step=step, dtype=dtype) else 0
        return elementwise(lambda u, v: u + v + off, x, y)

    @kt.oracle_for(
        kernel, x=kt.array("m n", DTYPES), y=kt.array("m n", DTYPES),
        mode=kt.static("a", "b", "c", "d"), step=kt.static(1, 3, 4), dims=DIMS,
    )  # fmt: skip
    def total(x: np.ndarray, y: np.ndarray, mode: str, step: int) -> np.ndarray:
        return x + y

    return total


def _tested(
    pairing: Pairing,
    case: ExplicitCase,
    failing: Sequence[AnyCase] = (),
    passing: Sequence[AnyCase] = (),
    elsewhere: Sequence[AnyCase] = (),
) -> ConfirmedCondition | None:
    (interpret,) = resolve(["interpret"])
    item = Item("p", pairing, "p", interpret, case.signature.dtype, FuzzGroup(), RunSettings())
    failing = failing or [case]
    record = made_record(verdict="mismatch", family=case.family.name, evidence=WRONG.evidence)
    findings = {each.id for each in failing}
    return find_condition(item, case, case, record, [*failing, *passing], findings, Cache(), elsewhere)


OF_SIGNATURES: Mapping[str, Sizes] = {
    "n is not a multiple of its block, 8": lambda n, **_: n % 8 != 0,
    "n is not a multiple of 4": lambda n, **_: n % 4 != 0,
    "n is not a multiple of 3": lambda n, **_: n % 3 != 0,
    "n is odd": lambda n, **_: n % 2 == 1,
    "n is a multiple of its block, 8": lambda n, **_: n % 8 == 0,
    "n is a multiple of 5": lambda n, **_: n % 5 == 0,
    "n is 1 more than a multiple of its block, 8": lambda n, **_: n % 8 == 1,
    "n is longer than its block, 8": lambda n, **_: n > 8,
    "n is longer than its block, 8, and not a multiple of it": lambda n, **_: n > 8 and n % 8 != 0,
    "n is shorter than its block, 8": lambda n, **_: n < 8,
    "n is over 12": lambda n, **_: n > 12,
    "n is over 1": lambda n, **_: n > 1,
    "n is at most 3": lambda n, **_: n <= 3,
    "n is not a power of two": lambda n, **_: n & (n - 1) != 0,
    "m is over 2": lambda m, **_: m > 2,
    "m differs from n": lambda m, n, **_: m != n,
    "n is longer than m": lambda m, n, **_: n > m,
    "n is more than twice m": lambda m, n, **_: n > 2 * m,
    "m or n is not a multiple of its block": lambda m, n, **_: m % 4 != 0 or n % 8 != 0,
    "m and n have different numbers of blocks": lambda m, n, **_: -(-m // 4) != -(-n // 8),
    "n has more blocks than m": lambda m, n, **_: -(-n // 8) > -(-m // 4),
    "m or n is longer than its block, and not a multiple of it": lambda m, n, **_: (
        (m > 4 and m % 4 != 0) or (n > 8 and n % 8 != 0)
    ),
    "m * n is not a multiple of 4": lambda m, n, **_: m * n % 4 != 0,
    "n is not a multiple of step": lambda n, step, **_: n % step != 0,
    "m * n is not a multiple of 32": lambda m, n, **_: m * n % 32 != 0,
    "m * n is over 64": lambda m, n, **_: m * n > 64,
    "mode is b": lambda mode, **_: mode == "b",
    "mode is not a": lambda mode, **_: mode != "a",
    "mode is b or d": lambda mode, **_: mode in ("b", "d"),
    "step is 4": lambda step, **_: step == 4,
    "dtype is a float": lambda dtype, **_: "float" in dtype,
    "dtype is bfloat16": lambda dtype, **_: dtype == "bfloat16",
    "mode is b and n is not a multiple of its block, 8": lambda n, mode, **_: mode == "b" and n % 8 != 0,
    "mode is b and n is longer than its block, 8": lambda n, mode, **_: mode == "b" and n > 8,
    "dtype is bfloat16 and n is odd": lambda n, dtype, **_: dtype == "bfloat16" and n % 2 == 1,
    "m is over 2 and n is not a multiple of 4": lambda m, n, **_: m > 2 and n % 4 != 0,
    "n is even": lambda n, **_: n % 2 == 0,
    "m equals n": lambda m, n, **_: m == n,
    "n is 3 more than a multiple of 4": lambda n, **_: n % 4 == 3,
}


@pytest.mark.sweep(6)
@pytest.mark.parametrize("words", OF_SIGNATURES)
def test_a_condition_on_signatures_is_named(words: str) -> None:
    is_wrong = OF_SIGNATURES[words]
    pairing = planted(is_wrong)
    chosen = next(
        resized
        for signature, n in itertools.product(signatures(pairing, "quick"), (9, 8, 12, 5, 3, 17, 10))
        for m in (5, 4, 9, 3)
        if is_wrong(m=m, n=n, **features_of(pairing, resized := replace(signature, dims=(("m", m), ("n", n)))).options)
    )
    family = FAMILIES["position_coded"]
    rng = np.random.default_rng(0)
    arguments = {path: family.fill(slot, rng, True) for path, slot in signature_slots(pairing, chosen).items()}
    found = _tested(pairing, ExplicitCase("p", chosen, arguments, family=family))
    assert found is not None
    assert found.words is not None
    assert not found.inputs  # a title that depends on lengths alone
    assert set(found.words.split(" and ")) == set(words.split(" and "))


def test_lengths_that_pass_are_no_condition_by_themselves() -> None:
    pairing, family = planted(lambda n, **_: n not in (16, 17)), FAMILIES["position_coded"]
    chosen = replace(next(iter(signatures(pairing, "quick"))), dims=(("m", 5), ("n", 9)))
    case = Case("p", pairing.name, chosen, family, "", 0)
    found = _tested(pairing, ExplicitCase("p", chosen, case.fill(pairing), family=family))
    assert found is None or found.words is None


@pytest.mark.parametrize(
    ("is_wrong", "words"),
    [
        (lambda **_: True, ""),
        (lambda m, n, **_: m != n, "m differs from n"),
        (
            lambda n, mode, step, **_: mode == "b" and n > {1: 8, 3: 13, 4: 18}[step],
            "mode is b and n is longer than its block, 8 (some such cases pass)",
        ),
    ],
)
def test_a_condition_on_planned_signatures_that_fail_is_named(is_wrong: Sizes, words: str) -> None:
    pairing, family = planted(is_wrong), FAMILIES["position_coded"]
    planned = [s for s in signatures(pairing, "quick") if len({length for _, length in s.dims if length}) == 2]
    planned = [s for s in planned if is_wrong(**dict(s.dims), **features_of(pairing, s).options)]
    cases = [Case("p", pairing.name, signature, family, "", 0) for signature in planned]
    first = min(cases, key=lambda case: case.signature.volume)
    smallest = ExplicitCase("p", first.signature, first.fill(pairing), family=family)
    found = _tested(pairing, smallest, cases)
    assert found is not None
    assert found.words == words
    assert (found.cases < 20) is (not words)


Inputs = Callable[[Any, Any, Any, Any, Any], Any]  # of x, y, keep, idx and lens, as arrays of JAX or NumPy


def planted_in_values(is_wrong: Inputs) -> Pairing:
    """The same sum, which is off by 64 for some values."""

    def kernel(x: jax.Array, y: jax.Array, keep: jax.Array, idx: jax.Array, lens: jax.Array) -> jax.Array:
        def body(*refs: Any) -> jax.Array:
            values = [ref[...] for ref in refs]
            return values[0] + values[1] + jnp.where(is_wrong(*values), 64.0, 0.0)

        return whole(body, x, x, y, keep, idx, lens)

    @kt.oracle_for(
        kernel, x=kt.array("m n", "float32"), y=kt.array("m n", "float32"), keep=kt.mask("m n"),
        idx=kt.indices("m", into="k"), lens=kt.lengths("m", up_to="n"), dims=DIMS,
    )  # fmt: skip
    def total(x: np.ndarray, y: np.ndarray, keep: np.ndarray, idx: np.ndarray, lens: np.ndarray) -> np.ndarray:
        return x + y

    return total


@functools.cache
def _visible_cases() -> list[tuple[Case, list[np.ndarray]]]:
    # Those with a finite output, and their arguments, which are the same for all kernels.
    pairing = planted_in_values(lambda x, *_: True)
    cases = [case for group in GROUPS for case in value_cases(pairing, "p", "float32", group, 0, "quick")]
    chosen = [
        case for case in cases if case.family.name != "kernel_constants" and all(n for _, n in case.signature.dims)
    ]
    filled = [(case, list(case.fill(pairing).values())) for case in chosen[::3]]
    return [(case, values) for case, values in filled if np.isfinite(values[0] + values[1]).any()]


def _has_twice(rows: Any) -> Any:
    return ((rows[:, :, None] == rows[:, None, :]).sum(axis=(1, 2)) > rows.shape[1]).any()


OF_VALUES: Mapping[str, Inputs] = {
    "": lambda x, *_: (x == x).any() | True,
    "x holds a NaN": lambda x, *_: (x != x).any(),
    "x or y holds a NaN": lambda x, y, *_: ((x != x) | (y != y)).any(),
    "x holds -inf": lambda x, *_: (x == -np.inf).any(),
    "x holds an infinity": lambda x, *_: (abs(x) == np.inf).any(),
    "a row of x holds nothing but zeros": lambda x, *_: (x == 0).all(axis=1).any(),
    "x holds a zero": lambda x, *_: (x == 0).any(),
    "x holds a zero, and not only zeros": lambda x, *_: (x == 0).any() & (x != 0).any(),
    "x holds a zero of negative sign": lambda x, *_: ((x == 0) & (1 / x < 0)).any(),
    "the last, partial block of x holds a NaN": lambda x, *_: (
        (x != x)[:, x.shape[1] // 8 * 8 :].any() if x.shape[1] % 8 else x.shape[1] == 0
    ),
    "the last element of a row of x holds a zero": lambda x, *_: (x[:, -1] == 0).any(),
    "x holds a NaN where keep is False": lambda x, y, keep, *_: ((x != x) & ~keep).any(),
    "x holds a negative number": lambda x, *_: (x < 0).any(),
    "y holds a positive number": lambda x, y, *_: (y > 0).any(),
    "x holds a number over 30": lambda x, *_: (x > 30).any(),
    "y holds a number below -12": lambda x, y, *_: (y < -12).any(),
    "x holds a number of magnitude 256 or more": lambda x, *_: (abs(x) >= 256).any(),
    "an element of x equals that of y": lambda x, y, *_: (x == y).any(),
    "x and y hold a zero at the same place": lambda x, y, *_: ((x == 0) & (y == 0)).any(),
    "x and y hold a zero at the same place (some such cases pass)": lambda x, y, *_: (x[0, 0] == 0) & (y[0, 0] == 0),
    "a row of x holds one number throughout": lambda x, *_: (x == x[:, :1]).all(axis=1).any() & (x.shape[1] > 1),
    "x holds a number twice": lambda x, *_: _has_twice(x),
    "the maximum of a row of x occurs twice": lambda x, *_: ((x == x.max(axis=1)[:, None]).sum(axis=1) > 1).any(),
    "keep holds False": lambda x, y, keep, *_: (~keep).any(),
    "keep holds False, and not only False": lambda x, y, keep, *_: (~keep).any() & keep.any(),
    "a row of keep holds nothing but False": lambda x, y, keep, *_: (~keep).all(axis=1).any(),
    "the first block of keep holds nothing but False": lambda x, y, keep, *_: (~keep[:, :8]).all(axis=1).any(),
    "idx holds a number twice": lambda x, y, keep, idx, lens: _has_twice(idx[None]),
    "two neighbours in idx are equal": lambda x, y, keep, idx, lens: (idx[1:] == idx[:-1]).any(),
    "another number follows a zero in lens": lambda x, y, keep, idx, lens: ((lens[1:] != 0) & (lens[:-1] == 0)).any(),
    "idx holds a zero": lambda x, y, keep, idx, lens: (idx == 0).any(),
    "lens holds a zero": lambda x, y, keep, idx, lens: (lens == 0).any(),
    "lens holds an odd number": lambda x, y, keep, idx, lens: (lens % 2 == 1).any(),
    "lens holds a number below n": lambda x, y, keep, idx, lens: (lens < x.shape[1]).any(),
    "lens holds a number above 0 and below n": lambda x, y, keep, idx, lens: ((lens > 0) & (lens < x.shape[1])).any(),
    "lens holds a number of 4 or less": lambda x, y, keep, idx, lens: (lens <= 4).any(),
    "lens holds a number that is not a multiple of 8 (the block of n)": lambda x, y, keep, idx, lens: (
        lens % 8 != 0
    ).any(),
    "y holds +inf": lambda x, y, *_: (y == np.inf).any(),
    "a row of y holds nothing but negative numbers": lambda x, y, *_: (y < 0).all(axis=1).any(),
    "keep holds no False": lambda x, y, keep, *_: keep.all(),
    "the first element of a row of x holds a NaN": lambda x, *_: (x != x)[:, 0].any(),
    "keep holds False and x holds a number over 5": lambda x, y, keep, *_: (x > 5).any() & (~keep).any(),
    "keep holds False; n is longer than its block, 8": lambda x, y, keep, *_: (~keep).any() & (x.shape[1] > 8),
    "a row of x holds only numbers below -20": lambda x, *_: (x.max(axis=1) < -20).any() & (x.shape[1] > 0),
    "two neighbours in x are equal (some such cases pass)": lambda x, *_: (x[:, -1:] == x[:, -2:-1]).any(),
    "x holds a number of magnitude below 1": lambda x, *_: (abs(x) < 1).any(),
    "the last element of a row of x holds a negative number": lambda x, *_: (x[:, -1] < 0).any(),
    "lens holds n": lambda x, y, keep, idx, lens: (lens == x.shape[1]).any(),
    "x holds a NaN or an infinity where keep is False": lambda x, y, keep, *_: ((x - x != 0) & ~keep).any(),
    "lens holds a number of 10 or more": lambda x, y, keep, idx, lens: (lens > 9).any(),
    "x holds a subnormal number": lambda x, *_: ((abs(x) > 0) & (abs(x) < 2.0**-126)).any(),
    "x holds a negative number; n is odd": lambda x, *_: (x < 0).any() & (x.shape[1] % 2 == 1),
}


def _of_values(is_wrong: Inputs, *, with_planned: bool = True) -> ConfirmedCondition | None:
    pairing = planted_in_values(is_wrong)
    with np.errstate(all="ignore"):
        wrong = [(case, bool(is_wrong(*values))) for case, values in _visible_cases()]
    failing, passing = ([case for case, fails in wrong if fails is wanted] for wanted in (True, False))
    first = min(failing, key=lambda case: sum(length for _, length in case.signature.dims))
    smallest = ExplicitCase("p", first.signature, first.fill(pairing), family=first.family)
    return _tested(pairing, smallest, failing, passing) if with_planned else _tested(pairing, smallest)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("words", OF_VALUES)
def test_a_condition_on_inputs_is_named(words: str) -> None:
    found = _of_values(OF_VALUES[words])
    assert found is not None
    assert (found.inputs, found.words) == (words.partition("; ")[0], words.partition("; ")[2])


def test_a_longer_case_tells_a_row_from_a_block_where_a_dim_has_few_lengths() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return elementwise(lambda u: jnp.where((u == 0).all(axis=1, keepdims=True), 64, u), x)

    dims = {"m": kt.dim(values=(3,)), "n": kt.dim(block=8)}

    @kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=dims)
    def same(x: np.ndarray) -> np.ndarray:
        return x

    signature = replace(next(iter(signatures(same, "quick"))), dims=(("m", 3), ("n", 8)))
    values = {"x": np.zeros((3, 8), np.float32)}
    found = _tested(same, ExplicitCase("p", signature, values, family=FAMILIES["normal"]))
    assert found is not None
    assert found.inputs == "a row of x holds nothing but zeros"


def test_a_row_of_the_least_integer_is_named() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return elementwise(lambda u: jnp.where((u == -128).all(axis=1, keepdims=True), 0, u), x)

    made = kt.oracle_for(kernel, x=kt.array("m n", "int8"), dims=DIMS)(lambda x: x)
    signature = replace(next(iter(signatures(made, "quick"))), dims=(("m", 5), ("n", 9)))
    values = {"x": np.full((5, 9), -128, np.int8)}
    found = _tested(made, ExplicitCase("p", signature, values, family=FAMILIES["normal"]))
    assert found is not None
    assert found.inputs == "a row of x holds nothing but the least integer"


OF_PARTS: Mapping[str, Callable[[Any, Any], Any]] = {  # of segment ids, and of sizes
    "a part of ids after the first is not empty": lambda ids, sizes: (ids[1:] != ids[:-1]).any(),
    "a part of ids after the first starts with a block": lambda ids, sizes: (ids[8::8] != ids[7:-1:8]).any(),
    "a part of sizes after the first is not empty": lambda ids, sizes: (sizes[1:] > 0).any(),
}


@pytest.mark.parametrize("words", OF_PARTS)
def test_where_a_part_starts_is_named_although_zeros_of_another_argument_hide_it(words: str) -> None:
    is_wrong = OF_PARTS[words]

    def kernel(x: jax.Array, rate: jax.Array, ids: jax.Array, sizes: jax.Array) -> jax.Array:
        def body(x: Any, rate: Any, *parts: Any) -> jax.Array:
            return x[...] + rate[...] * jnp.where(is_wrong(*(part[...] for part in parts)), 64.0, 0.0)

        return whole(body, x, x, rate, ids, sizes)

    @kt.oracle_for(
        kernel, x=kt.array("n", "float32"), rate=kt.array("n", "float32", domain=(0, 1)), ids=kt.segment_ids("n"),
        sizes=kt.partition("g", of="n"), dims={"n": kt.dim(block=8)},
    )  # fmt: skip
    def same(x: np.ndarray, rate: np.ndarray, ids: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return x + 0

    filled = [(case, case.fill(same)) for case in value_cases(same, "p", "float32", GROUPS[0], 0, "quick")]
    wrong = [(case, bool(is_wrong(x["ids"], x["sizes"]) & x["rate"].any())) for case, x in filled]
    failing, passing = ([case for case, fails in wrong if fails is wanted] for wanted in (True, False))
    first = min(failing, key=lambda case: case.signature.volume)
    found = _tested(same, ExplicitCase("p", first.signature, first.fill(same), family=first.family), failing, passing)
    assert found is not None
    assert found.inputs == words


def test_zeros_that_hide_a_wrong_result_refute_no_condition() -> None:
    def kernel(x: jax.Array, code: jax.Array) -> jax.Array:
        return elementwise(lambda u, c: u * jnp.where((c > 99).any(), 2.0, 1.0), x, code)

    @kt.oracle_for(kernel, x=kt.array("m n", "float32"), code=kt.array("m n", "uint8"), dims=DIMS)
    def same(x: np.ndarray, code: np.ndarray) -> np.ndarray:
        return x + 0

    (signature, *_) = (s for s in signatures(same, "quick") if dict(s.dims) == {"m": 5, "n": 9})
    normal = FAMILIES["normal"]

    def case(x: float, code: int) -> ExplicitCase:
        values = {"x": np.full((5, 9), x, np.float32), "code": np.full((5, 9), code, np.uint8)}
        return ExplicitCase("p", signature, values, family=normal)

    failing = [case(x, 120) for x in (1.5, 2.5, 3.5)]
    passing = [case(0, code) for code in range(130, 142)]
    found = _tested(same, failing[0], failing, [*passing, case(2, 3), case(1, 2)])
    assert found is not None
    assert found.inputs == "code holds a number of 100 or more"


WITHOUT_WORDS: Mapping[str, Inputs] = {
    "idx is not sorted": lambda x, y, keep, idx, lens: (idx[1:] < idx[:-1]).any(),
    "keep holds True, as it does in most cases": lambda x, y, keep, *_: keep.any(),
    "the sum of x is positive": lambda x, *_: x.sum() > 0,
    "x holds a zero or y holds a NaN": lambda x, y, *_: (x == 0).any() | (y != y).any(),
    "the first element of x is negative": lambda x, *_: x[0, 0] < 0,
    "the first element of x is over that of y": lambda x, y, *_: x[0, 0] > y[0, 0],
    "an element of x is over that of y": lambda x, y, *_: (x > y).any(),
    "the sum of x is over 50": lambda x, *_: x.sum() > 50,
    "x holds a number over n": lambda x, *_: (x > x.shape[1]).any(),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("words", WITHOUT_WORDS)
def test_of_a_condition_without_words_nothing_is_said(words: str) -> None:
    found = _of_values(WITHOUT_WORDS[words])
    assert found is None or found.inputs is None


def test_a_limit_on_numbers_that_follows_from_a_length_is_not_stated() -> None:
    found = _of_values(WITHOUT_WORDS["x holds a number over n"], with_planned=False)
    assert found is None or found.inputs is None


@pytest.mark.parametrize("is_first_right", [False, True])
def test_of_a_value_in_any_argument_all_are_named_and_none_that_a_passing_case_refutes(is_first_right: bool) -> None:
    def kernel(x: list[jax.Array]) -> jax.Array:
        def body(*refs: Any) -> jax.Array:
            is_wrong = functools.reduce(operator.or_, ((ref[...] < 0).any() for ref in refs[is_first_right:]))
            return functools.reduce(operator.add, (ref[...] for ref in refs)) + jnp.where(is_wrong, 64, 0)

        return whole(body, x[0], *x)

    @kt.oracle_for(kernel, x=kt.tree([kt.array("n", "int32")] * 3), dims={"n": kt.dim(block=8)})
    def total(x: list[np.ndarray]) -> np.ndarray:
        return x[0] + x[1] + x[2]

    signature = replace(next(iter(signatures(total, "quick"))), dims=(("n", 9),))
    positive = np.arange(1, 10, dtype=np.int32)
    negative = -positive  # one array object may be two arguments
    right = {"x.0": negative if is_first_right else positive, "x.1": positive, "x.2": positive}
    wrong = [{**right, path: negative} for path in list(right)[is_first_right:]]
    first, *others = (ExplicitCase("p", signature, each, family=FAMILIES["normal"]) for each in [*wrong, right])
    found = _tested(total, first, [first, *others[:-1]], others[-1:])
    assert found is not None
    assert found.inputs == ("x.1 or x.2" if is_first_right else "x.0, x.1 or x.2") + " holds a negative number"


def test_conditions_of_accesses_are_found_by_running_cases() -> None:
    """Each load has its own, although a case reports only the first wrong access."""

    def kernel(x: jax.Array, y: jax.Array) -> jax.Array:
        def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
            rows, columns = pl.ds(pl.program_id(0) * 4, 4), pl.ds(pl.program_id(1) * 8, 8)
            o_ref[...] = x_ref[rows][:, None] + y_ref[columns][None, :]

        block = pl.BlockSpec((4, 8), lambda i, j: (i, j))
        anywhere, out = pl.BlockSpec(memory_space=pl.ANY), jax.ShapeDtypeStruct((*x.shape, *y.shape), x.dtype)
        grid = pl.cdiv(x.shape[0], 4), pl.cdiv(y.shape[0], 8)
        return pl.pallas_call(body, grid=grid, in_specs=[anywhere] * 2, out_specs=block, out_shape=out)(x, y)

    dims = {"m": kt.dim(block=4, values=(4, 5, 8)), "n": kt.dim(block=8, values=(8, 9, 16))}

    @kt.oracle_for(kernel, x=kt.array("m", "float32"), y=kt.array("n", "float32"), dims=dims)
    def outer(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x[:, None] + y

    found = kt.check(outer, backends=["simulate:sm_90"], depth="quick", minimize=5)
    assert {suspect.title for suspect in found.suspects} == {
        "an access out of bounds: load of x_ref where m is not a multiple of its block, 4",
        "an access out of bounds: load of y_ref where n is not a multiple of its block, 8",
    }


@pytest.mark.parametrize("fails_too", [False, True])
def test_a_finding_elsewhere_that_fails_in_the_experiment_refutes_a_condition(fails_too: bool) -> None:
    """One that passes there has another cause, such as the rounding of its dtype."""

    def kernel(x: jax.Array) -> jax.Array:
        off = 64 if x.shape[0] % 8 else 0
        return elementwise(lambda v: v + jnp.where(fails_too & (v[0] == 77), 32, off), x)

    @kt.oracle_for(kernel, x=kt.array("n", "float32"), dims={"n": kt.dim(block=8)})
    def same(x: np.ndarray) -> np.ndarray:
        return x

    (known,) = {each for each in signatures(same, RunSettings().depth) if dict(each.dims)["n"] == 16}
    family = FAMILIES["normal"]
    case, elsewhere = (
        ExplicitCase("p", replace(known, dims=(("n", n),)), {"x": np.full(n, value, np.float32)}, family=family)
        for n, value in ((9, 1), (16, 77))
    )
    found = _tested(same, case, elsewhere=[elsewhere])
    assert (found is not None and found.words == "n is not a multiple of its block, 8") is not fails_too
