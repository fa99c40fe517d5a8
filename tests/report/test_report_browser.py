"""The page in a real browser: following a finding, filters and the address, keyboard, accessibility, hostility."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import BudgetPart
from kerneltest.records.overlay import overlay_runs
from kerneltest.records.record_files import RecordWriter
from kerneltest.records.run_plan import ANY
from kerneltest.records.runs import read_all
from kerneltest.records.schema import FaultLocation, Record, Reproducer
from kerneltest.report.html.render_page import write_html
from kerneltest.triage.suspects import suspects_in_overlay
from tests.made_runs import HOSTILE, WRONG, hostile, made_record, made_run
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium")

NEEDED = "needs Playwright and axe: pip install 'kerneltest[browser]'"
playwright = pytest.importorskip("playwright.sync_api", reason=NEEDED)
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=NEEDED)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of kernels with bugs."""
    folder = tmp_path_factory.mktemp("findings")
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-p", "no:cacheprovider", "examples"]
    command += ["-k", "not sort and not clamp", "--kt-depth", "quick"]
    command += ["--kt-backends", "interpret,simulate:sm_90,simulate:gfx942", "--kt-report", str(folder)]
    command += ["--kt-minimize", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-2000:] + done.stderr
    return folder


@pytest.fixture(scope="module")
def report(findings: Path) -> str:
    """The address of the report on it."""
    return (findings / "report.html").as_uri()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails its test if a script raises or the content-security policy refuses something."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(5000)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    said: list[str] = []
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("console", lambda message: said.append(message.text))
    yield opened
    context.close()
    assert said == []


def _open(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-ready]")


def _reload(page: Any) -> None:
    page.reload()
    page.wait_for_selector("html[data-ready]")


def _readout(page: Any) -> dict[str, str]:
    names, values = (page.locator(f".readout:visible {tag}").all_inner_texts() for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def test_from_a_cell_to_a_finding_its_picture_and_its_reproduction(page: Any, findings: Path, report: str) -> None:
    _open(page, f"{report}#/matrix")
    page.select_option("select[name=verdict]", "special_mismatch")
    cell = page.get_by_role("link", name=re.compile(r"^softmax on interpret: \d+ special_mismatch$"))
    cell.click()
    page.locator("#view-pairing .wide a").first.click()
    assert page.locator("#view-finding h2").first.inner_text().endswith("softmax on interpret, float32")
    assert "elements wrong" in page.locator("#view-finding .lead").inner_text()

    wrong = page.locator("#view-finding .grid td.special").last
    right = page.locator("#view-finding .grid tbody td:not(.special):not(.wrong)").first
    wrong.hover()
    shown = _readout(page)
    assert shown["got"] == "nan (wrong)"
    assert shown["expected"] == "0"
    assert shown["bound"].startswith("± ")
    right.hover()
    assert "wrong" not in _readout(page)["got"]
    assert _readout(page)["element"].startswith("[")

    page.get_by_role("button", name="Copy the script").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    (script,) = [p for p in (findings / "cases").glob("*.py") if p.read_text(encoding="utf-8") == copied]
    assert script.name == page.locator("#view-finding h3 code").inner_text().removeprefix("cases/")

    before = page.locator("main").inner_text()
    address = page.url
    _reload(page)
    assert page.url == address
    assert page.locator("main").inner_text() == before.replace("Copied", "Copy")
    page.go_back()
    page.wait_for_selector("#view-pairing:visible")


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("verdict", "race", lambda row: row.ending == "race"),
        ("verdict", "any finding", lambda row: row.is_finding),
        ("backend", "interpret", lambda row: row.record.backend == "interpret"),
        ("backend", "simulate:*", lambda row: row.record.backend.startswith("simulate:")),
        ("dtype", "bfloat16", lambda row: row.record.dtype == "bfloat16"),
        ("family", "one_inf", lambda row: row.record.family == "one_inf"),
        ("text", "broken.py::soft", lambda row: row.record.pairing.endswith("::softmax")),
        ("text", "never written", lambda row: "never written" in row.record.message),
    ],
)
def test_a_filter_leaves_what_it_names_and_lives_in_the_address(
    page: Any, findings: Path, report: str, name: str, value: str, left: Any
) -> None:
    rows = overlay_runs(read_all([findings])).rows
    shown = f"{sum(map(left, rows)):,} of {len(rows):,} results"
    _open(page, f"{report}#/matrix")
    field = page.locator(f"[name={name}]")
    field.fill(value) if name == "text" else field.select_option(value)
    page.wait_for_function("(text) => document.getElementById('shown').textContent === text", arg=shown)
    assert f"?{name}=" in page.url
    cells = page.locator("#matrix tr.pairing td a:visible .count").all_inner_texts()
    if all(row.is_finding for row in rows if left(row)):
        assert sum(int(cell.replace(",", "")) for cell in cells) == sum(map(left, rows))
    _reload(page)
    assert page.locator("#shown").inner_text() == shown
    assert field.input_value() == value
    assert page.locator("#matrix tr.pairing td a:visible .count").all_inner_texts() == cells
    page.get_by_role("button", name="Clear").click()
    page.wait_for_function("() => !location.hash.includes('?')")


