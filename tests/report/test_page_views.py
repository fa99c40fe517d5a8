"""One page with everything on it, in a real browser: head, index, lists, maps, counts, coverage, columns, notes."""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kerneltest.cli import main
from kerneltest.records.evidence import ErrorMap, FillExtent, SpecialInput, SpecialValue, Window
from kerneltest.records.run_plan import Project
from kerneltest.records.schema import ExpectedValues
from tests.browsing import needs_browser, open_page
from tests.made_runs import PAIRING, WRONG, made_record, made_run

pytestmark = needs_browser

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")

assert WRONG.evidence is not None
COMPLETE = Window("x", "float32", (2,), (0,), (1, 2), (0, 0), (0.0, 0.0))
ZEROS = replace(WRONG.evidence, inputs=(COMPLETE, replace(COMPLETE, name="y", shape=(600,))))
MAP = ErrorMap((2, 4), (2, 4), (1, 1), ".0128AS5")
SEEN = made_record(
    case="c2", bound_fraction=0.3, seconds=2.5, ulps=(7, 0, 1), family="=cmd", dims={"n": 8}, signature="n=8",
    expected=ExpectedValues(8, 1, 2, 3e-6), special_inputs=(SpecialInput("x", SpecialValue.NAN, FillExtent.SOME),),
)  # fmt: skip
RECORDS = (
    replace(WRONG, seconds=0.5, evidence=replace(WRONG.evidence, errors=MAP)),
    SEEN,
    *(replace(SEEN, case=f"c{i}", bound_fraction=i / 10, seconds=0.0, signature="n=10") for i in (4, 5)),
    replace(WRONG, pairing="suites/test_t.py::q", case="c6", evidence=ZEROS),
)
MUTANTS = [
    {
        "pairing": PAIRING, "score": 0.75, "killed": 3, "survived": 1, "equivalent": 0, "undecided": 2,
        "mutants": [{"mutant": {"file": "kernels/k.py", "line": 4, "phrase": "`-` for `+`"}, "end": "survived"}],
        "advice": [],
    }
]  # fmt: skip
SITES = [
    {"place": "kernels/k.py:9", "what": "the branch", "seen": ["taken"], "missing": ["not taken"]},
    {"place": "kernels/k.py:10", "what": "the number of steps of the loop", "seen": ["one"], "missing": []},
]
COVERAGE = [{"pairing": PAIRING, "cases": 3, "exercised": 2, "states": 3, "sites": SITES}]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("views")
    run = made_run(
        folder / "run", *RECORDS, started="2026-01-05T10:00:00+00:00", project=Project("flash", "0123456789ab"),
        environment={"jax": "0.12", "devices": "cuda: H200"},
    )  # fmt: skip
    for name, results in (("mutants", MUTANTS), ("coverage", COVERAGE)):
        (folder / name).write_text(json.dumps(results))
    stored = ["--mutants", str(folder / "mutants"), "--coverage", str(folder / "coverage")]
    assert main(["report", str(run), "-o", str(folder / "report.html"), *stored]) == 1
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def shared(browser: Any) -> Iterator[Any]:
    """One page for all tests of this file; no script of it raises."""
    context = browser.new_context(viewport={"width": 420, "height": 900}, accept_downloads=True)
    context.set_default_timeout(60_000)
    opened, said = context.new_page(), []
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    context.close()
    assert said == []


PAIRING_VIEW = "#/pairing/suites%2Ftest_t.py%3A%3Ap"
VIEWS = {
    "head": ("", "header", ["conformance of flash", "commit\n0123456789ab", "date\n2026-01-05", "JAX\n0.12", "H200"]),
    "index": ("#/suspects", ".contents >> nth=0", ["wrong values", "k\n", "q"]),
    "matrix": ("#/matrix", "#matrix", ["sharpness", "3.0e-6", "mutants", "75%", "coverage", "2 of 3"]),
    "suspects first": (PAIRING_VIEW, "#view-pairing > :nth-child(3)", ["1 suspect"]),
    "ulps": (PAIRING_VIEW, ".ulps", ["0", "21", "< 4", "3"]),
    "lengths": (PAIRING_VIEW, "h2:text('Lengths') + p + .strips", ["n 1: 1 of 1 case fails", "n 8: 0 of 3 cases fail"]),
    "specials": (PAIRING_VIEW, "[aria-label='Special values']", ["NaN", "x", "3", "–"]),
    "slowest": (PAIRING_VIEW, "[aria-label='Slowest cases of the pairing'] tbody tr >> nth=0", ["2.5", "=cmd", "pass"]),
    "slowest of all": ("#/runs", "#slowest tbody tr >> nth=0", ["2.5"]),
    "notes": (
        PAIRING_VIEW,
        "#view-pairing .source >> nth=0",
        ["✗ no case finds `-` for `+`", "✗ the branch is never not taken", "✓ the number of steps of the loop is one"],
    ),
    "inputs": (
        "#/finding/suites%2Ftest_t.py%3A%3Aq%20%40%20interpret%20%40%20c6", "#view-finding .split >> nth=1",
        ["x float32 [2]: all are 0", "y float32 [600]: around the worst element, all are 0"],
    ),
    "mutants": (
        "#/mutants", "#view-mutants",
        ["3 of 4 mutants found, 75.0%", "2 undecided", "kernels/k.py:4", "2 of 3 states by 3 cases"],
    ),
}  # fmt: skip


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("view", "selector", "words"), VIEWS.values(), ids=VIEWS)
def test_a_view_shows_what_it_is_for_and_fits_a_phone(
    shared: Any, address: str, view: str, selector: str, words: list[str]
) -> None:
    open_page(shared, address + view)
    shown = shared.locator(selector).first.text_content() + "\n" + shared.locator(selector).first.inner_text()
    assert [each for each in words if each not in shown and each.replace("\n", "") not in shown] == []
    assert shared.evaluate("document.documentElement.scrollWidth") <= 420


