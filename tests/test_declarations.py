"""docs/declarations.md: each example conforms, and with one word changed in its kernel it is found wrong."""

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import kerneltest as kt
from tests.found import findings

PAGE = Path(__file__).parent.parent / "docs" / "declarations.md"

# By pairing: what is written in its kernel, and what is wrong in its place.
BROKEN = {
    "gated_oracle": ("v[:, :h] * v[:, h:]", "v[:, ::2] * v[:, 1::2]"),
    "by_group_oracle": ("jnp.repeat(k, g, axis=0)", "jnp.tile(k, (g, 1))"),
    "last_oracle": ("v[-q:]", "v[:q]"),
    "halved_oracle": ("v / 2", "v / (2 + (block > 16))"),
    "divided_oracle": ("x / y", "x * (1 / (y + 0.01))"),
    "sign_oracle": ("v > 0", "v > 1e-3"),
    "totals_oracle": ("< starts[1:, None]", "<= starts[1:, None]"),
    "paged_oracle": ("pages[table]", "pages[jnp.sort(table, axis=1)]"),
    "gathered_oracle": ("table[:, None] >= 0", "table[:, None] > -2"),
    "before_oracle": ("x[labels - 1]", "x[labels - 2]"),
    "two_smallest_oracle": (
        "jnp.take_along_axis(x_ref[...], at, axis",
        "jnp.take_along_axis(x_ref[...], at[:, ::-1], axis",
    ),
    "chosen_oracle": (
        "lambda slots, at: slots[at]",
        "lambda slots, at: (at[:, None] == jnp.arange(len(slots))).astype(slots.dtype) @ slots",
    ),
    "picked_oracle": ("live & (labels >= 0)", "live & (labels > -200)"),
    "scaled_oracle": ("x / largest", "x / x[-1]"),
    "products_oracle": ("q * k + v", "q * k + q"),
    "affine_oracle": ("sum(rest)", "sum(rest[:2])"),
    "configured_oracle": ("-function(v) if config.negate", "function(v) if config.negate"),
    "tuned_oracle": ('64: {"rows": 32}', '64: {"rows": 48}'),
    "dropped_oracle": ("bernoulli(key, 0.5", "bernoulli(key, 0.4"),
    "doubled_oracle": ("v + v", "v + 1"),
    "centred_oracle": ("y_ref[...] = x_ref[...] - mean", "y_ref[...] = x_ref[...] + mean"),
    "mirrored_oracle": ("rows[:, None] > rows, a, 0).T", "rows[:, None] > rows, a, 0)"),
    "converted_oracle": ("x.shape, out_dtype, x)", "x.shape, x.dtype, x)"),
    "weighted_oracle": ("product(weights, x), jnp", "product(weights, scale), jnp"),
    "added_oracle": ("plgpu.atomic_add(o_ref, (pl.ds(0, 1),), ", "o_ref.__setitem__(slice(0, 1), "),
    "variance_oracle": ("- jnp.square(mean)", "- jnp.square(mean * 1.0001)"),
    "logistic_oracle": ("0.5 * v", "0.52 * v"),
    "scattered_oracle": ("out_ref[...] = x_ref[...]\n", "out_ref[...] = 2 * x_ref[...]\n"),
}


def _declared(changed: tuple[str, str] = ("", "")) -> dict[str, kt.Pairing]:
    module = types.ModuleType("declarations")
    sys.modules[module.__name__] = module  # which dataclasses ask for
    for source in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        before, after = changed
        exec(compile(source.replace(before, after, 1) if before else source, PAGE.name, "exec"), module.__dict__)
    return {name: each for name, each in vars(module).items() if isinstance(each, kt.Pairing)}


def _checked(pairing: kt.Pairing) -> Any:
    return kt.check(pairing, backends=["interpret"], depth="quick")


def test_every_example_has_a_broken_twin() -> None:
    assert set(_declared()) == set(BROKEN)


@pytest.mark.parametrize("name", BROKEN)
def test_the_example_conforms(name: str) -> None:
    result = _checked(_declared()[name])
    assert [(f.family, f.signature, f.message) for f in result.findings] == []
    assert result.ok


@pytest.mark.parametrize("name", BROKEN)
def test_its_broken_twin_is_found(name: str) -> None:
    assert BROKEN[name][0] in PAGE.read_text(encoding="utf-8")
    found = findings(_declared(BROKEN[name])[name], ["interpret"])
    assert any(record.verdict in ("mismatch", "special_mismatch") for record in found)


def test_what_only_some_backends_take() -> None:
    pairing = _declared()["doubled_oracle"]
    backends = ["interpret", "simulate:sm_90", "lower:tpu-v5e"]
    result = kt.check(pairing, backends=backends, depth="quick")
    lengths = {backend: {r.dims["n"] for r in result.records if r.backend == backend} for backend in backends}
    assert lengths["simulate:sm_90"] == {1, 16, 64}
    assert len(lengths["interpret"]) > 3
    assert lengths["lower:tpu-v5e"] == set()
    assert result.not_applicable == {"lower:tpu-v5e": "declared only for interpret, gpu"}
    on_tpu = pairing.on("lower:tpu-v5e")
    assert (on_tpu.leaves["x"].dtypes, on_tpu.dims["n"].multiple_of) == (("float32", "bfloat16"), 128)
    assert pairing.on("interpret") is pairing
