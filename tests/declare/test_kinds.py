"""Kinds of array arguments: their repaired, random and canonical values."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kerneltest.core.dtypes import Array, parse_dtype
from kerneltest.declare.domains import EVERYTHING, Interval
from kerneltest.declare.kinds.base import Slot

INTEGERS = Slot("index", (4,), parse_dtype("int32"), (None,), EVERYTHING, 0, 10, lambda: 1)

REPAIRED: dict[str, tuple[dict[str, Any], list[float], list[float]]] = {
    "an index": (dict(role="index"), [-3, 0, 9, 10], [0, 0, 9, 9]),
    "a length": (dict(role="length"), [-3, 0, 10, 11], [0, 0, 10, 10]),
    "a partition": (dict(role="partition"), [4, -1, 9, 2], [4, 0, 6, 0]),
    "a partition of everything": (dict(role="partition", exhaustive=True), [4, -1, 1, 2], [4, 0, 1, 5]),
    "offsets": (dict(role="offsets"), [5, 3, 12, 7], [0, 5, 7, 10]),
    "offsets that end there": (dict(role="offsets", exhaustive=True), [5, 3, 2, 7], [0, 3, 5, 10]),
    "segments": (dict(role="segments"), [2, 0, 11, 1], [0, 1, 2, 9]),
    "a permutation": (dict(role="permutation", globally_unique=False), [7, 7, -1, 3], [2, 3, 0, 1]),
    "globally different indices": (dict(role="permutation", globally_unique=True), [3, 3, 12, 0], [3, 1, 2, 0]),
    "an index from 2 on": (dict(role="index", least=2), [-3, 2, 9, 10], [2, 2, 9, 9]),
    "a count from 1 on": (dict(role="length", least=1), [0, 1, 10, 11], [1, 1, 10, 10]),
    "different indices, or none": (
        dict(role="permutation", globally_unique=True, sentinel=-1),
        [3, 3, -1, -1],
        [3, 0, -1, -1],
    ),
    "more entries than indices": (
        dict(role="permutation", globally_unique=True, sentinel=-1, end=2),
        [0, 7, 0, -1],
        [0, 1, -1, -1],
    ),
    "a permutation with gaps": (dict(role="permutation", sentinel=-1), [3, -1, 3, 0], [3, -1, 1, 0]),
    "one hot": (dict(role="one_hot"), [0, 5, 5, 1], [0, 1, 0, 0]),
    "a mask": (dict(role="mask", mask_values=(-7, 2)), [-7, 2, 0, 1], [-7, 2, 2, 2]),
    "a key": (dict(role="key", dtype=parse_dtype("uint32")), [1, 2, 3, 4], [1, 2, 3, 4]),
}


@pytest.mark.parametrize("what", REPAIRED)
def test_numbers_are_repaired_to_valid_values(what: str) -> None:
    more, before, after = REPAIRED[what]
    slot = replace(INTEGERS, **more)
    made = slot.repair(np.array(before))
    assert made.dtype == slot.dtype
    assert made.tolist() == after
    assert slot.repair(made).tolist() == after, "valid values do not change"


@pytest.mark.parametrize("what", REPAIRED)
@pytest.mark.parametrize("shape", [(4,), (2, 3), (1,), (3, 0)])
def test_random_and_canonical_values_are_valid_in_every_shape(what: str, shape: tuple[int, ...]) -> None:
    more, _, _ = REPAIRED[what]
    slot = replace(INTEGERS, shape=shape, **more)
    rng = np.random.default_rng(0)
    if slot.exhaustive and shape[-1] <= (slot.role == "offsets"):
        with pytest.raises(ValueError, match=r"no parts add up to 10; exclude such lengths with where="):
            slot.sample(rng)
        return
    for values in (slot.sample(rng), slot.canonical()):
        assert (values.shape, values.dtype) == (shape, slot.dtype)
        assert slot.repair(values).tolist() == values.tolist()


@pytest.mark.parametrize("role", ["index", "length"])
def test_an_empty_array_of_numbers_that_do_not_exist_has_elements(role: str) -> None:
    slot = replace(INTEGERS, role=role, shape=(0,), end=0, least=1)
    assert slot.kind.element(slot, 5.0) == 1
    assert slot.kind.element_at(slot, [np.arange(2)], np.arange(2), np).tolist() == [1, 1]
    assert slot.sample(np.random.default_rng(0)).shape == (0,)


def test_too_many_different_indices_are_an_error_that_names_the_fix() -> None:
    slot = replace(INTEGERS, role="permutation", globally_unique=True, shape=(4, 3))
    with pytest.raises(ValueError, match=r"12 different indices do not fit into a length of 10; exclude it"):
        slot.sample(np.random.default_rng(0))


def test_random_parts_of_an_exhaustive_partition_add_up_to_the_total() -> None:
    def total(whole: bool, seed: int) -> int:
        slot = replace(INTEGERS, role="partition", exhaustive=whole)
        return int(slot.sample(np.random.default_rng(seed)).sum())

    assert {total(True, seed) for seed in range(20)} == {10}
    assert len({total(False, seed) for seed in range(20)}) > 3


@pytest.mark.parametrize(
    ("domain", "values", "kept"),
    [
        (EVERYTHING, [0.0, -0.0, 1e-40, 2], [0.0, -0.0, 1e-40, 2]),
        (Interval(nonzero=True), [0.0, -0.0, 1e-40, 2], [1, 1, 1, 2]),
        (Interval(-3, -1.5, nonzero=True), [-0.0, -2, -2, -3], [-1.5, -2, -2, -3]),
        (Interval(0, 0.25, nonzero=True), [0.0, 0.1, 0.2, 0.25], [0.25, 0.1, 0.2, 0.25]),
    ],
)
def test_zeros_are_replaced_if_the_domain_excludes_them(
    domain: Interval, values: list[float], kept: list[float]
) -> None:
    slot = replace(INTEGERS, role="data", dtype=parse_dtype("float32"), domain=domain)
    made: Array = slot.coerce(np.array(values, np.float32))
    assert made.tobytes() == np.array(kept, np.float32).tobytes()


@pytest.mark.parametrize("role", ["index", "length", "offsets", "permutation", "segments"])
def test_a_dtype_that_is_too_narrow_to_count_is_an_error(role: str) -> None:
    slot = replace(INTEGERS, role=role, dtype=parse_dtype("int8"), shape=(300,), end=300)
    with pytest.raises(ValueError, match=r"it counts up to \d+; int8 ends at 127: use a wider dtype"):
        slot.repair(np.arange(300))
