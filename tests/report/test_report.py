"""The page as a file: what it counts, how runs are merged, and that nothing in it comes alive."""

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.report_scale import synthesize
from kerneltest.cli import main
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Gap, Verdict
from kerneltest.records.evidence import Evidence
from kerneltest.records.record_files import RecordWriter
from kerneltest.records.runs import overlay_runs, read_all
from kerneltest.records.schema import ConfirmedCondition, FaultLocation, Record, Reproducer
from kerneltest.report.html import finding_data
from kerneltest.report.html import page as page_module
from kerneltest.report.html.page import render, write_html
from tests.made_runs import HOSTILE, PAIRING, WRONG, hostile, made_record, made_run
from tests.pages import Page

GREEN = made_record()
NO_CUDA = made_record(backend="cuda", verdict="unavailable", case="", compared=0, message="no device")
CUDA = made_record(backend="cuda")


def _page(*folders: Path) -> Page:
    return Page(render(overlay_runs(read_all(folders))))


def test_notes_keep_the_case_of_the_paths_that_they_start_with(tmp_path: Path) -> None:
    page = write_html(tmp_path / "report.html", read_all([made_run(tmp_path / "run", made_record())]))
    assert "text-transform" not in page.read_text(encoding="utf-8")


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
    assert "✗ 1 suspect (1 finding)" in page.words
    (finding,) = page.data["findings"]
    assert finding["at"]["index"] == [3]
    assert (finding["picture"]["wrong"], finding["inputs"][0]["values"][2]) == ("0001", "nan")
    assert finding["code"] == "print('again')"
    assert finding["commands"] == [
        f'pytest -p kerneltest --kt-depth quick --kt-seed 0 --kt-backends interpret "{PAIRING}[i]"',
        "kerneltest repro run c1 --backend interpret",
    ]
    assert "from suites.test_t import p" in finding["python"]


BORN = FaultLocation("kernels/k.py:4", "return x", "x is wrong", confirmed=False, alternatives=("kernels/k.py:9",))


def _smallest(folder: Path, origin: Record, record: Record, cut: str = "") -> Path:
    writer = RecordWriter(folder, "smallest")
    writer.write_reproducer(Reproducer(origin.case, record, 1, 9, True, BORN, cut))
    writer.close()
    return folder


def test_a_suspect_has_its_smallest_case_its_place_and_where_it_shows(tmp_path: Path) -> None:
    passing = made_record(case="c2", family="ones", dims={"n": 2}, signature="n=2")
    small = replace(WRONG, case="c9", signature="n=9", dims={"n": 9})
    page = _page(_smallest(made_run(tmp_path / "run", WRONG, passing), WRONG, small))
    assert page.words.count("1 wrong values 1 of 2 cases on interpret") == 1
    assert "possible root cause: kernels/k.py:4 return x" in page.words  # without scripts
    (suspect,) = page.data["suspects"]
    assert suspect["signature"] == "n=9"
    assert (suspect["picture"]["wrong"], suspect["inputs"][0]["name"]) == ("0001", "x")
    assert suspect["fault"] == ["kernels/k.py:4", "return x", "x is wrong", False, ["kernels/k.py:9"]]
    assert suspect["conditions"] == []  # many would fit a single signature
    assert suspect["strips"] == [["n", [[1, 1, 1], [2, 0, 1]], 0], ["family", [["normal", 1, 1], ["ones", 0, 1]], 0]]
    assert suspect["commands"][0] == "kerneltest repro run c9 --backend interpret"
    assert f"{PAIRING}[i]" in suspect["commands"][1]
    assert "case='c1'" in suspect["python"]  # the smallest case is none that a plan has
    assert [page.data["rows"]["suspect"][row] for *_, row in suspect["cases"]] == [0]
    assert sorted(page.data["rows"]["suspect"]) == [-1, 0]


def test_a_suspect_has_its_condition_with_counts(tmp_path: Path) -> None:
    place = [(n, dict(case=f"n{n}", signature=f"n={n}", dims={"n": n})) for n in (1, 2, 3, 4, 5, 6)]
    run = made_run(tmp_path / "run", *(replace(WRONG, **at) if n > 3 else made_record(**at) for n, at in place))
    (suspect,) = _page(run).data["suspects"]
    assert suspect["title"] == "wrong values where n is over 3"
    assert suspect["conditions"] == ["n is over 3: 3 of 3 such signatures fail; 3 others do not"]
    writer = RecordWriter(run, "smallest")
    tested = ConfirmedCondition("n is over 3", 46, (), "x holds a NaN")
    smallest = replace(WRONG, case="n4", signature="n=4", dims={"n": 4})
    writer.write_reproducer(Reproducer("n4", smallest, 1, 9, True, condition=tested))
    writer.close()
    (suspect,) = _page(run).data["suspects"]
    assert suspect["title"] == "wrong values where x holds a NaN and n is over 3"
    assert suspect["conditions"][1:] == ["x holds a NaN and n is over 3: confirmed with 46 cases made to test it"]


