"""Kernels in Triton itself: how their calls are made, translated and lowered, and what is known of their arithmetic."""

import dataclasses
import importlib.util
import linecache
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402 - after it is known that there is Triton
from jax.extend.core import Primitive  # noqa: E402

from kernels import in_triton  # noqa: E402
from kernels.vector_add import vector_add  # noqa: E402
from kerneltest.backends import device as device_module  # noqa: E402
from kerneltest.backends import jitted  # noqa: E402
from kerneltest.backends.registry import resolve  # noqa: E402
from kerneltest.backends.simulate import triton_formula  # noqa: E402 - evaluates calls
from kerneltest.backends.simulate.simulation import parse_body  # noqa: E402
from kerneltest.core.dtypes import ShapeDtype  # noqa: E402
from kerneltest.core.failures import assign_blame  # noqa: E402
from kerneltest.core.fingerprint import Fingerprint  # noqa: E402
from kerneltest.core.precision import NVIDIA  # noqa: E402
from kerneltest.core.targets import TARGETS  # noqa: E402
from kerneltest.judge.formula import FORMULA_ARITHMETIC  # noqa: E402
from kerneltest.trace.jax_compat.jax_triton import jax_triton_limit  # noqa: E402
from kerneltest.trace.jaxpr_digest import jaxpr_fingerprint  # noqa: E402
from kerneltest.trace.tracing import trace_function  # noqa: E402
from kerneltest.trace.triton_kernels import (  # noqa: E402
    Evaluation,
    TritonArgument,
    arithmetic_of,
    evaluate_call,
    scalar_of,
    triton_ir,
)
from suites import test_in_triton  # noqa: E402
from tests.found import records  # noqa: E402

Given = Mapping[str, Any]
VECTOR = jax.ShapeDtypeStruct((100,), jnp.float32)
MATRIX = jax.ShapeDtypeStruct((32, 32), jnp.float32)
ROWS = FORMULA_ARITHMETIC.rows


@triton.jit
def affine(x, n, scale, out, block: tl.constexpr, shift: tl.constexpr = 1):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, mask=at < n) * scale + shift, mask=at < n)


@triton.jit
def powers(x, n, out, block: tl.constexpr):
    at = tl.arange(0, block)
    value = tl.load(x + at, mask=at < n)
    for _ in range(3):
        value = value * value
    tl.store(out + at, value, mask=at < n)


@triton.jit
def divided(x, n, out, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, mask=at < n) / 3, mask=at < n)


@triton.jit
def tenth(x, n, out, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 0.1, mask=at < n)


@triton.jit
def maximum(x, n, out, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out, tl.max(tl.load(x + at, mask=at < n)))


@triton.jit
def refused(x, n, out, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, tl.load(x + at[:3]), mask=at < n)


@triton.jit
def two(x, n, b, a, block: tl.constexpr):
    at = tl.arange(0, block)
    value = tl.load(x + at, mask=at < n)
    tl.store(a + at, value * 2, mask=at < n)
    tl.store(b + at, value * 3, mask=at < n)


@triton.jit
def overwriting(x, n, out, block: tl.constexpr, to: tl.constexpr):
    at = tl.arange(0, block)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value, mask=at < n)
    tl.store(x + at, value, mask=at < to)


@triton.jit
def counting(x, n, out, block: tl.constexpr):
    tl.atomic_add(x, 1.0)
    tl.store(out, n)


def length(given: Given) -> int:
    return int(given["x"].size)


def blocks(given: Given) -> tuple[int]:
    return (triton.cdiv(given["n"], given["block"]),)


def jaxed(kernel: Any, **more: Any) -> Callable[..., Any]:
    constants = {"n": length, "block": 128, **more.pop("constants", {})}
    return kt.triton_kernel(kernel, grid=blocks, outputs={"out": "x"}, constants=constants, **more)


def call_of(function: Callable[..., Any], *shapes: Any) -> Any:
    (equation,) = jax.make_jaxpr(function)(*shapes).jaxpr.eqns
    return equation


def test_every_kernel_is_paired() -> None:
    paired = {
        getattr(value.kernel, "__wrapped__", None)
        for value in vars(test_in_triton).values()
        if hasattr(value, "kernel")
    }
    written = {value.fn for value in vars(in_triton).values() if isinstance(value, triton.JITFunction)}
    assert len(written) == 4
    assert written <= paired


def check(function: Callable[..., Any], oracle: Callable[..., Any], *backends: str, **more: Any) -> kt.Result:
    pairing = kt.oracle_for(function, x=kt.array("n", "float32"), dims={"n": kt.dim(values=(100,))}, **more)(oracle)
    return kt.check(pairing, backends=backends or ["simulate:sm_90"], depth="quick")


