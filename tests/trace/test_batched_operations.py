"""Operations in NumPy give what XLA gives on a CPU, row by row."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

from kerneltest.core.dtypes import Array, ShapeDtype, is_float
from kerneltest.trace.batched_interpreter import kernel_rules
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel
from kerneltest.trace.jax_environment import PORTABLE_OPTIONS
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.primitives import PRIMITIVES, Kind
from kerneltest.trace.tracing import trace_function
from tests.operations import OPS

FLOATS = ("float32", "bfloat16", "float16")
INTEGERS = ("int32", "int8", "uint8")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1.5, np.inf, -np.inf, np.nan, 3.0, 100.0, -7.0, 0.25, 1e-3)


def _values(dtype: str, shape: tuple[int, ...], rows: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, (rows, *shape)).astype(bool)
    if not is_float(np.dtype(getattr(ml_dtypes, dtype, dtype))):
        return rng.integers(-128 if dtype[0] == "i" else 0, 127, (rows, *shape)).astype(dtype)
    values = rng.standard_normal((rows, *shape))
    flat = values.reshape(-1)
    flat[: len(SPECIAL)] = SPECIAL[: flat.size]
    return values.astype(getattr(ml_dtypes, dtype, dtype))


@dataclass(frozen=True, eq=False)
class Row:
    """A function with its arguments, each of which has the cases along its first axis."""

    function: Callable[..., Any]
    arguments: tuple[Array, ...]
    ulps: float = 0.0

    def check(self, wanted: list[Any]) -> None:
        inputs = tuple(ShapeDtype(x.shape[1:], x.dtype) for x in self.arguments)
        traced = trace_function(lambda *leaves: jax.tree.leaves(self.function(*leaves)), inputs, "for a test")
        results = BatchedKernel(traced)(self.arguments)
        for case, leaves in enumerate(wanted):
            for got, want in zip(results, leaves, strict=True):
                assert (got.dtype, got.shape[1:]) == (want.dtype, want.shape)
                a, b = np.asarray(got[case], np.float64), np.asarray(want, np.float64)
                eps = float(ml_dtypes.finfo(want.dtype).eps) if is_float(want.dtype) else 0.0
                largest = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
                np.testing.assert_allclose(a, b, rtol=self.ulps * eps, atol=self.ulps * eps * largest / 8)


class Table(NamedTuple):
    """Rows of one dtype by name, with the leaves that XLA gives for each case of them."""

    rows: dict[str, Row]
    by_xla: list[dict[str, list[Array]]]

    def check(self, name: str) -> None:
        self.rows[name].check([leaves[name] for leaves in self.by_xla])


def _table(rows: dict[str, Row]) -> Table:
    # Compiled together, as interpreters are: it is compilations that take long.
    @functools.partial(jax.jit, compiler_options=PORTABLE_OPTIONS)
    def by_xla(arguments: dict[str, list[Any]]) -> dict[str, Any]:
        return {name: jax.tree.leaves(row.function(*arguments[name])) for name, row in rows.items()}

    count = len(next(iter(rows.values())).arguments[0])
    given = ({name: [x[case] for x in row.arguments] for name, row in rows.items()} for case in range(count))
    return Table(rows, [jax.tree.map(np.asarray, by_xla(arguments)) for arguments in given])


X = ((4, 8),)
XY = ((4, 8), (4, 8))
FLOAT_CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], float]] = {
    "inverse square": (lambda x: lax.integer_pow(x, -2), X, 2),
    "round to even": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), X, 0),
    "round away": (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), X, 0),
    "erf": (lax.erf, X, 8),
    "logistic": (lax.logistic, X, 8),
    "clamp": (lambda x, y: lax.clamp(-y * 0 - 1, x, y * 0 + 1), ((4, 8), (4, 8)), 0),
    "literal": (lambda x: x * 2 + 1, X, 1),
    "to int32": (lambda x: x.astype(jnp.int32), X, 0),
    "to int8": (lambda x: x.astype(jnp.int8), X, 0),
    "to uint8": (lambda x: x.astype(jnp.uint8), X, 0),
    "to bool": (lambda x: x.astype(bool), X, 0),
    "to bfloat16": (lambda x: x.astype(jnp.bfloat16), X, 0),
    "reduce_sum": (lambda x: [x.sum(), x.sum(0), x.sum(1)], X, 8),
    "reduce_max": (lambda x: [x.max(), x.max(0), x.max(1)], X, 0),
    "reduce_min": (lambda x: [x.min(), x.min(0), x.min(1)], X, 0),
    "reduce_prod": (lambda x: x.prod(1), X, 16),
    "argmax": (lambda x: [jnp.argmax(x, 0), jnp.argmin(x, 1)], X, 0),
    "cumsum": (lambda x: [jnp.cumsum(x, 1), lax.cumsum(x, 0, reverse=True)], X, 8),
    "cummax": (lambda x: lax.cummax(x, 1), X, 0),
    "dot": (lambda x, y: x @ y, ((4, 8), (8, 3)), 8),
    "batched dot": (lambda x, y: jnp.einsum("bij,kbj->bik", x, y), ((2, 3, 4), (5, 2, 4)), 8),
    "wide dot": (lambda x, y: lax.dot(x, y, preferred_element_type=jnp.float32), ((4, 8), (8, 3)), 8),
    "sort": (lambda x: lax.sort(x, dimension=1), X, 0),
    "top": (lambda x: jnp.take(x, jnp.array([0, 2]), axis=0), X, 0),
}
SHAPE_CASES: dict[str, Callable[..., Any]] = {
    "reshape": lambda x: x.reshape(2, 16),
    "squeeze": lambda x: x.reshape(4, 1, 8).squeeze(1),
    "expand_dims": lambda x: jnp.expand_dims(x, 1),
    "transpose": lambda x: x.T,
    "slice": lambda x: x[1:3, ::2],
    "rev": lambda x: x[::-1],
    "concatenate": lambda x: jnp.concatenate([x, x + x], 1),
    "pad": lambda x: jnp.pad(x, ((1, 2), (0, 3))),
    "pad by less than nothing": lambda x: lax.pad(x, x.dtype.type(3), ((-1, 2, 0), (1, -3, 0))),
    "broadcast": lambda x: jnp.broadcast_to(x[:, None], (4, 3, 8)),
    "tile": lambda x: jnp.tile(x, (2, 1)),
    "repeat": lambda x: jnp.repeat(x, 2, 1),
    "iota": lambda x: x + lax.broadcasted_iota(x.dtype, x.shape, 1),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (2, 7), (3, 2)),
    "dynamic_slice by values": lambda x: lax.dynamic_slice(x, (x[0, 0].astype(jnp.int32), 1), (2, 3)),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, x[:2, :2], (3, -1)),
    "scatter": lambda x: x.at[jnp.array([1, 3, 9])].set(x[:3]),
    "scatter-add": lambda x: x.at[jnp.array([1, 3, 1])].add(1),
    "scatter-max": lambda x: x.at[:, jnp.array([1, 3, 1])].max(1),
    "scatter by values": lambda x: x.at[x[0, :2].astype(jnp.int32), 1].add(2),
    "gather": lambda x: x[jnp.array([[1, 3], [-1, 9]])],
    "gather of columns": lambda x: x[:, jnp.array([1, 7, 8])],
    "gather of elements": lambda x: x[jnp.array([1, 3]), jnp.array([0, 8])],
    "gather by values": lambda x: x[x[0].astype(jnp.int32)],
    "take_along_axis": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "clipped": lambda x: jnp.take(x, jnp.array([1, 5]), axis=0, mode="clip"),
    "slices by a gather": lambda x: jax.vmap(lambda i: lax.dynamic_slice(x, (i, 0), (2, 3)))(jnp.arange(4)),
}
INTEGER_CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "floor division": (lambda x, y: x // jnp.where(y == 0, jnp.ones_like(y), y), XY),
    "shifts": (lambda x, y: [x << (y & 3), x >> (y & 3), lax.shift_right_logical(x, y & 3)], XY),
    "shifts too far": (lambda x, y: [lax.shift_left(x, y), lax.shift_right_arithmetic(x, y)], XY),
    "power": (lambda x: lax.integer_pow(x, 3), X),
    "to float32": (lambda x: x.astype(jnp.float32), X),
    "to bfloat16": (lambda x: x.astype(jnp.bfloat16), X),
    "sum": (lambda x: [x.sum(dtype=x.dtype), jnp.cumsum(x, 0, dtype=x.dtype)], X),
    "dot": (lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32), ((4, 8), (8, 3))),
}


@cache
def _elementwise(dtype: str) -> Table:
    rows = {}
    for op in OPS:
        if dtype in op.machine_dtypes:
            first, *others = (_values(dtype, (4, 8), 3, number) for number in range(op.arity))
            if op.name in ("integer div", "integer rem"):
                others = [np.where(x == 0, x.dtype.type(1), x) for x in others]
            rows[op.name] = Row(op.function, (first, *others), op.ulps)
    return _table(rows)


@pytest.mark.sweep(117)
@pytest.mark.parametrize(("name", "dtype"), [(op.name, d) for op in OPS for d in op.machine_dtypes])
def test_elementwise(name: str, dtype: str) -> None:
    _elementwise(dtype).check(name)


def test_every_elementwise_primitive_has_a_row() -> None:
    with_numpy = {p.name for p in PRIMITIVES.values() if p.kind in (Kind.ELEMENTWISE, Kind.COMPARISON) and p.numpy}
    traced = set()
    for op in OPS:
        operands = [jnp.ones(3, op.dtypes[0])] * op.arity
        traced |= {e.primitive.name for e in jax.make_jaxpr(op.function)(*operands).eqns}
    below = {"clamp", "erf", "logistic"}
    of_others = {"add_any", "_copysign", "log2", "reciprocal"}  # derivatives, later JAX, TPU kernels
    assert with_numpy - traced <= below | of_others


@cache
def _floats(dtype: str) -> Table:
    return _table(
        {
            name: Row(function, tuple(_values(dtype, shape, 3, i) for i, shape in enumerate(shapes)), ulps)
            for name, (function, shapes, ulps) in FLOAT_CASES.items()
        }
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FLOAT_CASES)
def test_floats(name: str, dtype: str) -> None:
    _floats(dtype).check(name)


@cache
def _shapes(dtype: str) -> Table:
    return _table({name: Row(function, (_values(dtype, (4, 8), 3, 0),)) for name, function in SHAPE_CASES.items()})


@pytest.mark.parametrize("bits", [(5, 10), (8, 7), (4, 3), (8, 23), (2, 1), (11, 4)])
@pytest.mark.parametrize("dtype", [*FLOATS, "float64"])
def test_precision_is_reduced_as_xla_does_without_it(
    dtype: str, bits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, kind = np.random.default_rng(0), np.dtype(getattr(ml_dtypes, dtype, dtype))
    numbers = np.ldexp(rng.standard_normal((4, 2000)), rng.integers(-160, 160, (4, 2000)))
    near = np.ldexp(1 + np.arange(-200, 200) * 2.0**-12, [[-14], [-126], [16], [-6]])
    with np.errstate(over="ignore"):
        given = np.concatenate([np.tile(SPECIAL, (4, 1)), numbers, near], 1).astype(kind)
    wanted = jax.jit(lambda x: lax.reduce_precision(x, *bits))
    with jax.enable_x64(True):
        traced = trace_function(
            lambda x: [lax.reduce_precision(x, *bits)], (ShapeDtype(given.shape[1:], kind),), "for a test"
        )
        expected = np.stack([np.asarray(wanted(row)) for row in given])
        monkeypatch.setattr(kernel_rules, "_bind_by_row", None)
        (got,) = BatchedKernel(traced)([given])
    wide, other = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(wide, other)
    np.testing.assert_array_equal(np.signbit(wide) & ~np.isnan(wide), np.signbit(other) & ~np.isnan(wide))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("name", SHAPE_CASES)
def test_shapes(name: str, dtype: str) -> None:
    _shapes(dtype).check(name)


@cache
def _integers(dtype: str) -> Table:
    return _table(
        {
            name: Row(function, tuple(_values(dtype, shape, 3, i) for i, shape in enumerate(shapes)))
            for name, (function, shapes) in INTEGER_CASES.items()
        }
    )


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_CASES)
def test_integers(name: str, dtype: str) -> None:
    _integers(dtype).check(name)


def _powers(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0].sum() < 20, lambda c: (c[0] * 2, c[1] + 1), (jnp.abs(x) + 1, jnp.int32(0)))


CONTROL = {
    "cond": lambda x: lax.cond(x[0] > 0, lambda y: y + 1, lambda y: y * 2, x),
    "switch": lambda x: lax.switch(x[0].astype(jnp.int32), [lambda y: y, lambda y: -y, lambda y: 3 * y], x),
    "while": _powers,
    "counted": lambda x: lax.fori_loop(0, x[0].astype(jnp.int32), lambda i, c: c + i, x),
    "scan": lambda x: lax.scan(lambda c, y: (c + y, c * y), jnp.float32(0), x),
    "scan from the end": lambda x: lax.scan(lambda c, y: (c + y, c), jnp.float32(0), x, reverse=True),
    "scan of nothing": lambda x: lax.scan(lambda c, y: (c, c), jnp.float32(0), x[:0]),
    "jit": lambda x: jax.jit(lambda y: y + 1)(x),
    "softplus": jax.nn.softplus,
    "relu": jax.nn.relu,
}


@cache
def _control() -> Table:
    given = np.array([[3, 1, 2], [-1, 0, 5], [1, 1, 1], [0, 9, 0], [2, -4, 7]], np.float32)
    return _table({name: Row(function, (given,), ulps=8) for name, function in CONTROL.items()})


@pytest.mark.parametrize("name", CONTROL)
def test_rows_may_go_different_ways(name: str) -> None:
    _control().check(name)


def test_what_is_alike_in_all_rows_is_computed_once() -> None:
    traced = trace_function(lambda x, y: [x + y], (ShapeDtype((2,), np.dtype("f4")),) * 2, "for a test")
    (out,) = BatchedKernel(traced)([np.ones((1, 2), np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)])
    np.testing.assert_array_equal(out, [[1, 2], [3, 4], [5, 6]])


def _talks(x: Any) -> Any:
    jax.debug.print("{}", x)
    return [x]


def test_what_is_not_known_is_said() -> None:
    inputs = (ShapeDtype((2,), np.dtype("f4")),)
    with pytest.raises(UnknownError):
        BatchedKernel(trace_function(_talks, inputs, "for a test"))


def test_a_slice_longer_than_its_memory_is_not_evaluated() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.ds(pl.program_id(0) * 4, 4)] = x_ref[...]

    def kernel(x: jax.Array) -> list[Any]:
        return [pl.pallas_call(body, grid=(1,), out_shape=jax.ShapeDtypeStruct((3,), x.dtype))(x)]

    traced = trace_function(kernel, (ShapeDtype((4,), np.dtype("f4")),), "for a test")
    with pytest.raises(UnknownError, match="longer than its memory"):
        BatchedKernel(traced)([np.ones((1, 4), np.float32)])
