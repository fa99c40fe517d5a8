"""The page: what it counts, what it shows, and that nothing in it comes alive."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kerneltest.cli import main
from kerneltest.record import Evidence, Plan, PlannedItem, Record, Writer, write_plan
from kerneltest.report.build import load, render

HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"'&"
PAIRING = "suites/test_t.py::p"


def _run(folder: Path, *records: Record, planned: int = 1, **plan: object) -> Path:
    items = tuple(
        PlannedItem(f"{r.pairing}[{r.backend}]", r.pairing, r.backend, r.dtype, r.group, {r.family: planned})
        for r in records
    )
    folder.mkdir()
    write_plan(folder, replace(Plan(items, 0, "quick", {"jax": "1"}, {}, {}), **plan))  # type: ignore[arg-type]
    writer = Writer(folder, "main")
    for record in records:
        writer.write(record)
    writer.close()
    return folder


def _record(**more: object) -> Record:
    base = Record(f"{PAIRING}[i]", PAIRING, "interpret", "float32", "numeric", "normal", "n=1", "", "c1", "pass", "", 4)
    return replace(base, **more)  # type: ignore[arg-type]


WRONG = _record(
    verdict="mismatch",
    message="1 of 4 elements wrong",
    wrong=1,
    evidence=Evidence(0, (3,), "n=0", (1, 1), "", 1.0, 2.0, 0.0, {"x": "float32[4] [...]"}, "cases/c1.npz"),
)


class _Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def _page(*folders: Path) -> _Page:
    return _Page(render([load(folder) for folder in folders]))


def test_a_green_run(tmp_path: Path) -> None:
    page = _page(_run(tmp_path / "run", _record(), _record(backend="cuda", verdict="unavailable", case="", compared=0)))
    assert "No finding" in page.text
    assert "2 planned cells" in page.text
    assert "1 pass + 1 unavailable" in " ".join(page.text.split())
    assert "1 cases run, 4 elements compared" in page.text


def test_a_finding_shows_counterexample_place_and_reproduction(tmp_path: Path) -> None:
    page = _page(_run(tmp_path / "run", WRONG))
    for words in (
        "✗ Findings",
        "1 of 4 elements wrong",
        "element 3, tile n=0",
        "got 1.0, expected 2.0",
        "cases/c1.npz",
        f'pytest -p kerneltest --kt-depth quick --kt-seed 0 "{PAIRING}[i]"',
        "from suites.test_t import p",
        'case="c1"',
    ):
        assert words in page.text


def test_a_gap_is_never_green(tmp_path: Path) -> None:
    page = _page(_run(tmp_path / "run", _record(), planned=2))
    assert "INCOMPLETE" in page.text
    assert "No finding" not in page.text
    assert f"no verdict: {PAIRING} / interpret / float32 / normal" in page.text


def test_what_comes_from_outside_is_text(tmp_path: Path) -> None:
    hostile = replace(
        WRONG,
        message=HOSTILE,
        pairing=HOSTILE,
        signature=HOSTILE,
        target=HOSTILE,
        case=HOSTILE,
        evidence=replace(WRONG.evidence, tile=HOSTILE, arguments={HOSTILE: HOSTILE}, file=HOSTILE),  # type: ignore[type-var]
    )
    folder = _run(
        tmp_path / "run",
        hostile,
        environment={HOSTILE: HOSTILE},
        unavailable={HOSTILE: HOSTILE},
        limitations={HOSTILE: (HOSTILE,)},
    )
    page = _page(folder)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert page.text.count(HOSTILE) >= 10


def test_the_page_needs_nothing_from_outside_and_forbids_it(tmp_path: Path) -> None:
    page = _page(_run(tmp_path / "run", WRONG))
    assert not any(name in ("src", "href") for name, _ in page.attributes)
    policy = dict(page.attributes)["content"]
    assert any("default-src 'none'; style-src 'sha256-" in (v or "") for _, v in page.attributes), policy


def test_the_command_merges_runs_and_says_if_they_are_green(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    green, red = _run(tmp_path / "green", _record()), _run(tmp_path / "red", WRONG)
    out = tmp_path / "page.html"
    assert main(["report", str(green), "-o", str(out)]) == 0
    assert main(["report", str(green), str(red), "-o", str(out)]) == 1
    assert _Page(out.read_text()).tags.count("main") == 2
    assert main(["report", str(tmp_path), "-o", str(out)]) == 2
    assert "plan.json: no readable plan" in capsys.readouterr().err
