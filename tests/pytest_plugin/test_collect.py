"""A pairing is run once, wherever a test module or class holds it; one that nothing holds fails the run by name."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from kerneltest.execute.applicability import NO_CALL
from kerneltest.records.record_files import read_plan, read_records
from kerneltest.reproduce.rerun import judge_again
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
OPTIONS = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0", "--kt-report", "out")

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
    "made by a factory and imported": (
        {
            "pairs.py": KERNEL + "def make():\n    return PAIR(wrong)\n",
            "test_b.py": "import pairs\nvictim = pairs.make()\n",
            "test_a.py": "from test_b import victim\n",
        },
        "test_b.py::victim",
    ),
    "in a list": ({"test_a.py": KERNEL + "right = None\nvictims = [right, PAIR(wrong)]\n"}, "test_a.py::victims[1]"),
    "in a dict": ({"test_a.py": KERNEL + "victims = {'last-layer': PAIR(wrong)}\n"}, "test_a.py::victims[last-layer]"),
    "in a dict by what is no word": (
        {"test_a.py": KERNEL + "victims = {'a::b[c]': PAIR(wrong)}\n"},
        "test_a.py::victims[0]",
    ),
    "in a list and under a name": (
        {"test_a.py": KERNEL + "victims = []\nvictim = PAIR(wrong)\nvictims.append(victim)\n"},
        "test_a.py::victim",
    ),
    "with a ufunc for an oracle": ({"test_a.py": KERNEL + "victim = PAIR(np.negative)\n"}, "test_a.py::victim"),
}


# Files of a project in which nothing holds the wrong pairing, by what lacks.
LOST = {
    "the first of two oracles of one name": {
        "test_a.py": KERNEL + "@PAIR\ndef victim(x):\n    return 3 * x\n\n@PAIR\ndef victim(x):\n    return 2 * x\n"
    },
    "made and not held": {"test_a.py": KERNEL + "held = PAIR(lambda x: 2 * x)\nvictims = {PAIR(wrong)}\n"},
    "in a helper that no test imports from": {
        "pairs.py": KERNEL + "held = PAIR(lambda x: 2 * x)\nlost = PAIR(wrong)\n",
        "test_a.py": "from pairs import held\n",
    },
}


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _numbered(text: str, number: int) -> str:
    """A text in which the modules of a project have a number, so that projects can share a folder and a session."""
    return re.sub(r"\b(test_[ab]|pairs|oracles)\b", rf"\g<0>_{number}", text)


def _run_together(folder: Path, projects: Iterable[dict[str, str]]) -> str:
    for number, files in enumerate(projects):
        # An oracle that raises needs no evidence, which wrong values do.
        short = {name: text.replace("return 3 * x", "raise ValueError") for name, text in files.items()}
        _write(folder, {_numbered(name, number): _numbered(text, number) for name, text in short.items()})
    run = _pytest(folder, *OPTIONS, suite=None)
    assert run.returncode == 1, run.stdout
    return run.stdout


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, set[str]]:
    """What a session of all projects of `HELD` writes, and the pairings that it plans."""
    folder = tmp_path_factory.mktemp("held")
    shown = _run_together(folder, (files for files, _ in HELD.values()))
    return shown, {item.pairing for item in read_plan(folder / "out").items}


@pytest.mark.parametrize(("number", "name"), [*enumerate(HELD)])
def test_a_pairing_is_run_once_where_it_is_held(held: tuple[str, set[str]], number: int, name: str) -> None:
    shown, pairings = held
    files, node_id = HELD[name]
    own = {_numbered(file, number) for file in files}
    assert {each for each in pairings if each.partition("::")[0] in own} == {_numbered(node_id, number)}
    assert shown.count(f"FAILED {_numbered(node_id, number)}[interpret-float32]") == 1
    assert "never collected" not in shown


def test_a_pairing_that_nothing_holds_fails_the_run_by_name(tmp_path: Path) -> None:
    shown = _run_together(tmp_path, LOST.values())
    lost = r"^ *pairing '(?:victim|wrong)' \((\w+)\.py:\d+\) was created in \w+ but never collected"
    assert set(re.findall(lost, shown, re.MULTILINE)) == {"test_a_0", "test_a_1", "pairs_2"}, shown


def test_a_file_that_makes_a_pairing_by_a_factory_and_drops_it_is_told_when_it_runs_alone(tmp_path: Path) -> None:
    _write(tmp_path, {
        "pairs.py": KERNEL + "def make(oracle=wrong):\n    return PAIR(oracle)\n",
        "test_a.py": "import pairs\nheld = pairs.make(lambda x: 2 * x)\npairs.make()\n",
    })  # fmt: skip
    run = _pytest(tmp_path, *OPTIONS, "test_a.py", suite=None)
    assert run.returncode == 1, run.stdout
    assert "pairing 'wrong' (pairs.py:9) was created in test_a but never collected" in run.stdout


@pytest.mark.slow
def test_pairings_of_one_factory_have_ids_of_their_own_and_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, {
        "pairs.py": KERNEL + "def make():\n    return PAIR(wrong)\n",
        "test_a.py": "import pairs\none = pairs.make()\nnorms = {'two': pairs.make()}\n",
    })  # fmt: skip
    run = _pytest(tmp_path, *OPTIONS, suite=None)
    assert {"FAILED test_a.py::one[interpret-float32]", "FAILED test_a.py::norms[two][interpret-float32]"} <= {
        line.partition(" - ")[0] for line in run.stdout.splitlines()
    }
    records = list(read_records(tmp_path / "out"))
    cases = {name: {r.case for r in records if r.pairing == f"test_a.py::{name}"} for name in ("one", "norms[two]")}
    assert len(cases["one"]) == len(cases["norms[two]"]) > 0
    assert not cases["one"] & cases["norms[two]"]
    alone = _pytest(tmp_path, *OPTIONS, "test_a.py::norms[two][interpret-float32]", suite=None)
    assert "1 failed" in alone.stdout
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = next(r for r in read_records(tmp_path / "out") if r.evidence is not None and r.evidence.file)
    assert judge_again(tmp_path / "out", found.case).verdict == found.verdict


@pytest.mark.sweep(1)
@pytest.mark.parametrize("part", ["test_a.py", "--ignore=test_b.py"])
def test_a_run_of_some_files_does_not_ask_for_pairings_of_others(tmp_path: Path, part: str) -> None:
    _write(tmp_path, {
        "pairs.py": KERNEL + "one = PAIR(lambda x: 2 * x)\nother = PAIR(lambda x: x + x)\n",
        "test_a.py": "from pairs import one\n",
        "test_b.py": "from pairs import other\n",
    })  # fmt: skip
    run = _pytest(tmp_path, *OPTIONS, part, suite=None)
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


def test_a_kernel_that_never_reaches_a_pallas_call_fails_by_name(tmp_path: Path) -> None:
    plain = KERNEL.replace("return vector_add(x, x)", "return x + x") + "right = PAIR(lambda x: 2 * x)\n"
    _write(tmp_path, {"test_a.py": plain + "def test_plain():\n    pass\n"})
    run = _pytest(tmp_path, *OPTIONS, suite=None)
    assert run.returncode == 1, run.stdout
    assert re.search(r"FAILED test_a.py::right - .*pairing '<lambda>' \(test_a.py:\d+\)", run.stdout), run.stdout
    assert "it never reaches a Pallas call, so there is no kernel to test" in run.stdout
    (found,) = read_plan(tmp_path / "out").not_applicable
    assert found.reason == NO_CALL


UNWRITTEN = '''
@kt.oracle_for(double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))
def unwritten(x):
    """What it is for."""
    raise NotImplementedError("write me")
'''


def test_an_oracle_that_is_still_to_be_written_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(KERNEL + UNWRITTEN, encoding="utf-8")
    run = _pytest(tmp_path, *OPTIONS, suite=None)
    assert run.returncode == 1
    told = "pairing 'unwritten' (test_a.py:16): write its oracle, which still raises NotImplementedError"
    assert " 1 failed" in run.stdout
    assert f"\n{told}\n" in run.stdout
    assert "oracle_error" not in run.stdout
    assert read_plan(tmp_path / "out").problems == (told,)