# Declarations and calls.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"function": np.exp}, "is not a function decorated with @triton.jit"),
        ({"outputs": {"ouut": "x"}}, "affine has no argument 'ouut'; did you mean 'out'?"),
        ({"constants": {"blok": 1}}, "affine has no argument 'blok'; did you mean 'block'?"),
    ],
)
def test_a_declaration_names_what_is_wrong(arguments: dict[str, Any], words: str) -> None:
    given = {"function": affine, "grid": (1,), "outputs": {"out": "x"}, **arguments}
    with pytest.raises(kt.DeclarationError, match=words.replace("?", r"\?")):
        kt.triton_kernel(given.pop("function"), **given)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"outputs": {"out": 0}}, "outputs: 'out' is 0: write the name of an argument that is an array"),
        ({"outputs": {"out": lambda given: (64,)}}, r"outputs: 'out' is \(64,\): write the name"),
        ({"outputs": {"out": "n"}}, "outputs: 'out' is 'n': write the name of an argument that is an array"),
        ({"outputs": {"out": "scal"}}, "outputs: 'out' is 'scal': .*did you mean 'scale'"),
        ({"grid": lambda given: None}, "the grid is None: write one to three integers"),
        ({"grid": (1, 1, 1, 1)}, r"the grid is \(1, 1, 1, 1\): write one to three integers"),
        ({"grid": lambda given: (given["n"] / 64,)}, r"the grid is \(1.5625,\): write one to three integers"),
        ({"scale": "two"}, "scale is 'two': pass an array or a number"),
        ({"scale": np.complex64(1)}, r"scale is \(1\+0j\): pass an array or a number"),
        ({"scale": 2**64}, "scale is 18446744073709551616: pass an array or a number of 64 bits"),
        ({"block": lambda given: given["x"]}, "block is an array, but tl.constexpr in the kernel: pass a constant"),
        ({"config": 2}, "config is 2: write a number from 0 to 1"),
        ({"config": 0.5}, "config is 0.5: write a number from 0 to 1"),
    ],
)
def test_a_call_names_what_is_wrong(declared: dict[str, Any], words: str) -> None:
    constants = {"n": length, "block": 128, "scale": 2.0}
    constants = {name: declared.get(name, value) for name, value in constants.items()}
    function, more = affine, {}
    if "config" in declared:
        function = triton.autotune([triton.Config({"shift": shift}) for shift in (1, 2)], key=["n"])(affine)
        more = {"config": declared["config"]}
    grid, outputs = declared.get("grid", (1,)), declared.get("outputs", {"out": "x"})
    called = kt.triton_kernel(function, grid=grid, outputs=outputs, constants=constants)
    with pytest.raises(kt.DeclarationError, match=words):
        call_of(lambda x: called(x, **more), VECTOR)
    with pytest.raises(kt.DeclarationError, match="affine: too many positional arguments"):
        call_of(lambda x: called(x, 0, 1), VECTOR)
    result = check(lambda x: called(x, **more), lambda x: 2 * x + 1)
    assert {finding.verdict for finding in result.findings} == {"runtime_error"}
    assert "DeclarationError" in result.findings[0].message
    assert not result.internal_errors


def test_scalars_of_numpy_are_numbers() -> None:
    block, blocks = np.int64(128), (np.int64(1), np.int32(1))
    constants = {"n": lambda given: np.int64(given["x"].size), "block": block, "scale": np.float32(0.125)}
    function = kt.triton_kernel(affine, grid=blocks, outputs={"out": "x"}, constants=constants)
    assert check(function, lambda x: x * 0.125 + 1).ok
    assert not check(function, lambda x: x * 0.25 + 1).ok
    assert check(lambda x: standin_call(tenth, x, Static(np.int64(100)), Output(0)), lambda x: x + 0.1).ok
    wrong = check(lambda x: standin_call(tenth, x, Static("100"), Output(0)), lambda x: x + 0.1)
    assert {finding.verdict for finding in wrong.findings} == {"runtime_error"}
    assert "n is '100': pass an array or a number" in wrong.findings[0].message


def test_outputs_are_returned_in_the_order_of_their_declaration() -> None:
    for names in ("ab", "ba"):
        function = kt.triton_kernel(
            two, grid=(1,), outputs=dict.fromkeys(names, "x"), constants={"n": length, "block": 128}
        )
        assert check(function, lambda x, names=names: tuple({"a": 2 * x, "b": 3 * x}[name] for name in names)).ok


def test_a_kernel_that_writes_to_an_input_is_found() -> None:
    for function in (jaxed(overwriting, constants={"to": 1}), jaxed(counting)):
        result = check(function, lambda x: x)
        assert {finding.verdict for finding in result.findings} == {"input_modified"}
        assert "the kernel wrote to its array argument 0" in result.findings[0].message
    assert check(jaxed(overwriting, constants={"to": 0}), lambda x: x).ok


def test_a_call_is_batched() -> None:
    scaled = jaxed(affine)
    for axis, shift, right in ((0, 1, True), (1, 1, True), (1, 2, False)):
        function = jax.vmap(lambda x: scaled(x, 3.0), in_axes=axis, out_axes=axis)
        dims = {"m": kt.dim(values=(3,)), "n": kt.dim(values=(100,))}
        pairing = kt.oracle_for(function, x=kt.array("m n", "float32"), dims=dims)(lambda x, shift=shift: 3 * x + shift)
        assert kt.check(pairing, backends=["simulate:sm_90"], depth="quick").ok is right


def test_a_call_keeps_the_kernels_order_and_takes_numbers_as_triton_does() -> None:
    function = jaxed(affine)
    equation = call_of(lambda x: function(x, 0.5), VECTOR)
    assert equation.params["grid"] == (1, 1, 1)
    assert equation.params["arguments"] == (
        TritonArgument("x", operand=0),
        TritonArgument("n", value=100),
        TritonArgument("scale", value=0.5),
        TritonArgument("out", output=0),
        TritonArgument("block", value=128, constant=True),
        TritonArgument("shift", value=1, constant=True),
    )
    one = call_of(lambda x: function(x, 1), VECTOR).params["arguments"]
    assert one[2] == TritonArgument("scale", value=1, constant=True)
    assert [scalar_of(v).dtype.name for v in (3, -(2**31), -(2**40), 2**63, 0.5, True)] == [
        "int32", "int32", "int64", "uint64", "float32", "bool",
    ]  # fmt: skip


