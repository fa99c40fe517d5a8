"""Cutting a kernel that does not lower: a few operations remain, as a script that fails as the kernel does."""

import difflib
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.extend.core import Primitive

from kerneltest.backends.codegen.reduction import ReducedProgram, reduce_program
from kerneltest.backends.codegen.tiers import lower
from kerneltest.core.details import NotBuilt
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import WorkBudget
from kerneltest.trace.jaxpr_source import lowering_script
from kerneltest.trace.tracing import Traced, trace_function
from kerneltest.trace.walk import inline_jaxpr
from tests.sample import elementwise

HERE = Path(__file__)
SM_90 = TARGETS["sm_90"]
Body = Callable[..., None]


def _traced(body: Body, *shapes: tuple[int, ...], grid: tuple[int, ...] = ()) -> Traced:
    """A kernel of float32 arrays whose output is as its first input."""

    def kernel(*refs: Any) -> None:
        body(*refs)

    def function(*arrays: Any) -> list[Any]:
        return [pl.pallas_call(kernel, arrays[0], grid=grid, compiler_params=plgpu.CompilerParams())(*arrays)]

    return trace_function(function, tuple(ShapeDtype(shape, np.dtype(np.float32)) for shape in shapes), "for a test")


def _failure(traced: Traced) -> Failure:
    with pytest.raises(Failure) as caught:
        lower(traced, SM_90)
    return caught.value


def _cut(body: Body, *shapes: tuple[int, ...], grid: tuple[int, ...] = ()) -> ReducedProgram:
    traced = _traced(body, *shapes, grid=grid)
    found = reduce_program(traced, SM_90, _failure(traced), WorkBudget())
    assert found is not None
    return found


def _code(found: ReducedProgram) -> list[str]:
    _, _, after = found.script.partition("def kernel(")
    return [line.partition("  #")[0].strip() for line in after.partition("\n\n")[0].splitlines()[1:]]


def _run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=folder)


def _line(mark: str) -> str:
    lines = HERE.read_text(encoding="utf-8").splitlines()
    return f"{HERE.relative_to(Path.cwd())}:{next(i for i, line in enumerate(lines, 1) if line.endswith('# ' + mark))}"


