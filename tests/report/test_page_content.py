"""The page of made runs in a real browser: many suspects or none, hostile text, sources, bounds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kerneltest.core.ids import ANY
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import BudgetPart
from kerneltest.records.record_files import RecordWriter
from kerneltest.records.runs import read_all
from kerneltest.records.schema import ExpectedValues, FaultLocation, FormulaAnswer, Reproducer
from kerneltest.report.html.page import write_html
from tests.browsing import needs_browser, open_page
from tests.made_runs import HOSTILE, WRONG, hostile, made_record, made_run

pytestmark = needs_browser


def test_of_many_suspects_the_first_are_open_and_the_others_drawn_when_they_are(page: Any, tmp_path: Path) -> None:
    many = [replace(WRONG, pairing=f"t.py::p{i}", case=f"c{i}") for i in range(9)]
    open_page(page, write_html(tmp_path / "report.html", read_all([made_run(tmp_path / "run", *many)])).as_uri())
    assert page.locator(".suspect .body").count() == 6
    page.locator(".suspect summary").last.click()
    page.wait_for_selector(".suspect[data-suspect='8'] .body .grid")
    assert page.locator(".suspect .body").count() == 7


def test_a_page_without_a_finding_starts_at_the_matrix(page: Any, tmp_path: Path) -> None:
    open_page(
        page, write_html(tmp_path / "report.html", read_all([made_run(tmp_path / "run", made_record())])).as_uri()
    )
    assert page.locator("#matrix").is_visible()
    assert page.locator("nav a").first.inner_text() == "Matrix"
    assert not page.locator("select[name=suspect]").is_visible()


def test_a_record_of_markup_and_script_shows_as_text(page: Any, tmp_path: Path) -> None:
    record, plan = hostile()
    run = made_run(tmp_path / "run", record, **plan)
    writer = RecordWriter(run, "main")
    writer.write_reproducer(
        Reproducer(HOSTILE, record, 1, 1, False, FaultLocation(HOSTILE, HOSTILE, HOSTILE, False, (HOSTILE,)))
    )
    writer.close()
    open_page(page, write_html(tmp_path / "report.html", read_all([run])).as_uri())
    assert page.locator(".suspect").inner_text().count(HOSTILE) > 8
    elements = page.evaluate("document.querySelectorAll('img, iframe, script:not(#data), object').length")
    for view in ("suspects", "matrix", "findings", "results", "runs"):
        page.click(f"nav [data-view={view}]")
        # a view that is shown has no text before the next frame
        page.wait_for_function("(text) => document.getElementById('main').innerText.includes(text)", arg=HOSTILE)
    page.click("nav [data-view=matrix]")
    page.locator("#matrix td a:visible").first.click()
    page.wait_for_selector("#view-pairing h2")
    assert page.locator("#view-pairing").inner_text().count(HOSTILE) > 4
    page.locator("#view-pairing .wide a").first.click()
    page.wait_for_selector("#view-finding h2")
    assert page.locator("#view-finding").inner_text().count(HOSTILE) > 8
    page.locator("#view-finding .grid td.worst").hover()
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("document.querySelectorAll('img, iframe, script:not(#data), object').length") == elements
    links = page.evaluate("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
    assert all(link.startswith(("#", "artifacts/")) for link in links)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("odd", ["\0", "\r", "\r\n", "\x1b\x7f\u2028\ufeff%00&#0;/?#", ""], ids=ascii)
def test_no_character_in_a_name_stops_the_scripts(page: Any, tmp_path: Path, odd: str) -> None:
    record = replace(
        WRONG, pairing=f"{odd}t.py::{odd}p", backend=f"lower:{odd}", dtype=odd, family=odd, signature=odd, case=odd
    )
    open_page(page, write_html(tmp_path / "report.html", read_all([made_run(tmp_path / "run", record)])).as_uri())
    assert page.locator(".suspect .grid").count() == bool(odd)  # without an id it is a whole cell's
    page.click("nav [data-view=matrix]")
    page.locator("#matrix td a:visible").first.click()
    page.locator("#view-pairing .wide a").first.click()
    page.wait_for_selector("#view-finding h2")
    assert "1 of 4 elements wrong" in page.locator("#view-finding").inner_text()


def test_an_absent_backend_is_a_field_of_the_matrix_and_no_choice_of_the_filters(page: Any, tmp_path: Path) -> None:
    absent = made_record(
        backend="cuda", dtype=ANY, group=ANY, family=ANY, signature="*", case="", compared=0,
        verdict=Verdict.UNAVAILABLE, message="no device",
    )  # fmt: skip
    run = made_run(tmp_path / "run", made_record(), absent, unavailable={"cuda": "no device"})
    open_page(page, write_html(tmp_path / "report.html", read_all([run])).as_uri())
    assert page.locator("select[name=dtype] option").all_inner_texts() == ["all", "float32"]
    assert page.locator("select[name=family] option").all_inner_texts() == ["all", "normal"]
    page.get_by_role("button", name="Dtypes of p").click()
    assert page.locator("tr.dtype:visible th").all_inner_texts() == ["float32"]
    page.get_by_role("link", name="p on cuda: 1 unavailable").click()
    page.wait_for_selector("#view-pairing h2")
    families = page.get_by_role("region", name="Families").locator("tbody th").all_inner_texts()
    page.locator("#filters button").click()
    assert (families, page.locator("#view-pairing tbody th:text-is('*')").count()) == ([], 0)


def test_the_source_line_that_a_message_names_is_marked(page: Any, tmp_path: Path) -> None:
    open_page(
        page,
        write_html(tmp_path / "report.html", read_all([made_run(tmp_path / "run", WRONG)])).as_uri() + "#/findings",
    )
    page.locator("#view-results td a").click()
    assert page.locator("#view-finding .source li.here").inner_text().strip() == "return x  # three"
    assert page.locator("#view-finding .why").inner_text() == "Diagnosis: the last one"


def test_a_finding_its_suspect_and_its_pairing_show_what_makes_the_bound(page: Any, tmp_path: Path) -> None:
    right = made_record(
        case="c2", bound_fraction=0.3, error_budget=(BudgetPart("summing of `x.sum()`", "kernels/k.py", 9, 1.0),)
    )
    run = made_run(tmp_path / "run", WRONG, right)
    address = write_html(tmp_path / "report.html", read_all([run])).as_uri()
    parts = ["70%rounding of x - y kernels/k.py:4", "20%flushed subnormal inputs", "10%other"]
    remark = "rounding of x - y (k.py:4) moves the result 90 times as far as a rounding of the inputs does"
    open_page(page, address)
    suspect = page.locator(".suspect")
    assert suspect.locator(".budget li").all_text_contents() == parts
    assert remark in suspect.text_content()
    page.goto(f"{address}#/findings")
    page.locator("#view-results tbody a", has_text="mismatch").click()
    page.locator("#view-finding .budget li").first.wait_for()
    assert page.locator("#view-finding .budget li").all_text_contents() == parts
    assert remark in page.locator("#view-finding").text_content()
    page.locator("#view-finding .crumbs a").last.click()
    figure = page.locator("#view-pairing figure", has=page.locator(".budget"))
    figure.wait_for()
    assert figure.locator("figcaption").text_content() == "interpret: 0.3 of its bound, in normal"
    assert figure.locator("li").all_text_contents() == ["100%summing of x.sum() kernels/k.py:9"]


def test_a_pairing_shows_which_errors_its_bounds_would_show(page: Any, tmp_path: Path) -> None:
    asked = [
        made_record(case=f"c{i}", expected=ExpectedValues(8, 1, 2, visible, coarse), formula=FormulaAnswer(8, 0.1))
        for i, (visible, coarse) in enumerate([(1e-6, 0), (2e-5, 1), (3e-3, 1)])
    ]
    run = made_run(tmp_path / "run", *asked)
    open_page(page, write_html(tmp_path / "report.html", read_all([run])).as_uri())
    page.locator("#matrix td a:visible").first.click()
    cells = page.get_by_role("region", name="Sharpness").locator("tbody tr").first.locator("th, td")
    cells.first.wait_for()
    assert cells.all_inner_texts() == ["interpret", "float32", "1.0e-6", "2.0e-5", "8.3%", "3", "3"]
