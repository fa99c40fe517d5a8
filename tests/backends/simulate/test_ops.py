"""Each simulated operation agrees with NumPy on random, special and extreme values."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kerneltest.backends.simulate.ir import Operation, Region, Rule, Semantics, Type, any_operand
from kerneltest.backends.simulate.operations import OPERATIONS, tf32
from kerneltest.core.dtypes import cast, float_format, is_float, parse_dtype
from kerneltest.core.failures import Failure
from tests.operations import OPS, Op
from tests.simulated import TARGETS, elementwise_block, simulated

N = 64


def _values(kind: str, domain: tuple[float, float] | None, order: int) -> np.ndarray:
    rng = np.random.default_rng(order)
    made = parse_dtype(kind)
    if made == np.bool_:
        return rng.random(N) < 0.5
    if not is_float(made):
        info = ml_dtypes.iinfo(made)
        low, high = (max(info.min, int(domain[0])), min(info.max, int(domain[1]))) if domain else (info.min, info.max)
        edges = np.array([low, low + 1, 0, 1, high - 1, high], np.int64)
        return np.roll(
            np.concatenate([edges.clip(low, high), rng.integers(low, high, N - 6, endpoint=True)]), order
        ).astype(made)
    fmt, info = float_format(made), ml_dtypes.finfo(made)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, fmt.smallest_subnormal, fmt.smallest_normal,
               float(info.max), -float(info.max), 2.5, -2.5, 3.5]  # fmt: skip
    found = np.concatenate([special, rng.standard_normal(N - len(special)) * 3])
    if domain:
        found = np.where(np.isnan(found), domain[0], found.clip(*domain))
    return np.roll(found, order * 5).astype(made)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if is_float(x.dtype) else x


def _agree(got: np.ndarray, wanted: Any, *, ulps: float) -> None:
    wanted = np.asarray(wanted)
    if not is_float(got.dtype):
        np.testing.assert_array_equal(got, wanted.astype(got.dtype))
        return
    rounded = cast(wanted.astype(np.float64), got.dtype).astype(np.float64)
    wide = got.astype(np.float64)
    same = (wide == rounded) | (np.isnan(wide) & np.isnan(rounded))
    with np.errstate(all="ignore"):
        close = np.abs(wide - rounded) <= ulps * float_format(got.dtype).ulp(np.abs(rounded))
    bad = ~(same | close)
    assert not bad.any(), (np.argwhere(bad)[:3].tolist(), got[bad][:3], rounded[bad][:3])


# A float16 quotient or power may be computed in two roundings; NumPy's float32 power is another library's.
@pytest.mark.sweep(157)
@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize(
    ("op", "kind"), [(op, k) for op in OPS for k in op.dtypes], ids=lambda p: getattr(p, "name", p)
)
def test_elementwise(op: Op, kind: str, backend: str) -> None:
    operands = [_values(kind, op.domain, i) for i in range(op.arity)]
    out = (
        "int32"
        if kind == "bool" or op.name in ("equal", "not_equal") or op.name.startswith(("less", "greater"))
        else None
    )
    (got,) = simulated(elementwise_block(op.function, out), operands, backend)
    with np.errstate(all="ignore"):
        wanted = np.nextafter(*operands) if op.reference is None else op.reference(*(_wide(x) for x in operands))
    _agree(got, wanted, ulps=1 if op.name in ("pow", "integer pow", "div") else 0)


CASTS = ("float32", "float16", "bfloat16", "int32", "int16", "int8", "uint8", "uint32", "bool")


@pytest.mark.sweep(72)
@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize(("old", "new"), [(a, b) for a in CASTS for b in CASTS if a != b])
def test_casts(old: str, new: str, backend: str) -> None:
    within = (-100.0, 100.0) if is_float(parse_dtype(old)) and not is_float(parse_dtype(new)) else None
    if within and new.startswith("u"):
        within = (0.0, 100.0)
    (values,) = [_values(old, within, 0)]
    (got,) = simulated(elementwise_block(lambda x: x.astype(new)), [values], backend)
    wide = _wide(values)
    wanted = wide if is_float(parse_dtype(new)) else wide != 0 if new == "bool" else np.trunc(wide).astype(np.int64)
    _agree(
        got,
        wanted.astype(np.int64) & (2 ** (8 * parse_dtype(new).itemsize) - 1) if new.startswith("u") else wanted,
        ulps=0,
    )


@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize("narrow", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("wide", ["float32", "float16", "bfloat16"])
def test_casts_of_eight_bit_floats(wide: str, narrow: str, backend: str) -> None:
    values = np.linspace(-100, 100, N).astype(parse_dtype(wide))
    (small,) = simulated(elementwise_block(lambda x: x.astype(narrow)), [values], backend)
    np.testing.assert_array_equal(small.astype(np.float32), values.astype(parse_dtype(narrow)).astype(np.float32))
    (back,) = simulated(elementwise_block(lambda x: x.astype(wide)), [small], backend)
    np.testing.assert_array_equal(back, small.astype(parse_dtype(wide)))


@pytest.mark.parametrize("backend", TARGETS)
def test_subnormal_numbers_are_kept(backend: str) -> None:
    tiny = np.full(N, 3e-45, np.float32)
    (got,) = simulated(elementwise_block(jnp.add), [tiny, tiny], backend)
    assert (got == np.float32(6e-45)).all()
    assert (got > 0).all()


def _reduced(function: Callable[..., Any], axis: int) -> Callable[[jax.Array], jax.Array]:
    return elementwise_block(lambda x: function(x, axis=axis))


@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["float32", "int32"])
@pytest.mark.parametrize("name", ["sum", "max", "min", "argmax", "argmin"])
def test_reductions(name: str, kind: str, axis: int, backend: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-50, 50, (16, 32)).astype(kind)
    (got,) = simulated(_reduced(getattr(jnp, name), axis), [x], backend)
    np.testing.assert_array_equal(got, getattr(np, name)(x, axis=axis).astype(got.dtype))


@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize("axis", [0, 1])
def test_scans(axis: int, backend: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (16, 32)).astype(np.int32)
    (got,) = simulated(elementwise_block(lambda v: jnp.cumsum(v, axis=axis)), [x], backend)
    np.testing.assert_array_equal(got, np.cumsum(x, axis=axis))


@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int8"])
def test_dots_of_integers_are_exact(kind: str, backend: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape).astype(parse_dtype(kind)) for shape in ((32, 16), (16, 64)))
    out = jnp.int32 if kind == "int8" else jnp.float32
    (got,) = simulated(elementwise_block(lambda x, y: jnp.dot(x, y, preferred_element_type=out)), [a, b], backend)
    np.testing.assert_array_equal(got, (a.astype(np.int64) @ b.astype(np.int64)).astype(got.dtype))


@pytest.mark.parametrize("backend", TARGETS)
def test_dots_round_their_operands_as_declared(backend: str) -> None:
    a = np.full((16, 16), 1 + 2.0**-12, np.float32)
    b = np.eye(16, dtype=np.float32)
    for precision, expected in ((None, 1.0), ("highest", 1 + 2.0**-12)):
        kernel = elementwise_block(lambda x, y, p=precision: jnp.dot(x, y, precision=p))
        (got,) = simulated(kernel, [a, b], backend)
        assert (got == np.float32(expected)).all()


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(1 + 2.0**-12, 1.0), (1 + 2.0**-11, 1 + 2.0**-10), (1 + 3 * 2.0**-12, 1 + 2.0**-10),
     (-1 - 2.0**-11, -1 - 2.0**-10), (np.inf, np.inf), (float(np.finfo(np.float32).max), np.inf)],
)  # fmt: skip
def test_tf32_rounds_to_nearest_and_ties_away(value: float, rounded: float) -> None:
    assert tf32(np.array([value], np.float32))[0] == np.float32(rounded)
    assert np.isnan(tf32(np.array([np.nan], np.float32))[0])


@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize(
    ("name", "wanted"),
    [("atomic_add", 4 * 10 + 1), ("atomic_max", 10), ("atomic_min", 1), ("atomic_and", 0), ("atomic_or", 11),
     ("atomic_xor", 1), ("atomic_xchg", 10)],
)  # fmt: skip
def test_atomics(name: str, wanted: int, backend: str) -> None:
    def body(x: Any, o: Any) -> None:
        del x
        getattr(plgpu, name)(o, jnp.zeros((), jnp.int32), jnp.full((), 10, jnp.int32))

    def kernel(x: jax.Array) -> jax.Array:
        return pl.pallas_call(
            body, out_shape=x, grid=(4,), input_output_aliases={0: 0}, compiler_params=plgpu.CompilerParams()
        )(x)

    (got,) = simulated(kernel, [np.ones(1, np.int32)], backend)
    assert got[0] == wanted


@pytest.mark.parametrize("name", ["atomic_max", "atomic_min"])
def test_atomics_of_floats_compare_their_bits(name: str) -> None:
    def body(x: Any, start: Any, o: Any) -> None:
        del start
        getattr(plgpu, name)(o, (pl.ds(0, 16),), x[...])

    def kernel(x: jax.Array, start: jax.Array) -> jax.Array:
        return pl.pallas_call(
            body, out_shape=start, input_output_aliases={1: 0}, compiler_params=plgpu.CompilerParams()
        )(x, start)

    x, start = np.linspace(-8, 8, 16, dtype=np.float32), np.tile(np.array([-3, 0.5], np.float32), 8)
    (got,) = simulated(kernel, [x, start], "simulate:sm_90")
    combine = np.maximum if name == "atomic_max" else np.minimum
    assert got.tolist() == combine(x, start).tolist()


def test_each_lane_of_an_atomic_addition_counts_if_all_have_one_address_and_value() -> None:
    def body(x: Any, start: Any, o: Any) -> None:
        del start
        at = jnp.zeros(8, jnp.int32)
        plgpu.atomic_add(o, (at,), jnp.ones(8, x.dtype))
        plgpu.atomic_add(o, (at + 1,), x[...])

    def kernel(x: jax.Array, start: jax.Array) -> jax.Array:
        return pl.pallas_call(
            body, out_shape=start, input_output_aliases={1: 0}, compiler_params=plgpu.CompilerParams()
        )(x, start)

    x = np.arange(8, dtype=np.float32)
    (got,) = simulated(kernel, [x, np.zeros_like(x)], "simulate:sm_90")
    assert got.tolist() == [8, 28, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(("value", "rounds_to"), [(1, 0), (1000, 0), (2**23, 2**24), (1065353216, 1073741824)])
def test_integers_added_as_floats_give_what_an_h200_gives(value: int, rounds_to: int) -> None:
    """JAX before 0.12 lowers an atomic addition of integers to one of floats; the figures are those of an H200."""

    def body(x: Any, start: Any, o: Any) -> None:
        del start
        plgpu.atomic_add(o, (pl.ds(0, 16),), x[...])

    def kernel(x: jax.Array, start: jax.Array) -> jax.Array:
        return pl.pallas_call(
            body, out_shape=start, input_output_aliases={1: 0}, compiler_params=plgpu.CompilerParams()
        )(x, start)

    x = np.full(16, value, np.int32)
    (got,) = simulated(kernel, [x, x], "simulate:sm_90")
    assert set(got.tolist()) == {rounds_to if jax.__version_info__ < (0, 12) else value * 2}


def _doubled_in_assembly(x: jax.Array) -> jax.Array:
    def body(x: Any, o: Any) -> None:
        (o[...],) = plgpu.elementwise_inline_asm(
            "add.f32 $0, $1, $1;", args=[x[...]], constraints="=r,r", pack=1,
            result_shape_dtypes=[jax.ShapeDtypeStruct((N,), jnp.float32)],
        )  # fmt: skip

    return pl.pallas_call(body, out_shape=x, compiler_params=plgpu.CompilerParams())(x)


def test_a_new_operation_takes_one_line_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    doubled = Semantics(lambda op: Rule(lambda x: x + x, any_operand))
    monkeypatch.setitem(OPERATIONS, "tt.elementwise_inline_asm", doubled)
    (got,) = simulated(_doubled_in_assembly, [np.ones(N, np.float32)], "simulate:sm_90")
    assert set(got.tolist()) == {2.0}


def test_an_unsupported_operation_is_named() -> None:
    with pytest.raises(Failure, match=r"does not support operation tt\.elementwise_inline_asm") as e:
        simulated(_doubled_in_assembly, [np.ones(N, np.float32)], "simulate:sm_90")
    assert e.value.verdict == "unavailable"
    assert "simulate/test_ops.py:" in str(e.value)


# Operations whose operands are all splats: (dtype, number of operands, attributes).

_PLUS = Region((0, 1), (Operation("arith.addf", OPERATIONS["arith.addf"], (0, 1), (2,), (), (), {}, (), ""),), (2,))
_SHAPE = (4, 4)  # of the operands; an operation that takes or returns another is in this table
_RESULTS = {
    "tt.reduce": (4,), "tt.expand_dims": (4, 1, 4), "tt.join": (4, 4, 2), "tt.cat": (8, 4), "tt.reshape": (2, 8),
    "tt.split": (4,), "tt.splat": (4, 4), "tt.histogram": (8,),
}  # fmt: skip
_OPERANDS = {"tt.split": (4, 2), "tt.splat": (), "tt.histogram": (4,)}
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "arith.cmpi": {"predicate": 2}, "arith.cmpf": {"predicate": 2}, "tt.expand_dims": {"axis": 1}, "tt.dot": {},
    "tt.reduce": {"axis": 0}, "tt.scan": {"axis": 0}, "tt.trans": {"order": (1, 0)},
    "tt.gather": {"axis": 0}, "tt.clampf": {},
    "tt.extern_elementwise": {"symbol": "__nv_expf"},
}  # fmt: skip
_CASTS = {
    "extf": "float64", "truncf": "float16", "extsi": "int64", "extui": "int64", "trunci": "int8", "sitofp": "float32",
    "uitofp": "float32", "fptosi": "int32", "fptoui": "int32",
}  # fmt: skip
_TWO = (
    "add sub mul div rem max min and or xor shl shr cmp join cat pow atan2 fmod copysign nextafter fpowi precise_d "
    "gather"
).split()
_WITHOUT_OPERANDS = ("arith.constant", "tt.make_range")
_BY_RULE = [n for n, s in OPERATIONS.items() if s.execute is None and n not in _WITHOUT_OPERANDS]


def _operation(name: str) -> tuple[Operation, list[np.dtype]]:
    last = name.partition(".")[2]
    of_bits = any(last.startswith(word) for word in ("absi", "ct", "cl", "pop", "ll"))
    is_integer = of_bits or (name.startswith("arith.") and not last.endswith("f"))
    is_integer = is_integer or last in ("mulhiui", "histogram")
    kind = np.dtype(np.int32 if is_integer else np.float32)
    count = 3 if last in ("select", "fma", "dot", "clampf") else 2 if any(last.startswith(word) for word in _TWO) else 1
    if last in ("fptosi", "fptoui"):
        kind = np.dtype(np.float32)
    kinds = [np.dtype(np.bool_) if last == "select" and i == 0 else kind for i in range(count)]
    kinds[1:] = [np.dtype(np.int32)] if last == "gather" else kinds[1:]
    out = _CASTS.get(last, kind.name)
    operand = _OPERANDS.get(name, _SHAPE)
    result = Type(_RESULTS.get(name, _SHAPE), np.dtype(out), pointer=False)
    regions = (_PLUS,) if name in ("tt.reduce", "tt.scan") else ()
    types = tuple(Type(operand, k, pointer=False) for k in kinds)
    numbers = tuple(range(count))
    attributes = _ATTRIBUTES.get(name, {})
    return Operation(name, OPERATIONS[name], numbers, (9,), types, (result,), attributes, regions, ""), kinds


@pytest.mark.parametrize("name", _BY_RULE)
def test_splats_give_what_whole_tensors_give(name: str) -> None:
    operation, kinds = _operation(name)
    rule = OPERATIONS[name].rule(operation)
    shape, programs = operation.operand_types[0].shape, 3
    for first_is_whole in (False, True):
        splats = [np.full((1,) * (len(shape) + 1), 2 + i).astype(kind) for i, kind in enumerate(kinds)]
        whole = [np.ascontiguousarray(np.broadcast_to(x, (programs, *shape))) for x in splats]
        if first_is_whole:
            splats[0] = whole[0]
        with np.errstate(all="ignore"):
            got, expected = (rule.compute(*operands) for operands in (splats, whole))
        for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, expected)), strict=True):
            assert one.ndim == other.ndim
            np.testing.assert_array_equal(np.broadcast_to(one, other.shape), other)
        masks = [np.ones((1,) * (len(shape) + 1), bool), *[None] * (len(kinds) - 1)]
        undefined = rule.undefined(splats, masks)
        first = expected[0] if isinstance(expected, tuple) else expected
        wanted = rule.undefined(whole, [np.ones((programs, *shape), bool), *masks[1:]])
        for one, other in zip(*(m if isinstance(m, tuple) else (m,) for m in (undefined, wanted)), strict=True):
            assert (np.broadcast_to(one, first.shape) == np.broadcast_to(other, first.shape)).all()


def _powers(x: jax.Array) -> jax.Array:
    def body(x: Any, o: Any) -> None:
        a = x[...]
        step = lambda i, s: s + jnp.dot(a, s, precision="highest") + 1.0  # noqa: E731
        o[...] = lax.fori_loop(0, 3, step, jnp.zeros((16, 16), jnp.float32))

    return pl.pallas_call(body, out_shape=x, compiler_params=plgpu.CompilerParams())(x)


def test_an_operand_of_a_product_may_begin_as_zeros_in_a_loop() -> None:
    x = np.full((16, 16), 0.125, np.float32)
    (got,) = simulated(_powers, [x], "simulate:sm_90")
    assert (got == 1 + 3 + 9).all()


def test_a_scan_of_several_operands_may_take_a_splat() -> None:
    plus = OPERATIONS["arith.addf"]
    steps = (Operation("arith.addf", plus, (0, 3), (4,), (), (), {}, (), ""),
             Operation("arith.addf", plus, (4, 2), (5,), (), (), {}, (), ""))  # fmt: skip
    kind = Type((2, 4), np.dtype(np.float32), pointer=False)
    region = Region((0, 1, 2, 3), steps, (4, 5))
    scan = Operation(
        "tt.scan", OPERATIONS["tt.scan"], (0, 1), (2, 3), (kind,) * 2, (kind,) * 2, {"axis": 1}, (region,), ""
    )
    compute = OPERATIONS["tt.scan"].rule(scan).compute
    splat, whole = np.ones((1, 1, 1), np.float32), np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    expected = compute(np.ones((3, 2, 4), np.float32), whole)
    for one, other in zip(compute(splat, whole), expected, strict=True):
        np.testing.assert_array_equal(np.broadcast_to(one, other.shape), other)


def test_sums_and_differences_of_one_bit_are_modulo_two() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for name in ("arith.addi", "arith.subi"):
        op = Operation(name, OPERATIONS[name], (0, 1), (2,), (), (), {}, (), "")
        assert op.semantics.rule(op).compute(a, b).tolist() == [False, True, True, False]