def test_numbers_reach_the_kernel() -> None:
    function = jaxed(affine, constants={"scale": 3, "shift": 2})
    assert check(function, lambda x: 3 * x + 2).ok
    assert not check(function, lambda x: 3 * x + 3).ok


def test_constants_that_are_equal_are_not_alike() -> None:
    @triton.jit
    def typed(x, out, constant: tl.constexpr, block: tl.constexpr):
        at = tl.arange(0, block)
        tl.store(out + at, tl.load(x + at) + constant)

    vector = jax.ShapeDtypeStruct((64,), jnp.int32)
    texts = []
    for constant in (1, 1.0):
        constants = {"constant": constant, "block": 64}
        function = kt.triton_kernel(typed, grid=(1,), outputs={"out": "x"}, constants=constants)
        texts.append(triton_ir(call_of(function, vector), TARGETS["sm_90"]))
    assert ["arith.addf" in text for text in texts] == [False, True]


@pytest.mark.parametrize(("dtype", "works"), [("bool", True), ("int4", False), ("complex64", False), ("uint8", True)])
def test_arrays_of_every_dtype_are_passed_or_refused(dtype: str, works: bool) -> None:
    @triton.jit
    def copied(x, out, block: tl.constexpr):
        at = tl.arange(0, block)
        tl.store(out + at, tl.load(x + at))

    function = kt.triton_kernel(copied, grid=(1,), outputs={"out": "x"}, constants={"block": 64})
    equation = call_of(function, jax.ShapeDtypeStruct((64,), dtype))
    if works:
        x = np.arange(64).astype(dtype)
        (out,) = evaluate_call(equation, [x[None]], Evaluation(promotes=False))
        np.testing.assert_array_equal(out[0], x)
    else:
        with pytest.raises(kt.Failure, match=f"no pointers to {dtype}, the dtype of x"):
            triton_ir(equation, TARGETS["sm_90"])


def test_memory_is_written_in_place_or_begins_with_an_array() -> None:
    @triton.jit
    def add_to(out, n, block: tl.constexpr):
        at = tl.arange(0, block)
        tl.store(out + at, tl.load(out + at, mask=at < n) + 1, mask=at < n)

    constants = {"n": lambda given: given["out"].size, "block": 128}
    in_place = kt.triton_kernel(add_to, grid=(1,), outputs={"out": "out"}, constants=constants)
    assert check(lambda x: in_place(x), lambda x: x + 1).ok
    for initial in (np.full(100, 7, np.float32), lambda given: jnp.full(100, 7.0)):
        filled = kt.triton_kernel(add_to, grid=(1,), outputs={"out": initial}, constants={**constants, "n": 100})
        assert check(lambda x, filled=filled: x + filled(), lambda x: x + 8).ok


def test_each_configuration_is_a_signature_and_heuristics_are_evaluated() -> None:
    configurations = [triton.Config({"block": block}, num_warps=warps) for block, warps in ((64, 2), (16, 8))]
    tuned = triton.autotune(configurations, key=["n"])(
        triton.heuristics({"shift": lambda given: 5 if given["block"] == 16 else 1})(affine)
    )
    function = kt.triton_kernel(tuned, grid=blocks, outputs={"out": "x"}, constants={"n": length, "scale": 2})
    first, second = (call_of(lambda x, config=i: function(x, config), VECTOR) for i in (0, 1))
    assert (first.params["grid"], second.params["grid"]) == ((2, 1, 1), (7, 1, 1))
    assert dict(second.params["options"])["num_warps"] == 8
    result = check(function, lambda x: 2 * x + 1, config=kt.static(0, 1))
    assert {"config=1" in f.signature.__str__() for f in result.findings} == {True}


# Fingerprints, under which verdicts are reused.

COUNTED = """
import triton
import triton.language as tl

SHIFT = tl.constexpr(1)
class Numbers:
    shift = tl.constexpr(1)

@triton.jit
def shifted(x, by: tl.constexpr):
    return x + SHIFT + by + Numbers.shift

@triton.jit
def kernel(x, out, block: tl.constexpr):
    at = tl.arange(0, block)
    zero: tl.constexpr = 0
    tl.store(out + at, shifted(tl.load(x + at), zero))
"""


def counted(folder: Path, source: str = COUNTED, block: int = 64, **options: int) -> Fingerprint:
    path = folder / "counted.py"
    path.write_text(source, encoding="utf-8")
    linecache.checkcache(str(path))  # Triton reads the source of functions
    module = types.ModuleType("counted")
    exec(compile(source, str(path), "exec"), module.__dict__)
    constants = {"block": block}
    function = kt.triton_kernel(module.kernel, grid=(1,), outputs={"out": "x"}, constants=constants, **options)
    return jaxpr_fingerprint(jax.make_jaxpr(function)(jax.ShapeDtypeStruct((64,), jnp.float32)))


