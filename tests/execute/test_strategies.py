"""`kt.cases` and `kt.assert_conforms`, as a test with `@given` uses them."""

import builtins
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider

import kerneltest as kt
from kerneltest.backends import interpret
from kerneltest.plan.explicit import NEW_SIGNATURES, ExplicitCase, signature_pool
from kerneltest.plan.signatures import signatures
from tests.sample import double, elementwise

QUIET = settings(deadline=None, database=None, max_examples=100, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def no_constants_of_other_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis also draws constants from the source of loaded modules, which differ between workers."""
    monkeypatch.setattr(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None, raising=False)


def make_pairing(kernel: Callable[..., Any], dtypes: Any = "float32", **dim: Any) -> kt.Pairing:
    dims = dict(n=kt.dim(**dim or {"block": 16}))
    return kt.oracle_for(kernel, x=kt.array("n", dtypes), dims=dims, tolerance=kt.tolerance.exact())(lambda x: 2 * x)


@functools.cache
def doubled() -> kt.Pairing:
    return make_pairing(double, ("float32", "int8"))


def drops_nan_at_17(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.where(jnp.isnan(v), 0.0, v + v) if x.shape[0] == 17 else v + v, x)


def _draw(pairing: kt.Pairing, count: int = 100) -> list[ExplicitCase]:
    found: list[ExplicitCase] = []

    @seed(0)
    @settings(QUIET, max_examples=count, phases=[Phase.generate])
    @given(kt.cases(pairing))
    def collect(case: ExplicitCase) -> None:
        found.append(case)

    collect()
    return found


def test_a_kernel_that_is_right_conforms_and_is_compiled_for_few_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        compiled.append(args)
        return compile_for(*args, **kwargs)

    compile_for = interpret.compile_for
    monkeypatch.setattr(interpret, "compile_for", counted)

    @seed(0)
    @QUIET
    @given(kt.cases(doubled()))
    def conforms(case: ExplicitCase) -> None:
        kt.assert_conforms(doubled(), case)

    conforms()
    dtypes = {args[0].inputs[0].dtype for args in compiled}
    assert len(compiled) == len(dtypes)  # one for each, against which the evaluator is checked


def test_a_bug_of_one_length_and_one_value_is_found_and_shrunk_to_them() -> None:
    pairing = make_pairing(drops_nan_at_17, block=16)

    @seed(1)
    @settings(QUIET, max_examples=300, phases=[Phase.generate, Phase.shrink], print_blob=False)
    @given(kt.cases(pairing))
    def conforms(case: ExplicitCase) -> None:
        kt.assert_conforms(pairing, case)

    with pytest.raises(AssertionError) as caught:
        conforms()
    assert "special_mismatch on interpret, n=17,float32: 1 of 17 elements wrong" in str(caught.value)
    assert "got 0, expected nan" in str(caught.value)
    notes = "\n".join(caught.value.__notes__)
    assert "Case(n=17,float32, x=[nan  0.  0." in notes
    assert notes.count("nan") == 1


def test_what_fails_for_every_value_shrinks_to_zeros_of_the_first_signature() -> None:
    smallest = find(kt.cases(doubled()), lambda case: True, settings=QUIET)
    assert str(smallest.signature) == "n=1,int8"  # the first in the plan among equally short signatures
    assert smallest.arguments["x"].tobytes() == bytes(1)


def test_few_signatures_are_drawn_and_most_are_the_plans() -> None:
    choices = signature_pool(doubled(), "standard")
    planned = [signature for signature in choices if signature in signatures(doubled(), "standard")]
    assert len(choices) - len(planned) in range(1, NEW_SIGNATURES + 1)
    assert {signature.dtype for signature in planned} == {"float32", "int8"}
    assert {case.signature for case in _draw(doubled())} <= set(choices)
    lengths = [dict(signature.dims)["n"] for signature in choices]
    assert lengths == sorted(lengths)


def test_new_lengths_keep_to_what_a_dim_admits() -> None:
    dim: dict[str, Any]
    for dim in (dict(block=8, multiple_of=4, minimum=8, maximum=20), dict(values=(3, 5)), dict(block=16)):
        axis = kt.dim(**dim)
        assert all(axis.admits(dict(s.dims)["n"]) for s in signature_pool(make_pairing(double, **dim), "standard"))


def _everything() -> kt.Pairing:
    return kt.oracle_for(
        lambda x, p, m, i, b, tree, mode: x,
        x=kt.array("m n", "float32"),
        p=kt.array("n", "float32", domain=(0.5, 2)),
        m=kt.mask("m n"),
        i=kt.indices("m", into="n"),
        b=kt.lengths("m", up_to="n"),
        tree=kt.tree({"w": kt.array("n", "int8"), "s": kt.scalar("bfloat16")}),
        mode=kt.static("one", "two"),
        dims=dict(m=kt.dim(block=4), n=kt.dim(block=8)),
    )(lambda x, p, m, i, b, tree, mode: x)


def test_values_are_free_but_for_what_the_declaration_forbids() -> None:
    drawn = _draw(_everything(), 200)

    def seen(path: str) -> np.ndarray:
        return np.concatenate([case.arguments[path].reshape(-1).astype(np.float64) for case in drawn])

    x = seen("x")
    assert np.isnan(x).any()
    assert {np.inf, -np.inf} <= set(x)
    assert ((x != 0) & (np.abs(x) < 2.0**-126)).any()
    assert (np.signbit(x) & (x == 0)).any()
    assert seen("p").min() == 0.5
    assert seen("p").max() == 2
    assert {0, 1} == set(seen("m"))
    assert {-128, 127} <= set(seen("tree.w"))
    for case in drawn:
        lengths = dict(case.signature.dims)
        for path, end in (("i", lengths["n"] - 1), ("b", lengths["n"])):
            assert case.arguments[path].min() >= 0
            assert case.arguments[path].max() <= end
        assert case.arguments["x"].shape == (lengths["m"], lengths["n"])
        assert case.arguments["tree.s"].dtype.name == "bfloat16"
    ends = [(case.arguments["b"] == dict(case.signature.dims)["n"]).any() for case in drawn]
    assert sum(ends) > len(drawn) / 10


def test_a_case_has_an_id_of_its_bits() -> None:
    (one, *_), (other, *_) = _draw(doubled(), 5), _draw(doubled(), 5)
    assert one.id == other.id
    negative = ExplicitCase(one.pairing_id, one.signature, {"x": -one.arguments["x"]})
    assert negative.id != one.id


def test_bad_input_is_said() -> None:
    (case, *_) = _draw(doubled(), 2)
    with pytest.raises(ValueError, match="unknown depth 'shallow'; known are quick"):
        kt.cases(doubled(), depth="shallow")
    with pytest.raises(ValueError, match="lower:sm_90 computes no values; choose interpret"):
        kt.assert_conforms(doubled(), case, backends=["lower:sm_90"])
    with pytest.raises(ValueError, match="not to <other>"):
        kt.assert_conforms(kt.oracle_for(double, x=kt.array("n", "float32"))(_named("<other>")), case)
    with pytest.raises(AssertionError, match="rocm unavailable: JAX finds no rocm device"):
        kt.assert_conforms(doubled(), case, backends=["rocm"])


def _named(name: str) -> Any:
    def oracle(x: np.ndarray) -> np.ndarray:
        return 2 * x

    oracle.__name__ = name
    return oracle


def test_without_hypothesis_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "hypothesis":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'kerneltest\[fuzz\]'"):
        kt.cases(doubled())
