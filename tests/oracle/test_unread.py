"""The elements of arguments that an oracle does not read, and the values that they get."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import Array, ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.oracle.unread import poisoned_arguments
from kerneltest.plan.cases import Case
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import signatures

SMALL = kt.array("m n", "float32", domain=(-2, 2))
NEVER = kt.array("m n", "float32", domain=kt.interval(-2, 2, finite=True))
LENGTHS = dict(count=kt.lengths("m", up_to="n"))
SEEN = dict(seen=kt.mask("m n"))
KEYS = dict(seen=kt.mask("m"))


def up_to(count: Array, n: int) -> Array:
    return np.arange(n) < count[:, None]


def by_mask(x: Array, seen: Array) -> Array:
    return np.where(seen, x, 0).sum(axis=1)


def by_product(x: Array, seen: Array) -> Array:
    return (x * seen).sum(axis=1)


def of_rows(x: Array, seen: Array) -> Array:
    return x[seen].sum(axis=0)


def by_length(x: Array, count: Array) -> Array:
    return np.array([row[:n].sum() for row, n in zip(x, count, strict=True)])


def positive(x: Array, count: Array) -> Array:
    return np.where(x > 0, x, 0) + 0 * count[:, None]


def greatest(x: Array, count: Array) -> Array:
    return x.max(axis=1) + 0 * count


def checked(x: Array, seen: Array) -> Array:
    if not np.isfinite(x).all():
        raise ValueError("x must be finite")
    return by_mask(x, seen)


# An oracle, its arguments, and the elements that it does not read, given the arguments; None for none.
Unread = Callable[..., Array] | None
hidden: Unread = lambda x, seen: ~seen  # noqa: E731
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], Unread]] = {
    "under a mask": (by_mask, dict(x=SMALL, **SEEN), hidden),
    "rows under a mask": (of_rows, dict(x=SMALL, **KEYS), lambda x, seen: np.broadcast_to(~seen[:, None], x.shape)),
    "past a length": (by_length, dict(x=SMALL, **LENGTHS), lambda x, count: ~up_to(count, x.shape[1])),
    "multiplied by 0": (by_product, dict(x=SMALL, **SEEN), None),
    "compared with 0": (positive, dict(x=SMALL, **LENGTHS), None),
    "less than a maximum": (greatest, dict(x=SMALL, **LENGTHS), None),
    "checked": (checked, dict(x=SMALL, **SEEN), None),
    "that others follow from": (
        lambda x, seen, top: by_mask(x, seen) + top,
        dict(x=SMALL, **SEEN, top=kt.derived("", lambda x: x.max(), dtypes="float32")),
        None,
    ),
}


def _poison(oracle: Callable[..., Any], declared: dict[str, Any]) -> tuple[dict[str, Array], Any]:
    dims = dict(m=kt.dim(values=(3,)), n=kt.dim(block=16))
    pairing = kt.oracle_for(oracle, **declared, dims=dims)(oracle)
    (signature, *_) = signatures(pairing, "quick")
    case = Case("id", "name", signature, FAMILIES["normal"], "", 0)
    arguments = case.fill(pairing)
    shape = np.shape(oracle(**arguments))
    return arguments, poisoned_arguments(pairing, case, (ShapeDtype(shape, np.dtype(np.float32)),))


@pytest.mark.parametrize("name", CASES)
def test_only_what_the_oracle_does_not_read_is_poisoned(name: str) -> None:
    oracle, declared, unread = CASES[name]
    arguments, poisoned = _poison(oracle, declared)
    if unread is None:
        assert poisoned == {}
        return
    assert list(poisoned) == ["NaN", "infinity", "-infinity"]
    where = unread(**arguments)
    assert where.any()
    assert not np.isnan(poisoned["NaN"]["x"][~where]).any()
    assert np.isnan(poisoned["NaN"]["x"][where]).mean() > 0.9  # the search is limited
    assert np.array_equal(poisoned["infinity"]["x"][~where], arguments["x"][~where])


@pytest.mark.parametrize(
    ("x", "ends"),
    [
        (NEVER, {"the greatest number": 2, "the least number": -2}),
        (kt.array("m n", "int8", domain=(0, 9)), {"the greatest number": 9, "the least number": 0}),
        (kt.array("m n", "int8"), {"the greatest number": 127, "the least number": -128}),
        (kt.array("m n", "float4_e2m1fn", domain=(-2, 2)), {"the greatest number": 2, "the least number": -2}),
        (kt.array("m n", "float8_e4m3fn"), {"NaN": np.nan}),
        (kt.array("m n", "float32", domain=kt.interval(-9, finite=True, extremes=False)), {}),
    ],
)
def test_the_values_are_special_or_the_ends_of_the_domain(x: Any, ends: dict[str, float]) -> None:
    arguments, poisoned = _poison(by_mask, dict(x=x, **SEEN))
    where = ~arguments["seen"]
    found = {words: np.unique(changed["x"][where].astype(np.float64)).tolist() for words, changed in poisoned.items()}
    assert str(found) == str({words: [float(end)] for words, end in ends.items()})


def test_an_oracle_that_hangs_is_not_taken_for_one_that_reads() -> None:
    calls = 0

    def hangs(x: Array, seen: Array) -> Array:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise Failure(kt.Verdict.HANG, "it hangs")
        return by_mask(x, seen)

    with pytest.raises(Failure, match="hangs"):
        _poison(hangs, dict(x=SMALL, **SEEN))
