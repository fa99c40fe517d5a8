"""Invariants: each finds the kernel that breaks it, and a correct kernel passes all of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap

import kerneltest as kt
from kerneltest.api import Result
from kerneltest.backends import registry
from kerneltest.backends.interpret import Interpret
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import GroupName
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.same_bits.ways import CLAIMS
from kerneltest.plan.signatures import signatures
from kerneltest.records.schema import Record
from tests.found import records
from tests.sample import double, elementwise, whole
from tests.trace.test_rewrite import TILE, accumulated, large_counted, last_wins

DIMS = dict(n=kt.dim(block=TILE))
WHOLE = dict(n=kt.dim(values=(3 * TILE,)))
Y = kt.array("n", "float32")
ROWS = dict(m=kt.dim(values=(3, 1)), **DIMS)


def coarse_outside_of_jit(x: jax.Array) -> jax.Array:
    return double(x if isinstance(x, jax.core.Tracer) else x.astype(jnp.bfloat16).astype(x.dtype))


@custom_vmap
def first_of_batch(x: jax.Array) -> jax.Array:
    return double(x)


@first_of_batch.def_vmap
def _first(size: int, batched: Any, x: jax.Array) -> tuple[jax.Array, bool]:
    return jnp.broadcast_to(double(x[0]), x.shape), True


def _adds_but_where(wrong: list[bool]) -> Callable[..., jax.Array]:
    """A sum whose rule for batches drops the second array if just these arrays are batched."""
    made = custom_vmap(lambda x, y: double(x) + y)

    @made.def_vmap
    def _(size: int, batched: list[bool], x: jax.Array, y: jax.Array) -> tuple[jax.Array, bool]:
        return jnp.broadcast_to(double(x) + (0 if batched == wrong else y), (size, *x.shape[-1:])), True

    return lambda x, y: made(x, y)


def coarse_block(x: jax.Array, block: int) -> jax.Array:
    return double(x * (1 + 2.0**-9) if block == 16 else x)


def by_batch(x: jax.Array) -> jax.Array:
    return double(x * (1 + 2.0**-9) if x.shape[0] == 1 else x)


@jax.custom_vjp
def wrong_gradient(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: v * v, x)


wrong_gradient.defvjp(lambda x: (wrong_gradient(x), x), lambda x, g: (g * x,))


def above(x: np.ndarray) -> np.ndarray:
    return np.sum(x > 100, keepdims=True).astype(float)


def summed(x: np.ndarray) -> np.ndarray:
    running = np.zeros(TILE)
    for block in x.reshape(-1, TILE):
        running = np.where(running > 0, running, 0) + block
    return running


def last(x: np.ndarray) -> np.ndarray:
    return x[-TILE:]


def twice(x: np.ndarray) -> np.ndarray:
    return 2 * x


def twice_and(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 2 * x + y


def _make_pairing(oracle: Callable[..., Any], kernel: Callable[..., Any], shape: str = "n", **more: Any) -> kt.Pairing:
    made = kt.oracle_for(kernel, x=kt.array(shape, "float32"), **{"dims": DIMS, **more})(oracle)
    assert isinstance(made, kt.Pairing)
    return made


def masked_sum(x: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return np.where(seen, x, 0).sum(keepdims=True)


def masked_by_product(x: jax.Array, seen: jax.Array) -> jax.Array:
    return whole(lambda x, seen: jnp.sum(x[...] * seen[...], keepdims=True), x[:1], x, seen)


# The wrong kernel of each invariant, and a part of the message of its finding.
WRONG: dict[str, tuple[kt.Pairing, str]] = {
    "plain_call": (_make_pairing(twice, coarse_outside_of_jit), "called outside of jax.jit: 9 of 9"),
    "vmapped": (_make_pairing(twice, first_of_batch), "second in a batch of two under jax.vmap"),
    "vmapped_first": (_make_pairing(twice_and, _adds_but_where([True, False]), y=Y), "in_axes=(0, None)"),
    "vmapped_others": (_make_pairing(twice_and, _adds_but_where([False, True]), y=Y), "in_axes=(None, 0)"),
    "poisoned_padding": (_make_pairing(above, large_counted), "with the largest numbers as padding"),
    "unread_values": (
        kt.oracle_for(
            masked_by_product, x=kt.array("n", "float32", domain=(-9, 9)), seen=kt.mask("n", "float32"), dims=DIMS
        )(masked_sum),
        "with NaN in elements of x",
    ),
    "old_output": (_make_pairing(summed, accumulated, dims=WHOLE), "with the largest numbers in the output before"),
    "reversed_grid": (_make_pairing(last, last_wins, dims=WHOLE, invariant_to="grid"), "in reverse order"),
    "other_choices": (
        _make_pairing(twice, coarse_block, block=kt.static(8, 16), invariant_to=("block",)),
        "with block=16",
    ),
    "alone": (_make_pairing(twice, by_batch, "m n", dims=ROWS, batch_dims="m"), "m=0 alone, of 3"),
    "gradient": (_make_pairing(lambda x: x * x, wrong_gradient, grad=True), "the gradient: by x:"),
}


def _run(pairing: kt.Pairing) -> Result:
    return kt.check(pairing, backends=["interpret"], depth="quick")


def _invariants(pairing: kt.Pairing, depth: str = "quick") -> list[Record]:
    """The records of this group only, which are few of those of a check."""
    return list(records(pairing, ["interpret"], depth, "invariants"))


def _found(pairing: kt.Pairing) -> list[Record]:
    return [record for record in _invariants(pairing) if record.verdict.is_finding]


def test_every_invariant_has_a_kernel_that_breaks_it() -> None:
    assert WRONG.keys() == INVARIANTS.keys()


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", WRONG)
def test_the_invariant_finds_what_breaks_it(name: str) -> None:
    pairing, words = WRONG[name]
    told = [f for f in _found(pairing) if f.family == name]
    assert told
    assert {f.verdict for f in told} <= {"mismatch", "special_mismatch"}
    assert any(words in f.message for f in told), told[0].message
    assert told[0].evidence
    assert "x" in told[0].evidence.arguments


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "name", ["plain_call", "vmapped", "old_output", "reversed_grid", "gradient", "poisoned_padding", "unread_values"]
)
def test_nothing_else_would_have_found_it(name: str) -> None:
    # A certificate finds what depends on the order of programs, too.
    assert {f.family for f in _run(WRONG[name][0]).findings} - {"bits_in_any_order"} == {name}


def squares(x: jax.Array) -> jax.Array:
    return wrong_gradient(x)


right_gradient = jax.custom_vjp(squares)
right_gradient.defvjp(lambda x: (squares(x), x), lambda x, g: (2 * g * x,))


def test_a_right_kernel_passes_all_of_them() -> None:
    pairing = _make_pairing(
        lambda x: x * x, lambda x, block: right_gradient(x), "m n", dims=ROWS, grad=True,
        block=kt.static(8, 16), batch_dims="m", invariant_to=("block", "grid"),
    )  # fmt: skip
    asked = _invariants(pairing, "standard")
    assert not any(r.verdict.is_finding for r in asked)
    held = {r.family for r in asked if r.verdict == "pass" and r.compared}
    of_others = {"unread_values", "vmapped_first", "vmapped_others"}  # which need a mask, or a second array
    assert held == INVARIANTS.keys() - of_others


@jax.custom_vjp
def _wrong_past_fifty(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: v * v, x)


_wrong_past_fifty.defvjp(lambda x: (_wrong_past_fifty(x), x), lambda x, g: ((3 if len(x) > 50 else 2) * g * x,))


def test_an_invariant_is_asked_at_declared_lengths() -> None:
    dims = {"n": kt.dim(values=(3, 17, 61))}
    known = _invariants(_make_pairing(lambda x: x * x, _wrong_past_fifty, grad=True, dims=dims))
    shorter = {r.signature for r in known if r.family == "gradient"}
    assert "n=61,float32" not in shorter
    assert not any(r.verdict.is_finding for r in known)
    for name, lengths in (("gradient", {"n": np.int64(61)}), ("vmapped", {"n": 61})):
        declared = {name: [lengths]}
        asked = _invariants(
            _make_pairing(lambda x: x * x, _wrong_past_fifty, grad=True, dims=dims, invariants=declared)
        )
        assert "n=61,float32" in {r.signature for r in asked if r.family == name}
        assert {(f.family, f.signature) for f in asked if f.verdict.is_finding} == (
            {("gradient", "n=61,float32")} if name == "gradient" else set()
        )


_LISTS = r"""invariants: give lists of lengths by dim, as in invariants={"gradient": \[{"n": 100}\]}, not """


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"gradient": [{"n": 5}]}, "'gradient' needs grad=True"),
        ({"vmapped": [{"k": 5}]}, "'k' is not a dim of the pairing"),
        ({"vmapped": [{"n": 0}]}, "n=0 is not a length that the declaration admits, or is 0"),
        ({"vmapped": [{"n": 7}]}, "n=7 is not a length"),
        ({"vmaped": [{"n": 3}]}, "no invariant is named vmaped; there are plain_call"),
        ({"alone": [{"n": 5}]}, r"alone: it does not apply to {'n': 5}; it needs a dim in batch_dims="),
        ({"reversed_grid": [{"n": 5}]}, 'it needs invariant_to="grid"'),
        ({"vmapped_first": [{"n": 5}]}, "it needs two arrays"),
        ({"vmapped": [{"n": True}]}, _LISTS),
        ({"vmapped": {"n": 5}}, _LISTS),
        ({"vmapped": [{}]}, _LISTS),
        ({"vmapped": []}, _LISTS),
        ({"vmapped": 5}, _LISTS),
        ({"vmapped": "n"}, _LISTS),
        ({"vmapped": [{"n": 5.5}]}, _LISTS),
        (["vmapped"], _LISTS),
    ],
)
def test_lengths_that_no_invariant_can_have_are_refused(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(kt.DeclarationError, match=words):
        _run(_make_pairing(twice, double, dims={"n": kt.dim(values=(3, 5))}, invariants=declared))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("word", ["grid", "batch", "padding", "unread"])
@pytest.mark.parametrize("right", [True, False])
def test_a_static_argument_named_as_another_claim_is_meant(word: str, right: bool) -> None:
    def kernel(x: jax.Array, grid: int = 8, batch: int = 8, padding: int = 8, unread: int = 8) -> jax.Array:
        return double(x) if right else coarse_block(x, max(grid, batch, padding, unread))

    option = {word: kt.static(8, 16)}
    pairing = _make_pairing(twice, kernel, arguments=option, invariant_to=word)
    asked = _invariants(pairing)
    others = {"reversed_grid", "unread_values", "other_choices"}
    assert {r.family for r in asked} & others == {"other_choices"}
    assert ("other_choices" in {f.family for f in asked if f.verdict.is_finding}) is not right
    assert [family for family, claim in CLAIMS.items() if claim.made_by(pairing)] == ["bits_with_any_option"]


def test_a_right_rule_for_batches_passes() -> None:
    asked = _invariants(_make_pairing(twice_and, _adds_but_where([]), y=Y))
    assert not any(r.verdict.is_finding for r in asked)
    assert {r.family for r in asked if r.compared} >= {"vmapped", "vmapped_first", "vmapped_others"}


def test_one_array_of_a_batch_is_asked_without_a_rule_for_batches() -> None:
    def kernel(x: jax.Array, y: jax.Array) -> jax.Array:
        is_own = [type(each).__name__ == "BatchTracer" for each in (x, y)] == [True, False]
        return double(x) + (0 if is_own else y)

    assert {f.family for f in _found(_make_pairing(twice_and, kernel, y=Y))} == {"vmapped_first"}
    assert not _found(_make_pairing(twice_and, lambda x, y: double(x) + y, y=Y))


def test_a_kernel_is_traced_once_for_its_dtypes_to_see_whether_it_has_a_rule_for_batches() -> None:
    lengths: list[tuple[int, ...]] = []

    def kernel(x: jax.Array, y: jax.Array) -> jax.Array:
        lengths.append(x.shape)
        return double(x) + y

    pairing = _make_pairing(twice_and, kernel, y=Y)
    planned = signatures(pairing, "deep")
    assert len(planned) > 5
    assert not any(INVARIANTS["vmapped_others"].applies(pairing, each) for each in planned)
    assert set(lengths) == {(dict(planned[0].dims)["n"],)}


def one_row_is_laid_out_otherwise(x: jax.Array) -> jax.Array:
    """The last bit of exp(x) depends on the shape, as if a compiler summed in another order."""
    return jnp.exp(double(x)) * (1 + 2.0**-23 if x.shape[0] == 1 else 1.0)


def rounded_by_the_batch(x: jax.Array) -> jax.Array:
    """The last bit of a row depends on the values of other rows."""
    return jnp.exp(double(x)) * jnp.where(jnp.any(x != x[:1]), 1 + 2.0**-23, 1.0).astype(x.dtype)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [(one_row_is_laid_out_otherwise, None), (rounded_by_the_batch, "m=0 in each of 3 places")],
)
def test_bits_on_a_device_are_compared_with_those_of_a_batch_of_the_same_length(
    kernel: Callable[..., Any], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Device(Interpret):
        tier = kt.Tier.DEVICE

        def __init__(self) -> None: ...

    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))
    kt.backend("device")(Device)
    ulps = kt.tolerance.ulp(16)  # which does not ask for the formula
    pairing = _make_pairing(lambda x: np.exp(2 * x), kernel, "m n", dims=ROWS, batch_dims="m", tolerance=ulps)
    found = [r for r in records(pairing, ["device"], group="invariants") if r.verdict.is_finding]
    assert {f.family for f in found} == ({"alone"} if words else set())
    assert all(words in f.message for f in found if words)


def unbatched(x: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda v: np.asarray(v), shape, double(x), vmap_method=None)


def _first_rows(kernel: Callable[..., Any], domain: Any, **declared: Any) -> kt.Pairing:
    """A kernel that gets more rows than it may read."""
    x, dims = kt.array("m+2 n", "float32", domain=domain), dict(m=kt.dim(values=(3,)), n=kt.dim(values=(4,)))
    pairing = kt.oracle_for(kernel, x=x, dims=dims, **declared)(lambda x: 2 * x[:-2])
    assert isinstance(pairing, kt.Pairing)
    return pairing


@pytest.mark.parametrize(
    ("domain", "declared", "found"),
    [
        ((-9, 9), {}, False),
        ((-9, 9), {"invariant_to": "unread"}, True),
        (kt.interval(-9, 9, finite=True), {"invariant_to": "unread"}, False),
    ],
)
def test_memory_whose_contents_do_not_matter_is_declared(domain: Any, declared: dict[str, Any], found: bool) -> None:
    right = lambda x: whole(lambda x: 2 * x[:-2], x[:-2], x)  # noqa: E731
    assert not _found(_first_rows(right, domain, **declared))
    by_product = lambda x: whole(lambda x: 2 * jnp.eye(len(x) - 2, len(x)) @ x[...], x[:-2], x)  # noqa: E731
    told = _found(_first_rows(by_product, domain, **declared))
    assert {each.family for each in told} == ({"unread_values"} if found else set())


def test_a_kernel_that_jax_cannot_vmap_is_unavailable() -> None:
    asked = _invariants(_make_pairing(twice, unbatched))
    assert not any(r.verdict.is_finding for r in asked)
    (told,) = [r for r in asked if r.family == "vmapped"]
    assert told.verdict == "unavailable"
    assert "cannot batch this under jax.vmap, which is not the kernel's fault" in told.message


def test_a_kernel_that_raises_by_itself_under_vmap_is_a_finding() -> None:
    doubled = jax.custom_batching.custom_vmap(double)

    @doubled.def_vmap
    def _(size: int, batched: list[bool], x: jax.Array) -> Any:
        raise ValueError(f"no batch of {size}")

    (finding,) = _found(_make_pairing(twice, doubled))
    assert (finding.verdict, finding.family) == ("runtime_error", "vmapped")
    assert "no batch of 2" in finding.message


def test_a_kernel_without_a_gradient_is_a_finding_where_one_was_declared() -> None:
    told, *_ = [f for f in _found(_make_pairing(twice, double, grad=True)) if f.family == "gradient"]
    assert told.verdict == "runtime_error"
    assert "by jax.vjp" in told.message


def test_the_groups_depth_decides_how_many_signatures_are_varied() -> None:
    pairing, _ = WRONG["plain_call"]
    for depth, count in (("quick", 1), ("standard", 2)):
        items = plan_pairing(pairing, "p", resolve(["interpret"]), RunSettings(depth=depth)).items
        (item,) = [each for each in items if each.group.name == GroupName.INVARIANTS]
        assert item.families()["vmapped"] == count
        assert item.families()["plain_call"] == 1  # that one has to compile


@pytest.mark.parametrize("kept", ["float32", "bfloat16"])
def test_a_mean_that_is_kept_in_few_digits_for_the_way_back_is_found(kept: str) -> None:
    def forward(x: jax.Array) -> Any:
        wide = x.astype(jnp.float32)
        mean = wide.mean(axis=-1, keepdims=True)
        return elementwise(lambda v: v * v, wide - mean).astype(x.dtype), (x, mean.astype(kept))

    def backward(saved: Any, g: jax.Array) -> Any:
        x, mean, g = (each.astype(jnp.float32) for each in (*saved, g))
        slopes = 2 * (x - mean) * g
        return ((slopes - slopes.mean(axis=-1, keepdims=True)).astype(jnp.bfloat16),)

    kernel = jax.custom_vjp(lambda x: forward(x)[0])
    kernel.defvjp(forward, backward)

    def oracle(x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred * centred

    x = kt.array("m n", "bfloat16")
    found = _found(kt.oracle_for(kernel, x=x, dims=dict(n=kt.dim(values=(64,))), grad=True)(oracle))
    assert {finding.family for finding in found} == (set() if kept == "float32" else {"gradient"})
