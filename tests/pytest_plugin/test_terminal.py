"""The terminal as a person sees it: a pytest in a pseudo-terminal, its screen kept by an emulator."""

import fcntl
import os
import pty
import re
import struct
import termios
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pyte
import pytest

from kerneltest.pytest_plugin.dispatch import Dispatcher
from kerneltest.pytest_plugin.progress import Progress
from kerneltest.records.record_files import read_plan, read_records
from tests import forked
from tests.plugins import PLUGINS
from tests.pytest_plugin.test_plugin import BOTH, RIGHT, RIGHT_TWICE, ROOT, WRONG, WRONG_TWICE, _suite

COLUMNS, LINES = 100, 40
LIVE = re.compile(r"^(\d+)/(\d+) items, (\d+)/(\d+) cases")


@dataclass(frozen=True)
class Seen:
    """What a person saw: each live line, as it changed, and what is left in the end, scrolled away or on the screen."""

    live: tuple[str, ...]
    end: str


def _watch(folder: Path, *arguments: str, suite: str = RIGHT, told: int = COLUMNS, **environment: str) -> Seen:
    (folder / "test_suite.py").write_text(suite, encoding="utf-8")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, told, 0, 0))
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "CI"))}
    known = {**inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
    command = ("pytest", *PLUGINS, "-p", "no:cacheprovider", *arguments)
    run = forked.start(folder, *command, environment=known, terminal=theirs)
    os.close(theirs)
    screen = pyte.HistoryScreen(COLUMNS, LINES, history=5000, ratio=1)
    stream, live = pyte.ByteStream(screen), []
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not data:
            break
        stream.feed(data)
        lines = [line.rstrip() for line in screen.display if LIVE.match(line)]
        assert len(lines) <= 1, lines
        live += [line for line in lines if live[-1:] != [line]]
    os.close(ours)
    run.said()
    gone = ["".join(line[x].data for x in range(COLUMNS)).rstrip() for line in screen.history.top]
    return Seen(tuple(live), "\n".join([*gone, *(line.rstrip() for line in screen.display)]))


BACKENDS = ("--kt-backends", "interpret,simulate:sm_90", "--kt-depth", "quick")
SLOWLY_COMPILED = """
import time
from kerneltest.backends.interpret import Interpret

prepare = Interpret.prepare

def slowly(self, traced):
    time.sleep(0.3)
    return prepare(self, traced)

Interpret.prepare = slowly
"""


def test_a_live_line_says_what_how_many_and_leaves_nothing_behind(tmp_path: Path) -> None:
    seen = _watch(tmp_path, *BACKENDS, suite=SLOWLY_COMPILED + _suite("2 * x", BOTH, (3, 5)))
    counts = [tuple(map(int, match.groups())) for line in seen.live if (match := LIVE.match(line))]
    assert len(counts) > 3
    assert {(items, planned) for _, items, _, planned in counts} == {(counts[0][1], counts[0][3])}
    assert [each for each in counts if each[0] > each[1] or each[2] > each[3]] == []
    assert [items for items, *_ in counts] == sorted(items for items, *_ in counts)
    assert any("compiling" in line for line in seen.live)
    assert any("test_suite.py::doubled[interpret-float32]" in line for line in seen.live)
    assert not re.search(r"\d cases\b", seen.end)
    assert re.search(r"^test_suite\.py \.+ +\[100%\]$", seen.end, re.MULTILINE)
    assert re.search(r"^\d+ of \d+ cells pass$", seen.end, re.MULTILINE)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("arguments", [("-n", "2", "-v"), ("-v",), ("-n", "2")], ids=" ".join)
def test_what_pytest_writes_meanwhile_is_whole(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    seen = _watch(tmp_path, *BACKENDS, *arguments, suite=RIGHT_TWICE)
    assert seen.live
    own = [line for line in seen.end.splitlines() if "doubled[" in line]
    assert [
        line for line in own if not re.fullmatch(r"(\[gw\d\] \[ *\d+%\] PASSED )?\S+( PASSED +\[ *\d+%\])?", line)
    ] == []
    assert not re.search(r"\d cases\b|running|compiling|\d left", seen.end)


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interrupt_takes_the_line_away(tmp_path: Path, number: str) -> None:
    # A shell's background job starts with SIGINT ignored, and so does what it starts.
    heed = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    interrupt = f"import os, signal; {heed}; os.kill(os.getpid(), signal.{number}); return 2 * x"
    interrupted = RIGHT.replace("return 2 * x", interrupt)
    seen = _watch(tmp_path, "--kt-backends", "interpret", suite=interrupted)
    assert seen.live
    assert f"! KeyboardInterrupt{': SIGTERM' * (number == 'SIGTERM')} !" in seen.end
    assert "INCOMPLETE: stopped early" in seen.end
    assert not re.search(r"\d cases\b|running|compiling|\d left", seen.end)


_WITHIN = """
import signal, pytest
from kerneltest.pytest_plugin import hooks
for before in (hooks._on_terminate, signal.SIG_DFL):
    signal.signal(signal.SIGTERM, before)
    pytest.main([*{}, "--collect-only", "."])
    assert signal.getsignal(signal.SIGTERM) is before
"""


def test_a_session_within_another_leaves_its_signals(tmp_path: Path) -> None:
    (tmp_path / "within.py").write_text(_WITHIN.format(PLUGINS), encoding="utf-8")
    run = forked.run(tmp_path, "within")
    assert run.returncode == 0, run.stderr


def test_under_xdist_there_is_one_line_for_all_workers(tmp_path: Path) -> None:
    seen = _watch(tmp_path, *BACKENDS, "-n", "2", suite=SLOWLY_COMPILED + RIGHT_TWICE)
    assert len(seen.live) > 3
    assert any(" and 1 more" in line for line in seen.live)
    assert not re.search(r"\d cases\b", seen.end)
    assert re.search(r"^\.+ +\[100%\]", seen.end, re.MULTILINE), seen.end


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["-q"], {}),
        (["-s"], {}),
        ([], {"TERM": "dumb"}),
        (["-p", "no:logging", "-p", "no:capture", "-p", "no:debugging"], {}),
        (["--collect-only"], {}),
        (["-o", "log_cli=true"], {}),
    ],
    ids=str,
)
def test_there_is_no_live_line_where_it_would_disturb(
    tmp_path: Path, arguments: list[str], environment: dict[str, str]
) -> None:
    seen = _watch(tmp_path, "--kt-backends", "interpret", "--kt-depth", "quick", *arguments, **environment)
    assert seen.live == ()
    assert "doubled" in seen.end or "passed" in seen.end