@pytest.mark.parametrize(("name", "shown"), [("cases/cut_c9-interpret.py", True), ("cases/other.py", False)])
def test_a_script_of_the_operations_that_fail_is_shown_and_no_other_file(
    tmp_path: Path, name: str, shown: bool
) -> None:
    folder = _smallest(made_run(tmp_path / "run", WRONG), WRONG, replace(WRONG, case="c9"), name)
    (folder / "cases").mkdir()
    (folder / name).write_text("print('cut')")
    (suspect,) = _page(folder).data["suspects"]
    assert suspect.get("reduced") == ([name, "print('cut')"] if shown else None)


def test_a_bug_that_two_runs_show_is_one_suspect(tmp_path: Path) -> None:
    there = replace(WRONG, backend="simulate:sm_90", tier=Tier.SIMULATE)
    small = replace(there, case="c9")
    page = _page(made_run(tmp_path / "a", WRONG), _smallest(made_run(tmp_path / "b", there, seed=7), there, small))
    assert "✗ 1 suspect (2 findings)" in page.words
    (suspect,) = page.data["suspects"]
    assert suspect["strips"] == [["backend", [["interpret", 1, 1], ["simulate:sm_90", 1, 1]], 0]]
    assert suspect["commands"][0] == "kerneltest repro b c9 --backend simulate:sm_90"
    assert "--kt-seed 7 --kt-backends simulate:sm_90" in suspect["commands"][1]


# Beside a finding of wrong values, records of other backends; what the strip of backends has.
STRIPS = [
    ([], None),
    ([made_record(backend="simulate:sm_90", tier=Tier.SIMULATE)], [["interpret", 1, 1], ["simulate:sm_90", 0, 1]]),
    ([made_record(backend="lower:sm_90", tier=Tier.LOWER)], None),  # which says nothing of values
    ([made_record(backend="cuda", tier=Tier.DEVICE, verdict=Verdict.UNAVAILABLE)], None),
]


@pytest.mark.parametrize(("others", "shown"), STRIPS)
def test_a_backend_is_compared_where_it_can_say_something(
    tmp_path: Path, others: list[Record], shown: list[list[object]] | None
) -> None:
    (suspect,) = _page(made_run(tmp_path / "run", WRONG, *others)).data["suspects"]
    assert {name: values for name, values, _ in suspect["strips"]}.get("backend") == shown


def test_a_finding_of_a_whole_cell_is_no_suspect_and_is_shown(tmp_path: Path) -> None:
    page = _page(
        made_run(tmp_path / "run", WRONG, made_record(verdict="crash", case="", family="ones", message="died"))
    )
    assert "✗ 1 suspect (2 findings)" in page.words
    assert "Findings outside of suspects" in page.words
    assert "K crash" in page.words


def test_very_many_suspects_are_counted_and_their_texts_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST_SUSPECTS", 2)
    long, passing = (
        replace(each, dims={f"{i}" * 400: i + n for i in range(60)}, statics={f"{i}": f"{n}" for i in range(60)})
        for n, each in enumerate((replace(WRONG, message="x" * 20_000), made_record(case="c0", signature="n=0")))
    )
    many = [replace(each, pairing=f"t.py::p{i}") for i in range(5) for each in (long, passing)]
    page = _page(made_run(tmp_path / "run", *many, planned=2))
    assert len(page.data["suspects"]) == 2
    assert sorted(set(page.data["rows"]["suspect"])) == [-1, 0, 1]
    assert "and 3 more suspects in the records" in page.words
    assert all(len(each["strips"]) == 16 for each in page.data["suspects"])
    assert all(len(name) <= 300 for each in page.data["suspects"] for name, *_ in each["strips"])
    assert "x" * 301 not in page.source


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
    assert f"no verdict: {PAIRING} / interpret (1 cell)" in page.words
    assert "1 planned cells = 1 missing" in page.words


def test_a_cell_that_compared_nothing_is_not_shown_as_a_pass(tmp_path: Path) -> None:
    page = _page(made_run(tmp_path / "run", made_record(compared=0), made_record(family="ones")))
    assert "1 pass + 1 nothing compared" in page.words
    assert "∅ 1" in page.words
    assert "No finding" not in page.words


