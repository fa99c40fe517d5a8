"""`kerneltest watch`: a save starts a run in a fresh process, and keys act on the last one."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kerneltest.cli import main
from kerneltest.extensions.watch import session as session_module
from kerneltest.extensions.watch.session import (
    KEYS,
    Event,
    KeyPress,
    RunEnd,
    Save,
    WatchError,
    WatchSession,
    watched_folders,
)
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[3]
KERNEL = """
from kernels.vector_add import vector_add

def double(x):
    return vector_add(x, {other})
"""
SUITE = """
import kerneltest as kt
from double import double

@kt.oracle_for(double, x=kt.array("n", "int32"), dims=dict(n=kt.dim(values=(3,))))
def doubled(x):
    return 2 * x
"""


class FakePytest:
    """Notes what a session starts, and ends a run when it is told to."""

    def __init__(self) -> None:
        self.started: list[list[str]] = []
        self.stopped = 0
        self.ends: list[Callable[[int], None]] = []

    def start(self, words: Sequence[str], on_end: Callable[[int], None]) -> None:
        self.started.append(list(words))
        self.ends.append(on_end)

    def stop(self) -> None:
        self.stopped += 1


def _session(tmp_path: Path, *events: Event) -> tuple[FakePytest, int]:
    fake = FakePytest()
    session = WatchSession(fake, ["test_a.py"], tmp_path / "report")  # type: ignore[arg-type]
    for event in events:
        session.events.put(event)
    return fake, session.run()


SAVE = Save((Path("a.py"), Path("b.py")), 0.0)


def test_everything_runs_first_and_then_what_changed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    events = (RunEnd(1, 0), SAVE, RunEnd(2, 1), KeyPress("a"), RunEnd(3, 0), KeyPress("\n"), KeyPress("q"))
    fake, status = _session(tmp_path, *events)
    assert ["--kt-changed" in words for words in fake.started] == [False, True, False]
    assert all(words[-1] == "test_a.py" and "--failed-first" in words for words in fake.started)
    assert status == 0
    said = capfd.readouterr().out.splitlines()
    assert [line.split(" after ")[0].removeprefix("kerneltest watch: ") for line in said] == [
        *("green", "a.py, b.py changed", "not green", "all", "green")
    ]


def test_a_save_stops_the_run_that_is_out_of_date(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fake, status = _session(tmp_path, SAVE, RunEnd(1, -15), RunEnd(2, 1), KeyPress("q"))
    assert (len(fake.started), fake.stopped, status) == (2, 3, 1)
    assert capfd.readouterr().out.count(" after ") == 1


@pytest.mark.parametrize("status", [1, 2, 3, 4, 5, -9])  # 2: a file could not be imported, or Ctrl-C
def test_no_status_of_a_run_ends_the_session(tmp_path: Path, status: int) -> None:
    fake, last = _session(tmp_path, RunEnd(1, status), SAVE, RunEnd(2, 0), KeyPress("q"))
    assert (len(fake.started), last) == (2, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_session_ends_its_run(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    pytest.importorskip("watchfiles", exc_type=ImportError)
    fake = FakePytest()
    monkeypatch.setattr(session_module, "WarmPytest", lambda: fake)
    monkeypatch.setattr(session_module, "watch_saves", lambda *arguments: os.kill(os.getpid(), number))
    monkeypatch.setattr(session_module, "read_keys", lambda events: None)
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(SystemExit) as ended:
            main(["watch"])
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    assert ended.value.code == 128 + number
    assert fake.stopped == len(fake.started) + 1


def test_saves_behind_links_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, other, third = (tmp_path / name for name in ("here", "other", "third"))
    for folder in (here / "deep", other, third, here / ".venv"):
        folder.mkdir(parents=True)
    (other / "kernel.py").touch()
    (here / "deep/kernel.py").symlink_to(other / "kernel.py")
    (here / "package").symlink_to(third)
    (here / "gone.py").symlink_to(tmp_path / "gone.py")
    (here / ".venv/lib").symlink_to(tmp_path)
    monkeypatch.chdir(here)
    assert set(watched_folders([])) == {here, other, third}


@pytest.mark.parametrize("words", [["nofile.py"], ["nofile.py::pairing"], ["--kt-depth", "quick", "nofile.py"]])
def test_a_file_that_does_not_exist_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *words]) == 2
    assert "nofile.py does not exist" in capsys.readouterr().err


def test_keys_say_what_is_not_there_yet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _session(tmp_path, *map(KeyPress, "psq"))
    said = capfd.readouterr().out
    assert "no page yet" in said
    assert "not ended yet" in said


def test_the_page_shows_the_keys() -> None:
    assert KEYS in (ROOT / "docs/how-to/watch.md").read_text(encoding="utf-8")


def test_folders_outside_of_the_current_one_are_watched_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    for folder in (here, other):
        folder.mkdir()
        (folder / "test_a.py").touch()
    monkeypatch.chdir(here)
    assert watched_folders(["test_a.py::pairing"]) == (here,)
    assert watched_folders(["../other/test_a.py", "../other"]) == (here, other)
    with pytest.raises(WatchError, match=r"nowhere\.py does not exist"):
        watched_folders(["nowhere.py"])


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert main(["watch", "test_a.py"]) == 2
    assert "pip install 'kerneltest[watch]'" in capsys.readouterr().err


def test_an_edit_is_run_and_its_suspect_shown(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles", exc_type=ImportError)
    (tmp_path / "double.py").write_text(KERNEL.format(other="x * 1"), encoding="utf-8")
    (tmp_path / "test_double.py").write_text(SUITE, encoding="utf-8")
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0")
    path = os.pathsep.join([str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "kerneltest", "watch", "test_double.py", *PLUGINS, *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    limit = threading.Timer(600, process.kill)
    limit.start()
    assert process.stdin is not None
    assert process.stdout is not None
    lines: list[str] = []

    def read_until(text: str) -> str:
        for line in process.stdout or ():
            lines.append(line)
            if text in line:
                return line
        pytest.fail(f"ended before {text!r}:\n{''.join(lines)}")

    try:
        assert "watch: green" in read_until(" after ")
        kernel = tmp_path / "double.py"
        saved = kernel.stat().st_mtime_ns
        edited = tmp_path / "edited"
        edited.write_text(KERNEL.format(other="x * 3"), encoding="utf-8")
        os.utime(edited, ns=(saved, saved))  # as long and as old as before, by which bytecode is taken for current
        edited.replace(kernel)
        assert "double.py changed" in read_until(" changed")
        read_until("first finding in doubled[interpret-int32]")
        assert "watch: not green" in read_until(" after ")
        process.stdin.write("s")
        process.stdin.flush()
        assert "suspect 1 of " in read_until("suspect 1")
        process.stdin.write("q")
        process.stdin.flush()
        assert process.wait(120) == 1
    finally:
        limit.cancel()
        process.kill()
        process.stdout.close()
        process.stdin.close()
