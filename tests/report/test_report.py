"""The page as a file: what it counts, how runs are merged, and that nothing in it comes alive."""

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.report_scale import synthesize
from kerneltest.cli import main
from kerneltest.core.verdicts import Gap, Verdict
from kerneltest.records.runs import read_all
from kerneltest.records.schema import Evidence
from kerneltest.report.html.build import render, write_html
from kerneltest.report.merge import merge
from tests.made_runs import HOSTILE, PAIRING, WRONG, hostile, made_record, made_run
from tests.pages import Page

GREEN = made_record()
NO_CUDA = made_record(backend="cuda", verdict="unavailable", case="", compared=0, message="no device")
CUDA = made_record(backend="cuda")


def _page(*folders: Path) -> Page:
    return Page(render(merge(read_all(folders))))


def test_a_green_run(tmp_path: Path) -> None:
    page = _page(made_run(tmp_path / "run", GREEN, NO_CUDA, unavailable={"cuda": "no device"}))
    assert "✓ No finding" in page.words
    assert "2 planned cells = 1 pass + 1 unavailable" in page.words
    assert "1 case run, 4 elements compared" in page.words
    assert "cuda no device" in page.words


def test_a_finding_has_evidence_place_and_reproduction(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "run", WRONG)
    (folder / "cases").mkdir()
    (folder / "cases/reproduce_c1-interpret.py").write_text("print('again')")
    page = _page(folder)
    assert "✗ 1 finding" in page.words
    (finding,) = page.data["findings"]
    assert finding["at"]["index"] == [3]
    assert (finding["picture"]["wrong"], finding["inputs"][0]["values"][2]) == ("0001", "nan")
    assert finding["code"] == "print('again')"
    assert finding["commands"] == [
        f'pytest -p kerneltest --kt-depth quick --kt-seed 0 --kt-backends interpret "{PAIRING}[i]"',
        "kerneltest repro run c1 --backend interpret",
    ]
    assert "from suites.test_t import p" in finding["python"]


@pytest.mark.parametrize("name", ["secret.py", "cases/secret.py", "plan.json", "cases/reproduce_c1-x.txt"])
def test_no_other_file_than_a_script_of_the_run_gets_into_a_page(tmp_path: Path, name: str) -> None:
    assert WRONG.evidence is not None
    folder = made_run(tmp_path / "run", replace(WRONG, evidence=replace(WRONG.evidence, script=name)))
    (folder / "cases").mkdir()
    for secret in ("secret.py", "cases/secret.py", "cases/reproduce_c1-x.txt"):
        (folder / secret).write_text("secret")
    assert "code" not in _page(folder).data["findings"][0]


def test_a_script_that_is_a_link_out_of_the_run_does_not_get_into_a_page(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "run", WRONG)
    (tmp_path / "secret.py").write_text("secret")
    (folder / "cases").mkdir()
    (folder / "cases/reproduce_c1-interpret.py").symlink_to(tmp_path / "secret.py")
    assert "code" not in _page(folder).data["findings"][0]


def test_a_gap_is_never_green(tmp_path: Path) -> None:
    page = _page(made_run(tmp_path / "run", GREEN, planned=2))
    assert "? INCOMPLETE" in page.words
    assert "No finding" not in page.words
    assert f"no verdict: {PAIRING} / interpret / float32 / normal" in page.words
    assert "1 planned cells = 1 missing" in page.words


def test_a_cell_that_compared_nothing_is_not_shown_as_a_pass(tmp_path: Path) -> None:
    page = _page(made_run(tmp_path / "run", made_record(compared=0), made_record(family="ones")))
    assert "1 pass + 1 nothing compared" in page.words
    assert "∅ 1" in page.words
    assert "No finding" not in page.words


def test_what_comes_from_outside_is_text(tmp_path: Path) -> None:
    record, plan = hostile()
    page = _page(made_run(tmp_path / "run", record, **plan))
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert page.text.count(HOSTILE) >= 10
    (artifacts,) = [each for pairing in page.data["pairings"] for each in pairing["artifacts"]]
    assert artifacts[2] == [f"artifacts/{HOSTILE}"]


