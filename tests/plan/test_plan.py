"""Lengths, signatures and cases: what is planned."""

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import parse_dtype
from kerneltest.declare.dims import Dim
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.plan import DEPTHS
from kerneltest.plan.cases import Case, value_cases
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import boundary_lengths, signature_dtypes, signatures
from suites import test_matmul, test_softmax, test_vector_add
from tests.sample import double


@pytest.mark.parametrize(
    ("dim", "lengths"),
    [
        # few lengths, all of them; more, the ends, and an odd and an even one
        (kt.dim(minimum=2, maximum=8), {2, 3, 4, 5, 6, 7, 8}),
        (kt.dim(multiple_of=8, maximum=64), set(range(8, 72, 8))),
        (kt.dim(minimum=2, maximum=16), {2, 15, 16}),
        (kt.dim(maximum=9), {1, 8, 9}),
        (kt.dim(block=64, maximum=200), {1, 63, 64, 65, 128, 159, 200}),
        # multiples without a block, and lengths that all exceed two blocks
        (kt.dim(multiple_of=128), {128, 256, 384, 640}),
        (kt.dim(block=32, multiple_of=64), {64, 128, 192}),
        (kt.dim(minimum=100), {100, 111, 112, 113, 128, 135, 163}),
        (kt.dim(block=64), {1, 63, 64, 65, 128, 159, 259}),
        (kt.dim(block=64, minimum=0), {0, 1, 63, 64, 65, 128, 159, 259}),
        (kt.dim(block=64, minimum=2, maximum=100), {2, 63, 64, 65, 100}),
        (kt.dim(block=32, multiple_of=16), {16, 32, 48, 64, 80, 144}),
        (kt.dim(block=1), {1, 2, 3, 7}),
        (kt.dim(values=(7, 3)), {3, 7}),
    ],
)
def test_lengths_lie_around_the_block_and_within_the_bounds(dim: Dim, lengths: set[int]) -> None:
    assert set(boundary_lengths(dim)) == lengths


def test_at_quick_a_dim_whose_lengths_are_multiples_has_an_odd_and_an_even_one() -> None:
    assert boundary_lengths(kt.dim(multiple_of=128), "quick") == (256, 128, 384)
    assert boundary_lengths(kt.dim(block=64), "quick") == (65, 64, 1, 159)


def test_past_the_second_block_there_is_an_odd_length() -> None:
    for block in (2, 3, 16, 31, 64, 128):
        assert any(n > 2 * block and n % 2 for n in boundary_lengths(kt.dim(block=block)))


@pytest.mark.parametrize("depth", ["quick", "standard"])
def test_every_pair_of_values_occurs(depth: str) -> None:
    rows = [
        {**{f"dim {k}": v for k, v in s.dims}, **dict(s.statics), "dtype": s.dtype}
        for s in signatures(test_matmul.tiled, depth)
    ]
    values = {key: {row[key] for row in rows} for key in rows[0]}
    for a, b in itertools.combinations(values, 2):
        assert {(row[a], row[b]) for row in rows} == set(itertools.product(values[a], values[b])), (a, b)


def test_signatures_are_few_and_dtypes_have_a_fair_share() -> None:
    assert len(signatures(test_matmul.tiled, "quick")) <= 32
    found = signatures(test_matmul.tiled, "standard")
    assert len(found) <= 84
    shares = [sum(s.dtype == name for s in found) for name in signature_dtypes(test_matmul.tiled, "standard")]
    assert min(shares) * 2 >= len(found) / len(shares)


def _related() -> kt.Pairing:
    return kt.oracle_for(
        lambda a, b, mode: double(a),
        a=kt.array("m n"), b=kt.array("n", "float32"), mode=kt.static(0, 1), where=lambda m, n: m <= n,
        dims=dict(m=kt.dim(minimum=0), n=kt.dim(block=16)), grad=True,
    )(lambda a, b, mode: 2 * a)  # fmt: skip


@pytest.mark.sweep(1)
@pytest.mark.parametrize("pairing", [test_matmul.tiled, test_softmax.fused, _related()])
def test_a_deeper_plan_contains_the_shallower(pairing: kt.Pairing) -> None:
    backends = resolve(["interpret"])
    plans = [plan_pairing(pairing, "p", backends, RunSettings(depth=depth)) for depth in DEPTHS]
    ids = [{case.id for item in plan.items for case in item.cases()} for plan in plans]
    assert ids[0] < ids[1] < ids[2]


def test_at_deep_every_pair_and_every_triple_of_quick_occurs() -> None:
    rows = [(*dict(s.dims).values(), s.dtype) for s in signatures(test_matmul.tiled, "deep")]
    deep, quick = (boundary_lengths(test_matmul.tiled.dims["m"], depth) for depth in ("deep", "quick"))
    assert len({row[:2] for row in rows} & {*itertools.product(deep, deep)}) == len(deep) ** 2
    assert {*itertools.product(quick, ("float32", "bfloat16", "float16"))} <= {(row[0], row[3]) for row in rows}
    assert {*itertools.product(quick, quick, quick)} <= {row[:3] for row in rows}


