"""Float formats, casts that round once, and a kernel for each dtype."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import DTYPE_NAMES, TF32, cast, float_format, parse_dtype
from kerneltest.declare.domains import EVERYTHING
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.plan.families import FAMILIES, Slot
from kerneltest.records.schema import Record
from tests.sample import double, elementwise


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float8_e5m2"])
def test_float_formats_agree_with_the_dtypes_themselves(name: str) -> None:
    fmt, native = float_format(parse_dtype(name)), parse_dtype(name)
    one = np.array(1.0, native)
    following = np.array(1 + 2.0 ** (1 - fmt.precision), native)
    assert float(following) > float(one)
    assert float(fmt.ulp(np.array(1.5))) == float(following) - 1
    assert float(np.array(fmt.smallest_subnormal, native)) == fmt.smallest_subnormal
    assert float(cast(np.array(fmt.smallest_subnormal / 4), native)) == 0
    assert float(fmt.ulp(np.array(0.0))) == fmt.smallest_subnormal
    largest = float(ml_dtypes.finfo(native).max)
    assert float(cast(np.array(np.nextafter(fmt.overflow, 0)), native)) == largest
    assert np.isinf(float(cast(np.array(fmt.overflow), native)))


def test_a_cast_rounds_once() -> None:
    # Just above the midpoint of two bfloat16 numbers, by less than float32 can tell.
    above = 1 + 2.0**-8 + 2.0**-40
    assert float(cast(np.array(above), parse_dtype("bfloat16"))) == 1 + 2.0**-7
    assert float(cast(np.array(1 + 2.0**-8), parse_dtype("bfloat16"))) == 1.0


def test_tf32_has_the_range_of_float32_and_ten_stored_bits() -> None:
    assert TF32.unit_roundoff == 2.0**-11
    assert TF32.overflow < float(np.finfo(np.float32).max)


NARROW = [*(name for name in DTYPE_NAMES if hasattr(ml_dtypes, name)), "int2", "int4", "uint2", "uint4"]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", NARROW)
def test_a_kernel_of_every_narrow_dtype_is_planned_drawn_and_judged(name: str) -> None:
    def tripled(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: v.astype(jnp.float32) * 3, x, dtype=jnp.float32)

    def oracle(x: np.ndarray) -> np.ndarray:
        return x * 3.0

    declared = dict(x=kt.array("n", name), dims=dict(n=kt.dim(block=2, values=(3,))), tolerance=kt.tolerance.exact())
    pairing = kt.oracle_for(tripled, **declared)(oracle)
    records = _records(pairing, fuzz=5)
    assert {(r.family, r.message) for r in records if r.verdict.is_finding} == set()
    assert {"structural", "invariants", "fuzz"} <= {r.group for r in records if r.compared}
    wrong = kt.oracle_for(tripled, **declared)(lambda x: x * 3.0 + 1)
    assert all(record.verdict == "mismatch" for record in _records(wrong, "structural"))


def _records(pairing: kt.Pairing, group: str = "", fuzz: int = 0) -> list[Record]:
    """Returns records of all groups, with few invariants, since each compiles."""
    items = plan_pairing(pairing, "oracle", resolve(["interpret"]), RunSettings(depth="quick", fuzz=fuzz)).items
    found: list[Record] = []
    for item in items:
        cache = Cache()
        cases = [c for c in item.cases() if item.group.name != "invariants" or c.family.name == "plain_call"]
        if group in ("", item.group.name):
            found += [outcome.record for case in cases for outcome in run_item(item, cache, case.id)]
    return found


@pytest.mark.parametrize("name", NARROW)
def test_families_fill_every_narrow_dtype_with_finite_numbers(name: str) -> None:
    slot = Slot("data", (4, 9), parse_dtype(name), (2, 4), EVERYTHING, 0, 0, lambda: 1)
    families = [f for f in FAMILIES.values() if f.group in ("structural", "numeric") and f.applies(slot)]
    filled = {f.name: f.fill(slot, np.random.default_rng(0), True).astype(np.float64) for f in families}
    assert len(filled) > 4
    assert [family for family, values in filled.items() if not np.isfinite(values).all()] == []


# ml_dtypes has float8_e5m3fnu from its release 0.7 on.
@pytest.mark.parametrize("name", ["float6_e2m3fn", "float8_e5m3fnu", "int1", "uint1", "complex64"])
def test_a_dtype_that_cannot_be_tried_is_refused_where_it_is_declared(name: str) -> None:
    with pytest.raises(kt.DeclarationError, match=rf"argument 'x': .*{name}"):
        kt.oracle_for(double, x=kt.array("n", name))(lambda x: 2 * x)


def test_64_bit_integers_are_judged_where_jax_has_them() -> None:
    array, dims = kt.array("n", "int64"), dict(n=kt.dim(values=(3,)))
    jax.config.update("jax_enable_x64", True)  # in all threads
    try:
        doubled = kt.oracle_for(double, x=array, dims=dims, tolerance=kt.tolerance.exact())(lambda x: x + x)
        result = kt.check(doubled, backends=["interpret"], depth="quick")
    finally:
        jax.config.update("jax_enable_x64", False)
    assert result.cases > 10
    assert not result.findings
