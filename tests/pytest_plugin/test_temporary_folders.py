"""No run leaves its temporary folder behind for longer than until the next one."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerneltest.pytest_plugin.run_folder import TemporaryFolder, remove_abandoned_folders
from tests.plugins import PLUGINS
from tests.pytest_plugin.test_plugin import ROOT

HOLD = """
import time
from kerneltest.pytest_plugin.run_folder import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "cases").mkdir()
print(folder.path, flush=True)
time.sleep(600)
"""
SUITE = """
import time
import kerneltest as kt
from kernels.vector_add import vector_add

@kt.oracle_for(vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))
def added(x, y):
    return x + y

def test_that_waits():
    open("waits", "w").close()
    time.sleep(SECONDS)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def holder(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    process = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


def test_the_folder_of_a_living_process_stays_and_that_of_a_killed_one_goes(holder: subprocess.Popen[str]) -> None:
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    remove_abandoned_folders()
    assert (folder / "cases").is_dir()
    holder.kill()
    holder.wait()
    remove_abandoned_folders()
    assert not folder.exists()


def test_a_folder_of_the_users_own_and_a_link_stay(temporary: Path, tmp_path: Path) -> None:
    (temporary / "kerneltest-notes").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".kerneltest.lock").touch()
    (temporary / "kerneltest-link").symlink_to(tmp_path / "mine")
    mine = TemporaryFolder()
    remove_abandoned_folders()
    assert {path.name for path in temporary.iterdir()} == {"kerneltest-notes", "kerneltest-link", mine.path.name}
    assert (tmp_path / "mine" / ".kerneltest.lock").exists()
    mine.release()
    assert not mine.path.exists()


def test_a_folder_stays_while_its_process_is_about_to_lock_it(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock

    def lock_late(file: int, operation: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", lock)
            remove_abandoned_folders()  # as another run does at its start
        lock(file, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", lock_late)
        mine = TemporaryFolder()
    remove_abandoned_folders()
    assert mine.path.is_dir()
    mine.release()
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_killed_run_leaves_a_folder_and_the_next_run_none(tmp_path: Path, temporary: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "JAX_PLATFORMS": "cpu"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    options = ("-p", "no:cacheprovider", "--kt-backends", "interpret", "--kt-depth", "quick")
    command = [sys.executable, "-m", "pytest", *PLUGINS, *options]

    def start(seconds: int) -> subprocess.Popen[bytes]:
        (tmp_path / "test_suite.py").write_text(SUITE.replace("SECONDS", str(seconds)), encoding="utf-8")
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)

    killed = start(600)
    deadline = time.monotonic() + 300
    while not (tmp_path / "waits").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(list(temporary.glob("kerneltest-*"))) == 1
    assert start(0).wait(300) == 0
    assert not list(temporary.glob("kerneltest-*"))