@pytest.mark.parametrize(
    "edit",
    [
        ("SHIFT = tl.constexpr(1)", "SHIFT = tl.constexpr(2)"),
        ("    shift = tl.constexpr(1)", "    shift = tl.constexpr(2)"),
        ("x + SHIFT + by", "x - SHIFT + by"),
        ("shifted(x, by: tl.constexpr)", "shifted(x, by)"),
        ("zero: tl.constexpr = 0", "zero = 0"),
        ("@triton.jit\ndef shifted", "@triton.jit(noinline=True)\ndef shifted"),
        {"block": 32},
        {"num_warps": 8},
    ],
    ids=str,
)
def test_all_that_triton_compiles_counts_in_fingerprints(edit: Any, tmp_path: Path) -> None:
    before = counted(tmp_path)
    assert counted(tmp_path, COUNTED.replace("\n\n", "\n\n# a remark\n\n")) == before
    if isinstance(edit, tuple):
        assert edit[0] in COUNTED
        assert counted(tmp_path, COUNTED.replace(*edit)) != before
    else:
        assert counted(tmp_path, **edit) != before


# Calls by jax_triton, of which a stand-in makes the same equation.

_standin = Primitive("triton_kernel_call")
_standin.multiple_results = True
_standin.def_abstract_eval(lambda *_, out_shapes, **__: [jax.core.ShapedArray(s.shape, s.dtype) for s in out_shapes])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Static:
    value: Any = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Output:
    ordinal: int = dataclasses.field(metadata={"static": True})


def standin_call(kernel: Any, x: jax.Array, *arguments: Any, **more: Any) -> jax.Array:
    leaves, tree = jax.tree.flatten([x, *arguments])
    params = {
        "fn": kernel, "in_tree": tree, "out_shapes": (jax.ShapeDtypeStruct(x.shape, x.dtype),), "grid": lambda m: (1,),
        "backend_options": {"num_warps": 4, "num_stages": 3}, "input_output_aliases": {}, "zeroed_outputs": (),
        "metaparams": {"block": 128}, **more,
    }  # fmt: skip
    (result,) = _standin.bind(*leaves, **params)
    return result  # type: ignore[no-any-return]


def test_a_call_by_jax_triton_is_found_anywhere_in_a_function() -> None:
    @jax.jit
    def function(x: jax.Array) -> jax.Array:
        y = jax.lax.cond(True, lambda y: standin_call(tenth, y, Static(100), Output(0)), lambda y: y, x)
        return test_in_triton.add.kernel(y, y)

    assert check(function, lambda x: 2 * (x + 0.1), tolerance=kt.tolerance.rounding()).ok
    assert not check(lambda x: standin_call(tenth, x, Static(99), Output(0)), lambda x: x + 0.1).ok


def test_a_call_by_jax_triton_that_is_autotuned_or_of_another_form_is_unavailable() -> None:
    tuned = triton.autotune([triton.Config({"block": 128})], key=[])(tenth)
    for call, words in (
        (lambda x: standin_call(tuned, x, Static(100), Output(0)), "is autotuned"),
        (lambda x: standin_call(tenth, x, Static(100), Output(0), metaparams=None), "cannot read this call"),
    ):
        assert words in str(check(call, lambda x: x + 0.1))

    def by_reference(x: jax.Array) -> jax.Array:
        reference = jax.new_ref(x)
        standin_call(tenth, reference, Static(100), Output(0))
        return reference[...]

    if hasattr(jax, "new_ref"):
        assert "takes references" in str(check(by_reference, lambda x: x + 0.1))