def _ten(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    y = jnp.where(jnp.exp(x) > 1, x, -x)
    z = lax.cumprod(y)  # PRODUCTS
    o_ref[...] = jnp.tanh(z) - jnp.max(z)


def test_one_operation_of_ten_remains(tmp_path: Path) -> None:
    found = _cut(_ten, (64,))
    assert (found.equations, found.total, found.line) == (1, 10, _line("PRODUCTS"))
    assert _code(found) == ["x = x_ref[...]", "a = lax.cumprod(x)", "o_ref[...] = a"]
    assert "jax.ShapeDtypeStruct((2,), jnp.float32)" in found.script
    ended = _run(tmp_path, found.script)
    assert ended.returncode == 1
    assert "Unimplemented primitive in Pallas Triton lowering: cumprod" in ended.stderr.splitlines()[-1]


def test_the_script_ends_with_0_once_it_lowers(tmp_path: Path) -> None:
    found = _cut(_ten, (64,))
    assert _run(tmp_path, found.script.replace("lax.cumprod(x)", "lax.cumsum(x)")).returncode == 0


def test_a_block_that_is_no_power_of_two() -> None:
    def softmax(x_ref: Any, o_ref: Any) -> None:
        e = jnp.exp(x_ref[...] - x_ref[...].max())
        o_ref[...] = e / e.sum()

    found = _cut(softmax, (17,))
    assert (found.equations, found.total) == (1, 8)
    assert _code(found) == ["a = x_ref[...]", "o_ref[...] = a"]
    with pytest.raises(ValueError, match=r"size is a power of 2. Encountered an array of shape \(3,\)"):
        exec(found.script, {})


def test_a_failure_that_needs_two_operations() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        twelve = jnp.arange(12) * 2 + 1  # an input of that length would fail for itself
        o_ref[...] = jnp.exp(x_ref[...]) + jnp.sum(twelve)

    found = _cut(body, (16,))
    assert (found.equations, found.total) == (2, 9)
    assert _code(found) == [
        "a = lax.broadcasted_iota(jnp.int32, (3,), 0)",
        "b = lax.reduce_sum(a, axes=(0,))",
        "o_ref[...] = b",
    ]


def test_a_loop_and_a_conditional_are_left_behind() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        part = x_ref[pl.ds(pl.program_id(0) * 4, 4)]

        def turn(i: Any, carry: Any) -> Any:
            @pl.when(i > 1)
            def _() -> None:
                o_ref[0:4] = jnp.sort(carry + part)  # SORTED

            return carry * 2

        lax.fori_loop(0, 4, turn, part)

    found = _cut(body, (16,), grid=(4,))
    assert (found.equations, found.line) == (1, _line("SORTED"))
    assert _code(found)[1] == "a = lax.sort(x, dimension=0, is_stable=True, num_keys=1)"
    assert f"num_keys=1)  # {_line('SORTED')}\n" in found.script


def test_lengths_in_the_words_of_an_error_may_shrink() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = lax.logistic(x_ref[...].astype(jnp.bfloat16)).astype(jnp.float32)

    found = _cut(body, (32, 32))
    assert "tensor<32x32xbf16>" in str(_failure(_traced(body, (32, 32))))
    assert "inputs = [jax.ShapeDtypeStruct((2, 2), jnp.bfloat16)]" in found.script


def test_a_loop_that_is_to_blame_stays_without_what_it_does() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = lax.scan(lambda c, x: (c + jnp.exp(x), c * x), 0.0, x_ref[...])[1]

    found = _cut(body, (16,))
    assert found.equations == 1
    assert "lax.scan(turn0, (0.0,), (x,), length=2" in found.script
    with pytest.raises(ValueError, match="Scan with 1 extensive output"):
        exec(found.script, {})


def _numberless(code: str) -> list[str]:
    return re.sub(r"%\w+", "%", code).splitlines()


def _everything(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    i = pl.program_id(0)
    rows = plgpu.load(x_ref.at[pl.ds(i * 4, 4), 0:16:2], mask=jnp.arange(8)[None] < i, other=0.0)
    z = lax.fori_loop(0, i, lambda j, c: c * 2.0 + y_ref[0, 0:8] + j, rows)
    z = lax.fori_loop(0, 4, lambda j, c: jnp.where(c > 0, c, j), z)
    z = lax.cond(i > 2, lambda: jnp.exp(z), lambda: z.astype(jnp.bfloat16).astype(jnp.float32) + 1)
    z += lax.switch(i, [lambda: z.max(), lambda: z.min() * jnp.float32(0.5), lambda: z.sum() - jnp.inf])
    z += lax.dot(x_ref[...], y_ref[...]).max() + lax.while_loop(lambda c: c < 3.0, lambda c: c * 2.0 + i, y_ref[0, 0])
    plgpu.atomic_add(o_ref, (0, slice(None)), x_ref[0, :], mask=y_ref[1, :] > 0)
    plgpu.store(o_ref.at[pl.ds(i * 4, 4), 0:8], z, mask=(z == z) & ~(z < 0))


def test_a_kernel_written_whole_lowers_to_the_same_code() -> None:
    traced = _traced(_everything, (16, 16), (16, 16), grid=(4,))
    (kernel,) = lower(traced, SM_90)
    (call,) = traced.calls
    namespace: dict[str, Any] = {}
    exec(lowering_script(inline_jaxpr(call.equation.params["jaxpr"]).steps, SM_90, call.grid, {}), namespace)
    inputs = tuple(ShapeDtype(i.shape, np.dtype(i.dtype)) for i in namespace["inputs"])
    (written,) = lower(trace_function(namespace["call"], inputs, "again"), SM_90)
    changes = [line for line in difflib.ndiff(_numberless(kernel.text), _numberless(written.text)) if line[0] != " "]
    # lax.cond compares its index with 0, and lax.switch clamps its own, once more.
    assert {line.partition("=")[2].split()[0] for line in changes} == set(
        "arith.cmpi arith.constant arith.extui arith.maxsi arith.minsi".split()
    )
    assert {line[0] for line in changes} == {"+"}
    assert (len(changes), written.grid) == (7, kernel.grid)


def test_what_lowers_or_fails_otherwise_is_not_cut() -> None:
    fails = _traced(_ten, (64,))
    lowers = _traced(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] + 1), (64,))
    assert reduce_program(lowers, SM_90, _failure(fails), WorkBudget()) is None
    detail = _failure(fails).detail
    assert isinstance(detail, NotBuilt)
    other = Failure(Verdict.UNIMPLEMENTED, replace(detail, primitive="sort"))
    assert reduce_program(fails, SM_90, other, WorkBudget()) is None
    assert reduce_program(fails, SM_90, Failure(Verdict.COMPILE_ERROR, detail), WorkBudget()) is None
    assert reduce_program(fails, SM_90, _failure(fails), WorkBudget(0)) is None


def test_no_name_of_a_kernel_is_code() -> None:
    named = Primitive("x; raise SystemExit")
    named.def_abstract_eval(lambda x: x)
    traced = _traced(lambda x_ref, o_ref: o_ref.__setitem__(..., named.bind(x_ref[...])), (16,))
    assert reduce_program(traced, SM_90, _failure(traced), WorkBudget()) is None
    namespace: dict[str, Any] = {"lax": lax}
    text = "def body(x_ref, o_ref): o_ref[...] = lax.cumprod(x_ref[...])"
    exec(compile(text, "a.py\nraise SystemExit", "exec"), namespace)
    found = _cut(namespace["body"], (16,))
    with pytest.raises(NotImplementedError, match="cumprod"):
        exec(found.script, {})


def test_double_precision_is_switched_on_where_it_is_on(tmp_path: Path) -> None:
    with jax.enable_x64(True):
        kernel = trace_function(
            lambda x: [elementwise(lax.cumprod, x)], (ShapeDtype((16,), np.dtype(np.float64)),), "for a test"
        )
        found = reduce_program(kernel, SM_90, _failure(kernel), WorkBudget())
    assert found is not None
    assert "jnp.float64" in found.script
    assert "with jax.enable_x64(True), " in found.script
    assert jnp.ones(1).dtype == jnp.float32
    assert "cumprod" in _run(tmp_path, found.script).stderr.splitlines()[-1]
