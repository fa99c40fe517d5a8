"""Declarations of what a kernel must meet: errors that a specification sets, gradients by name, expected groups."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.outcomes import Xfail
from kerneltest.execute.item import apply_xfails, obsolete_xfails
from tests.found import records
from tests.sample import elementwise

REALS = kt.array("n", "float32", domain=(-9, 9))


ABSOLUTE, RELATIVE = kt.tolerance.absolute(1e-3, "section 4.2"), kt.tolerance.relative(1e-3, "section 4.2")


@pytest.mark.parametrize(
    ("by", "tolerance", "ok"),
    [
        (lambda v: 0.9e-3, ABSOLUTE, True),
        (lambda v: 1.1e-3, ABSOLUTE, False),
        (lambda v: 0.9e-3 * v, RELATIVE, True),
        (lambda v: 1.1e-3 * v, RELATIVE, False),
        (lambda v: 1e-6, RELATIVE, False),  # at numbers near zero
    ],
)
def test_an_error_is_allowed_up_to_what_is_specified(by: Any, tolerance: kt.Tolerance, ok: bool) -> None:
    made = kt.oracle_for(lambda x: elementwise(lambda v: v + by(v), x), x=REALS, tolerance=tolerance)(lambda x: x)
    found = (record.verdict.is_finding for record in records(made, ["interpret"], group="numeric"))
    assert any(found) != ok
    assert str(tolerance).endswith("(0.001): section 4.2")


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (dict(rtol=1e-5), r"'rtol': by default .* tolerance=kt\.tolerance\.relative\(1e-05, 'section 4\.2'\)"),
        (dict(atol=1e-3), r"'atol': .* tolerance=kt\.tolerance\.absolute\(0\.001, 'section 4\.2'\)"),
        (
            dict(tolerance=1e-3),
            r"as in kt\.tolerance\.relative\(0\.001, 'the specification that sets it'\), not 0\.001",
        ),
        (dict(tolerance=kt.tolerance.absolute(0, "s")), r"absolute\(0\) is not a positive number; .* use exact\(\)"),
        (dict(tolerance=kt.tolerance.relative(1, " ")), r"relative\(1, reason\) needs the specification"),
        (dict(grad=("x", "z")), "grad: 'z' is not an argument of floats; choose among 'x', 'y'"),
        (dict(grad="at"), "grad: 'at' is not an argument of floats"),
        (dict(returns="at_all"), "'at_all' is neither a dtype nor one of 'any', 'x', 'y', 'at'"),
    ],
)
def test_a_mistake_names_what_to_write(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(kt.DeclarationError, match=words):
        kt.oracle_for(lambda x, y, at: x, x=REALS, y=REALS, at=kt.indices("1", into="n"), **declared)(
            lambda x, y, at: x
        )


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: kt.indices("b", into="n", ignore=-100, dtype="int8"), None),
        (lambda: kt.indices("b", into="n", ignore=-100, dtype="uint8"), "uint8 cannot represent ignore=-100"),
        (lambda: kt.indices("b", into="n", ignore=0.5), "ignore= is an integer such as -100, not 0.5"),  # type: ignore[arg-type]
    ],
)
def test_a_sentinel_is_an_integer_of_the_dtype(declare: Callable[[], Any], words: str | None) -> None:
    def pair() -> kt.Pairing:
        return kt.oracle_for(lambda x, at: x, x=REALS, at=declare())(lambda x, at: x)

    if words is None:
        assert pair().leaves["at"].sentinel == -100
    else:
        with pytest.raises(kt.DeclarationError, match=words):
            pair()


@jax.custom_vjp
def product(x: jax.Array, y: jax.Array, parts: dict[str, jax.Array]) -> jax.Array:
    return elementwise(lambda x, y, w: x * y + w, x, y, parts["w"])


def _backward(saved: Any, weights: jax.Array) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
    x, y = saved
    return weights * y, weights * x + 1, {"w": weights}  # wrong by y


product.defvjp(lambda x, y, parts: (product(x, y, parts), (x, y)), _backward)


@pytest.mark.parametrize(
    ("grad", "ok"), [(True, False), (("x", "parts"), True), ("x", True), ("parts.w", True), (("x", "y"), False)]
)
def test_a_gradient_is_compared_by_the_arguments_that_are_named(grad: Any, ok: bool) -> None:
    parts = kt.tree({"w": REALS})
    made = kt.oracle_for(product, x=REALS, y=REALS, parts=parts, grad=grad)(lambda x, y, parts: x * y + parts["w"])
    asked = list(records(made, ["interpret"], group="invariants"))
    assert {record.family for record in asked if record.verdict.is_finding} == (set() if ok else {"gradient"})
    assert any(record.family == "gradient" for record in asked)


def _expected(**where: Any) -> Xfail:
    return kt.xfail("mismatch", reason="r", url="https://x", **where)


@pytest.mark.parametrize(
    ("where", "obsolete"),
    [
        (dict(family="*"), ["ties"]),
        (dict(group="special"), []),
        (dict(group="*"), []),
        (dict(group="special", family="t*"), ["ties"]),
        (dict(group="numeric"), []),  # covers none of them
        (dict(family="*", strict=False), []),
    ],
)
def test_an_xfail_of_a_group_holds_if_some_family_of_it_fails(where: dict[str, Any], obsolete: list[str]) -> None:
    verdicts = {"ones": [("n=1", Verdict.XFAIL), ("n=2", Verdict.PASS)], "ties": [("n=1", Verdict.PASS)]}
    found = obsolete_xfails([_expected(**where)], verdicts, "interpret", "float32", "special")
    assert list(found) == obsolete


def test_several_obsolete_xfails_of_a_family_are_one_finding_with_a_line_each() -> None:
    declared = [_expected(), kt.xfail("unwritten", reason="r", url="https://x")]
    found = obsolete_xfails(declared, {"ones": [("n=1", Verdict.PASS)]}, "interpret", "float32", "special")
    assert [line.split(" here")[0] for line in found["ones"].splitlines()] == [
        "An xfail declares mismatch",
        "An xfail declares unwritten",
    ]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "mismatch on every backend"),
        ({"backend": "lower:*", "group": "special"}, "mismatch on lower:*, special"),
        ({"dtype": "float16", "signature": "*n=8*"}, "mismatch on every backend, float16, *n=8*"),
    ],
)
def test_the_text_of_an_xfail_names_only_the_conditions_that_it_has(where: dict[str, str], text: str) -> None:
    assert str(_expected(**where)) == text


def test_one_of_several_xfails_of_a_cell_is_enough_and_any_other_verdict_fails() -> None:
    declared = [_expected(group="special"), kt.xfail("unwritten", reason="r", url="https://x")]
    place = ("interpret", "float32", "special", "ones")
    for verdict in (Verdict.MISMATCH, Verdict.UNWRITTEN):
        assert apply_xfails(declared, verdict, place, "n=1")[0] is Verdict.XFAIL
    verdict, remark = apply_xfails(declared, Verdict.RACE, place, "n=1")
    assert (verdict, remark) == (Verdict.RACE, "An xfail declares mismatch or unwritten here, but the verdict is race.")


def test_a_kernel_that_is_not_for_tpus_is_told_how_to_say_so() -> None:
    def rows(x: jax.Array) -> jax.Array:
        block = pl.BlockSpec((1, 5), lambda i: (i, 0))
        call = pl.pallas_call(
            lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] + jnp.float32(1)),
            out_shape=x,
            grid=(x.shape[0],),
            in_specs=[block],
            out_specs=block,
        )
        made: jax.Array = call(x)
        return made

    pairing = kt.oracle_for(rows, x=kt.array("m 10", "float32"))(lambda x: x + 1)
    found = kt.check(pairing, depth="quick", backends=["lower:tpu-v5e"]).findings
    assert found
    assert all('not meant for TPUs, declare backends=("interpret", "gpu")' in each.message for each in found)