def test_a_device_needs_a_jax_triton_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = (ShapeDtype((100,), np.dtype(np.float32)),)
    traced = trace_function(lambda x: [jaxed(tenth)(x)], inputs, "")
    (device,) = resolve(["cuda"])
    monkeypatch.setitem(sys.modules, "jax_triton", None)
    assert "jax_triton, which runs kernels written in Triton on a GPU, cannot be imported" in device.unavailable_for(
        traced
    )
    code: dict[str, Any] = {}
    exec(compile("def triton_call(**_): raise TypeError('3 arguments')", "/x/jax_triton/lib.py", "exec"), code)
    monkeypatch.setitem(sys.modules, "jax_triton", types.SimpleNamespace(triton_call=code["triton_call"]))
    assert device.unavailable_for(traced) == ""
    with pytest.raises(TypeError) as raised:
        lower_for_cuda(jaxed(tenth))
    said = f"does not work with JAX {jax.__version__}: TypeError: 3 arguments"
    assert jax_triton_limit(raised.value).endswith(said)
    assert jax_triton_limit(ValueError("of the kernel")) == ""
    monkeypatch.setitem(sys.modules, "jax_triton", types.SimpleNamespace(triton_call=lambda kernel: None))
    with pytest.raises(TypeError) as misfit:  # kerneltest's own line raises it
        lower_for_cuda(jaxed(tenth))
    monkeypatch.setattr(device_module, "kernel_device", lambda platform: jax.devices()[0])
    for error, verdict, words in (
        (raised.value, "unavailable", said),
        (misfit.value, "unavailable", "unexpected keyword argument"),
        (ValueError("of the kernel"), "compile_error", "of the kernel"),
    ):

        def lowered(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        monkeypatch.setattr(jitted, "runnable", lowered)
        for path in (device.prepare, lambda traced: device.prepare_at_scale(traced).run([])):
            with pytest.raises(kt.Failure) as failed:
                path(traced)
            blamed = assign_blame(failed.value, "compiling the kernel")
            assert blamed.verdict == verdict
            assert words in str(blamed)


def lower_for_cuda(function: Callable[..., Any]) -> None:
    jax.jit(function).trace(VECTOR).lower(lowering_platforms=("cuda",))


def test_jax_triton_0_3_takes_operands_then_outputs_then_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def triton_call(*operands: Any, kernel: Any, out_shape: Any, grid: Any, **more: Any) -> list[Any]:
        given.update(operands=operands, kernel=kernel, more=more)
        return [jnp.zeros(each.shape, each.dtype) for each in out_shape]

    monkeypatch.setitem(sys.modules, "jax_triton", types.SimpleNamespace(triton_call=triton_call))
    outputs = {"b": np.ones(100, np.float32), "a": "x"}  # the kernel takes x, n, b, a, block
    lower_for_cuda(kt.triton_kernel(two, grid=(1,), outputs=outputs, constants={"n": 100, "block": 128}))
    assert [getattr(operand, "shape", operand) for operand in given["operands"]] == [(100,), 100, (100,)]
    assert given["more"] == {"input_output_aliases": {1: 0}, "block_": 128, "num_warps": 4, "num_stages": 3}
    passed = kt.triton_kernel(
        given["kernel"],
        grid=(1,),
        outputs={"b_output": "x_operand", "a_output": "x_operand"},
        constants={"n_operand": 100, "b_operand": np.ones(1, np.float32), "block_": 128},
    )
    pairing = kt.oracle_for(lambda x: passed(x), x=kt.array("n", "float32"), dims={"n": kt.dim(values=(100,))})
    assert kt.check(pairing(lambda x: (3 * x, 2 * x)), backends=["simulate:sm_90"], depth="quick").ok


def test_a_device_gets_the_same_call(monkeypatch: pytest.MonkeyPatch) -> None:
    @triton.jit
    def shifted(x, total, n, out, by: tl.constexpr):
        tl.atomic_add(total, tl.sum(tl.load(x + tl.arange(0, 4))))
        tl.store(out, n)

    given: dict[str, Any] = {}

    def triton_call(**arguments: Any) -> list[Any]:
        given.update(arguments)
        return [jnp.zeros(1, jnp.float32), arguments["x"]]

    monkeypatch.setitem(sys.modules, "jax_triton", types.SimpleNamespace(triton_call=triton_call))
    outputs = {"total": lambda given: jnp.zeros(1, jnp.float32), "out": "x"}
    function = kt.triton_kernel(shifted, grid=(2, 3), outputs=outputs, constants={"n": 5, "by": 7}, num_warps=8)
    jax.jit(function).trace(VECTOR).lower(lowering_platforms=("cuda",))
    assert [(s.shape, s.dtype) for s in given["out_type"]] == [((1,), np.float32), ((100,), np.float32)]
    assert given["input_output_aliases"] == {1: 0}
    assert (given["kernel"], given["grid"], given["n"], given["by"]) == (shifted, (2, 3, 1), 5, 7)
    assert (given["num_warps"], given["num_stages"]) == (8, 3)
    assert "out" not in given


@pytest.mark.skipif(not importlib.util.find_spec("jax_triton"), reason="jax_triton is not installed")
def test_jax_triton_itself() -> None:
    import jax_triton  # type: ignore[import-not-found, import-untyped, unused-ignore]

    def function(x: jax.Array, n: int = 100) -> jax.Array:
        return jax_triton.triton_call(x, n, kernel=tenth, out_type=x, grid=(1,), block=128)

    assert check(function, lambda x: x + 0.1).ok
    assert not check(lambda x: function(x, 99), lambda x: x + 0.1).ok


def launched(x: jax.Array) -> jax.Array:
    out = jnp.empty_like(x)
    tenth[(1,)](x, 100, out, block=128)
    return out


def differentiated(x: jax.Array) -> jax.Array:
    return jax.vjp(jaxed(tenth), x)[0]


def differentiated_by_jax_triton(x: jax.Array) -> jax.Array:
    return jax.vjp(lambda x: standin_call(tenth, x, Static(100), Output(0)), x)[0]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (launched, "pair kt.triton_kernel("),
        (differentiated, "pair a function that has one by jax.custom_vjp"),
        (differentiated_by_jax_triton, "pair a function that has one by jax.custom_vjp"),
    ],
)
def test_what_triton_or_jax_lacks_is_not_the_kernels_fault(
    function: Callable[[jax.Array], jax.Array], words: str
) -> None:
    result = check(function, lambda x: x + 0.1)
    assert not result.findings
    assert words in str(result)
    assert set(result.unavailable) == {"simulate:sm_90"}


def plain(x: Any) -> Any:
    return x


@triton.jit
def referring(x, n, out, block: tl.constexpr):
    tl.store(out, plain(tl.load(x)))


def test_a_kernel_that_calls_a_function_of_python_is_refused_with_tritons_words() -> None:
    (finding, *_) = check(jaxed(referring), lambda x: x).findings
    assert "plain" in finding.message
    assert "launched" not in finding.message


