"""What can be declared, and how a declaration that does not fit is refused."""

import functools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from tests.found import findings
from tests.sample import double, elementwise, exponential


def _two(x: jax.Array, y: jax.Array, scale: int = 1) -> jax.Array:
    return elementwise(lambda a, b: a + b * scale, x, y)


N = kt.array("n")
# What is declared beside or in place of x=N and y=N, and words of the message.
MISFITS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown argument": (dict(z=N), ["argument 'z'", "no such parameter; it has x, y, scale"]),
    "unused dim": (dict(dims=dict(q=kt.dim())), ["dim 'q'", "no argument has it; the dims in use are n"]),
    "a dtype the oracle cannot take": (
        dict(x=kt.array("n", "uint64")), ["argument 'x'", "int64, which cannot hold every uint64"],
    ),
    "dot over a dim of one array": (
        dict(x=kt.array("m k"), y=kt.array("m n"), tolerance=kt.tolerance.dot("k")),
        ["tolerance", "exactly two array arguments", "1 have it (x)"],
    ),
    "conditioned over an unknown dim": (
        dict(tolerance=kt.tolerance.conditioned(over="q")), ["tolerance", "names dim 'q'"],
    ),
    "invariant to what is not there": (
        dict(invariant_to=("block",)),
        ["invariant_to", "'block' is not a static argument; choose among 'grid', 'batch', 'padding', 'chunks', 'unr"],
    ),
    "invariant to a dim": (
        dict(scale=kt.static(1, 2), invariant_to="n"),
        ["invariant_to", "'n' is not a static argument; choose among 'scale', 'grid', ", "; dims go into batch_dims"],
    ),
    "invariant to a batch that is not declared": (
        dict(invariant_to="batch"), ["invariant_to", "'batch' needs batch_dims=, the dims along which"],
    ),
    "invariant to padding without a mask": (
        dict(invariant_to="padding"), ["invariant_to", "'padding' needs an argument", "kt.lengths or kt.mask"],
    ),
    "invariant to chunks along no dim": (
        dict(invariant_to="chunks"), ["invariant_to", "'chunks' needs chunk_dims=, the dim along which"],
    ),
    "chunks along what is no dim": (
        dict(chunk_dims={"n": "m"}), ["chunk_dims", "'m' is not a dim of the pairing; its dims are 'n'"],
    ),
    "a batch along what is no dim": (
        dict(batch_dims=("m",)), ["batch_dims", "'m' is not a dim of the pairing; its dims are 'n'"],
    ),
    "slices that are not independent": (
        dict(y=kt.partition("n", of=8), batch_dims="n"),
        ["batch_dims", "the values of 'y' depend on each other along 'n'"],
    ),
    "an index crosses slices": (
        dict(y=kt.indices("m", into="n"), batch_dims="n"), ["batch_dims", "points into 'n'"],
    ),
    "gradient of integers": (
        dict(x=kt.array("n", "int32"), y=kt.array("n", "int32"), grad=True), ["grad", "no argument holds floats"],
    ),
    "a mask whose dtype cannot hold its values": (
        dict(y=kt.mask("n", hidden=-np.inf, shown=0), dims=dict(n=kt.dim(block=8))),
        ["argument 'y'", "bool cannot represent both hidden=-inf and shown=0"],
    ),
    "a domain between two integers": (
        dict(x=kt.array("n", "int32", domain=(0.2, 0.8))), ["argument 'x'", "holds no number of int32"],
    ),
    "a dtype of some backends that the domain reaches past": (
        dict(x=kt.array("n", "int8", domain=(-100, 100), on={"tpu": "uint8"})),
        ["argument 'x', on='tpu'", "reaches past uint8"],
    ),
    "64 bits on some backends": (
        dict(x=kt.array("n", on={"tpu": "float64"})), ["argument 'x', on='tpu'", "JAX_ENABLE_X64=1"],
    ),
    "an axis that is negative on some backends": (
        dict(x=kt.array("n-4"), dims=dict(n=kt.dim(minimum=5, on={"tpu": kt.dim(values=(2, 8))}))),
        ["argument 'x'", "n-4 is negative where n is 2"],
    ),
    "a count from 1 on of an axis that may be empty": (
        dict(x=kt.array("n"), y=kt.lengths("b", up_to="n", least=1), dims=dict(n=kt.dim(minimum=0))),
        ["argument 'y'", "no number from 1 on is in a length of 0", "as in dims=dict(n=kt.dim(minimum=1))"],
    ),
    "a position from 1 on of an axis that may have one": (
        dict(y=kt.indices("b", into="n", least=1)),
        ["argument 'y'", "no number from 1 on is in a length of 1", "as in dims=dict(n=kt.dim(minimum=2))"],
    ),
    "a position from 9 on of a shorter axis": (
        dict(y=kt.indices("b", into=8, least=9)), ["argument 'y': no number from 9 on is in a length of 8"],
    ),
    "a position from 1 on of two axes": (
        dict(y=kt.indices("b", into="m*n", least=1)),
        ["argument 'y'", "is in a length of 1; exclude shorter lengths of m and n"],
    ),
    "a count from 3 on of a shorter axis on some backends": (
        dict(y=kt.lengths("b", up_to="n", least=3), dims=dict(n=kt.dim(minimum=3, on={"tpu": kt.dim(values=(2, 8))}))),
        ["argument 'y'", "no number from 3 on is in a length of 2"],
    ),
    "a count from 3 on of an axis of which a relation admits less": (
        dict(y=kt.lengths("b", up_to="n", least=3), where=lambda n: n > 1),
        ["argument 'y'", "no number from 3 on is in a length of 2; exclude shorter lengths of n"],
    ),
    "optional in optional": (
        dict(y=kt.optional(kt.tree({"a": kt.optional(N)}))),
        ["argument 'y'", "it may be absent as a whole, so none of its parts is optional"],
    ),
    "the same as what may be absent": (
        dict(x=kt.optional(N), y=kt.same_as("x")), ["argument 'y'", "'x', which may be absent"],
    ),
    "an option that no length meets": (
        dict(scale=kt.static(16, 32), dims=dict(n=kt.dim(values=(48,))), where=lambda n, scale: n % scale == 0),
        ["where", "admits none of the lengths that were tried with scale=32"],
    ),
    "empty domain": (dict(x=kt.array("n", domain=(1, 0))), ["argument 'x'", "domain (1, 0) is empty"]),
}  # fmt: skip


