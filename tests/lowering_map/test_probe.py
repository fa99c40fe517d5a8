"""The probe: what becomes of one cell, which cells are asked, how answers merge, and children that die."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from kerneltest.lowering_map import probe
from kerneltest.lowering_map.measure import describe_targets
from kerneltest.lowering_map.probe.cells import Answer, Cell, ask, merge_answers, select_cells
from kerneltest.lowering_map.probe.children import answer_in_children
from kerneltest.lowering_map.probe.kernels import probes
from kerneltest.lowering_map.probe.kernels.base import DTYPES, Probe, first_available
from kerneltest.lowering_map.probe.messages import MAX_LENGTH, one_line
from kerneltest.lowering_map.probe.target import read_targets

SM_90, GFX942 = read_targets(describe_targets(["sm_90", "gfx942"]))
FOLDER = Path(probe.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def _restored_precision() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def _probe(name: str) -> Probe:
    (chosen,) = [each for each in probes() if each.name == name]
    return chosen


def _ask(primitive: str, dtype: str, target: str = "sm_90") -> Answer | None:
    return ask(Cell(_probe(primitive), dtype, {"sm_90": SM_90, "gfx942": GFX942}[target]), compiled=False)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_cell_lowers_or_says_in_jaxs_words_why_not(target: str) -> None:
    assert _ask("exp", "float32", target) == ("lowers", "")
    outcome, message = _ask("sort", "float32", target) or ("", "")
    assert outcome == "unimplemented"
    assert re.match(r"NotImplementedError: Unimplemented primitive in Pallas \w+ lowering: sort\.", message)
    answer = _ask("concatenate", "float32", target)
    assert answer == ("error", "NotImplementedError: Only arguments with shape [..., 1] are supported.")


def test_what_lax_refuses_is_not_in_the_map() -> None:
    assert _ask("abs", "uint8") is None


def test_what_this_jax_does_not_have_is_absent() -> None:
    unknown = replace(_probe("exp"), body=lambda x: first_available("lax.exp3", "pl.exp3")(x))
    answer = ask(Cell(unknown, "float32", SM_90), compiled=False)
    assert answer == ("absent", "this JAX has no lax.exp3 or pl.exp3")


def test_every_probe_is_well_formed() -> None:
    assert len({each.name for each in probes()}) == len(probes()) > 200
    assert {dtype for each in probes() for dtype in each.dtypes} == set(DTYPES)
    for each in probes():  # for one dtype at least, lax takes it and the kernel has an answer
        dtypes = sorted(each.dtypes, key=lambda dtype: dtype not in ("float32", "int32"))
        assert any(ask(Cell(each, dtype, SM_90), compiled=False) for dtype in dtypes), each.name


def test_a_primitive_is_chosen_with_its_variants() -> None:
    chosen = {cell.probe.name for cell in select_cells([SM_90], ["sort", "cumsum[reverse]"])}
    assert chosen == {"sort", "sort[keys and values]", "cumsum[reverse]"}
    with pytest.raises(ValueError, match="unknown primitive sine"):
        select_cells([SM_90], ["sort", "sine"])


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_the_probe_runs_where_kerneltest_is_not_installed(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    absolute = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    roots = {name.split(".")[0] for name in (*absolute, *names) if name}
    assert roots <= {*sys.stdlib_module_names, "jax", "jaxlib", "numpy", "triton"}


def test_a_message_keeps_urls_and_loses_folders_and_length() -> None:
    assert one_line("at /home/me/jax/x.py:3\n see https://a.b/c/d") == "at x.py:3 see https://a.b/c/d"
    assert one_line("ptxas tmpzy5kejj9.ptx, line 54") == "ptxas tmp.ptx, line 54"
    assert len(one_line("x" * 999)) == MAX_LENGTH


def test_a_compiler_that_dies_costs_one_cell() -> None:
    child = """
import json, os, sys
for number in range(int(sys.argv[1]), 4):
    if number == 1:
        print("some.cpp:1: Assertion `x' failed.", file=sys.stderr, flush=True)
        os.abort()
    print(json.dumps(["lowers", str(number)]), flush=True)
"""
    answers = answer_in_children(4, [sys.executable, "-c", child])
    died = ("error", "the compiler died (SIGABRT): Assertion `x' failed.")
    assert answers == [("lowers", "0"), died, ("lowers", "2"), ("lowers", "3")]


def test_merging_keeps_every_cell() -> None:
    cells = select_cells([SM_90, GFX942], ["exp", "abs"])
    answers = [None if cell.dtype == "uint8" else Answer("lowers", "") for cell in cells]
    answers[0] = Answer("error", "why")
    results = merge_answers(cells, answers)
    merged = [(r["primitive"], d, t, r["outcome"]) for r in results for d in r["dtypes"] for t in r["targets"]]
    asked = zip(cells, answers, strict=True)
    assert sorted(merged) == sorted((c.probe.name, c.dtype, c.target.id, a.outcome) for c, a in asked if a)


def test_what_lax_refuses_for_every_dtype_is_absent() -> None:
    cells = select_cells([SM_90], ["exp"])
    assert [result["outcome"] for result in merge_answers(cells, [None] * len(cells))] == ["absent"]