# Lowering.


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942", "gfx1151"])
def test_no_row_is_lost_without_pallas_triton(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def removed(*_: Any, **__: Any) -> None:
        raise NotImplementedError("Pallas on Triton is gone")

    monkeypatch.setattr("jax._src.pallas.triton.lowering.lower_jaxpr_to_triton_module", removed)
    backends = [f"{tier}:{target}" for tier in ("lower", "compile", "simulate")]
    assert check(jaxed(tenth), lambda x: x + 0.1, *backends).ok
    gone = check(lambda x: vector_add(x, x), lambda x: 2 * x, *backends)
    assert {finding.backend for finding in gone.findings} == {backends[0]}  # it speaks for the other tiers


def test_a_kernel_that_triton_refuses_is_named_with_its_line() -> None:
    (finding, *_) = check(jaxed(refused), lambda x: x, "lower:gfx942").findings
    assert finding.verdict in ("compile_error", "unimplemented")
    assert "test_triton_kernels.py" in finding.message
    line = int(finding.message.partition("test_triton_kernels.py:")[2].split(")")[0].split()[0].strip(",;)"))
    assert "at[:3]" in Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]


def test_places_are_the_users_also_in_functions_of_triton() -> None:
    text = triton_ir(call_of(jaxed(maximum), VECTOR), TARGETS["sm_90"])
    places = {op.name: op.place for op in parse_body(text.encode(), complete=True).operations}
    assert places["tt.reduce"] == places["tt.store"]
    assert "test_triton_kernels.py:" in places["tt.reduce"]


def test_what_the_simulator_cannot_read_is_unavailable() -> None:
    for text, words in (
        ("module { tt.func @k() { tt.made_up_today\n tt.return } }", "does not support this Triton IR"),
        ("module { tt.func @k() { tt.return } tt.func @f() { tt.return } }", "noinline"),
        ("module { tt.func @k(%d: !tt.tensordesc<made up today>) { tt.return } }", "these tensor descriptors"),
    ):
        with pytest.raises(kt.Failure, match=words) as raised:
            parse_body(text.encode())
        assert raised.value.verdict == "unavailable"


@triton.jit
def by_descriptors(x, m, n, out, rows: tl.constexpr, columns: tl.constexpr):
    given = tl.make_tensor_descriptor(x, [m, n], [n, 1], [rows, columns])
    made = tl.make_tensor_descriptor(out, [m, n], [n, 1], [rows, columns])
    i, j = tl.program_id(0) * rows, tl.program_id(1) * columns
    made.store([i, j], given.load([i, j]) * 2)


@pytest.mark.parametrize(
    ("further", "verdict", "words"),
    [
        (0, "", ""),
        (1, "out_of_bounds", "load at x offset 720 of 720 elements by program (1, 0), at "),
        (-1, "unwritten", "36 of 720 elements of output 0 were never written, the first [19, 0]"),
    ],
)
def test_tensor_descriptors_are_simulated_within_their_bounds(further: int, verdict: str, words: str) -> None:
    sizes = {"m": lambda given: len(given["x"]) + further, "n": lambda given: given["x"].shape[1]}
    constants = {**sizes, "rows": 16, "columns": 16}
    function = kt.triton_kernel(by_descriptors, grid=(2, 3), outputs={"out": "x"}, constants=constants)
    dims = {"m": kt.dim(values=(20,)), "n": kt.dim(values=(36,))}
    pairing = kt.oracle_for(function, x=kt.array("m n", "float32"), dims=dims)(lambda x: 2 * x)
    result = kt.check(pairing, backends=["simulate:sm_90"], depth="quick")
    assert {finding.verdict for finding in result.findings} == ({verdict} if verdict else set())
    assert not verdict or words in result.findings[0].message
    assert verdict or "unavailable" not in str(result)


def test_inline_assembly_is_unavailable_with_its_line() -> None:
    @triton.jit
    def moved(x, out, block: tl.constexpr):
        at = tl.arange(0, block)
        values = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [tl.load(x + at)], dtype=tl.float32, is_pure=True, pack=1
        )
        tl.store(out + at, values)

    function = kt.triton_kernel(moved, grid=(1,), outputs={"out": "x"}, constants={"block": 64})
    pairing = kt.oracle_for(function, x=kt.array("n", "float32"), dims={"n": kt.dim(values=(64,))})(lambda x: x)
    found = list(records(pairing, ("lower:sm_90", "simulate:sm_90"), group="structural"))
    assert {(each.backend, each.verdict) for each in found if each.case} == {("simulate:sm_90", "unavailable")}
    (said,) = {each.message for each in found if each.verdict == "unavailable"}
    line = int(said.rpartition("test_triton_kernels.py:")[2].rstrip(")"))
    assert "operation tt.elementwise_inline_asm" in said
    assert "inline_asm_elementwise(" in linecache.getline(__file__, line)


def test_backends_that_do_not_run_triton_are_not_applicable() -> None:
    result = check(jaxed(tenth), lambda x: x + 0.1, "interpret", "interpret-tpu", "lower:tpu-v5e", "simulate:sm_90")
    assert str(result).count("not applicable") == 3


# Arithmetic and evaluation.


@pytest.mark.parametrize(
    ("function", "exact", "multiplications"),
    [
        (jaxed(affine, constants={"scale": 3}), True, 1),
        (jaxed(affine, constants={"scale": 3.0}), True, 1),
        (jaxed(affine, constants={"scale": 0.3}), False, 1),
        (jaxed(affine, constants={"scale": float("inf")}), False, 1),
        (jaxed(powers), True, 2),
        (jaxed(maximum), True, 0),
        (jaxed(divided), False, 0),
        (jaxed(tenth), False, 0),
        (lambda x: test_in_triton.softmax.kernel(x[None]), False, 0),
    ],
)
def test_what_is_exact_on_integers(function: Callable[..., Any], exact: bool, multiplications: int) -> None:
    equation = jax.make_jaxpr(function)(VECTOR).jaxpr.eqns[-1]
    found = arithmetic_of(equation)
    assert (found.exact, found.multiplications) == (exact, multiplications)
    inputs = (ShapeDtype((100,), np.dtype(np.float32)),)
    assert trace_function(lambda x: [function(x)], inputs, "").exact == (exact and multiplications < 2)
    assert not found.reduced_dots


