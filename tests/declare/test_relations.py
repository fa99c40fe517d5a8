"""Relations between dims: every plan keeps to them, and nothing that they allow is lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.declare.dims import parse_relation
from kerneltest.execute.applicability import Applicability, note_traces
from kerneltest.plan.cases import find_shortfalls
from kerneltest.plan.explicit import signature_pool
from kerneltest.plan.format_limits import long_signatures
from kerneltest.plan.production_sizes import production_signatures
from kerneltest.plan.signatures import signatures
from kerneltest.records.journal import Journal
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


# Tables of configurations.

TABLE = {(8, 4): {"block": 8}, (16, 4): {"block": 16}, (32, 4): {"block": 24}, (4096, 4): {"block": 64}}
FILES = {
    "table.csv": "m,k,block,kind\n" + "".join(f"{m},{k},{row['block']},a\n" for (m, k), row in TABLE.items()),
    "table.json": json.dumps({f"{m}x{k}": row for (m, k), row in TABLE.items()}),
}


def _blocks(x: jax.Array, config: dict[str, int]) -> jax.Array:
    blocks = pl.BlockSpec((config["block"],), lambda i: (i,))
    copy = pl.pallas_call(
        lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]),
        jax.ShapeDtypeStruct(x.shape[:1], x.dtype),
        grid=(x.shape[0] // config["block"],),
        in_specs=[blocks],
        out_specs=blocks,
    )
    return copy(x[:, 0])


def _of_table(table: Any, key: Callable[..., Any] = lambda m, k: (m, k), **more: Any) -> kt.Pairing:
    config = kt.static.from_table(table, key=key)
    dims = {"m": kt.dim(values=(8, 16, 32)), "k": kt.dim(values=(1, 4))}
    return kt.oracle_for(_blocks, x=kt.array("m k", "float32"), config=config, dims=dims, **more)(lambda x: x[:, 0])


@pytest.mark.parametrize("name", ["", *FILES])
def test_each_row_of_a_table_has_the_lengths_that_select_it(name: str, tmp_path: Path) -> None:
    if name:
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    pairing = _of_table(tmp_path / name if name else TABLE)
    planned = {str(signature) for signature in signatures(pairing, "quick")}
    assert planned == {f"m={m},k=4,float32,config={m}x4" for m in (8, 16, 32)}
    assert next(find_shortfalls(pairing, "quick")) == "no planned lengths select 1 row of the table config: 4096x4"
    found = kt.check(pairing, backends=["interpret"], depth="quick").findings
    assert {str(finding.signature) for finding in found} == {"m=32,k=4,float32,config=32x4"}  # whose block is too long


def test_a_row_of_several_keys_is_planned_for_each_of_them_alone() -> None:
    row = {"block": 8}
    pairing = _of_table({(m, 4): row for m in (8, 16, 32)})
    planned = {str(signature) for signature in signatures(pairing, "quick")}
    assert planned == {f"m={m},k=4,float32,config={m}x4" for m in (8, 16, 32)}


def test_fields_of_csv_are_numbers_and_booleans(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("m, scale, flag, kind\n8, 0.5, False, a\n16, -1, true, b\n", encoding="utf-8")
    options = kt.static.from_table(table, key=lambda m: m).options
    rows = {"scale": 0.5, "flag": False, "kind": "a"}, {"scale": -1, "flag": True, "kind": "b"}
    assert options == (("8", rows[0]), ("16", rows[1]))


@pytest.mark.parametrize("text", ["m,block\n8\n", "m,block\n8,1,2\n", "m,block\n8,1\n8,2\n"])
def test_lines_of_csv_that_are_no_rows_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"from_table: line [23] "):
        kt.static.from_table(tmp_path / "table.csv", key=lambda m: m)


def test_keys_of_one_text_are_refused() -> None:
    with pytest.raises(ValueError, match="two keys"):
        kt.static.from_table({8: 1, "8": 2}, key=lambda m: m)


def test_named_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"without kt\.named"):
        kt.static.from_table({8: kt.named("one", 1)}, key=lambda m: m)


def test_a_table_of_which_no_lengths_select_a_row_is_said_to_be_one() -> None:
    pairing = _of_table(TABLE, key=lambda m, k: (m + 1, k))
    with note_traces(Journal()) as traces:
        assert "select a row of a table" in Applicability(pairing, "quick", traces).problem()


def test_a_table_and_a_relation_both_hold() -> None:
    pairing = _of_table(TABLE, where=lambda m: m > 8)
    assert {dict(each.dims)["m"] for each in signatures(pairing, "quick")} == {16, 32}


@pytest.mark.parametrize(
    ("table", "key", "words"),
    [
        ({}, lambda m: m, "give a mapping from keys to rows"),
        ("table.csv", lambda n: n, "the table has no column 'n', which key= takes"),
        (TABLE, lambda n: n, "'n' is no dim"),
    ],
)
def test_what_is_wrong_with_a_table_is_told(
    table: Any, key: Callable[..., Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text(FILES["table.csv"], encoding="utf-8")
    with pytest.raises((ValueError, kt.DeclarationError), match=words):
        _of_table(table, key)