def test_facts_of_compiled_code_are_columns_and_those_of_one_language_only_where_a_kernel_has_them(
    tmp_path: Path,
) -> None:
    plain = {"registers": 40, "spills": 0}
    page = _page(made_run(tmp_path / "plain", made_record(compiler_metrics={"k": plain})))
    assert page.data["facts"][:2] == ["registers", "shared memory"]
    assert "TMEM columns" not in page.data["facts"]
    metrics = {"k": {**plain, "TMEM columns": 128, "cluster x": 2}}
    page = _page(made_run(tmp_path / "mosaic", made_record(compiler_metrics=metrics)))
    (pairing,) = page.data["pairings"]
    *_, numbers = pairing["compiled"][0]
    shown = dict(zip(page.data["facts"], numbers, strict=True))
    assert (shown["registers"], shown["TMEM columns"], shown["cluster x"], shown["shared memory"]) == (40, 128, 2, 0)
    assert "barriers" not in shown


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


RACE = replace(WRONG, verdict=Verdict.RACE)
WORST_SHOWN = [
    ((WRONG, {}), (GREEN, {}), "✗ 1 suspect (1 finding)", "p on interpret: mismatch in a, pass in b"),
    ((GREEN, {"planned": 2}), (GREEN, {}), "? INCOMPLETE", "p on interpret: missing in a, pass in b"),
    ((WRONG, {}), (RACE, {}), "✗ 1 suspect (1 finding)", "p on interpret: race in b, mismatch in a"),
    ((made_record(verdict="xfail"), {}), (GREEN, {}), "✓ No finding", "p on interpret: xfail in a, pass in b"),
    ((made_record(verdict="unavailable"), {}), (GREEN, {}), "✓ No finding", ""),
    ((GREEN, {}), (GREEN, {}), "✓ No finding", ""),
]  # fmt: skip


@pytest.mark.parametrize("dated", ["2026-01-01T00:00:00+00:00", "2099-01-01T00:00:00+00:00", "9999-12-31", "", HOSTILE])
@pytest.mark.parametrize("given", [("a", "b"), ("b", "a")], ids="".join)
@pytest.mark.parametrize(("a", "b", "state", "split"), WORST_SHOWN)
def test_no_clock_and_no_order_hides_what_a_run_found(
    tmp_path: Path, a: tuple[Record, dict[str, int]], b: tuple[Record, dict[str, int]], state: str, split: str,
    given: tuple[str, str], dated: str,
) -> None:  # fmt: skip
    made_run(tmp_path / "a", a[0], started="2026-01-02T00:00:00+00:00", **a[1])
    made_run(tmp_path / "b", b[0], started=dated, **b[1])
    folders = [tmp_path / name for name in given]
    page = _page(*folders)
    assert state in page.words
    assert (f"{split} (1 cell; the page shows the first)" in page.words) == bool(split)
    assert "1 planned cells" in page.words
    code = main(["report", *map(str, folders), "-o", str(tmp_path / "page.html")])
    assert code == (state[0] != "✓")


def test_a_run_from_the_future_is_remarked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "the clock of this run was wrong: it started on 2099-01-01, which is in the future"
    run, text = made_run(tmp_path / "run", GREEN, started="2099-01-01T00:00:00+00:00"), tmp_path / "page.md"
    assert words in _page(run).words
    assert main(["summary", str(run), "--markdown", str(text)]) == 0
    assert words in capsys.readouterr().out
    assert words.replace(":", "\\:").replace("-", "\\-") in text.read_text()


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
    monkeypatch.setattr(finding_data, "MOST_FINDINGS", 2)
    alike = [replace(WRONG, case=f"c{i}", evidence=Evidence()) for i in range(3)]
    other = replace(WRONG, case="c9", family="ones")
    data = _page(made_run(tmp_path / "run", *alike, other, planned=3)).data
    assert [finding["case"] for finding in data["findings"]] == ["c9", "c0"]  # the first of each kind
    assert len([v for v in data["rows"]["verdict"] if data["verdicts"][v]["name"] == "mismatch"]) == 4


@pytest.mark.slow
def test_ten_thousand_cases_fit_into_a_megabyte_and_a_half(tmp_path: Path) -> None:
    page_file = write_html(tmp_path / "report.html", read_all([synthesize(tmp_path / "run", 10_000)]))
    assert page_file.stat().st_size < 1.5e6