LOOSE: Any = kt  # what a user writes whom no type checker stops
MISWRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "a dtype as a number": (
        dict(x=LOOSE.array("n", 32)),
        "argument 'x': its dtypes are given by name, as in 'float32', not 32",
    ),
    "no dtype": (
        dict(x=LOOSE.array("n", None)),
        "argument 'x': its dtypes are given by name, as in 'float32', not None",
    ),
    "a least position below 0": (
        dict(x=kt.indices("n", into="m", least=-1)),
        "argument 'x': least= is an integer from 0 on, not -1",
    ),
    "no index as a text": (
        dict(x=LOOSE.permutation("n", ignore="none")),
        "argument 'x': ignore= is an integer such as -100, not 'none'",
    ),
    "an axis as the order": (dict(x=N, unordered=LOOSE.ignored), "unordered: give kt.unordered(axis), not kt.ignored"),
    "a shape as a tuple": (
        dict(x=LOOSE.array(("m", 3))),
        "argument 'x': its shape is one string, as in 'm 3', not ('m', 3)",
    ),
    "a shape with commas": (dict(x=kt.array("n,m")), "argument 'x': 'n,m' is neither a dim's name nor a length"),
    "a negative length": (dict(x=kt.array("-1")), "argument 'x': '-1' starts with a sign"),
    "a length in other digits": (dict(x=kt.array("²")), "argument 'x': '²' is neither a dim's name nor a length"),
    "a domain of one": (
        dict(x=LOOSE.array("n", domain=(1,))),
        "argument 'x': its domain is the least and the greatest value, as in domain=(0, 1), or kt.interval(...), "
        "not (1,)",
    ),
    "a domain with NaN": (dict(x=kt.array("n", domain=(0, np.nan))), "argument 'x': its domain is the least and the"),
    "a domain past the dtype": (
        dict(x=kt.array("n", "int8", domain=(0, 1000))),
        "argument 'x': its domain from 0 to 1000 reaches past int8, which goes from -128 to 127",
    ),
    "a dtype twice": (
        dict(x=kt.array("n", ("float32", "bfloat16", "float32"))),
        "argument 'x': its dtypes name float32 twice; remove one",
    ),
    "a dtype twice by two names": (
        dict(x=kt.array("n", ("float32", "f4"))),
        "argument 'x': its dtypes name float32, as 'float32' and 'f4', twice; remove one",
    ),
    "indices that are floats": (
        dict(x=kt.indices("n", into="n", dtype="float32")),
        "argument 'x': it counts, so its dtype is an integer such as 'int32', not 'float32'",
    ),
    "indices into a number": (
        dict(x=LOOSE.indices("n", into=1.5)),
        "argument 'x': the axis that bounds its values is a dim such as 'n', or made of dims, not 1.5",
    ),
    "a size of two dims": (dict(x=kt.dim_size("m n")), "argument 'x': a dim is given by its name, as in 'n', not 'm"),
    "a leaf that is a number": (
        dict(x=kt.tree({"w": [3]})),
        "argument 'x.w.0': a pytree's leaves are arrays, as in kt.array(\"n\"), not 3",
    ),
    "a bad leaf": (
        dict(x=kt.tree({"w": kt.array("n,m")})),
        "argument 'x.w': 'n,m' is neither a dim's name nor a length",
    ),
    "keys of two kinds": (
        dict(x=kt.tree({"w": kt.array("n"), 3: kt.array("n")})),
        "argument 'x': JAX does not accept this as a pytree: ",
    ),
    "a dim as a number": (
        dict(x=kt.array("n"), dims=dict(n=5)),
        "dim 'n': declare it with kt.dim, as in dims=dict(n=kt.dim(values=(5,))), not 5",
    ),
    "dims as a list": (
        dict(x=kt.array("n"), dims=["n"]),
        "dims: give them by name, as in dims=dict(n=kt.dim(block=64)), not ['n']",
    ),
    "a tolerance as a number": (
        dict(x=kt.array("n"), tolerance=1e-3),
        "tolerance: give an error model, as in kt.tolerance.relative(0.001, 'the specification that sets it'), not "
        "0.001",
    ),
    "an xfail as a verdict": (dict(x=kt.array("n"), xfail=["race"]), "xfail: give a list of kt.xfail(...), not ["),
    "a rejection as a name": (dict(x=kt.array("n"), rejects=["odd"]), "rejects: give a list of kt.rejects(...), not ["),
    "a bad array in a rejection": (
        dict(x=kt.array("n"), rejects=[kt.rejects("odd", raises=ValueError, match="odd", x=kt.array("n,m"))]),
        "rejects 'odd', argument 'x': 'n,m' is neither a dim's name nor a length",
    ),
}


