"""The map of what lowers: its probes, its child process, its files, comparing, showing, and refusing bad input."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from kerneltest.cli import main
from kerneltest.core.targets import TARGETS
from kerneltest.lowering_map import map as lowering_map
from kerneltest.lowering_map import probe as lowering_probe
from kerneltest.lowering_map import text as lowering_text
from kerneltest.lowering_map.map import LoweringMap, MapError, Row, compare, dumps, parse, read
from kerneltest.records.io import write_plan
from kerneltest.records.runs import read_all
from kerneltest.records.schema import Plan
from kerneltest.report.html.build import render
from kerneltest.report.merge import merge
from tests.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "reports/lowering"
HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"'&|`\\_[x](y)\n# z"
ROW = Row("exp", "elementwise", "lowers", "", ("float32", "float16"), ("sm_90", "gfx942"))
SORT = Row("sort", "indexing", "unimplemented", "Unimplemented primitive: sort", ("float32",), ("sm_90", "gfx942"))
MAP = LoweringMap("1.2.3", "1.2.3", "3.12.1", "", ("sm_90", "gfx942"), (ROW, SORT))


@pytest.fixture(scope="module", autouse=True)
def _restored_precision() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def _probe(name: str) -> lowering_probe.Probe:
    (found,) = [probe for probe in lowering_probe.probes() if probe.name == name]
    return found


def _mark(primitive: str, dtype: str, target: str = "sm_90") -> tuple[str, str] | None:
    return lowering_probe.mark((_probe(primitive), dtype, target), compiled=False)


# --- Probing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_cell_lowers_or_says_in_jaxs_words_why_not(target: str) -> None:
    assert _mark("exp", "float32", target) == ("lowers", "")
    mark, message = _mark("sort", "float32", target) or ("", "")
    assert mark == "unimplemented"
    assert re.match(r"NotImplementedError: Unimplemented primitive in Pallas \w+ lowering: sort\.", message)
    mark, message = _mark("concatenate", "float32", target) or ("", "")
    assert (mark, message) == ("error", "NotImplementedError: Only arguments with shape [..., 1] are supported.")


def test_what_lax_refuses_is_not_in_the_map() -> None:
    assert _mark("abs", "uint8") is None


def test_what_this_jax_does_not_have_is_absent() -> None:
    probe = replace(_probe("exp"), body=lambda x: lowering_probe.named("lax.exp3", "pl.exp3")(x))
    mark = lowering_probe.mark((probe, "float32", "sm_90"), compiled=False)
    assert mark == ("absent", "this JAX has no lax.exp3 or pl.exp3")


def test_every_probe_is_well_formed() -> None:
    probes = lowering_probe.probes()
    assert len({probe.name for probe in probes}) == len(probes) > 200
    assert {dtype for probe in probes for dtype in probe.dtypes} == set(lowering_probe.DTYPES)
    for probe in probes:  # for one dtype at least, lax takes it and the kernel has an answer
        dtypes = sorted(probe.dtypes, key=lambda dtype: dtype not in ("float32", "int32"))
        assert any(lowering_probe.mark((probe, dtype, "sm_90"), compiled=False) for dtype in dtypes), probe.name


def test_a_primitive_is_chosen_with_its_variants() -> None:
    chosen = {probe.name for probe, _, _ in lowering_probe.cells(["sort", "cumsum[reverse]"])}
    assert chosen == {"sort", "sort[keys and values]", "cumsum[reverse]"}
    with pytest.raises(ValueError, match="unknown primitive sine"):
        lowering_probe.cells(["sort", "sine"])


def test_the_probe_knows_the_targets_of_the_backends() -> None:
    described = {t.id: (t.platform, t.device_kind, t.arch, t.warp) for t in TARGETS.values()}
    probed = lowering_probe.TARGETS.items()
    assert {name: (t.platform, t.device_kind, t.architecture, t.lanes) for name, t in probed} == described


def test_a_message_keeps_urls_and_loses_folders_and_length() -> None:
    assert lowering_probe._tidy("at /home/me/jax/x.py:3\n see https://a.b/c/d") == "at x.py:3 see https://a.b/c/d"
    assert lowering_probe._tidy("ptxas tmpzy5kejj9.ptx, line 54") == "ptxas tmp.ptx, line 54"
    assert len(lowering_probe._tidy("x" * 999)) == lowering_probe.MESSAGE_LENGTH


def test_a_compiler_that_dies_costs_one_cell() -> None:
    todo = lowering_probe.cells(["exp"], ["sm_90"])[:4]
    child = """
