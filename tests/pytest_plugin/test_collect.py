"""A pairing is run once, wherever a test module or class holds it; one that nothing holds fails the run by name."""

import re
from pathlib import Path

import pytest

from kerneltest.records.io import read_plan
from tests.pytest_plugin.test_plugin import _pytest

KERNEL = """
import numpy as np
import kerneltest as kt
from kernels.vector_add import vector_add

def double(x):
    return vector_add(x, x)

def wrong(x):
    return 3 * x

PAIR = kt.oracle_for(
    double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))), tolerance=kt.tolerance.exact()
)
"""
OPTIONS = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out")

# Files of a project whose one pairing is wrong on purpose, and the node id under which it is run.
HELD = {
    "in a class": ({"test_a.py": KERNEL + "class TestIt:\n    victim = PAIR(wrong)\n"}, "test_a.py::TestIt::victim"),
    "by a call": ({"test_a.py": KERNEL + "victim = PAIR(wrong)\n"}, "test_a.py::victim"),
    "with an oracle of another module": (
        {"oracles.py": KERNEL, "test_a.py": "import oracles\nvictim = oracles.PAIR(oracles.wrong)\n"},
        "test_a.py::victim",
    ),
    "by a factory": (
        {
            "pairs.py": KERNEL + "def make():\n    return PAIR(wrong)\n",
            "test_a.py": "import pairs\nvictim = pairs.make()\n",
        },
        "test_a.py::victim",
    ),
    "imported from a helper": (
        {"pairs.py": KERNEL + "victim = PAIR(wrong)\n", "test_a.py": "from pairs import victim\n"},
        "test_a.py::victim",
    ),
    "imported from a conftest": (
        {"conftest.py": KERNEL + "victim = PAIR(wrong)\n", "test_a.py": "from conftest import victim\n"},
        "test_a.py::victim",
    ),
    "imported twice": (
        {
            "pairs.py": KERNEL + "victim = PAIR(wrong)\n",
            "test_a.py": "from pairs import victim\n",
            "test_b.py": "from pairs import victim\n",
        },
        "test_a.py::victim",
    ),
    "imported from the test module that declares it": (
        {"test_b.py": KERNEL + "victim = PAIR(wrong)\n", "test_a.py": "from test_b import victim\n"},
        "test_b.py::victim",
    ),
    "with a ufunc for an oracle": (
        {"test_a.py": KERNEL + "victim = PAIR(np.negative)\n"},
        "test_a.py::victim",
    ),
}


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", HELD)
def test_a_pairing_is_run_once_where_it_is_held(tmp_path: Path, name: str) -> None:
    files, node_id = HELD[name]
    _write(tmp_path, files)
    run = _pytest(tmp_path, *OPTIONS, suite=None)
    assert run.returncode == 1, run.stdout
    assert {item.pairing for item in read_plan(tmp_path / "out").items} == {node_id}
    assert f"FAILED {node_id}[interpret-float32]" in run.stdout
    assert "run nowhere" not in run.stdout


LOST = {
    "the first of two oracles of one name": {
        "test_a.py": KERNEL + "@PAIR\ndef victim(x):\n    return 3 * x\n\n@PAIR\ndef victim(x):\n    return 2 * x\n"
    },
    "made and not held": {"test_a.py": KERNEL + "held = PAIR(lambda x: 2 * x)\nvictims = [PAIR(wrong)]\n"},
    "in a helper that no test imports from": {
        "pairs.py": KERNEL + "held = PAIR(lambda x: 2 * x)\nlost = PAIR(wrong)\n",
        "test_a.py": "from pairs import held\n",
    },
}


@pytest.mark.parametrize("name", LOST)
def test_a_pairing_that_nothing_holds_fails_the_run_by_name(tmp_path: Path, name: str) -> None:
    _write(tmp_path, LOST[name])
    run = _pytest(tmp_path, *OPTIONS, suite=None)
    assert run.returncode == 1, run.stdout
    assert re.search(r"pairing '(victim|wrong)' \(\w+\.py:\d+\) was made and is run nowhere", run.stdout)


def test_a_run_of_one_file_does_not_ask_for_pairings_of_others(tmp_path: Path) -> None:
    _write(tmp_path, {
        "pairs.py": KERNEL + "one = PAIR(lambda x: 2 * x)\nother = PAIR(lambda x: x + x)\n",
        "test_a.py": "from pairs import one\n",
        "test_b.py": "from pairs import other\n",
    })  # fmt: skip
    run = _pytest(tmp_path, *OPTIONS, "test_a.py", suite=None)
    assert run.returncode == 0, run.stdout


def test_a_module_that_is_skipped_is_told_as_skipped(tmp_path: Path) -> None:
    skip = "import pytest\npytestmark = pytest.mark.skip(reason='slow ones today not')\n"
    _write(tmp_path, {
        "test_a.py": KERNEL + skip + "lazy = PAIR(wrong)\n",
        "test_b.py": KERNEL + "right = PAIR(lambda x: 2 * x)\n",
    })  # fmt: skip
    run = _pytest(tmp_path, *OPTIONS, suite=None)
    assert run.returncode == 0, run.stdout
    assert "INCOMPLETE" not in run.stdout
    assert "skipped: slow ones today not" in (tmp_path / "out" / "records-main.jsonl").read_text()


def test_a_kernel_without_a_pallas_call_is_not_applicable_and_compares_nothing(tmp_path: Path) -> None:
    plain = KERNEL.replace("return vector_add(x, x)", "return x + x") + "right = PAIR(lambda x: 2 * x)\n"
    _write(tmp_path, {"test_a.py": plain + "def test_plain():\n    pass\n"})
    run = _pytest(tmp_path, *OPTIONS, suite=None)
    assert run.returncode == 1, run.stdout
    assert "nothing was compared in the whole run" in run.stdout
    (found,) = read_plan(tmp_path / "out").not_applicable
    assert "holds no Pallas call" in found.reason