@pytest.mark.parametrize("written", MISWRITTEN, ids=lambda name: name.replace(" ", "-"))
def test_what_is_written_wrongly_is_told_with_its_place_and_the_fix(written: str) -> None:
    declaration, message = MISWRITTEN[written]
    with pytest.raises(kt.DeclarationError) as caught:
        kt.oracle_for(double, **declaration)(lambda x: 2 * x)
    assert str(caught.value).startswith(f"pairing '<lambda>', {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "oracle", "message"),
    [
        (double, functools.partial(np.multiply, 2), "kernel 'double', oracle: a partial has no name; wrap it"),
        (double, 3, "kernel 'double', oracle: a int has no name; wrap it in a function, as in def oracle(x): return"),
        (3, np.abs, "oracle_for: the kernel is a function, not 3"),
    ],
    ids=["a-partial-as-oracle", "a-number-as-oracle", "a-number-as-kernel"],
)
def test_what_is_no_function_with_a_name_is_refused(kernel: Any, oracle: Any, message: str) -> None:
    with pytest.raises(kt.DeclarationError) as caught:
        kt.oracle_for(kernel, x=kt.array("n"))(oracle)
    assert str(caught.value).startswith(message)


ROOMY: dict[str, dict[str, Any]] = {
    "an array as long as the axis, or empty": dict(
        y=kt.lengths("n", up_to="n", least=1), dims=dict(n=kt.dim(minimum=0))
    ),
    "a relation": dict(y=kt.lengths("b", up_to="n", least=2), where=lambda b, n: n > b),
    "lengths that suffice": dict(y=kt.indices("b", into="n", least=1), dims=dict(n=kt.dim(values=(2, 8)))),
    "a number": dict(y=kt.lengths("b", up_to=8, least=8)),
    "short lengths without the array": dict(
        y=kt.optional(kt.lengths("b", up_to="n", least=3)), where=lambda n, y: n >= 3 if y else n >= 1
    ),
}


