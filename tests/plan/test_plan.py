"""Signatures and cases: which lengths, which combinations, and the same ones everywhere."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import dtype
from kerneltest.plan.cases import cases
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.lengths import boundary_lengths
from kerneltest.plan.signatures import dtypes_of, signatures
from suites.test_matmul import tiled
from suites.test_vector_add import whole


@pytest.mark.parametrize(
    ("dim", "lengths"),
    [
        (kt.dim(block=64), {1, 63, 64, 65, 128, 159, 259}),
        (kt.dim(block=64, minimum=0), {0, 1, 63, 64, 65, 128, 159, 259}),
        (kt.dim(block=64, minimum=2, maximum=100), {2, 63, 64, 65, 100}),
        (kt.dim(block=32, multiple_of=16), {16, 32, 48, 64, 80, 144}),
        (kt.dim(block=1), {1, 2, 3, 7}),
        (kt.dim(values=(7, 3)), {3, 7}),
    ],
)
def test_lengths_lie_around_the_tile_and_within_the_bounds(dim: object, lengths: set[int]) -> None:
    assert set(boundary_lengths(dim)) == lengths  # type: ignore[arg-type]


def test_past_the_second_tile_there_is_an_odd_length() -> None:
    for block in (2, 3, 16, 31, 64, 128):
        assert any(n > 2 * block and n % 2 for n in boundary_lengths(kt.dim(block=block)))


def test_a_dim_that_admits_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no multiple of 64 lies from 1 to 10"):
        boundary_lengths(kt.dim(multiple_of=64, maximum=10))


@pytest.mark.parametrize("depth", ["quick", "standard"])
def test_every_pair_of_values_occurs(depth: str) -> None:
    rows = [
        {**{f"dim {k}": v for k, v in s.dims}, **dict(s.statics), "dtype": s.dtype} for s in signatures(tiled, depth)
    ]
    values = {key: {row[key] for row in rows} for key in rows[0]}
    for a, b in itertools.combinations(values, 2):
        assert {(row[a], row[b]) for row in rows} == set(itertools.product(values[a], values[b])), (a, b)


def test_signatures_are_few_and_dtypes_have_a_fair_share() -> None:
    found = signatures(tiled, "standard")
    assert len(found) <= 64
    shares = [sum(s.dtype == name for s in found) for name in dtypes_of(tiled, "standard")]
    assert min(shares) * 2 >= len(found) / len(shares)


def test_cases_are_the_same_in_another_process() -> None:
    def text() -> str:
        found = [case for d in dtypes_of(whole, "quick") for case in cases(whole, d, "structural", "quick", 7)]
        return "".join(f"{c.id}{c.signature}{[v.tobytes().hex() for v in c.fill(whole).values()]}" for c in found)

    code = (
        "from kerneltest.plan.cases import cases, dtypes_of\nfrom suites.test_vector_add import whole\n"
        "found = [c for d in dtypes_of(whole, 'quick') for c in cases(whole, d, 'structural', 'quick', 7)]\n"
        "print(''.join(f'{c.id}{c.signature}{[v.tobytes().hex() for v in c.fill(whole).values()]}' for c in found))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert other.strip() == text()


def test_another_seed_gives_other_values() -> None:
    one, two = (next(cases(whole, "float32", "numeric", "quick", seed)) for seed in (0, 1))
    assert one.signature == two.signature
    assert not np.array_equal(one.fill(whole)["x"], two.fill(whole)["x"])


@pytest.mark.parametrize("name", dtypes_of(tiled, "standard"))
def test_structural_values_are_exact_in_every_precision_in_play(name: str) -> None:
    for case in cases(tiled, name, "structural", "standard", 0):
        filled = {path: value.astype(np.float64) for path, value in case.fill(tiled).items()}
        for value in filled.values():
            assert np.array_equal(value, np.round(value))
            assert np.abs(value).max(initial=0) <= 2**8  # bfloat16's significand, so TF32's and float16's too
        assert (np.abs(filled["x"]) @ np.abs(filled["y"])).max(initial=0) <= 2**24


def test_special_families_are_planned_for_each_argument() -> None:
    targets = {c.target for c in cases(tiled, "float32", "special", "standard", 0) if c.family.name == "one_inf"}
    assert targets == {"x", "y"}


def test_a_user_can_add_a_family() -> None:
    @kt.family(group="numeric", applies=lambda slot: slot.dtype == dtype("float32"))
    def all_sevens(slot, rng):  # type: ignore[no-untyped-def]
        """Sevens."""
        return np.full(slot.shape, 7, slot.dtype)

    try:
        found = [c for c in cases(whole, "float32", "numeric", "quick", 0) if c.family.name == "all_sevens"]
        assert found
        assert all((value == 7).all() for value in found[0].fill(whole).values())
        assert found[0].family.what == "Sevens."
        assert not [c for c in cases(whole, "int32", "numeric", "quick", 0) if c.family.name == "all_sevens"]
    finally:
        del FAMILIES["all_sevens"]