def test_a_view_that_is_opened_has_no_frame(shared: Any, address: str) -> None:
    open_page(shared, f"{address}#/matrix")
    shared.goto(f"{address}#/runs")
    assert shared.evaluate("document.activeElement.id") == "main"
    assert shared.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "none"


def test_the_links_to_the_views_fit_a_phone(shared: Any, address: str) -> None:
    open_page(shared, f"{address}#/matrix")
    assert shared.locator("nav").first.evaluate("(nav) => nav.scrollWidth - nav.clientWidth") == 0


def test_the_map_has_a_scale_with_the_counts_of_its_levels(shared: Any, address: str) -> None:
    open_page(shared, f"{address}#/suspects")
    scale = shared.locator(".error-map .key").first.locator("li").all_inner_texts()
    assert scale == [
        "nothing asked (1)", "no error (1)", "up to 0.001 (1)", "up to 0.01 (1)", "up to 1 (1)", "up to 100 (1)",
        "over 10000 (1)", "wrong NaN or infinity (1)",
    ]  # fmt: skip
    shared.locator(".error-map .plot").first.hover(position={"x": 17, "y": 17})
    assert shared.locator(".error-map p").first.inner_text() == "row 1, column 1: over 10000"


def test_a_list_is_sorted_and_exported_and_each_row_has_an_address(shared: Any, address: str) -> None:
    open_page(shared, f"{address}#/results?verdict=pass&text=cmd")
    shared.get_by_role("button", name="error / bound").click()
    shared.get_by_role("button", name="error / bound").click()
    used = shared.locator("#view-results tbody tr[aria-rowindex] td.number")
    assert used.all_inner_texts() == ["0.5", "0.4", "0.3"]
    assert shared.url.endswith("#/results?verdict=pass&text=cmd&sort=-used")
    with shared.expect_download() as download:
        shared.get_by_role("button", name="Export CSV").click()
    head, *rows = csv.reader(Path(download.value.path()).read_text(encoding="utf-8").splitlines())
    table = [dict(zip(head, row, strict=True)) for row in rows]
    assert [row["error / bound"] for row in table] == ["0.5", "0.4", "0.3"]
    assert {(row["pairing"], row["family"]) for row in table} == {(PAIRING, "'=cmd")}  # no formula of a spreadsheet
    assert len({row["link"] for row in table}) == 3
    shared.goto("about:blank")
    open_page(shared, table[0]["link"])
    assert "pass" in shared.locator("#view-finding h2").first.inner_text()
    assert "0.5" in shared.locator("#view-finding .pairs").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_any_view_nor_in_a_comparison(
    shared: Any, address: str, tmp_path: Path, scheme: str
) -> None:
    old, new = (made_run(tmp_path / name, *records) for name, records in (("old", RECORDS[1:]), ("new", RECORDS[:2])))
    compared = tmp_path / "diff.html"
    assert main(["diff", str(old), str(new), "--html", str(compared)]) == 1
    shared.emulate_media(color_scheme=scheme)
    violations = {}
    for view in (
        "#/suspects",
        "#/matrix",
        "#/findings?sort=used",
        PAIRING_VIEW,
        "#/runs",
        "#/mutants",
        compared.as_uri(),
    ):
        shared.goto(view if view.startswith("file") else address + view)
        for violation in axe.Axe().run(shared).response["violations"]:
            violations[violation["id"]] = view, violation["help"], [n["html"][:200] for n in violation["nodes"][:3]]
    assert violations == {}
    assert shared.locator("td.k-values", has_text="mismatch").count() == 1  # a new one; what is gone is a whole cell
    assert shared.evaluate("document.documentElement.scrollWidth") <= 420