def test_everything_is_reached_with_the_keyboard(page: Any, report: str) -> None:
    _open(page, f"{report}#/matrix")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.get_by_role("button", name="Dtypes of add").focus()
    assert page.locator("tr.dtype:visible").count() == 0
    page.keyboard.press("Enter")
    assert page.locator("tr.dtype:visible th").all_inner_texts() == ["float32", "int32"]
    page.keyboard.press("Tab")
    assert "add on interpret: " in page.evaluate("document.activeElement.textContent")
    page.get_by_role("link", name="double on interpret:").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#view-pairing:visible")
    assert page.evaluate("document.activeElement.textContent") == "double"
    page.locator("#view-pairing .wide a").first.press("Enter")
    page.wait_for_selector("#view-finding .grid")
    page.locator("#view-finding .grid td[tabindex='0']").focus()
    places = []
    for key in ("Home", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
        places.append(_readout(page)["element"].partition("]")[0])
        assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(places[-1])
    assert len(set(places)) == 4
    assert places[0] == places[-1]


def test_the_page_opens_on_the_suspects(page: Any, findings: Path, report: str) -> None:
    suspects = suspects_in_overlay(overlay_runs(read_all([findings])))
    (suspect,) = [each for each in suspects if each.title == "NaN where a row of x holds nothing but -inf"]
    _open(page, report)
    assert page.locator("nav a").first.inner_text() == f"Suspects {len(suspects)}"
    assert page.locator("nav a[aria-current]").inner_text() == f"Suspects {len(suspects)}"
    assert page.locator(".suspect").count() == len(suspects)
    article = page.get_by_role("article", name=suspect.title)
    assert article.locator(".grid td.special").count() > 0
    assert article.locator(".source li.here").inner_text().strip() == "e = jnp.exp(row - jnp.max(row))"
    assert "-inf - -inf is nan" in article.locator(".root-cause").inner_text()
    bar = article.locator(".bars li", has_text="all_masked_row")
    tried = sum(r.backend == "interpret" and r.family == "all_masked_row" for r in _records(findings, suspect.pairing))
    failing = sum(r.backend == "interpret" and r.family == "all_masked_row" for r in suspect.findings)
    assert bar.get_attribute("title") == f"family all_masked_row: {failing} of {tried} case{'s' * (tried > 1)} " + (
        "fails" if failing == 1 else "fail"
    )
    article.get_by_role("button", name=f"Copy the commands of suspect {suspect.id}").click()
    first, second = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert first.startswith("kerneltest repro ")
    assert second.startswith("pytest -p kerneltest ")

    article.get_by_text(f"{len(suspect.findings)} cases", exact=True).click()
    article.get_by_role("link", name=f"List all {len(suspect.findings)}").click()
    page.wait_for_selector("#view-results:visible")
    shown = f"{len(suspect.findings)} of {sum(1 for _ in _records(findings)):,} results"
    assert page.locator("#shown").inner_text() == shown
    page.locator("#view-results td a").first.click()
    page.locator("#view-finding dd a", has_text=suspect.title).click()
    page.wait_for_selector("#view-suspects:visible")
    assert page.url.endswith(f"#/suspects/{suspect.id}")
    assert page.evaluate("document.activeElement.textContent").endswith(suspect.title)


def _records(findings: Path, pairing: str = "") -> Iterator[Record]:
    """The records of a page on a run, or those of a pairing that could be run."""
    for row in overlay_runs(read_all([findings])).rows:
        if not pairing or (row.record.pairing == pairing and row.record.verdict is not Verdict.UNAVAILABLE):
            yield row.record


def test_of_many_suspects_the_first_are_open_and_the_others_drawn_when_they_are(page: Any, tmp_path: Path) -> None:
    many = [replace(WRONG, pairing=f"t.py::p{i}", case=f"c{i}") for i in range(9)]
    _open(page, write_html(tmp_path / "report.html", read_all([made_run(tmp_path / "run", *many)])).as_uri())
    assert page.locator(".suspect .body").count() == 6
    page.locator(".suspect summary").last.click()
    page.wait_for_selector(".suspect[data-suspect='8'] .body .grid")
    assert page.locator(".suspect .body").count() == 7


def test_a_page_without_a_finding_starts_at_the_matrix(page: Any, tmp_path: Path) -> None:
    _open(page, write_html(tmp_path / "report.html", read_all([made_run(tmp_path / "run", made_record())])).as_uri())
    assert page.locator("#matrix").is_visible()
    assert page.locator("nav a").first.inner_text() == "Matrix"
    assert not page.locator("select[name=suspect]").is_visible()


def _turn(page: Any, view: str) -> None:
    """Changes the address after # and waits until it is drawn."""
    drawn = "requestAnimationFrame(() => requestAnimationFrame(done))"
    page.evaluate(f"(view) => new Promise((done) => {{ location.hash = view; {drawn}; }})", view)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 400)])
