"""Texts of kernels, oracles and backends reach the terminal without control characters, and with all letters."""

import unicodedata
from pathlib import Path

import pytest

from kerneltest.core.media import for_terminal, lines_for_terminal
from tests import forked
from tests.pytest_plugin.test_plugin import _pytest

LETTERS = "höß 漢字 ±×"
SUITE = f"""
import kerneltest as kt
from kernels.vector_add import vector_add

SAID = "\\x1b[31mred\\x1b]0;title\\x07 \\x9b2J \\x08\\x7f \\u202e {LETTERS}\\r\\nsecond \\x1b[0m line\\ud800"
declared = dict(x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))

def double(x):
    return vector_add(x, x)

def refuse(x):
    raise ValueError(SAID)

def slip(x):
    return vector_add(x, x + 1)

@kt.oracle_for(refuse, **declared)
def of_a_kernel(x):
    return 2 * x

@kt.oracle_for(double, **declared)
def of_an_oracle(x):
    raise ValueError(SAID)

@kt.oracle_for(slip, **declared)
def of_neither(x):
    return 2 * x

def test_plain():
    pass
"""


COMMANDS = {
    "summary": ("summary", "out"),
    "markdown": ("summary", "out", "--markdown", "page.md"),
    "diff": ("diff", "out", "out"),
}


def _controls(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}


def test_a_control_character_is_a_sign_and_a_letter_a_letter() -> None:
    assert for_terminal(f"a\x1b[1m\x9b\u202e\r\n{LETTERS}") == f"a�[1m�� {LETTERS}"
    assert lines_for_terminal(f"a\x1b\n{LETTERS}\r\nb") == f"a�\n{LETTERS} \nb"


@pytest.mark.parametrize("more", [(), ("-n", "2", "--kt-minimize", "0")], ids=["alone", "xdist"])
def test_no_escape_sequence_reaches_the_terminal(tmp_path: Path, more: tuple[str, ...]) -> None:
    options = ("--kt-report", "out", "--kt-backends", "interpret", "--kt-depth", "quick", "-ra", "-v", "--color=no")
    run = _pytest(tmp_path, *options, *more, suite=SUITE)
    assert run.returncode == 1, run.stdout + run.stderr
    said = {"pytest": run.stdout + run.stderr}
    for name, words in COMMANDS.items():
        shown = forked.run(tmp_path, "kerneltest", *words)
        said[name] = shown.stdout + shown.stderr
    said["markdown"] += (tmp_path / "page.md").read_text(encoding="utf-8")
    assert {name: _controls(text) for name, text in said.items()} == {name: set() for name in said}
    assert all(letter in said[name] for name in ("pytest", "summary", "markdown") for letter in LETTERS.split())
