"""What wrong elements hold, by comparing several cases: what was planted is named exactly, or nothing is."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.work_budget import WorkBudget
from kerneltest.execute.cache import Cache
from kerneltest.execute.fuzz_group import FuzzGroup
from kerneltest.execute.item import Item
from kerneltest.execute.runner import run_case
from kerneltest.execute.settings import RunSettings
from kerneltest.localize.value_relations import find_relation
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature
from tests.sample import elementwise

M, N = 4, 25  # three blocks, and one element, of the first case; others have more rows and blocks
Formula = Callable[..., jax.Array]  # of x, y, keep, count and mode


def right(x: jax.Array, y: jax.Array, keep: jax.Array, count: jax.Array, mode: str) -> jax.Array:
    inside = jnp.arange(x.shape[1]) < count[:, None]
    return jnp.where(keep & inside, x + y * y + (2 if mode == "twice" else 3) * y + 1, x)


def _at(values: jax.Array, places: Callable[[jax.Array], jax.Array]) -> jax.Array:
    return values[:, jnp.clip(places(jnp.arange(values.shape[1])), 0, values.shape[1] - 1)]


def _narrow(values: jax.Array) -> jax.Array:
    return values.astype(jnp.bfloat16).astype(jnp.float32)


RELATIONS: dict[str, Formula] = {
    "each has the opposite sign": lambda *a: -right(*a),
    "each is 0.75 times the expected value": lambda *a: 0.75 * right(*a),
    "each is 5 too small": lambda *a: right(*a) - 5,
    "each is 7": lambda *a: jnp.full_like(right(*a), 7),
    "each is the square of the expected value": lambda *a: right(*a) ** 2,
    "each is a bfloat16 number": lambda *a: _narrow(right(*a)),
    "each is the value of x": lambda x, *a: x,
    "x changes in the opposite direction": lambda x, *a: 2 * x - right(x, *a),
    "x changes by 0.5 times as much as expected": lambda x, *a: (x + right(x, *a)) / 2,
    "each is the expected value 1 place of n further on, around its end": lambda *a: jnp.roll(right(*a), -1, 1),
    "each is the expected value in the first block of n": lambda *a: _at(right(*a), lambda i: i % 8),
    "it is the expected output reversed along n": lambda *a: right(*a)[:, ::-1],
    "as if y were read 1 block of n further on": lambda x, y, *a: right(x, _at(y, lambda i: i + 8), *a),
    "as if y were read in the first block of n": lambda x, y, *a: right(x, _at(y, lambda i: i % 8), *a),
    "as if y were read at index 0 of m": lambda x, y, *a: right(x, jnp.broadcast_to(y[:1], y.shape), *a),
    "as if x were read reversed along m": lambda x, *a: right(x[::-1], *a),
    "as if keep were true everywhere": lambda x, y, keep, *a: right(x, y, keep | True, *a),
    "as if count were n everywhere": lambda x, y, k, count, m: right(x, y, k, count * 0 + x.shape[1], m),
    "as if y were 0": lambda x, y, *a: right(x, 0 * y, *a),
    "as if y were negated": lambda x, y, *a: right(x, -y, *a),
    "as if x were y": lambda x, y, *a: right(y, y, *a),
    "as if x and y were exchanged": lambda x, y, *a: right(y, x, *a),
    "as if mode were n": lambda x, y, k, c, mode: right(x, y, k, c, "n"),  # an option with the name of a dim
    "as if y were read at index 0 of n": lambda x, y, *a: jnp.where(
        jnp.arange(x.shape[0])[:, None] == 1, right(x, jnp.broadcast_to(y[:, :1], y.shape), *a), right(x, y, *a)
    ),
}
AT_ONE_LENGTH = "rows past the second read as the second, which is the row before the third"
WITHOUT_WORDS: dict[str, Formula] = {
    "a sine": lambda *a: jnp.sin(right(*a)),
    "an infinity, which is near no number": lambda *a: jnp.full_like(right(*a), -jnp.inf),
    AT_ONE_LENGTH: lambda x, y, *a: right(x, y[jnp.minimum(jnp.arange(x.shape[0]), 1)], *a),
    "infinities among right elements": lambda x, *a: jnp.where(jnp.arange(x.shape[1]) < 9, jnp.inf, right(x, *a)),
}


def test_the_length_that_stands_for_an_option_is_named() -> None:
    def kernel(x: jax.Array, step: int) -> jax.Array:
        return elementwise(lambda u: u + u.shape[0], x)

    dims = dict(k=kt.dim(values=(2, 3)), n=kt.dim(values=(4,)))

    @kt.oracle_for(kernel, x=kt.array("k n", "float32"), step=kt.static(1, 2, 3), dims=dims)
    def moved(x: np.ndarray, step: int) -> np.ndarray:
        return x + step

    (suspect,) = kt.check(moved, depth="quick", minimize=5).suspects
    assert suspect.headline == "wrong values: as if step were k"


def test_an_axis_of_two_dims_that_is_taken_in_the_other_order_is_named() -> None:
    def kernel(q: jax.Array, k: jax.Array) -> jax.Array:
        return q * k[jnp.arange(len(q)) % len(k)] + elementwise(lambda u: 0 * u, q)

    dims = dict(h=kt.dim(values=(1, 2, 3)), g=kt.dim(values=(1, 2, 4)))
    data = dict(q=kt.array("h*g n", "float32", domain=(-9, 9)), k=kt.array("h n", "float32", domain=(-9, 9)))

    @kt.oracle_for(kernel, **data, dims=dims)
    def grouped(q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return q * np.repeat(k, len(q) // len(k), axis=0)

    (suspect,) = kt.check(grouped, depth="quick", minimize=5).suspects
    assert suspect.headline == "wrong values: as if h*g were laid out as g*h"


def test_an_argument_that_is_read_at_its_start_is_not_read_around_its_end() -> None:
    def kernel(w: jax.Array, at: jax.Array) -> jax.Array:
        moved = (at > 0) & (jnp.arange(len(at)) % 2 == 0)
        return w[at - moved] + elementwise(lambda u: 0 * u, w)[:1]

    @kt.oracle_for(kernel, w=kt.array("g n", "float32", domain=(-9, 9)), at=kt.indices("m", into="g"))
    def rows(w: np.ndarray, at: np.ndarray) -> np.ndarray:
        return w[at]

    (suspect,) = kt.check(rows, depth="quick", minimize=5).suspects
    assert suspect.headline == "wrong values: as if w were read 1 place of g further back"


def _case(number: int, m: int, n: int) -> ExplicitCase:
    rng = np.random.default_rng(number)
    arrays = {
        "x": rng.normal(size=(m, n)).astype(np.float32),
        "y": rng.normal(size=(m, n)).astype(np.float32),
        "keep": rng.random((m, n)) < 0.6,
        "count": rng.integers(8, 20, m).astype(np.int32),
    }
    dtypes = tuple((path, value.dtype.name) for path, value in arrays.items())
    signature = Signature((("m", m), ("n", n)), dtypes, (("mode", "twice"),), "float32")
    return ExplicitCase("p", signature, arrays, family=FAMILIES["normal"], draw=str(number))


@pytest.mark.parametrize(
    ("words", "formula"),
    [*RELATIONS.items(), *(("", formula) for formula in WITHOUT_WORDS.values())],
    ids=[*RELATIONS, *WITHOUT_WORDS],
)
def test_what_wrong_elements_hold_is_named_or_nothing_is_claimed(words: str, formula: Formula) -> None:

    def kernel(x: jax.Array, y: jax.Array, keep: jax.Array, count: jax.Array, mode: str) -> jax.Array:
        return elementwise(lambda u: u, formula(x, y, keep, count, mode))

    @kt.oracle_for(
        kernel, x=kt.array("m n", "float32"), y=kt.array("m n", "float32"), keep=kt.mask("m n"),
        count=kt.lengths("m", up_to="n"), mode=kt.static("twice", "n"),
        dims={"m": kt.dim(maximum=6), "n": kt.dim(block=8, maximum=41)},  # no long signatures, which are traced first
    )  # fmt: skip
    def pairing(x: np.ndarray, y: np.ndarray, keep: np.ndarray, count: np.ndarray, mode: str) -> np.ndarray:
        inside = np.arange(x.shape[1]) < count[:, None]
        return np.where(keep & inside, x + y * y + (2 if mode == "twice" else 3) * y + 1, x)

    (interpret,) = resolve(["interpret"])
    item, cache = Item("p", pairing, "p", interpret, "float32", FuzzGroup(), RunSettings()), Cache()
    is_short = formula is WITHOUT_WORDS[AT_ONE_LENGTH]
    smallest, *cases = (_case(i, 3 if is_short else M + i, N + 8 * i) for i in range(3))
    outcome = run_case(item, smallest, cache)
    assert outcome.record.verdict.is_finding
    wrong, passing = {case.id: 1 for case in cases}, _case(3, 2, N)
    found = find_relation(item, smallest, outcome, [*cases, passing], wrong, cache, WorkBudget())
    assert (found.relation.text() if found is not None else "") == words


def test_relations_are_sought_in_one_dimension_and_without_an_optional_argument() -> None:
    def kernel(x: jax.Array, b: jax.Array | None = None) -> jax.Array:
        return elementwise(jnp.sin, x) if b is None else elementwise(lambda u, v: u + jnp.roll(v, 1), x, b)

    x, dims = kt.array("n", "float32"), {"n": kt.dim(values=(4,))}
    made = kt.oracle_for(kernel, x=x, b=kt.optional(x), dims=dims)(lambda x, b: x if b is None else x + b)
    found = kt.check(made, backends=["interpret"], depth="quick", minimize=1)
    assert found.suspects
    assert not found.internal_errors
