"""A kernel's parameters may be called what `oracle_for` calls its options."""

import functools
import inspect
from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
from tests.found import findings
from tests.sample import double, elementwise

OPTIONS = [p.name for p in inspect.signature(kt.oracle_for).parameters.values() if p.kind is p.KEYWORD_ONLY]
SMALL = {"n": kt.dim(values=[3])}
DECLARATIONS = [kt.array("n"), kt.static(1, 2), kt.dim_size("n"), kt.tree([kt.array("n")])]


def _summing(names: list[str]) -> tuple[Any, Any]:
    """A kernel and its oracle, whose parameters have these names."""
    source = f"lambda {', '.join(names)}: add({', '.join(names)})"
    kernel = eval(source, {"add": lambda *terms: elementwise(lambda *values: sum(values[1:], values[0]), *terms)})
    oracle = eval(source, {"add": lambda *terms: np.sum(terms, axis=0)})
    oracle.__name__ = "total"
    return kernel, oracle


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", [*OPTIONS, "kernel", "oracle", "file", "pairing", "case", "m"])
def test_a_parameter_of_any_name_is_declared_in_arguments(name: str) -> None:
    kernel, oracle = _summing([name, "x"])
    array = kt.array("n", "float32")
    pair = functools.partial(kt.oracle_for, arguments={name: array, "x": array}, dims=SMALL)
    result = kt.check(pair(kernel)(oracle), depth="quick")
    assert result.ok, result.findings[0].message
    found = next(findings(pair(lambda **named: 2 * kernel(**named))(oracle), ["interpret"]))
    assert found.evidence
    assert found.evidence.arguments.keys() == {name, "x"}


def test_keywords_and_arguments_declare_together() -> None:
    kernel, oracle = _summing(["x", "dims", "grad", "kernel"])
    array = kt.array("n", "float32")
    pairing = kt.oracle_for(kernel, x=array, kernel=array, arguments={"grad": array, "dims": array}, dims=SMALL)(oracle)
    assert set(pairing.leaves) == {"x", "dims", "grad", "kernel"}
    assert kt.check(pairing, depth="quick").ok


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("declaration", DECLARATIONS, ids=lambda declaration: type(declaration).__name__)
def test_an_argument_given_for_an_option_is_told_where_it_goes(name: str, declaration: Any) -> None:
    kernel, _ = _summing(["x", name])
    options: dict[str, Any] = {"x": kt.array("n"), name: declaration}
    with pytest.raises(kt.DeclarationError) as caught:
        kt.oracle_for(kernel, **options)
    assert str(caught.value) == (
        f"kernel '<lambda>', argument '{name}': {name}= is an option of oracle_for; declare the argument as "
        f"arguments={{'{name}': ...}}"
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_an_argument_with_the_name_of_an_option_that_is_not_declared_is_told_where_it_goes(name: str) -> None:
    kernel, oracle = _summing(["x", name])
    with pytest.raises(kt.DeclarationError) as caught:
        kt.oracle_for(kernel, x=kt.array("n"))(oracle)
    assert f"declare it as arguments={{'{name}': kt.array(\"m n\")}}" in str(caught.value)


def test_an_argument_declared_twice_is_refused() -> None:
    kernel, _ = _summing(["x"])
    with pytest.raises(kt.DeclarationError, match="argument 'x': declared twice, as a keyword and in arguments="):
        kt.oracle_for(kernel, x=kt.array("n"), arguments={"x": kt.array("n")})


def strict(x: jax.Array, *, raises: int = 0, match: int = 0) -> jax.Array:
    if match > 2:
        raise ValueError("match must be small")
    return elementwise(lambda v: v + raises, x)


def test_a_rejection_takes_arguments_of_any_name() -> None:
    rejection = kt.rejects("large", arguments={"match": 3}, raises=ValueError, match="must be small")
    pairing = kt.oracle_for(
        strict, x=kt.array("n", "float32"), raises=kt.static(0, 1), match=kt.static(0), dims=SMALL, rejects=[rejection]
    )(lambda x, raises: x + raises)
    (record,) = [r for r in kt.check(pairing, depth="quick").records if r.group == "rejects"]
    assert record.verdict == "pass"
    with pytest.raises(ValueError, match="rejects large: x is given twice"):
        kt.rejects("large", arguments={"x": 3}, x=3, raises=ValueError, match="must be small")


@pytest.mark.parametrize("shape", ["m,n", "2**n", "n.", "-1"])
def test_a_shape_that_cannot_be_read_is_refused(shape: str) -> None:
    for declare in (kt.array, kt.mask):
        with pytest.raises(kt.DeclarationError, match=r"argument .x.: .* separate axes by spaces, as in .m 3 n."):
            kt.oracle_for(double, x=declare(shape))(np.abs)