import json, os, sys
for number in range(int(sys.argv[1]), 4):
    if number == 1:
        print("some.cpp:1: Assertion `x' failed.", file=sys.stderr, flush=True)
        os.abort()
    print(json.dumps(["lowers", str(number)]), flush=True)
"""
    results = lowering_probe.run(todo, [sys.executable, "-c", child])
    died = ("error", "the compiler died (SIGABRT): Assertion `x' failed.")
    assert [tuple(result or ()) for result in results] == [("lowers", "0"), died, ("lowers", "2"), ("lowers", "3")]


def test_the_command_probes_this_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "map.json"
    arguments = ["lowering", "--primitives", "is_finite,sort", "--targets", "sm_90,gfx942", "--json", str(path)]
    assert main(arguments) == 0
    found = read(path)
    assert found.jax == jax.__version__
    assert found.targets == ("sm_90", "gfx942")
    assert set(found.primitives) == {"is_finite", "sort", "sort[keys and values]"}
    assert found.cells["sort", "int8", "gfx942"].mark == "unimplemented"
    assert re.search(r"^is_finite +✓ lowers$", capsys.readouterr().out, re.MULTILINE)


# --- Files ------------------------------------------------------------------------------------------------------------


def test_a_map_survives_its_file() -> None:
    assert parse(dumps(MAP), "here") == MAP
    assert lowering_map.SCHEMA == lowering_probe.SCHEMA


def test_grouping_keeps_every_cell() -> None:
    todo = lowering_probe.cells(["exp", "abs"], ["sm_90", "gfx942"])
    results = [None if dtype == "uint8" else ("lowers", "") for _, dtype, _ in todo]
    results[0] = ("error", "why")
    rows = lowering_probe.grouped(todo, results)
    cells = [(r["primitive"], d, t, r["mark"]) for r in rows for d in r["dtypes"] for t in r["targets"]]
    expected = [(p.name, d, t, r[0]) for (p, d, t), r in zip(todo, results, strict=True) if r]
    assert sorted(cells) == sorted(expected)
    absent = lowering_probe.grouped(todo, [None] * len(todo))
    assert {row["mark"] for row in absent} == {"absent"}


CORRUPT = {
    "not JSON": "{",
    "a list": "[]",
    "no schema": "{}",
    "another schema": dumps(MAP).replace('"schema": 1', '"schema": 2'),
    "an unknown mark": dumps(MAP).replace('"lowers"', '"flies"'),
    "a target it does not name": dumps(MAP).replace('"sm_90"', '"sm_80"', 1),
    "a cell twice": dumps(replace(MAP, rows=(ROW, ROW))),
    "no cells": dumps(replace(MAP, rows=())),
    "a message that is no text": dumps(MAP).replace('"message":""', '"message":1'),
    "an unknown field": dumps(MAP).replace('"group"', '"troop"'),
    "no versions": json.dumps({"schema": 1, "rows": [], "targets": []}),
}


@pytest.mark.parametrize("text", CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_map_is_refused(text: str) -> None:
    with pytest.raises(MapError, match=r"^here: no readable map: "):
        parse(text, "here")


# --- Comparing --------------------------------------------------------------------------------------------------------


def _with(mark: str, **more: object) -> LoweringMap:
    row = replace(ROW, mark=mark, message="" if mark in lowering_map.GOOD else "why")
    return replace(MAP, rows=(replace(row, **more), SORT))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (MAP, MAP, []),
        (MAP, _with("error"), [("exp", "lowers", "error", ("float32", "float16"), ("sm_90", "gfx942"), "why")]),
        (_with("unimplemented"), MAP, [("exp", "unimplemented", "lowers", *ROW.__getstate__()[4:], "why")]),
        (_with("unimplemented"), _with("error"), []),
        (_with("absent"), _with("unimplemented"), []),
        (MAP, _with("absent"), [("exp", "lowers", "absent", ("float32", "float16"), ("sm_90", "gfx942"), "why")]),
        (
            MAP,
            _with("lowers", dtypes=("float32",)),
            [("exp", "lowers", "refused when traced", ("float16",), ROW.targets, "")],
        ),
        (
            _with("lowers", dtypes=("float16",)),
            MAP,
            [("exp", "refused when traced", "lowers", ("float32",), ROW.targets, "")],
        ),
        (replace(MAP, rows=(SORT,)), MAP, []),  # exp was not asked for before
        (replace(_with("lowers", targets=("sm_90",)), targets=("sm_90",)), MAP, []),  # nor was gfx942
    ],
)
def test_comparing(old: LoweringMap, new: LoweringMap, expected: list[tuple[object, ...]]) -> None:
    changes = compare(old, new)
    found = [(c.primitive, c.before, c.after, c.dtypes, c.targets, c.message) for c in changes]
    assert found == expected
    assert [change.stopped for change in changes] == [before == "lowers" for _, before, *_ in expected]


def test_only_like_is_compared_with_like() -> None:
    with pytest.raises(MapError, match="one map was compiled"):
        compare(MAP, replace(MAP, triton="3.0"))
    with pytest.raises(MapError, match="no target or no primitive in common"):
        compare(replace(MAP, rows=(ROW,)), replace(MAP, rows=(SORT,)))


@pytest.mark.parametrize(
    ("old", "new", "code"), [("lowers", "lowers", 0), ("error", "lowers", 0), ("lowers", "error", 1)]
)
def test_diff_fails_when_something_stopped(old: str, new: str, code: int, tmp_path: Path) -> None:
    for name, mark in (("old", old), ("new", new)):
        (tmp_path / name).write_text(dumps(_with(mark)))
    assert main(["lowering", str(tmp_path / "new"), "--diff", str(tmp_path / "old")]) == code


# --- Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no/such/map.json"], "no/such/map.json: no readable map: "),
        ([str(ROOT / "README.md")], "README.md: no readable map: JSONDecodeError"),
        (["--jax", "newest"], "'newest' is not a version of JAX, such as 0.10.2"),
        (["--jax", "0.4.30"], "JAX 0.4.30 is older than 0.4.35, the oldest that can be probed"),
        (
            ["--targets", "sm_1"],
            "unknown target sm_1; known are sm_80, sm_90, sm_100, gfx90a, gfx942, gfx1100, gfx1151",
        ),
        (["map.json", "--targets", "sm_90"], "are for measuring; maps are read whole"),
        (["--diff", "no/such/map.json"], "no/such/map.json: no readable map: "),
    ],
)
def test_bad_input_gets_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lowering", *arguments]) == 2
    _one_line(capsys.readouterr().err, words)


def _one_line(printed: str, words: str) -> None:
    (line,) = printed.splitlines()
    assert line.startswith("kerneltest lowering: ")
    assert words in line


def test_without_uv(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert main(["lowering", "--jax", "0.10.2"]) == 2
    _one_line(capsys.readouterr().err, "pip install uv. Without --jax, this environment's JAX is probed")


FAKE_UV = """#!/bin/sh
case "$*" in
*9.9.9*) echo 'error: No solution' >&2; echo '  cause: Because there is no version of jax==9.9.9' >&2; exit 1 ;;
*) cat <<'MAP'
{map}
MAP
esac
"""


def test_one_bad_version_does_not_lose_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(FAKE_UV.format(map=dumps(MAP)))
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    out = tmp_path / "map.json"
    assert main(["lowering", "--jax", "9.9.9", "--jax", "1.2.3", "--python", "3.12", "--json", str(out)]) == 2
    _one_line(capsys.readouterr().err, "JAX 9.9.9 with Python 3.12: Because there is no version of jax==9.9.9")
    assert read(out) == MAP


# --- Showing ----------------------------------------------------------------------------------------------------------


HOSTILE_MAP = replace(
    MAP,
    jax=HOSTILE,
    triton=HOSTILE,
    targets=(HOSTILE,),
    rows=(Row(HOSTILE, HOSTILE, "error", HOSTILE, (HOSTILE,), (HOSTILE,)),),
)


def _report(folder: Path, *maps: LoweringMap) -> Page:
    folder.mkdir()
    write_plan(folder, Plan((), 0, "quick", {}, {}, {}))
    return Page(render(merge(read_all([folder])), maps))


def test_in_the_report_messages_are_text(tmp_path: Path) -> None:
    good = replace(HOSTILE_MAP, rows=(replace(HOSTILE_MAP.rows[0], mark="compiles"),))
    page = _report(tmp_path / "run", good, HOSTILE_MAP)
    assert page.tags.count("script") == 2  # its data and its own
    assert "img" not in page.tags
    assert not any(name.startswith("on") or name in ("src", "style") for name, _ in page.attributes)
    assert all((value or "").startswith("#") for name, value in page.attributes if name == "href")
    assert page.text.count(HOSTILE) >= 6


def test_the_report_shows_the_table_and_the_changes(tmp_path: Path) -> None:
    page = _report(tmp_path / "run", _with("error"), replace(MAP, jax="1.2.2"))  # in order of version, not as given
    text = page.words
    assert "JAX 1.2.3: 6 cells = 4 error + 2 unimplemented" in text
    assert "✗ stopped: exp (f32 f16): lowers -> error: why" in text
    assert "exp ✓ lowers ✗ error f32 f16: why" in text
    assert "What Pallas lowers" not in _report(tmp_path / "none").words


def test_the_report_command_reads_maps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path, out = tmp_path / "run", tmp_path / "map.json", str(tmp_path / "page.html")
    _report(run)
    path.write_text(dumps(MAP))
    main(["report", str(run), "--lowering", str(path), "-o", out])
    assert "What Pallas lowers" in Path(out).read_text(encoding="utf-8")
    assert main(["report", str(run), "--lowering", str(ROOT / "README.md"), "-o", out]) == 2
    assert "README.md: no readable map" in capsys.readouterr().err


def test_in_markdown_a_message_stays_in_its_cell() -> None:
    page = lowering_text.markdown([HOSTILE_MAP])
    assert not re.search(r"(?<!\\)<(script|img)", page)
    (line,) = [line for line in page.split("## Errors")[1].splitlines() if line.startswith("| ") and "alert" in line]
    assert len(re.findall(r"(?<!\\)\|", line)) == 5


def test_targets_that_differ_are_told_apart() -> None:
    row = replace(ROW, mark="error", message="why", dtypes=("float16",), targets=("gfx942",))
    rows = (replace(ROW, targets=("sm_90",)), replace(ROW, dtypes=("float32",), targets=("gfx942",)), row)
    apart = replace(MAP, rows=rows)
    assert MAP.alike == (("sm_90", "gfx942"),)
    assert apart.alike == (("sm_90",), ("gfx942",))
    ((_, _, cells),) = lowering_text.table([apart]).rows
    assert [cell.text for cell in cells] == ["lowers", "lowers f32, error f16"]
    ((_, _, (cell, _)),) = lowering_text.table([apart, apart]).rows
    assert cell.text == "sm_90: lowers; gfx942: lowers f32, error f16"
    assert (cell.state, cell.reasons) == ("partly", ("f16: why",))


# --- The committed pages ----------------------------------------------------------------------------------------------


def test_is_finite_was_unimplemented_and_lowers_since() -> None:
    _, *sections = (PAGES / "README.md").read_text(encoding="utf-8").split("\n## ")
    (began,) = [each for each in sections if "started" in each.splitlines()[0] and "| `is_finite` |" in each]
    assert began.startswith("What started lowering from JAX 0.7.2 to JAX 0.10.2\n")
    (row,) = [line for line in began.splitlines() if line.startswith("| `is_finite` |")]
    assert "| all | unimplemented | lowers |" in row
    assert "Unimplemented primitive in Pallas GPU lowering: is_finite" in row


@pytest.mark.parametrize("name", ["README.md", "compiled.md"])
def test_a_committed_page_names_no_folder(name: str) -> None:
    page = (PAGES / name).read_text(encoding="utf-8")
    assert len(page) > 10_000
    assert not re.search(r"(?<!:)//?(root|home|tmp|usr|work)/", page)
