"""Runs `python -m MODULE` in a process forked from one that has done the imports, which take most of a start.

A test of what imports JAX, and when, uses `fresh`.
"""

import multiprocessing
import multiprocessing.process
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.forked_children import ForkedChild, share_server

ROOT = Path(__file__).parent.parent
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.preloaded", "tests.forked_children"])
_READ_EARLY = ("CUDA_", "JAX_", "LANG", "LC_", "PYTHON", "TPU_", "XLA_")  # by what is imported, or by Python itself


class Started:
    def __init__(
        self,
        folder: Path,
        words: tuple[str, ...],
        known: Mapping[str, str],
        *,
        forks: bool = True,
        terminal: int | None = None,
    ) -> None:
        self._folder = TemporaryDirectory()
        self._said = Path(self._folder.name)
        with ExitStack() as stack:
            nothing = stack.enter_context(Path(os.devnull).open("rb"))
            written = (stack.enter_context((self._said / name).open("wb")) for name in ("output", "error"))
            files = (nothing.fileno(), *(file.fileno() for file in written))
            streams = files if terminal is None else (terminal, terminal, terminal)
            self._process = ForkedChild(target=_become, args=(folder, words, known, forks), streams=streams)
            self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def streams(self, timeout: float | None = None) -> tuple[str, str]:
        """What it wrote to standard output and error, once it has ended; a TimeoutError if it does not."""
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutError
        output, error = ((self._said / name).read_text(encoding="utf-8") for name in ("output", "error"))
        return output, error

    def said(self, timeout: float | None = None) -> str:
        return "".join(self.streams(timeout))


def start(
    folder: Path,
    *words: str,
    environment: Mapping[str, str] | None = None,
    forks: bool = True,
    terminal: int | None = None,
) -> Started:
    """As `run`, without waiting for its end.

    What it starts is forked as well if `forks`; `terminal` is a descriptor to use in place of files.
    """
    known = _known(environment)
    assert _early(known) == _served(), "what is imported has read other variables"
    return Started(folder, words, known, forks=forks, terminal=terminal)


def run(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What `python -m` with these words does and says, run in a folder.

    `environment` has all variables, by default this process's; kerneltest is this checkout's unless it says otherwise.
    """
    if _early(_known(environment)) != _served():
        return fresh(folder, *words, environment=environment)
    started = start(folder, *words, environment=environment)
    output, error = started.streams()
    assert started.returncode is not None
    return subprocess.CompletedProcess(words, started.returncode, output, error)


def fresh(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """As `run`, in a process that imports all itself."""
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=folder, env=_known(environment), capture_output=True, text=True, encoding="utf-8", check=False
    )


def _known(environment: Mapping[str, str] | None) -> dict[str, str]:
    known = {**os.environ, "PYTHONPATH": str(ROOT)} if environment is None else {"PYTHONPATH": str(ROOT), **environment}
    known.pop("PYTEST_XDIST_WORKER", None)
    return known


def _early(known: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in known.items() if name.startswith(_READ_EARLY) and name != "PYTHONPATH"}


@cache
def _served() -> Mapping[str, str]:
    """Starts the server, and returns the variables that its imports have read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)
        first = _SERVER.Process(target=int)
        first.start()
        first.join()
    return _early(os.environ)


def _become(folder: Path, words: tuple[str, ...], known: Mapping[str, str], forks: bool) -> None:
    """Makes this process what `python -m` would be."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which what a shell starts in the background ignores
    os.environ.clear()
    os.environ.update(known)
    os.chdir(folder)
    # Importing Ray adds folders inside site-packages to the path, which a new process does not have.
    installed = [
        path for path in sys.path if Path(path).is_relative_to(sys.base_prefix) or path.endswith("site-packages")
    ]
    sys.path[:] = [str(folder), *filter(None, known["PYTHONPATH"].split(os.pathsep)), *installed]
    sys.argv[:] = words
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined]
    if forks:
        share_server()
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
