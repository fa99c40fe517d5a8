"""Maps on disk, compared, and the command that makes them."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from kerneltest.cli import main
from kerneltest.core.targets import TARGETS, TPUS
from kerneltest.extensions.lowering_map.model import (
    LoweringMap,
    MapError,
    compare_maps,
    format_map,
    parse_map,
    read_map,
)
from tests.extensions.lowering_map.sample_maps import EXP, MAP, SORT, with_exp


def test_a_map_survives_its_file() -> None:
    assert parse_map(format_map(MAP), "here") == MAP


def test_a_file_has_a_line_for_each_result() -> None:
    assert len(format_map(MAP).splitlines()) == len(MAP.results) + 2


CORRUPT = {
    "not JSON": ("{", "Invalid JSON"),
    "a list": ("[]", "Input should be an object"),
    "no schema": (format_map(MAP).replace('"schema": 2, ', ""), "schema: Field required"),
    "another schema": (format_map(MAP).replace('"schema": 2', '"schema": 1'), "schema: Input should be 2"),
    "an unknown outcome": (format_map(MAP).replace('"lowers"', '"flies"'), "results: 0: outcome: "),
    "a target it does not name": (
        format_map(MAP).replace('"sm_90"', '"sm_80"', 1),
        "that the map does not list: sm_90",
    ),
    "a cell twice": (format_map(replace(MAP, results=(EXP, EXP))), "one of them twice"),
    "no cells": (format_map(replace(MAP, results=())), "no cells"),
    "a message that is no text": (format_map(MAP).replace('"message":""', '"message":1'), "results: 0: message: "),
    "an unknown field": (format_map(MAP).replace('"group"', '"troop"', 1), "results: 0: group: "),
    "one field more": (format_map(MAP).replace('"jax"', '"more": 1, "jax"'), "more: "),
    "no versions": (json.dumps({"schema": 2, "results": [], "targets": []}), "jax: Field required"),
}


@pytest.mark.parametrize(("text", "reason"), CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_map_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MapError, match=rf"^here is not a readable map: .*{reason}") as refused:
        parse_map(text, "here")
    assert len(str(refused.value).splitlines()) == 1


ALL = (EXP.dtypes, EXP.targets)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (MAP, MAP, []),
        (MAP, with_exp("error"), [("exp", "lowers", "error", *ALL, "why")]),
        (with_exp("unimplemented"), MAP, [("exp", "unimplemented", "lowers", *ALL, "why")]),
        (with_exp("unimplemented"), with_exp("error"), []),
        (with_exp("absent"), with_exp("unimplemented"), []),
        (MAP, with_exp("absent"), [("exp", "lowers", "absent", *ALL, "why")]),
        (
            MAP,
            with_exp("lowers", dtypes=("float32",)),
            [("exp", "lowers", "refused when traced", ("float16",), EXP.targets, "")],
        ),
        (
            with_exp("lowers", dtypes=("float16",)),
            MAP,
            [("exp", "refused when traced", "lowers", ("float32",), EXP.targets, "")],
        ),
        (replace(MAP, results=(SORT,)), MAP, []),  # exp was not asked for before
        (replace(with_exp("lowers", targets=("sm_90",)), targets=("sm_90",)), MAP, []),  # nor was gfx942
    ],
)
def test_comparing(old: LoweringMap, new: LoweringMap, expected: list[tuple[object, ...]]) -> None:
    changes = compare_maps(old, new)
    assert [(c.primitive, c.before, c.after, c.dtypes, c.targets, c.message) for c in changes] == expected
    assert [change.stopped for change in changes] == [before == "lowers" for _, before, *_ in expected]


def test_targets_on_which_other_dtypes_changed_are_changes_of_their_own() -> None:
    ends = replace(EXP, outcome=with_exp("error").results[0].outcome, message="why")
    results = (
        replace(EXP, dtypes=("float32",), targets=("gfx942",)),
        replace(ends, dtypes=("float16",), targets=("gfx942",)),
        replace(ends, targets=("sm_90",)),
        SORT,
    )
    changes = compare_maps(MAP, replace(MAP, results=results))
    assert {(change.dtypes, change.targets) for change in changes} == {
        (("float16",), ("gfx942",)),
        (("float32", "float16"), ("sm_90",)),
    }


def test_only_like_is_compared_with_like() -> None:
    with pytest.raises(MapError, match="only one of the maps was compiled"):
        compare_maps(MAP, replace(MAP, triton="3.0"))
    with pytest.raises(MapError, match="only one of the maps was compiled"):
        compare_maps(MAP, replace(MAP, libtpu="0.1"))
    with pytest.raises(MapError, match="no target or no primitive in common"):
        compare_maps(replace(MAP, results=(EXP,)), replace(MAP, results=(SORT,)))


@pytest.mark.parametrize(
    ("old", "new", "code"), [("lowers", "lowers", 0), ("error", "lowers", 0), ("lowers", "error", 1)]
)
def test_diff_fails_when_something_stopped(old: str, new: str, code: int, tmp_path: Path) -> None:
    for name, outcome in (("old", old), ("new", new)):
        (tmp_path / name).write_text(format_map(with_exp(outcome)))
    assert main(["lowering", str(tmp_path / "new"), "--diff", str(tmp_path / "old")]) == code


ROOT = Path(__file__).parents[3]


def test_the_command_probes_this_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "map.json"
    arguments = ["is_finite", "--primitives", "sort", "--targets", "sm_80,gfx942", "--json", str(path)]
    assert main(["lowering", *arguments]) == 0
    lowering_map = read_map(path)
    assert lowering_map.jax == jax.__version__
    assert lowering_map.targets == ("sm_80", "gfx942")
    assert lowering_map.groups.keys() == {"is_finite", "sort", "sort[keys and values]"}
    assert lowering_map.cells["sort", "int8", "gfx942"].outcome == "unimplemented"  # type: ignore[index]
    printed = capsys.readouterr().out
    assert re.search(r"^ *is_finite +✓ lowers *$", printed, re.MULTILINE)
    assert re.search(r"^ *sort\[keys and values\] +✗ unimplemented *$", printed, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no/such/map.json"], "no/such/map.json is not a readable map: "),
        ([str(ROOT / "README.md")], "README.md is not a readable map: Invalid JSON"),
        (["--jax", "newest"], "'newest' is not a version of JAX, such as 0.10.2"),
        (["--jax", "0.9.2"], "JAX 0.9.2 is older than 0.10.2, the oldest that kerneltest supports"),
        (["--targets", "sm_1"], f"unknown target sm_1; known are {', '.join([*TARGETS, *TPUS])}"),
        (["--primitives", "sine"], "unknown primitive sine"),
        (["is_fnite"], "unknown primitive is_fnite; did you mean 'is_finite'?"),
        (["map.json", "--targets", "sm_90"], "apply to measuring only; maps are read in full"),
        (["--diff", "no/such/map.json"], "no/such/map.json is not a readable map: "),
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
    _one_line(capsys.readouterr().err, "pip install uv. Without --jax, the installed JAX is probed")


FAKE_UV = """#!/bin/sh
case "$*" in
*9.9.9*) echo 'error: No solution' >&2; echo '  cause: Because there is no version of jax==9.9.9' >&2; exit 1 ;;
*) while [ "$1" != --json ]; do shift; done; cat > "$2" <<'MAP'
{map}
MAP
esac
"""


def test_one_bad_version_does_not_lose_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(FAKE_UV.format(map=format_map(MAP)))
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    out = tmp_path / "map.json"
    assert main(["lowering", "--jax", "9.9.9", "--jax", "1.2.3", "--python", "3.12", "--json", str(out)]) == 2
    _one_line(capsys.readouterr().err, "JAX 9.9.9 with Python 3.12: Because there is no version of jax==9.9.9")
    assert read_map(out) == MAP


@pytest.mark.parametrize(
    ("targets", "packages"),
    [
        ("sm_90", ["jax==1.2.3", "triton"]),
        ("tpu-v5e", ["jax[tpu]==1.2.3"]),
        ("gfx942,tpu-7x", ["jax[tpu]==1.2.3", "triton"]),
        ("", ["jax[tpu]==1.2.3", "triton"]),
    ],
)
def test_what_compiles_for_the_targets_comes_with_the_version(
    targets: str, packages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv, given = tmp_path / "uv", tmp_path / "given"
    uv.write_text(f'#!/bin/sh\necho "$@" > {given}; exit 1\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["lowering", "--jax", "1.2.3", "--compile", "--targets", targets]) == 2  # no map comes back
    words = given.read_text().split()
    given_packages = [after for word, after in itertools.pairwise(words) if word == "--with"]
    assert given_packages[: len(packages)] == packages
    assert {"pydantic>=2.12", "jax>=0.10.2"} <= set(given_packages[len(packages) :])