def test_axe_finds_no_violation(page: Any, report: str, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    _open(page, report)
    views = ["#/suspects", "#/matrix", "#/matrix?verdict=mismatch", "#/findings", "#/results", "#/runs"]
    for name in ("softmax", "matmul"):  # a finding with a picture, one with a source line
        views.append(f"#/pairing/examples%2Ftest_broken.py%3A%3A{name}")
        _turn(page, views[-1])
        views.append(page.locator("#view-pairing .wide a").first.get_attribute("href"))
    violations = {}
    for view in views:
        _turn(page, view)
        for violation in axe.Axe().run(page).response["violations"]:
            violations[violation["id"]] = (
                view,
                violation["help"],
                [node["html"][:200] for node in violation["nodes"][:3]],
            )
    assert violations == {}


def test_a_record_of_markup_and_script_shows_as_text(page: Any, tmp_path: Path) -> None:
    record, plan = hostile()
    run = made_run(tmp_path / "run", record, **plan)
    writer = RecordWriter(run, "main")
    writer.write_reproducer(
        Reproducer(HOSTILE, record, 1, 1, False, FaultLocation(HOSTILE, HOSTILE, HOSTILE, False, (HOSTILE,)))
    )
    writer.close()
    _open(page, write_html(tmp_path / "report.html", read_all([run])).as_uri())
    assert page.locator(".suspect").inner_text().count(HOSTILE) > 8
    elements = page.evaluate("document.querySelectorAll('img, iframe, script:not(#data), object').length")
    for view in ("suspects", "matrix", "findings", "results", "runs"):
        page.click(f"nav [data-view={view}]")
        assert HOSTILE in page.locator("main").inner_text()
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


@pytest.mark.parametrize("odd", ["\0", "\r", "\r\n", "\x1b\x7f\u2028\ufeff%00&#0;/?#", ""], ids=ascii)
def test_no_character_in_a_name_stops_the_scripts(page: Any, tmp_path: Path, odd: str) -> None:
    record = replace(
        WRONG, pairing=f"{odd}t.py::{odd}p", backend=f"lower:{odd}", dtype=odd, family=odd, signature=odd, case=odd
    )
    _open(page, write_html(tmp_path / "report.html", read_all([made_run(tmp_path / "run", record)])).as_uri())
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
    _open(page, write_html(tmp_path / "report.html", read_all([run])).as_uri())
    assert page.locator("select[name=dtype] option").all_inner_texts() == ["all", "float32"]
    assert page.locator("select[name=family] option").all_inner_texts() == ["all", "normal"]
    page.get_by_role("button", name="Dtypes of p").click()
    assert page.locator("tr.dtype:visible th").all_inner_texts() == ["float32"]
    page.get_by_role("link", name="p on cuda: 1 unavailable").click()
    page.wait_for_selector("#view-pairing h2")
    families = page.get_by_role("region", name="Families").locator("tbody th").all_inner_texts()
    page.locator("#filters button").click()
    assert (families, page.locator("#view-pairing tbody th:text-is('*')").count()) == ([], 0)


def test_only_rows_in_sight_are_drawn(page: Any, findings: Path, report: str) -> None:
    _open(page, f"{report}#/results")
    rows = page.locator("#view-results tbody tr[aria-rowindex]")
    total = len(overlay_runs(read_all([findings])).rows)
    assert rows.count() < 80 < total
    page.locator("#view-results .scroll").evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
    page.wait_for_selector(f"#view-results tr[aria-rowindex='{total + 1}']")
    assert rows.count() < 80


def test_without_scripts_the_matrix_and_the_findings_are_there(browser: Any, report: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    assert page.get_by_role("row", name="softmax").first.get_by_role("link").first.inner_text().startswith("S ")
    assert page.get_by_role("rowheader", name="int32").first.is_visible()
    assert page.get_by_role("columnheader", name="simulate").is_visible()
    assert page.get_by_role("heading", name="NaN where a row of x holds nothing but -inf").is_visible()
    assert page.get_by_text("row - jnp.max(row)").is_visible()
    assert not page.locator("#filters").is_visible()
    context.close()


def test_history_is_a_line_in_the_cell_and_is_said(page: Any, tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path / "monday", WRONG, started="2026-01-05"),
        made_run(tmp_path / "tuesday", made_record(), started="2026-01-06"),
    ]
    _open(page, write_html(tmp_path / "report.html", read_all(runs)).as_uri() + "#/matrix")
    words = "p on interpret: 1 mismatch; findings by run: monday 1 of 1, tuesday 0 of 1"
    assert page.get_by_role("link", name=words).is_visible()
    assert page.locator("#matrix td .spark polyline").get_attribute("points") == "2.0,1.0 34.0,9.0"


def test_the_source_line_that_a_message_names_is_marked(page: Any, tmp_path: Path) -> None:
    _open(
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
    _open(page, address)
    suspect = page.locator(".suspect")
    assert suspect.locator(".budget li").all_text_contents() == parts
    assert remark in suspect.text_content()
    page.goto(f"{address}#/findings")
    page.locator("#view-results tbody a").first.click()
    page.locator("#view-finding .budget li").first.wait_for()
    assert page.locator("#view-finding .budget li").all_text_contents() == parts
    assert remark in page.locator("#view-finding").text_content()
    page.locator("#view-finding .crumbs a").last.click()
    figure = page.locator("#view-pairing figure", has=page.locator(".budget"))
    figure.wait_for()
    assert figure.locator("figcaption").text_content() == "interpret: 0.3 of its bound, in normal"
    assert figure.locator("li").all_text_contents() == ["100%summing of x.sum() kernels/k.py:9"]


def test_printing_leaves_the_table_and_drops_the_controls(page: Any, report: str) -> None:
    _open(page, f"{report}#/matrix")
    page.emulate_media(media="print")
    assert page.locator("#matrix").is_visible()
    assert not page.locator("nav").is_visible()
    assert not page.locator("#filters").is_visible()


@pytest.mark.parametrize(
    "view", ["#/suspects/absent", "#/pairing/absent", "#/finding/absent", "#/nowhere", "#/pairing/%"]
)
def test_an_address_that_names_nothing_says_so(page: Any, report: str, view: str) -> None:
    _open(page, report + view)
    shown = page.locator("main").inner_text()
    assert "This report has no" in shown or page.locator(".suspect .body").first.is_visible()
