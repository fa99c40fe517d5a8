"""The probe: what becomes of one cell, which cells are asked, how answers merge, and children that die."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import jax
import pytest

from kerneltest.extensions.lowering_map import probe
from kerneltest.extensions.lowering_map.model import describe_targets, measure
from kerneltest.extensions.lowering_map.probe import command
from kerneltest.extensions.lowering_map.probe.cells import (
    MAX_LENGTH,
    Cell,
    CellOutcome,
    first_cause,
    merge_outcomes,
    one_line,
    probe_cell,
    select_cells,
    with_reason,
)
from kerneltest.extensions.lowering_map.probe.command import probe_in_children
from kerneltest.extensions.lowering_map.probe.lowering import read_targets, tpu_shape
from kerneltest.extensions.lowering_map.probe.probes import DTYPES, LoweringProbe, first_available, probes

SM_90, GFX942, TPU_V5E = read_targets(describe_targets(["sm_90", "gfx942", "tpu-v5e"]))
TARGETS = {target.id: target for target in (SM_90, GFX942, TPU_V5E)}
FOLDER = Path(probe.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def _restored_precision() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def _probe(name: str) -> LoweringProbe:
    (chosen,) = [each for each in probes() if each.name == name]
    return chosen


def _ask(primitive: str, dtype: str, target: str = "sm_90") -> CellOutcome | None:
    return probe_cell(Cell(_probe(primitive), dtype, TARGETS[target]), compiled=False)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_cell_lowers_or_says_in_jaxs_words_why_not(target: str) -> None:
    assert _ask("exp", "float32", target) == ("lowers", "")
    outcome, message = _ask("sort", "float32", target) or ("", "")
    assert outcome == "unimplemented"
    assert re.match(r"NotImplementedError: Unimplemented primitive in Pallas \w+ lowering: sort\.", message)
    answer = _ask("concatenate", "float32", target)
    assert answer == ("error", "NotImplementedError: Only arguments with shape [..., 1] are supported.")


@pytest.mark.parametrize(
    ("primitive", "dtype", "outcome", "words"),
    [
        ("add", "float32", "lowers", ""),
        ("exp", "float16", "lowers", ""),
        ("reduce_sum[all axes]", "float32", "lowers", ""),  # to scalar memory
        ("get[dynamic slice]", "float32", "lowers", ""),  # from where scalar memory says
        ("cumsum", "float32", "unimplemented", r"Unimplemented primitive in Pallas TPU lowering.*: cumsum\b"),
        ("slice[strided]", "float32", "error", r"error: 'vector.extract_strided_slice' op expected strides .*\)$"),
        ("blocks[8x128 of 64x512]", "float32", "lowers", ""),
        ("blocks[16x256 of 64x512]", "int8", "lowers", ""),
        ("blocks[8x64 of 64x512]", "float32", "error", "divisible by 8 and 128"),
        ("blocks[4x128 of 64x512]", "float32", "error", "divisible by 8 and 128"),
        ("blocks[128 of 4096]", "float32", "lowers", ""),
        ("blocks[1000 of 4096]", "float32", "error", "rank 1 block shapes"),
    ],
)
def test_a_cell_of_a_tpu(primitive: str, dtype: str, outcome: str, words: str) -> None:
    answer = _ask(primitive, dtype, "tpu-v5e")
    assert answer is not None
    assert answer.outcome == outcome, answer.message
    assert re.search(words, answer.message) if words else not answer.message


@pytest.mark.slow
def test_libtpu_says_more_than_lowering() -> None:
    pytest.importorskip("libtpu")
    found = measure(targets=["tpu-v5e"], primitives=["abs"], compiled=True)
    assert found.libtpu == metadata.version("libtpu")
    outcomes = {dtype: str(result.outcome) for dtype, result in found.by_dtype["abs", "tpu-v5e"].items()}
    assert outcomes["float32"] == outcomes["bfloat16"] == "compiles"
    assert outcomes["float16"] == "error"
    assert _ask("abs", "float16", "tpu-v5e") == ("lowers", "")


@pytest.mark.parametrize(("target", "package"), [("sm_90", "triton"), ("tpu-v5e", "libtpu")])
def test_a_compiler_that_is_missing_is_named(
    target: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    monkeypatch.setattr("sys.argv", ["probe", "--compile", "--targets", describe_targets([target])])
    with pytest.raises(SystemExit):
        command.main()
    assert f"probe: error: --compile needs {package} for " in capsys.readouterr().err.splitlines()[-1]


def test_gpus_and_tpus_are_asked_for_what_they_have() -> None:
    cells = select_cells([SM_90, TPU_V5E], ["exp", "atomic_add", "roll", "blocks"])
    asked = {(cell.probe.name.split("[")[0], cell.target.id) for cell in cells}
    both = {("exp", "sm_90"), ("exp", "tpu-v5e")}
    assert asked == both | {("atomic_add", "sm_90"), ("roll", "tpu-v5e"), ("blocks", "tpu-v5e")}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((16,), (16, 128)), ((8, 16), (8, 128)), ((2, 32, 32), (2, 128, 128)), ((), ()), ((64, 512), (64, 512))],
)
def test_operands_of_tpus_fill_tiles(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert tpu_shape(shape) == expected


def test_what_lax_refuses_is_not_in_the_map() -> None:
    assert _ask("abs", "uint8") is None


def test_what_this_jax_does_not_have_is_absent() -> None:
    unknown = replace(_probe("exp"), body=lambda x: first_available("lax.exp3", "pl.exp3")(x))
    answer = probe_cell(Cell(unknown, "float32", SM_90), compiled=False)
    assert answer == ("absent", "this JAX has no lax.exp3 or pl.exp3")


def test_every_probe_is_well_formed() -> None:
    assert len({each.name for each in probes()}) == len(probes()) > 200
    assert {dtype for each in probes() for dtype in each.dtypes} == set(DTYPES)
    assert {each.only for each in probes()} == {"", "gpu", "tpu"}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90", "tpu-v5e"])
def test_lax_takes_every_probe_for_one_dtype_at_least(target: str) -> None:
    for each in {cell.probe for cell in select_cells([TARGETS[target]])}:
        dtypes = sorted(each.dtypes, key=lambda dtype: dtype not in ("float32", "int32"))
        answers = (probe_cell(Cell(each, dtype, TARGETS[target]), compiled=False) for dtype in dtypes)
        answer = next(filter(None, answers), None)
        assert answer or each.name == "top_k[unstable]", each.name  # which older versions of lax do not have
        assert not answer or "Triton IR" not in answer.message, each.name


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


MOSAIC = "INTERNAL: Mosaic failed to compile TPU kernel with MLIR module name `kernel` HLO name `call.1`: "


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (MOSAIC + 'Bad load at location: loc("get"("x.py":1:2))\nThe MLIR operation', "Bad load"),
        (MOSAIC + "failed to legalize 'math.exp': %20 = \"math.exp\"(%10)", "failed to legalize 'math.exp'"),
        (
            'Failed:\nerror: "a:"("b"(c("d") at "/e.py":1:2)): \'op\' refuses\n note: "a"("b"): see %1',
            "Failed: error: 'op' refuses",
        ),
        ("nothing around it", "nothing around it"),
    ],
)
def test_a_message_is_about_the_cause(said: str, kept: str) -> None:
    assert first_cause(RuntimeError(said)) == f"RuntimeError: {kept}"


def test_the_last_words_of_libtpu_have_no_time() -> None:
    printed = "W1122 15:49:23.7 42 a.cc:1] hm\nF1122 15:49:23.763626    4244 b.cc:719] Check failed: x\n*** stack"
    assert with_reason("died", printed) == "died: Check failed: x"


def test_a_compiler_that_dies_costs_one_cell() -> None:
    child = """
