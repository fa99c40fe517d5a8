"""`--kt-mutate`: a run that also judges the mutants of its pairings, and what becomes of the scores."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from kerneltest.cli import main
from kerneltest.records.record_files import RecordWriter, read_scores
from kerneltest.records.runs import overlay_runs, read_all, read_runs
from kerneltest.records.schema import MutantTrial, MutationScore, ScoredMutant
from kerneltest.report.html.page import write_html
from kerneltest.report.text.terminal_summary import mutant_lines
from tests import forked
from tests.made_runs import HOSTILE, made_record, made_run
from tests.plugins import PLUGINS
from tests.written import PAIRING

SUITE = """
import jax
from jax.experimental import pallas as pl
import kerneltest as kt

def _scale(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 0.125 + 1.0

def scale(x):
    return pl.pallas_call(_scale, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

def declared(oracle, **more):
    lengths = dict(n=kt.dim(values=(3,)))
    return kt.oracle_for(scale, x=kt.array("n", ("float32", "float16")), dims=lengths, **more)(oracle)

strict = declared(lambda x: x * 0.125 + 1.0)
lenient = declared(lambda x: x * 0.125 + 1.0, tolerance=kt.tolerance.absolute(0.5, "a fixture that is too lenient"))
wrong = declared(lambda x: x * 0.25 + 1.0)

def test_plain():
    pass
"""
OPTIONS = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0")


def _pytest(folder: Path, *arguments: str) -> CompletedProcess[str]:
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    return forked.run(folder, "pytest", *PLUGINS, *OPTIONS, *arguments)


def _scores(folder: Path) -> dict[str, MutationScore]:
    return {each.pairing.partition("::")[2]: each for each in read_scores(folder)}


def test_each_pairing_that_passes_is_scored_after_its_items(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "--kt-mutate", "--kt-report", "out", "-v")
    order = [line.split()[0].partition("::")[2] for line in run.stdout.splitlines() if "[mutants] " in line]
    assert order == ["strict[mutants]", "lenient[mutants]", "wrong[mutants]"]
    assert run.stdout.index("lenient[interpret-float16] ") < run.stdout.index("lenient[mutants] ")
    scores = _scores(tmp_path / "out")
    assert scores["strict"].share == 1.0
    assert scores["lenient"].survivors
    assert scores["wrong"].problem == "the pairing itself has failed"
    for line in mutant_lines([*scores.values()]):
        assert f"\n{line}\n" in run.stdout
    survivor = scores["lenient"].survivors[0].mutant
    assert survivor.place == "test_suite.py:7"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert f"<p>{scores['lenient']}</p>" in page
    assert 'id="view-mutants"' in page


def test_workers_share_the_mutants_and_a_low_score_fails_if_asked(tmp_path: Path) -> None:
    asked = (
        "--kt-mutate",
        "--kt-mutate-least",
        "0.9",
        "--kt-report",
        "out",
        "-k",
        "(strict or lenient) and not float16",
    )
    run = _pytest(tmp_path, *asked, "-n", "2", "--deselect", "test_suite.py::test_plain")
    assert run.returncode == 1
    assert "FAILED test_suite.py::lenient[mutants]" in run.stdout
    assert "--kt-mutate-least asks for 90.0%" in run.stdout
    assert "1 failed, 3 passed" in run.stdout
    (merged,) = read_runs(tmp_path / "out")
    assert merged.reconciled.green
    assert {score.pairing for score in merged.mutants} == {"test_suite.py::strict", "test_suite.py::lenient"}


def test_a_quiet_run_has_a_line_for_each_pairing_and_fails_for_no_survivor(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "--kt-mutate", "-k", "lenient", "-q")
    assert run.returncode == 0
    assert "test_suite.py::lenient: " in run.stdout
    assert "survived:" not in run.stdout


def test_a_run_that_does_not_ask_has_no_mutants(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "-k", "strict", "--kt-report", "out")
    assert "mutants" not in run.stdout
    assert not [*(tmp_path / "out").glob("mutants-*")]


def test_a_least_score_without_mutants_is_refused(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "--kt-mutate-least", "0.9")
    assert "--kt-mutate-least needs --kt-mutate" in run.stderr


LOOP = """
import jax
from jax import lax
from jax.experimental import pallas as pl
import kerneltest as kt

def halve(x):
    def body(x_ref, o_ref):
        o_ref[...] = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] * 0.5), (0, x_ref[...]))[1]
    return pl.pallas_call(body, out_shape=x)(x)

halved = kt.oracle_for(halve, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))(lambda x: x / 4)
"""
HURRIED = """
from unittest.mock import patch
from kerneltest.execute import watchdog
from kerneltest.extensions.mutation.plugin import MutantItems

judge, limit_time = MutantItems.judge, watchdog.limit_time

def judge_hurriedly(self, item):
    with patch.object(watchdog, "limit_time", lambda journal, seconds: limit_time(journal, seconds / 100)):
        return judge(self, item)

