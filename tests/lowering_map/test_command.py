"""`kerneltest lowering`: measuring here and with other versions of JAX, and one line for bad input."""

import re
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from kerneltest.cli import main
from kerneltest.core.targets import TARGETS
from kerneltest.lowering_map.map import dumps, read
from tests.lowering_map.sample_maps import MAP

ROOT = Path(__file__).parents[2]


def test_the_command_probes_this_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A target that is declared for the backends is one for the probe, too.
    monkeypatch.setitem(TARGETS, "sm_89", replace(TARGETS["sm_90"], id="sm_89", device_kind="NVIDIA L4", arch=89))
    path = tmp_path / "map.json"
    arguments = ["--primitives", "is_finite,sort", "--targets", "sm_89,gfx942", "--json", str(path)]
    assert main(["lowering", *arguments]) == 0
    lowering_map = read(path)
    assert lowering_map.jax == jax.__version__
    assert lowering_map.targets == ("sm_89", "gfx942")
    assert lowering_map.groups.keys() == {"is_finite", "sort", "sort[keys and values]"}
    assert lowering_map.cells["sort", "int8", "gfx942"].outcome == "unimplemented"  # type: ignore[index]
    printed = capsys.readouterr().out
    assert re.search(r"^ *is_finite +✓ lowers *$", printed, re.MULTILINE)
    assert re.search(r"^ *sort\[keys and values\] +✗ unimplemented *$", printed, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no/such/map.json"], "no/such/map.json: no readable map: "),
        ([str(ROOT / "README.md")], "README.md: no readable map: Invalid JSON"),
        (["--jax", "newest"], "'newest' is not a version of JAX, such as 0.10.2"),
        (["--jax", "0.4.30"], "JAX 0.4.30 is older than 0.4.35, the oldest that can be probed"),
        (["--targets", "sm_1"], f"unknown target sm_1; known are {', '.join(TARGETS)}"),
        (["--primitives", "sine"], "this environment: unknown primitive sine"),
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