import json, os, sys
for number in range(int(sys.argv[1]), 4):
    if number == 1:
        print("some.cpp:1: Assertion `x' failed.", file=sys.stderr, flush=True)
        os.abort()
    print(json.dumps(["lowers", str(number)]), flush=True)
"""
    answers = probe_in_children(4, [sys.executable, "-c", child])
    died = ("error", "the compiler died (SIGABRT): Assertion `x' failed.")
    assert answers == [("lowers", "0"), died, ("lowers", "2"), ("lowers", "3")]


def test_merging_keeps_every_cell() -> None:
    cells = select_cells([SM_90, GFX942], ["exp", "abs"])
    answers = [None if cell.dtype == "uint8" else CellOutcome("lowers", "") for cell in cells]
    answers[0] = CellOutcome("error", "why")
    results = merge_outcomes(cells, answers)
    merged = [(r["primitive"], d, t, r["outcome"]) for r in results for d in r["dtypes"] for t in r["targets"]]
    asked = zip(cells, answers, strict=True)
    assert sorted(merged) == sorted((c.probe.name, c.dtype, c.target.id, a.outcome) for c, a in asked if a)


def test_what_lax_refuses_for_every_dtype_is_absent() -> None:
    cells = select_cells([SM_90], ["exp"])
    assert [result["outcome"] for result in merge_outcomes(cells, [None] * len(cells))] == ["absent"]
