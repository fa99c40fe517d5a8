"""Relations between dims: every plan keeps to them, and nothing that they allow is lost."""

from collections.abc import Callable
from typing import Any

import pytest

import kerneltest as kt
from kerneltest.declare.dims import parse_relation
from kerneltest.plan.explicit import signature_pool
from kerneltest.plan.format_limits import long_signatures
from kerneltest.plan.production_sizes import production_signatures
from kerneltest.plan.signatures import signatures
from tests.sample import double

RELATIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "one at most the other": (lambda m, n: m <= n, {}),
    "even": (lambda n: n % 2 == 0, {}),
    "twice as long": (lambda m, n: n == 2 * m, {}),
    "a product": (lambda m, n, k: k == m * n, dict(y=kt.array("k"))),
    "a block that divides": (lambda n, block: n % block == 0, dict(block=kt.static(16, 24))),
    "only where it is given": (lambda n, bias: n > 4 or not bias, dict(bias=kt.optional(kt.array("n")))),
    "with a number of its own": (lambda m, n, most=3: m <= most * n, {}),
    "three of one length": (lambda m, n, k: m == n == k and m >= 8, dict(y=kt.array("k"))),
    "a block that divides three": (
        lambda m, n, k, block: m % block == n % block == k % block == 0,
        dict(y=kt.array("k"), block=kt.static(16, 24)),
    ),
    "a power of two": (lambda m: m & (m - 1) == 0, {}),
}


def _paired(where: Callable[..., Any], more: dict[str, Any], **dims: kt.Pairing) -> kt.Pairing:
    parameters = ", ".join(["x", *(f"{name}=None" for name in more)])
    kernel = eval(f"lambda {parameters}: double(x)", {"double": double})
    oracle = eval(f"lambda {parameters}: 2 * x")
    return kt.oracle_for(kernel, x=kt.array("m n"), where=where, dims=dims, **more)(oracle)


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("depth", ["quick", "standard"])
def test_every_signature_meets_it(name: str, depth: str) -> None:
    where, more = RELATIONS[name]
    pairing = _paired(where, more, m=kt.dim(block=8), n=kt.dim(block=16, production=4096))
    planned = [*signatures(pairing, depth), *long_signatures(pairing, depth), *signature_pool(pairing, depth)]
    assert len(planned) > 4
    for signature in [*planned, *production_signatures(pairing)]:
        assert pairing.admits(dict(signature.dims), dict(signature.statics)), signature


def test_no_pair_is_lost_that_it_allows() -> None:
    where = RELATIONS["one at most the other"][0]
    related, free = (_paired(w, {}, m=kt.dim(block=8), n=kt.dim(block=16)) for w in (where, lambda m: True))
    pairs = [{(dict(s.dims)["m"], dict(s.dims)["n"]) for s in signatures(p, "deep")} for p in (related, free)]
    assert {pair for pair in pairs[1] if pair[0] <= pair[1]} <= pairs[0]


@pytest.mark.parametrize(
    ("where", "lengths", "nearest"),
    [
        (lambda m, n: m <= n, dict(m=9, n=5), dict(m=5, n=5)),
        (lambda m, n: n == 2 * m, dict(m=9, n=5), dict(m=9, n=18)),
        (lambda m: m % 2 == 0, dict(m=9, n=5), dict(m=8, n=5)),
        (lambda m, n: m == 32 and n == 48, dict(m=9, n=5), dict(m=32, n=48)),
        (lambda m, n: m <= n, dict(m=4, n=5), dict(m=4, n=5)),
        (lambda m, n: m > 10**6, dict(m=4, n=5), None),
    ],
)
def test_as_little_is_changed_as_will_do(
    where: Callable[..., Any], lengths: dict[str, int], nearest: dict[str, int] | None
) -> None:
    dims = dict(m=kt.dim(), n=kt.dim())
    assert parse_relation(where).nearest_lengths(dims, lengths, {}) == nearest


def test_fixed_lengths_stay() -> None:
    dims = dict(m=kt.dim(), n=kt.dim())
    assert parse_relation(lambda m, n: m <= n).nearest_lengths(dims, dict(m=9, n=5), {}, ["m"]) == dict(m=9, n=9)


MISWRITTEN: dict[str, tuple[Any, str]] = {
    "admits none": (lambda n: n < 0, "where: it admits none of the lengths that were tried"),
    "an unknown name": (
        lambda k: k > 0,
        "where: 'k' is no dim, static or optional argument of the pairing; there are m, n",
    ),
    "no function": (3, "where: give a function of dims and static arguments"),
    "no parameters": (lambda: True, "where: give a function of dims and static arguments"),
    "one that raises": (lambda n: 1 // (n - n), "where: it raised ZeroDivisionError"),
}


@pytest.mark.parametrize("what", MISWRITTEN)
def test_what_is_written_wrongly_is_told(what: str) -> None:
    where, message = MISWRITTEN[what]
    with pytest.raises(kt.DeclarationError) as caught:
        _paired(where, {})
    assert message in str(caught.value)