@pytest.mark.parametrize("declared", ROOMY.values(), ids=ROOMY.keys())
def test_a_least_number_that_every_length_has_is_accepted(declared: dict[str, Any]) -> None:
    assert kt.oracle_for(lambda y: y, **declared)(lambda y: y).leaves["y"].least


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda name: name.replace(" ", "-"))
def test_a_misfit_names_the_pairing_the_argument_and_the_fix(misfit: str) -> None:
    declared, words = MISFITS[misfit]
    with pytest.raises(kt.DeclarationError) as caught:
        kt.oracle_for(_two, **{"x": N, "y": N, **declared})(lambda x, y: x)
    assert [word for word in ["pairing '<lambda>'", *words] if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("oracle", "words"),
    [
        (lambda x: x, "argument 'y': the oracle does not take it"),
        (lambda x, y, w: x, "argument 'w': the oracle takes it but the pairing does not declare it"),
    ],
    ids=["lacks-an-argument", "wants-more"],
)
def test_an_oracle_that_takes_other_arguments_is_refused(oracle: Any, words: str) -> None:
    with pytest.raises(kt.DeclarationError, match=words):
        kt.oracle_for(_two, x=N, y=N)(oracle)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kt.dim(block=0), "at least 1"),
        (lambda: LOOSE.dim(block=2.5), "dim: block counts elements, so it is a whole number of at least 1, not 2.5"),
        (lambda: LOOSE.dim(block=True), "whole number of at least 1, not True"),
        (lambda: LOOSE.dim(values=(3, 4.5)), "dim: values counts elements, .* not 4.5"),
        (lambda: LOOSE.dim(values=5), r"dim: values is a sequence of lengths, as in values=\(5,\), not 5"),
        (lambda: kt.dim(minimum=5, maximum=3), "dim: no multiple of 1 is between minimum=5 and maximum=3"),
        (lambda: kt.dim(minimum=3, maximum=5, multiple_of=8), "no multiple of 8 is between minimum=3 and maximum=5"),
        (lambda: kt.static(1, "1"), "static: two values read '1' in records; name them"),
        (lambda: kt.static(), "at least one"),
        (lambda: kt.static(1, named=2), "either values or name=value"),
        (lambda: kt.xfail("pass", reason="r", url="https://x"), "cannot be expected"),
        (lambda: kt.xfail("mismatch", reason=" ", url="https://x"), "give the reason"),
        (lambda: kt.xfail("mismatch", reason="r", url="nowhere"), "url must link"),
        (lambda: kt.family(group="no such"), "unknown group"),
        (
            lambda: LOOSE.unordered("n"),
            r"unordered: give the number of an axis, and outputs=\(0, 1\) by number, not 'n'",
        ),
    ],
)
def test_a_bad_value_is_refused_where_it_is_written(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def _everything(
    params: dict[str, Any], mask: jax.Array, which: jax.Array, count: jax.Array, *, bias: jax.Array, n: int, how: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    kept = elementwise(lambda w, m: jnp.where(m, w, 0), params["w"], mask)
    shifted = elementwise(lambda w, b: how(w + b), kept, jnp.broadcast_to(bias, kept.shape))
    picked = elementwise(lambda w, i: w + i, params["v"][0], which + count + n, dtype=jnp.int32)
    return shifted, {"picked": picked}


def everything(params: Any, mask: Any, which: Any, count: Any, bias: Any, n: int, how: str) -> Any:
    kept = np.where(mask, params["w"], 0)
    for values, most in ((which, n - 1), (count, n)):
        assert np.isin(values, np.arange(most + 1)).all()
        assert values.size < 4 or (values.min() == 0 and values.max() == most)
    return (kept + bias) * (1 if how == "same" else -1), {"picked": params["v"][0] + which + count + n}


def test_every_kind_of_argument_reaches_kernel_and_oracle_alike() -> None:
    pairing = kt.oracle_for(
        _everything,
        params=kt.tree({"w": kt.array("m n", "float32"), "v": [kt.array("q", "int32")]}),
        mask=kt.mask("m n"),
        which=kt.indices("q", into="n"),
        count=kt.lengths("q", up_to="n"),
        bias=kt.scalar("float32"),
        n=kt.dim_size("n"),
        how=kt.static(same=lambda v: v, negated=lambda v: -v),
        dims=dict(m=kt.dim(values=(3,)), n=kt.dim(values=(9,)), q=kt.dim(values=(4, 1))),
        tolerance=kt.tolerance.exact(),
    )(everything)
    result = kt.check(pairing, depth="quick")
    assert result.ok, result.findings[0].message
    assert {record.group for record in result.records} == {"structural", "numeric", "special", "masks", "invariants"}


class _Named(NamedTuple):
    w: Any
    rest: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Registered:
    b: Any
    scale: int = field(metadata=dict(static=True))


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("branches", "paths"),
    [
        (_Named(kt.array("n"), {"b": kt.array("n")}), {"p.w", "p.rest.b"}),
        (_Registered(kt.array("n"), scale=3), {"p.b"}),
        ({"x": {"y": [_Named(kt.array("n"), None), (kt.array("n"),)]}}, {"p.x.y.0.w", "p.x.y.1.0"}),
        (OrderedDict(z=kt.array("n"), a=_Registered(kt.array("n"), 2)), {"p.z", "p.a.b"}),
    ],
    ids=["a-named-tuple", "a-dataclass", "nested", "an-ordered-dict"],
)
def test_a_pytree_arrives_as_what_it_is_and_so_do_its_results(branches: Any, paths: set[str]) -> None:
    """The kernel and the oracle each see the type, and what is static in it."""

    def same(tree: Any, compute: Callable[..., Any]) -> Any:
        assert jax.tree_util.tree_structure(tree) == jax.tree_util.tree_structure(branches)
        return jax.tree_util.tree_map(compute, tree)

    pairing = kt.oracle_for(
        lambda p: same(p, double), p=kt.tree(branches), dims=dict(n=kt.dim(values=(3,))), tolerance=kt.tolerance.exact()
    )(lambda p: same(p, lambda leaf: 2 * leaf))
    assert set(pairing.leaves) == paths
    result = kt.check(pairing, depth="quick")
    assert result.ok, result.findings[0].message
    wrong = replace(pairing, kernel=lambda p: same(p, exponential))
    assert any(found.verdict == "mismatch" for found in findings(wrong, ["interpret"]))


def test_a_partial_kernel_and_a_left_out_static_argument_are_declarable() -> None:
    scaled, x = functools.partial(_two, scale=1), kt.array("n", "float32")
    pairing = kt.oracle_for(scaled, x=x, y=x, scale=kt.static(1), tolerance=kt.tolerance.exact())(lambda x, y: x + y)
    assert kt.check(pairing, depth="quick").ok


def test_a_pairing_called_calls_its_oracle() -> None:
    pairing = kt.oracle_for(double, x=kt.array("n"))(lambda x: 2 * x)
    assert pairing(21) == 42