@pytest.mark.parametrize(("precision", "reduced"), [(None, True), ("ieee", False), ("tf32x3", False)])
def test_products_name_their_precision(precision: str | None, reduced: bool) -> None:
    equation = call_of(lambda x, y: test_in_triton.matmul.kernel(x, y, "none", precision), MATRIX, MATRIX)
    found = arithmetic_of(equation)
    assert (found.exact, found.multiplications, found.reduced_dots) == (True, 1, reduced)
    inputs = (ShapeDtype((32, 32), np.dtype(np.float32)),) * 2
    traced = trace_function(lambda x, y: [test_in_triton.matmul.kernel(x, y, "none", precision)], inputs, "")
    assert (traced.exact, traced.reduced_dots, traced.narrow_products) == (True, reduced, True)
    adapted = traced.adapt_precision(NVIDIA)
    assert adapted.operand_roundoff("float32") == (2.0**-10 if reduced else 0)  # cut off
    assert adapted.name != NVIDIA.name  # by which bounds are kept


def test_a_call_outside_jit_is_lowered_as_one_inside() -> None:
    with pytest.raises(NotImplementedError, match=r"triton_kernel.* not found for platform cpu"):
        test_in_triton.add.kernel(np.ones(3, np.float32), np.ones(3, np.float32))


def test_floats_are_promoted_and_rounded_in_samples() -> None:
    equation = call_of(test_in_triton.softmax.kernel, jax.ShapeDtypeStruct((2, 40), jnp.float16))
    x = np.random.default_rng(0).normal(size=(1, 2, 40))
    exact = np.exp(x) / np.exp(x).sum(2, keepdims=True)
    (own,) = evaluate_call(equation, [x.astype(np.float16)], Evaluation(promotes=False))
    assert own.dtype == np.float16
    (promoted,) = evaluate_call(equation, [x], Evaluation(promotes=True))
    assert promoted.dtype == np.float64
    np.testing.assert_allclose(promoted, exact, rtol=1e-14)
    (samples,) = evaluate_call(equation, [np.repeat(x, ROWS, 0)], Evaluation(True, FORMULA_ARITHMETIC))
    assert np.array_equal(samples[:1], promoted)
    moved = np.abs(samples[1:] / promoted - 1)
    unit = FORMULA_ARITHMETIC.fmt.unit_roundoff
    assert unit / 8 < moved.max() < 32 * unit
    assert len(np.unique(samples[:, 0, 0])) == ROWS


def test_a_number_that_float32_rounds_does_not_accuse_a_kernel() -> None:
    equation, zeros = call_of(jaxed(tenth), VECTOR), np.zeros((ROWS, 100))
    (rows,) = evaluate_call(equation, [zeros], Evaluation(True, FORMULA_ARITHMETIC))
    assert 2.0**-26 < np.max(np.abs(rows / rows[0] - 1)) < 2.0**-23
    assert check(jaxed(tenth), lambda x: x + 0.1).ok
    assert not check(jaxed(tenth), lambda x: x + 0.1001).ok


@pytest.mark.parametrize("most", [1, 2**9, 2**18], ids=["one by one", "a few samples", "all"])
@pytest.mark.parametrize("samples", [None, FORMULA_ARITHMETIC], ids=["exact", "rounded"])
def test_no_case_depends_on_another(most: int, samples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @triton.jit
    def summed(x, n, out, total, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        y = tl.exp(tl.load(x + at, mask=at < n, other=-float("inf")) + 0.25)
        tl.store(out + at, tl.cumsum(y), mask=at < n)
        tl.atomic_add(total, tl.sum(y))
        tl.atomic_add(total + 1, tl.sum(y), mask=tl.program_id(0) > 0)

    monkeypatch.setattr(triton_formula, "_MOST_ELEMENTS", most)
    outputs = {"out": "x", "total": np.zeros(2, np.float32)}
    function = kt.triton_kernel(summed, grid=(4,), outputs=outputs, constants={"n": 100, "block": 32})
    equation, how = call_of(function, VECTOR), Evaluation(True, samples)
    cases = np.random.default_rng(0).normal(size=(5, 1, 100))
    count = 1 if samples is None else ROWS
    more = [np.zeros((1, *variable.aval.shape)) for variable in equation.invars[1:]]
    together = evaluate_call(equation, [np.repeat(cases, count, 1).reshape(-1, 100), *more], how)
    for number, case in enumerate(cases):
        alone = evaluate_call(equation, [np.repeat(case, count, 0), *more], how)
        for one, all_ in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, all_[number * count : (number + 1) * count])
        y = np.exp(case[0] + 0.25)
        np.testing.assert_allclose(alone[1][0], [y.sum(), y[32:].sum()], rtol=1e-14)


def test_no_case_depends_on_how_often_another_one_runs_an_operation() -> None:
    @triton.jit
    def counted(x, out, total, block: tl.constexpr):
        at = tl.arange(0, block)
        value = tl.load(x + at)
        left = tl.load(x)
        while left > 1:
            left = left * 0.5
            value = value * 1.1
        tl.store(out + at, value * value)
        tl.atomic_add(total + at % 4, value * value, mask=value > 0)

    outputs = {"out": "x", "total": np.zeros(4, np.float32)}
    function = kt.triton_kernel(counted, grid=(1,), outputs=outputs, constants={"block": 32})
    equation, how = call_of(function, jax.ShapeDtypeStruct((32,), jnp.float32)), Evaluation(True, FORMULA_ARITHMETIC)
    cases = np.random.default_rng(0).normal(size=(2, 1, 32))
    cases[:, 0, 0] = 0.5, 5
    total = np.zeros((1, 4))
    together = evaluate_call(equation, [np.repeat(cases, ROWS, 1).reshape(-1, 32), total], how)
    for number, case in enumerate(cases):
        alone = evaluate_call(equation, [np.repeat(case, ROWS, 0), total], how)
        for one, all_ in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, all_[number * ROWS :][:ROWS])