def test_the_page_needs_nothing_from_outside_and_forbids_it(tmp_path: Path) -> None:
    page = _page(made_run(tmp_path / "run", WRONG))
    assert not any(name == "src" for name, _ in page.attributes)
    assert all((value or "").startswith("#") for name, value in page.attributes if name == "href")
    (policy,) = [value for value in dict.fromkeys(v for _, v in page.attributes) if value and "default-src" in value]
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page.source, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_runs_of_several_machines_make_one_matrix(tmp_path: Path) -> None:
    here = made_run(tmp_path / "here", GREEN, NO_CUDA, unavailable={"cuda": "no device"}, started="2026-02")
    there = made_run(tmp_path / "there", CUDA, started="2026-01")
    page = _page(here, there)
    assert "2 planned cells = 2 pass" in page.words
    assert "✓ No finding" in page.words
    assert "cuda in here: no device (the matrix shows there)" in page.words


@pytest.mark.parametrize("given", [("old", "new"), ("new", "old")])
def test_the_newest_run_counts_and_older_ones_are_history(tmp_path: Path, given: tuple[str, str]) -> None:
    made_run(tmp_path / "old", WRONG, started="2026-01-01T00:00:00+00:00")
    made_run(tmp_path / "new", GREEN, started="2026-01-02T00:00:00+00:00")
    page = _page(*(tmp_path / name for name in given))
    assert "1 planned cells = 1 pass" in page.words
    assert "✓ No finding" in page.words
    assert "findings by run: old 1 of 1, new 0 of 1" in page.words


def test_an_incomplete_run_that_is_superseded_does_not_make_the_page_incomplete(tmp_path: Path) -> None:
    old = made_run(tmp_path / "old", GREEN, planned=2, started="2026-01-01")
    new = made_run(tmp_path / "new", GREEN, started="2026-01-02")
    page = _page(old, new)
    assert "✓ No finding" in page.words
    assert "INCOMPLETE (all of it superseded)" in page.words
    assert "? INCOMPLETE" in _page(new, made_run(tmp_path / "newest", CUDA, planned=2, started="2026-01-03")).words


def test_the_command_merges_runs_and_says_if_they_are_green(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    green, red = made_run(tmp_path / "green", GREEN), made_run(tmp_path / "red", replace(WRONG, backend="cuda"))
    out = tmp_path / "page.html"
    assert main(["report", str(green), "-o", str(out)]) == 0
    assert main(["report", str(green), str(red), "-o", str(out)]) == 1
    assert "2 planned cells = 1 pass + 1 mismatch" in Page(out.read_text()).words
    assert main(["report", str(tmp_path), "-o", str(out)]) == 1  # both are found below it
    assert main(["report", str(tmp_path / "none"), "-o", str(out)]) == 2
    assert "none: no such folder" in capsys.readouterr().err


def test_every_verdict_has_a_letter_of_its_own() -> None:
    endings = [*Verdict, *Gap]
    assert all(len(ending.letter) == 1 for ending in endings)
    assert len({ending.letter for ending in endings}) == len(endings)


def test_findings_beyond_the_limit_lose_their_details_and_not_their_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerneltest.report.html.findings.MOST_FINDINGS", 2)
    alike = [replace(WRONG, case=f"c{i}", evidence=Evidence()) for i in range(3)]
    other = replace(WRONG, case="c9", family="ones")
    data = _page(made_run(tmp_path / "run", *alike, other, planned=3)).data
    assert [finding["case"] for finding in data["findings"]] == ["c9", "c0"]  # the first of each kind
    assert len([v for v in data["rows"]["verdict"] if data["verdicts"][v]["name"] == "mismatch"]) == 4


def test_ten_thousand_cases_fit_into_a_megabyte_and_a_half(tmp_path: Path) -> None:
    page_file = write_html(tmp_path / "report.html", read_all([synthesize(tmp_path / "run", 10_000)]))
    assert page_file.stat().st_size < 1.5e6