def test_a_terminal_that_reports_no_width_gets_no_live_line(tmp_path: Path) -> None:
    seen = _watch(tmp_path, "--kt-backends", "interpret", "--kt-depth", "quick", told=0)
    assert seen.live == ()
    assert "2 passed" in seen.end


def test_a_run_without_pairings_has_no_live_line(tmp_path: Path) -> None:
    slow = "import time\ndef test_plain():\n    time.sleep(0.5)\n"
    seen = _watch(tmp_path, suite=slow)
    assert seen.live == ()
    assert "1 passed" in seen.end


def _plain(folder: Path, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "CI"))}
    environment |= {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "200"}
    return forked.run(folder, "pytest", *PLUGINS, "-p", "no:cacheprovider", *arguments, environment=environment).stdout


@pytest.mark.sweep(1)
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_finding_is_told_once_and_pytest_names_its_suspect(tmp_path: Path, workers: tuple[str, ...]) -> None:
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-orders", "1", "--kt-report", "out")
    options += (f"--junitxml={tmp_path / 'junit.xml'}",)
    (tmp_path / "test_suite.py").write_text(WRONG, encoding="utf-8")
    shown = _plain(tmp_path, *options, *workers)
    assert "\x1b" not in shown
    assert not re.search(r"\d+/\d+ items", shown)
    item = "test_suite.py::doubled[interpret-float32]"
    again = f'pytest -p kerneltest --kt-depth quick --kt-seed 0 --kt-orders 1 --kt-backends interpret "{item}"'
    assert "= FAILURES =" not in shown
    explained = shown.partition("short test summary info")[0]
    assert explained.count("wrong values") == 1
    assert read_plan(tmp_path / "out").orders == 1  # reports made from the records repeat it
    assert re.search(rf"^FAILED {re.escape(item)} - suspect 1: wrong values", shown, re.MULTILINE)
    summary = shown.partition("= kerneltest =")[2]
    assert re.search(r"^1  wrong values.*\d+ of \d+ cases on interpret$", summary, re.MULTILINE)
    assert re.search(r"^   smallest: x = float32\[3\] ", summary, re.MULTILINE)
    assert re.search(r"^     got .+, expected ", summary, re.MULTILINE)
    assert re.search(r"^   kerneltest repro out \w{16} --backend interpret$", summary, re.MULTILINE)
    assert shown.count("smallest:") == 1
    saved = [r.evidence.file for r in read_records(tmp_path / "out") if r.evidence is not None and r.evidence.file]
    assert saved
    assert all((tmp_path / "out" / file).exists() for file in saved)
    in_full = ElementTree.parse(tmp_path / "junit.xml").find(".//failure").text  # type: ignore[union-attr]
    assert in_full is not None
    assert re.search(r"^E   \d+ findings: double \(test_suite\.py:\d+\) against doubled", in_full, re.MULTILINE)
    assert re.search(r"^E   smallest: x = float32\[3\] ", in_full, re.MULTILINE)
    assert f"\nreproduce: {again}\n" in in_full
    assert re.search(r"test_suite\.py:8: wrong values", in_full)