@pytest.mark.parametrize("grid", [blocks, (1,)], ids=["no programs", "one program"])
def test_calls_on_empty_arrays_are_evaluated(grid: Any) -> None:
    function = kt.triton_kernel(
        affine, grid=grid, outputs={"out": "x"}, constants={"n": length, "scale": 2, "block": 8}
    )
    equation = call_of(function, jax.ShapeDtypeStruct((0,), jnp.float32))
    for how, rows in ((Evaluation(True), 1), (Evaluation(True, FORMULA_ARITHMETIC), ROWS)):
        assert evaluate_call(equation, [np.zeros((rows, 0))], how)[0].shape == (rows, 0)


def test_integers_that_a_kernel_rounds_in_floats_are_not_called_the_backends() -> None:
    @triton.jit
    def counted(x, n, out, block: tl.constexpr):
        at = tl.arange(0, block)
        value = tl.load(x + at, mask=at < n).to(tl.float16).to(tl.float32)
        tl.store(out + at, (value * 1000.0).to(tl.int32), mask=at < n)

    outputs = {"out": lambda given: jax.ShapeDtypeStruct(given["x"].shape, jnp.int32)}
    function = kt.triton_kernel(counted, grid=(1,), outputs=outputs, constants={"n": length, "block": 128})
    result = check(function, lambda x: np.trunc(x * 1000.0).astype(np.int64))
    assert not result.ok
    assert not [finding for finding in result.findings if "the backend computes" in finding.message]


def test_indices_that_overflow_are_found_at_production_sizes() -> None:
    @triton.jit
    def rows(x, m, n, out, block: tl.constexpr, wide: tl.constexpr):
        row = tl.program_id(0)
        if wide:
            row = row.to(tl.int64)
        at = tl.arange(0, block)
        tl.store(out + row * n + at, tl.load(x + row * n + at, mask=at < n), mask=at < n)

    def pairing(wide: bool) -> kt.Pairing:
        function = kt.triton_kernel(
            rows,
            grid=lambda given: (given["m"],),
            outputs={"out": "x"},
            constants={
                "m": lambda given: given["x"].shape[0],
                "n": lambda given: given["x"].shape[1],
                "block": 1024,
                "wide": wide,
            },
        )
        dims = {"m": kt.dim(production=3_000_000), "n": kt.dim(maximum=1024, production=1024)}
        return kt.oracle_for(function, x=kt.array("m n", "float32"), dims=dims, batch_dims=("m", "n"))(lambda x: x)

    (wrong, *_) = records(pairing(False), ("simulate:sm_90",), "standard", "production")
    assert wrong.verdict.is_finding, wrong.message
    assert [r.verdict for r in records(pairing(True), ("simulate:sm_90",), "standard", "production")] == ["pass"]


@pytest.mark.parametrize("by_counter", [True, False])
def test_results_that_depend_on_the_order_of_atomics_are_found(by_counter: bool) -> None:
    @triton.jit
    def slots(x, counter, out, by_counter: tl.constexpr):
        slot = tl.atomic_add(counter, 1)
        if not by_counter:
            slot = tl.program_id(0)
        tl.store(out + slot, tl.load(x + tl.program_id(0)))

    function = kt.triton_kernel(
        slots,
        grid=(100,),
        outputs={"counter": lambda given: jnp.zeros(1, jnp.int32), "out": "x"},
        constants={"by_counter": by_counter},
    )
    (backend,) = resolve(["simulate:sm_90"], orders=3)
    executable = backend.prepare(
        trace_function(lambda x: list(function(x)), (ShapeDtype((100,), np.dtype(np.float32)),), "")
    )
    x = np.arange(100, dtype=np.float32)
    if by_counter:
        with pytest.raises(kt.Failure, match="in another order"):
            executable.run([x])
    else:
        counter, out = executable.run([x])
        assert counter == [100]
        np.testing.assert_array_equal(out, x)


def test_the_ir_depends_on_the_target() -> None:
    equation = call_of(lambda x, y: test_in_triton.matmul.kernel(x, y, "none", None), MATRIX, MATRIX)
    assert "tf32" in triton_ir(equation, TARGETS["sm_90"])
    assert "tf32" not in triton_ir(equation, TARGETS["gfx1151"])
