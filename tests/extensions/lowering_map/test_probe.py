"""The measurement: what becomes of one cell, which cells are asked, and how answers merge."""

import re
from dataclasses import replace
from importlib import metadata

import jax
import pytest

from kerneltest.backends.tpu import tiers
from kerneltest.core.details import NotBuilt, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.extensions.lowering_map.measuring import (
    MAX_LENGTH,
    ProbedCell,
    first_cause,
    measure,
    merge_cells,
    one_line,
    probe_cell,
    select_cells,
    tpu_shape,
)
from kerneltest.extensions.lowering_map.model import LoweringOutcome, MapError
from kerneltest.extensions.lowering_map.probes import DTYPES, LoweringProbe, probes


def _probe(name: str) -> LoweringProbe:
    (chosen,) = [each for each in probes() if each.name == name]
    return chosen


def _ask(primitive: str, dtype: str, target: str = "sm_90") -> tuple[LoweringOutcome, str] | None:
    return probe_cell(ProbedCell(_probe(primitive), dtype, target), compiled=False)


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
        ("slice[strided]", "float32", "error", r"'vector.extract_strided_slice' op expected strides .*\)$"),
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
    assert answer[0] == outcome, answer[1]
    assert re.search(words, answer[1]) if words else not answer[1]


@pytest.mark.slow
def test_libtpu_says_more_than_lowering() -> None:
    pytest.importorskip("libtpu")
    found = measure(targets=["tpu-v5e"], primitives=["abs"], compiled=True)
    assert found.libtpu == metadata.version("libtpu")
    outcomes = {dtype: str(result.outcome) for dtype, result in found.by_dtype["abs", "tpu-v5e"].items()}
    assert outcomes["float32"] == outcomes["bfloat16"] == "compiles"
    assert outcomes["float16"] == "error"
    assert _ask("abs", "float16", "tpu-v5e") == ("lowers", "")


@pytest.mark.parametrize("target", ["sm_90", "tpu-v5e"])
def test_a_compiler_that_is_missing_is_named(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("kerneltest.backends.tpu.tiers.problem", tiers.problem.__wrapped__)
    with pytest.raises(MapError, match=r"^--compile: .* is not installed"):
        measure([target], ["abs"], compiled=True)


def test_gpus_and_tpus_are_asked_for_what_they_have() -> None:
    cells = select_cells(["sm_90", "tpu-v5e"], ["exp", "atomic_add", "roll", "blocks"])
    asked = {(cell.probe.name.split("[")[0], cell.target) for cell in cells}
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
    unknown = replace(_probe("exp"), body=lambda x: jax.lax.exp3(x))  # type: ignore[attr-defined]
    answer = probe_cell(ProbedCell(unknown, "float32", "sm_90"), compiled=False)
    assert answer == ("absent", "this JAX has no jax.lax.exp3")


def test_every_probe_is_well_formed() -> None:
    assert len({each.name for each in probes()}) == len(probes()) > 200
    assert {dtype for each in probes() for dtype in each.dtypes} == set(DTYPES)
    assert {each.only for each in probes()} == {"", "gpu", "tpu"}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90", "tpu-v5e"])
def test_lax_takes_every_probe_for_one_dtype_at_least(target: str) -> None:
    for each in {cell.probe for cell in select_cells([target])}:
        dtypes = sorted(each.dtypes, key=lambda dtype: dtype not in ("float32", "int32"))
        answers = (probe_cell(ProbedCell(each, dtype, target), compiled=False) for dtype in dtypes)
        answer = next(filter(None, answers), None)
        assert answer or each.name == "top_k[unstable]", each.name  # which older versions of lax do not have


def test_a_primitive_is_chosen_with_its_variants() -> None:
    chosen = {cell.probe.name for cell in select_cells(["sm_90"], ["sort", "cumsum[reverse]"])}
    assert chosen == {"sort", "sort[keys and values]", "cumsum[reverse]"}
    with pytest.raises(MapError, match="unknown primitive sine"):
        select_cells(["sm_90"], ["sort", "sine"])


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


def test_a_compilers_own_words_are_the_message() -> None:
    detail = NotBuilt(Stage.COMPILE, "kernel", "", "Triton raised RuntimeError: no", target="sm_90")
    assert first_cause(Failure(Verdict.COMPILE_ERROR, detail)) == "Triton raised RuntimeError: no"


def test_merging_keeps_every_cell() -> None:
    cells = select_cells(["sm_90", "gfx942"], ["exp", "abs"])
    answers = [None if cell.dtype == "uint8" else (LoweringOutcome.LOWERS, "") for cell in cells]
    answers[0] = LoweringOutcome.ERROR, "why"
    results = merge_cells(cells, answers)
    merged = [(r.primitive, d, t, r.outcome) for r in results for d in r.dtypes for t in r.targets]
    asked = zip(cells, answers, strict=True)
    assert sorted(merged) == sorted((c.probe.name, c.dtype, c.target, a[0]) for c, a in asked if a)


def test_what_lax_refuses_for_every_dtype_is_absent() -> None:
    cells = select_cells(["sm_90"], ["exp"])
    assert [result.outcome for result in merge_cells(cells, [None] * len(cells))] == [LoweringOutcome.ABSENT]
