"""The page in a real browser: following a finding, filters and the address, keyboard, accessibility, hostility."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.records.runs import overlay_runs, read_all
from kerneltest.records.schema import Record
from kerneltest.triage.suspects import suspects_in_overlay
from tests import forked
from tests.browsing import NEEDED, needs_browser, open_page
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[2]

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=NEEDED)
pytestmark = needs_browser


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("findings")
    command = ["pytest", *PLUGINS, "-p", "no:cacheprovider", "examples"]
    # Its sums of 600 elements take the simulator half of the time, and their page shows no more.
    command += ["-k", "not sort and not clamp and not (row_sums and simulate)", "--kt-depth", "quick"]
    command += ["--kt-backends", "interpret,simulate:sm_90,simulate:gfx942", "--kt-report", str(folder)]
    command += ["--kt-minimize", "2"]
    done = forked.run(ROOT, *command)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-2000:] + done.stderr
    return folder


@pytest.fixture(scope="module")
def report(findings: Path) -> str:
    return (findings / "report.html").as_uri()


def _reload(page: Any) -> None:
    page.reload()
    page.wait_for_selector("html[data-ready]")


def _readout(page: Any) -> dict[str, str]:
    names, values = (page.locator(f".readout:visible {tag}").all_inner_texts() for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def test_from_a_cell_to_a_finding_its_picture_and_its_reproduction(page: Any, findings: Path, report: str) -> None:
    open_page(page, f"{report}#/matrix")
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
        ("verdict", "any finding", lambda row: row.needs_attention),
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
    open_page(page, f"{report}#/matrix")
    field = page.locator(f"[name={name}]")
    field.fill(value) if name == "text" else field.select_option(value)
    page.wait_for_function("(text) => document.getElementById('shown').textContent === text", arg=shown)
    assert f"?{name}=" in page.url
    cells = page.locator("#matrix tr.pairing td a:visible .count").all_inner_texts()
    if all(row.needs_attention for row in rows if left(row)):
        assert sum(int(cell.replace(",", "")) for cell in cells) == sum(map(left, rows))
    _reload(page)
    assert page.locator("#shown").inner_text() == shown
    assert field.input_value() == value
    assert page.locator("#matrix tr.pairing td a:visible .count").all_inner_texts() == cells
    page.get_by_role("button", name="Clear").click()
    page.wait_for_function("() => !location.hash.includes('?')")


def test_everything_is_reached_with_the_keyboard(page: Any, report: str) -> None:
    open_page(page, f"{report}#/matrix")
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
    title = "NaN from -inf - -inf where a row of x holds nothing but -inf"
    (suspect,) = [each for each in suspects if each.title == title]
    open_page(page, report)
    assert page.locator("nav a").first.inner_text() == f"Suspects {len(suspects)}"
    assert page.locator("nav a[aria-current]").inner_text() == f"Suspects {len(suspects)}"
    assert page.locator(".suspect").count() == len(suspects)
    article = page.get_by_role("article", name=suspect.title)
    assert article.locator(".grid td.special").count() > 0
    assert article.locator(".source li.here").text_content().strip() == "e = jnp.exp(row - jnp.max(row))"
    assert "-inf - -inf is nan" in article.locator(".root-cause").text_content()
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


def _turn(page: Any, view: str) -> None:
    """Changes the address after # and waits until it is drawn."""
    drawn = "requestAnimationFrame(() => requestAnimationFrame(done))"
    page.evaluate(f"(view) => new Promise((done) => {{ location.hash = view; {drawn}; }})", view)


# Removes rows of pictures whose cells all look like cells before them: axe takes a second for a few hundred cells.
_THIN = """() => {
  for (const grid of document.querySelectorAll(".grid")) {
    const seen = new Set();
    for (const row of [...grid.tBodies[0].rows]) {
      const looks = [...row.cells].map((cell) => [cell.className, cell.tabIndex, cell.role && cell.innerText].join());
      if (looks.every((look) => seen.has(look))) row.remove();
      looks.forEach((look) => seen.add(look));
    }
  }
}"""


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 400)])
def test_axe_finds_no_violation(page: Any, report: str, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    open_page(page, report)
    views = ["#/suspects", "#/matrix", "#/matrix?verdict=mismatch", "#/findings", "#/results", "#/runs"]
    for name in ("softmax", "matmul"):  # a finding with a picture, one with a source line
        views.append(f"#/pairing/examples%2Ftest_broken.py%3A%3A{name}")
        _turn(page, views[-1])
        views.append(page.locator("#view-pairing .wide a").first.get_attribute("href"))
    violations = {}
    for view in views:
        _turn(page, view)
        page.evaluate(_THIN)
        for violation in axe.Axe().run(page).response["violations"]:
            violations[violation["id"]] = (
                view,
                violation["help"],
                [node["html"][:200] for node in violation["nodes"][:3]],
            )
    assert violations == {}


def test_only_rows_in_sight_are_drawn(page: Any, findings: Path, report: str) -> None:
    open_page(page, f"{report}#/results")
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
    assert page.get_by_role("heading", name="NaN from -inf - -inf where a row of x holds nothing but -inf").is_visible()
    assert page.get_by_text("row - jnp.max(row)").is_visible()
    assert not page.locator("#filters").is_visible()
    context.close()


def test_printing_leaves_the_table_and_drops_the_controls(page: Any, report: str) -> None:
    open_page(page, f"{report}#/matrix")
    page.emulate_media(media="print")
    assert page.locator("#matrix").is_visible()
    assert not page.locator("nav").is_visible()
    assert not page.locator("#filters").is_visible()


@pytest.mark.parametrize(
    "view", ["#/suspects/absent", "#/pairing/absent", "#/finding/absent", "#/nowhere", "#/pairing/%"]
)
def test_an_address_that_names_nothing_says_so(page: Any, report: str, view: str) -> None:
    open_page(page, report + view)
    shown = page.locator("main").inner_text()
    assert "This report has no" in shown or page.locator(".suspect .body").first.is_visible()
