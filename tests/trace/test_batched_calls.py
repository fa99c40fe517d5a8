"""Pallas calls in NumPy give what Pallas' interpreter gives, row by row, where indices leave an array too."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

from kerneltest.backends.interpret import PrefetchChecked
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, ShapeDtype
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, InterpreterRules, KernelRules
from kerneltest.trace.rewrite import Fill, fill_outputs, fill_padding, reverse_grids, rewrite_jaxpr
from kerneltest.trace.tracing import Traced, analyze, trace_function
from kerneltest.trace.walk import primitive_name

ROWS = 3
F32 = np.dtype(np.float32)
(INTERPRET,) = resolve(["interpret"])


def _out(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def blocked(body: Callable[..., None], *, blocks: Any, shape: Any, grid: Any, **more: Any) -> Callable[..., Any]:
    """A kernel whose arguments and result are cut alike."""
    return lambda *xs: pl.pallas_call(
        body, out_shape=_out(*shape), grid=grid, in_specs=[blocks] * len(xs), out_specs=blocks, **more
    )(*xs)


def whole(body: Callable[..., None], *shape: int, grid: Any = (), **more: Any) -> Callable[..., Any]:
    """A kernel whose references are whole arrays."""
    return lambda *xs: pl.pallas_call(body, out_shape=_out(*shape), grid=grid, **more)(*xs)


def _double(x: Any, o: Any) -> None:
    o[...] = 2 * x[...]


def _loads(x: Any, o: Any) -> None:
    at = pl.program_id(0) * 4 + jnp.arange(4)
    mask = at < x.shape[0]
    plgpu.store(o.at[at], plgpu.load(x.at[at], mask=mask, other=7.0), mask=mask)


def _loads_beyond(x: Any, o: Any) -> None:
    at = pl.program_id(0) * 4 - 3 + jnp.arange(4)
    plgpu.store(o.at[at], plgpu.load(x.at[at]))


def _gathers_beyond(x: Any, o: Any) -> None:
    o[0, :] = x[jnp.arange(6) * 5 - 12]
    o[1, :] = plgpu.load(x.at[7 + jnp.arange(6)])


def _slices_beyond(x: Any, o: Any) -> None:
    o[...] = plgpu.load(x.at[pl.ds(pl.program_id(0) * 3 + 2, 4)])


def _slices_before(x: Any, o: Any) -> None:
    o[...] = plgpu.load(x.at[pl.ds(pl.program_id(0) - 1, 4)])


def _stores_beyond(x: Any, o: Any) -> None:
    plgpu.store(o.at[pl.ds(pl.program_id(0) * 4 + 1, 4)], x[pl.ds(0, 4)], mask=jnp.arange(4) < 3)


def _gets_by_value(x: Any, o: Any) -> None:
    o[...] = x[pl.ds(x[0].astype(jnp.int32), 3)]


def _adds(x: Any, o: Any) -> None:
    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        o[...] = jnp.zeros_like(o)

    o[...] += x[...]


def _keeps(x: Any, o: Any, kept: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        kept[...] = jnp.zeros_like(kept)

    kept[...] += x[...]
    o[...] = kept[...]


def _branches(x: Any, o: Any) -> None:
    @pl.when(x[0] > 0)
    def _() -> None:
        o[...] = x[...]

    @pl.when(x[0] <= 0)
    def _() -> None:
        o[...] = -x[...]


def _loops(x: Any, o: Any) -> None:
    o[...] = jnp.zeros_like(o)

    def body(i: Any, carry: Any) -> Any:
        o[i] = x[i] * 2
        return carry

    jax.lax.fori_loop(0, jnp.abs(x[0]).astype(jnp.int32) % 5, body, 0)


def _scoped(x: Any, o: Any) -> None:
    def body(kept: Any) -> None:
        kept[...] = x[...] + 1
        o[...] = kept[...] * 2

    pl.run_scoped(body, pltpu.VMEM((4,), jnp.float32))


def _programs(x: Any, o: Any) -> None:
    o[...] = x[...] + pl.program_id(0) * 10 + pl.num_programs(1)


def _positions(x: Any, o: Any) -> None:
    o[...] = x[(2 * jnp.arange(4)) % 3, :]


def _tiles(x: Any, o: Any) -> None:
    rows = pl.program_id(0) * 4 + jnp.arange(4)[:, None]
    at = rows, pl.program_id(1) * 4 + jnp.arange(4)[None, :]
    mask = rows < x.shape[0] - 1
    plgpu.store(o.at[at], plgpu.load(x.at[at], mask=mask, other=7.0), mask=mask)


def _repeats(x: Any, o: Any) -> None:
    first, second = (jax.lax.broadcasted_iota(jnp.int32, (2, 3), axis) for axis in (0, 1))
    o[((first + second) % 2).T] = x[...].T


def _unwritten(x: Any, o: Any) -> None:
    @pl.when(pl.program_id(0) > 0)
    def _() -> None:
        o[...] = x[...]


def _updates(x: Any, _: Any, o: Any) -> None:
    o[...] += x[...]


def _copies(x: Any, o: Any, slots: Any, done: Any) -> None:
    program = pl.program_id(0)
    for start, slot in ((program * 4 + 1, slots.at[program % 2]), (jnp.abs(x[0]).astype(jnp.int32), slots.at[2])):
        copy = pltpu.make_async_copy(x.at[pl.ds(start, 4)], slot, done.at[program])  # the last one would leave x
        copy.start()
        copy.wait()
    back = pltpu.make_async_copy(
        slots.at[program % 2].at[pl.ds(1, 2)], o.at[pl.ds(program * 4, 4)].at[pl.ds(2, 2)], done.at[0]
    )
    back.start()
    back.wait()
    o[pl.ds(program * 4, 2)] = slots[2, :2]


def _slots(x: Any, o: Any, slots: Any) -> None:
    program = pl.program_id(0)
    slot = slots.at[program % 2]
    slot[...] = x[pl.ds(program * 4, 4)]
    slot.at[pl.ds(1, 2)][pl.ds(jnp.abs(x[0]).astype(jnp.int32), 1)] += 5  # the start is clamped
    slots.at[2, pl.ds(0, 2)][1 - jnp.arange(2)] = slot.at[pl.ds(2, 2)][...]
    o.at[pl.ds(program * 4, 4)][pl.ds(0, 4)] = slot[...] + slots[2]


def _prefetched(body: Callable[..., None], rows: int) -> Callable[..., Any]:
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(rows,),
        in_specs=[pl.BlockSpec((1, 4), lambda i, order: (order[i], 0))],
        out_specs=pl.BlockSpec((1, 4), lambda i, order: (i, 0)),
    )
    return lambda order, x: pl.pallas_call(body, grid_spec=spec, out_shape=_out(rows, 4))(order, x)


def _permutes(order: Any, x: Any, o: Any) -> None:
    o[...] = x[...] + order[pl.program_id(0)].astype(jnp.float32)


ROW = pl.BlockSpec((4,), lambda i: (i,))
TILE = pl.BlockSpec((2, 4), lambda i, j: (i, j))
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "tail": (blocked(_double, blocks=ROW, shape=(10,), grid=(3,)), ((10,),)),
    "programs": (blocked(_programs, blocks=TILE, shape=(4, 8), grid=(2, 2)), ((4, 8),)),
    "no grid": (whole(_double, 5), ((5,),)),
    "no program": (blocked(_double, blocks=ROW, shape=(8,), grid=(0,)), ((8,),)),
    "squeezed": (
        blocked(_double, blocks=pl.BlockSpec((None, 4), lambda i, j: (i, j)), shape=(3, 8), grid=(3, 2)),
        ((3, 8),),
    ),
    "by elements": (
        blocked(_double, blocks=pl.BlockSpec((pl.Element(4),), lambda i: (i * 2,)), shape=(10,), grid=(4,)),
        ((10,),),
    ),
    "past the end": (blocked(_double, blocks=pl.BlockSpec((4,), lambda i: (i + 1,)), shape=(8,), grid=(3,)), ((8,),)),
    "masked": (whole(_loads, 10, grid=(3,)), ((10,),)),
    "positions beyond": (whole(_loads_beyond, 10, grid=(4,)), ((10,),)),
    "gathers beyond": (whole(_gathers_beyond, 2, 6), ((10,),)),
    "tiles that overhang": (whole(_tiles, 10, 6, grid=(3, 2)), ((10, 6),)),
    "repeated positions": (whole(_repeats, 3), ((2, 3),)),
    "slices beyond": (
        lambda x: pl.pallas_call(_slices_beyond, out_shape=_out(8), grid=(2,), out_specs=ROW)(x),
        ((6,),),
    ),
    "slices as long as the array, and beyond": (
        lambda x: pl.pallas_call(_slices_beyond, out_shape=_out(8), grid=(2,), out_specs=ROW)(x),
        ((4,),),
    ),
    "slices before": (
        lambda x: pl.pallas_call(_slices_before, out_shape=_out(8), grid=(2,), out_specs=ROW)(x),
        ((6,),),
    ),
    "stores beyond": (whole(_stores_beyond, 6, grid=(2,)), ((6,),)),
    "place by value": (whole(_gets_by_value, 3), ((6,),)),
    "sums over programs": (
        lambda x: pl.pallas_call(
            _adds,
            out_shape=_out(4),
            grid=(2, 3),
            in_specs=[pl.BlockSpec((None, 2), lambda i, k: (k, i))],
            out_specs=pl.BlockSpec((2,), lambda i, k: (i,)),
        )(x),
        ((3, 4),),
    ),
    "scratch": (
        blocked(_keeps, blocks=ROW, shape=(8,), grid=(2,), scratch_shapes=[pltpu.VMEM((4,), jnp.float32)]),
        ((8,),),
    ),
    "branches": (whole(_branches, 5), ((5,),)),
    "loops": (whole(_loops, 6), ((6,),)),
    "scoped memory": (whole(_scoped, 4), ((4,),)),
    "rows of positions": (whole(_positions, 4, 5), ((3, 5),)),
    "copies": (
        whole(_copies, 8, grid=(2,), scratch_shapes=[pltpu.VMEM((3, 4), jnp.float32), pltpu.SemaphoreType.DMA((2,))]),
        ((8,),),
    ),
    "slots": (whole(_slots, 8, grid=(2,), scratch_shapes=[pltpu.VMEM((3, 4), jnp.float32)]), ((8,),)),
    "unwritten": (blocked(_unwritten, blocks=ROW, shape=(8,), grid=(2,)), ((8,),)),
    "aliased": (
        lambda x, y: pl.pallas_call(_updates, out_shape=_out(5), input_output_aliases={1: 0})(x, y),
        ((5,), (5,)),
    ),
    "batched": (jax.vmap(blocked(_programs, blocks=TILE, shape=(4, 8), grid=(2, 2))), ((2, 4, 8),)),
    "around": (lambda x: blocked(_double, blocks=ROW, shape=(10,), grid=(3,))(jnp.sort(x))[::-1] + 1, ((10,),)),
}


def _traced(function: Callable[..., Any], *arguments: Array) -> Traced:
    inputs = tuple(ShapeDtype(x.shape[1:], x.dtype) for x in arguments)
    return trace_function(lambda *leaves: jax.tree.leaves(function(*leaves)), inputs, "for a test")


def _check(traced: Traced, *arguments: Array) -> None:
    results = BatchedKernel(traced)(arguments)
    for got, want in zip(results, BatchedKernel(traced, InterpreterRules())(arguments), strict=True):
        np.testing.assert_array_equal(got, want)
    executable: Any = INTERPRET.prepare(traced)
    executable = executable.compiled if isinstance(executable, PrefetchChecked) else executable
    for row in range(ROWS):
        for got, want in zip(results, executable.run([x[row] for x in arguments]), strict=True):
            np.testing.assert_array_equal(got[row], want)


def _values(shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    values = [rng.integers(-9, 9, (ROWS, *shape)).astype(F32) for shape in shapes]
    values[0].reshape(ROWS, -1)[:, 0] = [3, -2, 1]  # rows go different ways by it
    return values


@pytest.mark.parametrize("name", [name for name in CASES if name != "past the end"])
def test_calls(name: str) -> None:
    function, shapes = CASES[name]
    values = _values(shapes)
    _check(_traced(function, *values), *values)


@pytest.mark.parametrize("rule", [fill_padding(Fill(nan=False)), fill_outputs(Fill(nan=False)), reverse_grids()])
@pytest.mark.parametrize("name", ["tail", "programs", "masked", "unwritten", "sums over programs"])
def test_calls_that_were_rewritten(name: str, rule: Any) -> None:
    function, shapes = CASES[name]
    values = _values(shapes)
    traced = _traced(function, *values)
    _check(analyze(rewrite_jaxpr(traced.jaxpr, rule), traced.function, traced.inputs), *values)


def test_rows_may_prefetch_other_scalars() -> None:
    order = np.array([[0, 1, 2], [2, 1, 0], [1, 1, 1]], np.int32)
    values = _values(((3, 4),))
    _check(_traced(_prefetched(_permutes, 3), order, *values), order, *values)


def test_rows_that_prefetch_equal_scalars_run_together() -> None:
    order = np.array([[0, 1, 2], [2, 1, 0], [0, 1, 2]], np.int32)
    values = _values(((3, 4),))
    additions: list[int] = []

    class Counting(KernelRules):
        def rule(self, machine: Any, equation: Any) -> Any:
            evaluate = super().rule(machine, equation)

            def add(operands: Any) -> Any:
                additions.append(1)
                return evaluate(operands)

            return add if primitive_name(equation) == "add" else evaluate

    traced = _traced(_prefetched(_permutes, 3), order, *values)
    (together,) = BatchedKernel(traced, Counting())([order, *values])
    assert len(additions) == 2 * 3  # programs
    np.testing.assert_array_equal(together, BatchedKernel(traced)([order, *values])[0])


def _counted(x: Any, o: Any) -> None:
    o[...] = x[...] * pl.num_programs(0)


@pytest.mark.parametrize("least", [0, -1])
def test_rows_may_have_other_numbers_of_programs(least: int) -> None:
    counts = np.array([2, least, 3], np.int32)
    values = _values(((3, 4),))
    spec = pl.BlockSpec((1, 4), lambda i: (i, 0))

    def call(count: Any, x: Any) -> Any:
        return pl.pallas_call(_counted, out_shape=_out(3, 4), grid=(count,), in_specs=[spec], out_specs=spec)(x)

    _check(_traced(call, counts, *values), counts, *values)


def test_single_calls_are_those_of_a_batch_bit_for_bit() -> None:
    def product(x: Any, y: Any, o: Any) -> None:
        o[...] = jnp.exp(x[...] @ y[...])

    rng = np.random.default_rng(0)
    values = [rng.standard_normal((ROWS, 33, 33)).astype(F32) for _ in range(2)]
    rows = BatchedKernel(_traced(functools.partial(whole(product, 33, 33)), *values))
    (together,) = rows(values)
    for row in range(ROWS):
        np.testing.assert_array_equal(together[row], rows([x[row : row + 1] for x in values])[0][0])