def test_derived_numbers_depend_on_the_case_and_the_seed() -> None:
    drawn = kt.derived("n", lambda rng, n: rng.uniform(size=n), dtypes="float32")
    pairing = kt.oracle_for(lambda x: x, x=drawn, dims=dict(n=kt.dim(values=(4,))))(lambda x: x)
    (name,) = signature_dtypes(pairing, "quick")
    cases = [
        next(value_cases(pairing, "p", name, group, seed, "quick"))
        for group in ("structural", "numeric")
        for seed in (0, 1)
    ]
    assert len({case.fill(pairing)["x"].tobytes() for case in cases}) == 4
    assert len({cases[0].fill(pairing)["x"].tobytes() for _ in range(2)}) == 1


def planned(pairing: kt.Pairing, dtype_name: str, group: str, *, depth: str = "quick", seed: int = 0) -> list[Case]:
    return list(value_cases(pairing, "suites/test_x.py::p", dtype_name, group, seed, depth))


def everything_of_whole() -> str:
    cases = [
        case
        for name in signature_dtypes(test_vector_add.whole, "quick")
        for case in planned(test_vector_add.whole, name, "structural", seed=7)
    ]
    return "".join(
        f"{c.id}{c.signature}{[v.tobytes().hex() for v in c.fill(test_vector_add.whole).values()]}" for c in cases
    )


def test_cases_are_the_same_in_another_process() -> None:
    code = "from tests.plan.test_plan import everything_of_whole as text; print(text())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert other.strip() == everything_of_whole()


def test_an_id_is_of_the_pairings_place_and_values_are_of_its_name() -> None:
    one, other = (
        next(value_cases(test_vector_add.whole, f"{file}::whole", "float32", "numeric", 0, "quick"))
        for file in ("test_a.py", "test_b.py")
    )
    assert one.id != other.id
    assert np.array_equal(one.fill(test_vector_add.whole)["x"], other.fill(test_vector_add.whole)["x"])


def test_another_seed_gives_other_values() -> None:
    one, two = (planned(test_vector_add.whole, "float32", "numeric", seed=seed)[0] for seed in (0, 1))
    assert one.signature == two.signature
    assert not np.array_equal(one.fill(test_vector_add.whole)["x"], two.fill(test_vector_add.whole)["x"])


@pytest.mark.parametrize("name", signature_dtypes(test_matmul.tiled, "standard"))
def test_structural_values_are_exact_in_every_precision_in_play(name: str) -> None:
    for case in planned(test_matmul.tiled, name, "structural", depth="standard"):
        filled = {path: value.astype(np.float64) for path, value in case.fill(test_matmul.tiled).items()}
        for value in filled.values():
            assert np.array_equal(value, np.round(value))
            assert np.abs(value).max(initial=0) <= 2**8  # bfloat16's significand, so TF32's and float16's too
        assert (np.abs(filled["x"]) @ np.abs(filled["y"])).max(initial=0) <= 2**24


def test_special_families_are_planned_for_each_argument() -> None:
    special = planned(test_matmul.tiled, "float32", "special", depth="standard")
    targets = {case.target for case in special if case.family.name == "one_inf"}
    assert targets == {"x", "y"}


def test_a_user_can_add_a_family() -> None:
    @kt.family(group="numeric", applies=lambda slot: slot.dtype == parse_dtype("float32"))
    def all_sevens(slot, rng):  # type: ignore[no-untyped-def]
        """Sevens."""
        return np.full(slot.shape, 7, slot.dtype)

    try:
        found = [c for c in planned(test_vector_add.whole, "float32", "numeric") if c.family.name == "all_sevens"]
        assert found
        assert all((value == 7).all() for value in found[0].fill(test_vector_add.whole).values())
        assert found[0].family.description == "Sevens."
        assert not [c for c in planned(test_vector_add.whole, "int32", "numeric") if c.family.name == "all_sevens"]
    finally:
        del FAMILIES["all_sevens"]


def test_a_signature_returns_static_arguments_with_their_types() -> None:
    def kernel(x: Any, size: int, scale: float, how: Any, mode: str, flag: bool, nothing: Any, far: float) -> Any:
        return x

    @kt.oracle_for(
        kernel,
        x=kt.array("n", "float32"),
        size=kt.static(16),
        scale=kt.static(0.5),
        how=kt.static(kt.named("eight", 8)),
        mode=kt.static(fast=1),
        flag=kt.static(True),
        nothing=kt.static(None),
        far=kt.static(float("inf")),
    )
    def oracle(x: Any, size: int, scale: float, how: Any, mode: str, flag: bool, nothing: Any, far: float) -> Any:
        return x

    (signature, *_) = signatures(oracle, "quick")
    values = signature.static_values(oracle)
    assert values == {
        "size": 16, "scale": 0.5, "how": "eight", "mode": "fast", "flag": True, "nothing": None, "far": "inf"
    }  # fmt: skip
    assert {name: str(value) for name, value in values.items()} == dict(signature.statics)