@pytest.mark.slow
def test_a_verbose_session_shows_failures_in_full(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(WRONG, encoding="utf-8")
    shown = _plain(tmp_path, "--kt-backends", "interpret", "--kt-depth", "quick", "-v")
    assert re.search(r"^E   \d+ findings: double ", shown, re.MULTILINE)
    assert re.search(r"^E   smallest: x = float32", shown, re.MULTILINE)


def test_the_command_that_is_shown_reproduces_the_finding(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_suite.py").write_text(WRONG, encoding="utf-8")
    # simulate:sm_80 is not among `all`, and pytest is started below the folder that node ids are relative to.
    shown = _plain(tmp_path / "below", "..", "--kt-backends", "simulate:sm_80", "--kt-depth", "quick")
    commands = re.findall(r"reproduce: pytest -p kerneltest (.+) \"(.+)\"", shown)
    options, item = next(iter(commands))
    assert item.startswith("../test_suite.py::doubled[simulate:sm_80-")
    again = _plain(tmp_path / "below", *options.split(), item)
    assert "1 failed" in again
    assert "1  wrong values" in again


def test_tb_line_gives_one_line_a_finding(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(WRONG, encoding="utf-8")
    shown = _plain(tmp_path, "--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0", "--tb", "line")
    assert re.search(r"^\S+test_suite\.py:8: wrong values", shown, re.MULTILINE)
    assert "E   " not in shown


def test_the_stage_says_that_a_finding_is_shrinking() -> None:
    dispatcher = object.__new__(Dispatcher)
    dispatcher.cluster = dispatcher._isolated = None
    cache = SimpleNamespace(executables=SimpleNamespace(prepared={}))
    worker = SimpleNamespace(is_shrinking=True, judged_cases=7, cache=cache)
    dispatcher._worker = worker  # type: ignore[assignment]
    assert dispatcher.progress() == (7, "shrinking a finding of")
    worker.is_shrinking = False
    assert dispatcher.progress() == (7, "running")


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("prints", "options", "failures", "ends"),
    [
        (False, (), False, r"1 suspect; \d+ of \d+ cells pass, \d+ fail"),
        (True, (), True, r"1 suspect; \d+ of \d+ cells pass, \d+ fail"),
        (False, ("-q",), False, r"kerneltest: 1 suspect; \d+ of \d+ cells pass, \d+ fail"),
    ],
)
def test_failures_that_a_suspect_explains_are_left_out_unless_they_printed(
    tmp_path: Path, prints: bool, options: tuple[str, ...], failures: bool, ends: str
) -> None:
    suite = WRONG_TWICE.replace("    return 2 * x", "    print('seen')\n    return 2 * x") if prints else WRONG_TWICE
    assert ("seen" in suite) is prints
    (tmp_path / "test_suite.py").write_text(suite, encoding="utf-8")
    shown = _plain(tmp_path, "--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0", *options)
    assert ("= FAILURES =" in shown) is failures
    assert ("seen" in shown) is prints
    assert shown.count("1  wrong values") == 1
    assert re.search(rf"^{ends}$", shown, re.MULTILINE)
    assert "2 failed, 1 passed" in shown


def test_progress_counts_rates_and_leaves_out_what_is_skipped() -> None:
    progress = Progress({"a/t.py::x": 30, "a/t.py::y": 50, "a/t.py::z": 20}, started=100.0)
    progress.running["a/t.py::x"] = None
    assert progress.line(100.5, 3, "running") == "0/3 items, 3/100 cases · running t.py::x"
    assert progress.line(102.0, 10, "running") == "0/3 items, 10/100 cases, 5.0/s · running t.py::x"
    progress.end("a/t.py::x", skipped=False)
    progress.end("a/t.py::x", skipped=False)  # a second report of the same item
    progress.end("a/t.py::y", skipped=True)
    assert progress.line(102.0, 0, "") == "1/2 items, 30/50 cases, 15/s, 0:01 left"
    progress.planned["slow"] = 500
    assert "0:35 left" in progress.line(102.0, 0, "")
    progress.planned["slow"] = 100_000
    assert "left" not in progress.line(102.0, 0, "")
    assert "1:26:02 left" in progress.line(402.0, 5500, "")