MutantItems.judge = judge_hurriedly
"""


def test_a_mutant_that_never_ends_is_found_within_the_limit(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HURRIED, encoding="utf-8")  # not the pairing, which must pass
    (tmp_path / "test_suite.py").write_text(LOOP, encoding="utf-8")
    options = ("--kt-mutate", "--kt-timeout", "100", "--kt-report", "out")
    run = forked.start(tmp_path, "pytest", *PLUGINS, *OPTIONS, *options)
    said = run.said(600)
    assert run.returncode == 0, said
    assert _scores(tmp_path / "out")["halved"].share == 1.0


@pytest.mark.slow
def test_shards_divide_the_mutants_and_merging_joins_the_scores(tmp_path: Path) -> None:
    asked = ("--kt-mutate", "-k", "strict")
    assert _pytest(tmp_path, *asked, "--kt-report", "whole").returncode == 0
    for number in ("1", "2"):  # each has one of the dtypes
        assert _pytest(tmp_path, *asked, "--kt-shard", f"{number}/2", "--kt-report", number).returncode == 0
    assert sorted(len(_scores(tmp_path / number)) for number in ("1", "2")) == [0, 1]
    merged = forked.run(tmp_path, "kerneltest", "merge", "1", "2", "-o", "both")
    assert _scores(tmp_path / "both") == _scores(tmp_path / "whole")
    assert "test_suite.py::strict: " in merged.stdout


def test_what_has_not_changed_is_left_out_with_its_mutants(tmp_path: Path) -> None:
    asked = ("--kt-mutate", "-k", "strict and float32")
    assert "strict: " in _pytest(tmp_path, *asked).stdout
    again = _pytest(tmp_path, *asked, "--kt-changed")
    assert "--kt-changed left out 1 item" in again.stdout
    assert " passed" not in again.stdout


def _score(killed: int, **more: object) -> MutationScore:
    trial = MutantTrial(ScoredMutant("kernels/k.py", 4, "`-` for `+`"), "survived")
    return MutationScore(**{"pairing": PAIRING, "killed": killed, "survived": 1, "mutants": (trial,), **more})


def test_a_page_shows_the_last_score_of_each_pairing(tmp_path: Path) -> None:
    for name, score in (("old", _score(1)), ("new", _score(3))):
        writer = RecordWriter(made_run(tmp_path / name, made_record()), "main")
        writer.write_score(score)
        writer.close()
    merged = overlay_runs(read_all([tmp_path / "old", tmp_path / "new"]))
    assert merged.mutants == (_score(3),)


@pytest.mark.parametrize(
    ("killed", "words", "colour"), [(9, "90.0% of 10", "brightgreen"), (2, "66.7% of 3", "orange")]
)
def test_a_badge_shows_the_score(tmp_path: Path, killed: int, words: str, colour: str) -> None:
    run, badge, page = made_run(tmp_path / "run", made_record()), tmp_path / "badge.json", tmp_path / "page.md"
    writer = RecordWriter(run, "main")
    writer.write_score(_score(killed))
    writer.close()
    assert main(["summary", str(run), "--mutants-badge", str(badge), "--markdown", str(page)]) == 0
    shown = {"schemaVersion": 1, "label": "mutants found", "message": words, "color": colour}
    assert json.loads(badge.read_text(encoding="utf-8")) == shown
    assert "### Mutants" in page.read_text(encoding="utf-8")


def test_a_badge_of_a_run_without_mutants_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_run(tmp_path / "run", made_record())
    assert main(["summary", str(run), "--mutants-badge", str(tmp_path / "badge.svg")]) == 2
    assert "no mutation scores: run pytest with --kt-mutate" in capsys.readouterr().err


def test_survivors_that_read_alike_are_counted() -> None:
    trials = tuple(MutantTrial(ScoredMutant("k.py", line, "x"), "survived") for line in (1, 1, 2, 3, 4, 5, 6, 6))
    lines = [*mutant_lines([_score(8, survived=8, mutants=trials, equivalent=2)])]
    assert lines[0] == f"{PAIRING}: 8 of 16 mutants found, 50.0%; 2 equivalent"
    assert lines[1:3] == ["  k.py:1  survived: x (2 times)", "  k.py:2  survived: x"]
    assert lines[-1] == "  and 2 more: the report shows them"
    assert [*mutant_lines([_score(0, problem="it is declared only for cuda")])] == [
        f"{PAIRING}: no mutants: it is declared only for cuda"
    ]


@pytest.mark.parametrize("field", ["pairing", "problem"])
def test_markup_in_a_score_is_no_markup_on_the_page(tmp_path: Path, field: str) -> None:
    run = made_run(tmp_path / "run", made_record())
    trial = MutantTrial(ScoredMutant(HOSTILE, 4, HOSTILE), "survived", HOSTILE)
    writer = RecordWriter(run, "main")
    writer.write_score(_score(1, mutants=(trial,), **{field: HOSTILE}))
    writer.close()
    page = write_html(tmp_path / "page.html", read_all([run])).read_text(encoding="utf-8")
    assert "window.pwned" in page
    assert "<script>window.pwned" not in page
