"""`python -m MODULE` in a process that is forked from one which has imported most of it: most of a start is imports.

When JAX is imported is seen in a `fresh` one.
"""

import multiprocessing
import multiprocessing.process
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parent.parent
_SERVED = multiprocessing.get_context("forkserver")
_SERVED.set_forkserver_preload(["tests.preloaded"])
_READ_EARLY = ("CUDA_", "JAX_", "LANG", "LC_", "PYTHON", "TPU_", "XLA_")  # by what is imported, or by Python itself
_server: dict[str, str] = {}  # what of this the server was started with


def run(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What `python -m` with these words does and says, run in a folder.

    Args:
      folder: where it is run.
      words: the module, and what it is given.
      environment: all variables, by default this process's; kerneltest is this checkout's unless it says otherwise.
    """
    known = _known(environment)
    _serve()
    if _early(known) != _server:
        return fresh(folder, *words, environment=environment)
    with TemporaryDirectory() as said:
        process = _SERVED.Process(target=_become, args=(folder, words, known, Path(said)))
        process.start()
        process.join()
        output, error = ((Path(said) / name).read_text(encoding="utf-8") for name in ("output", "error"))
    assert process.exitcode is not None
    return subprocess.CompletedProcess(words, process.exitcode, output, error)


def fresh(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """As `run`, in a process that imports all itself."""
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=folder, env=_known(environment), capture_output=True, text=True, encoding="utf-8", check=False
    )


def _known(environment: Mapping[str, str] | None) -> dict[str, str]:
    known = {"PYTHONPATH": str(ROOT), **environment} if environment is not None else {**os.environ}
    if environment is None:
        known["PYTHONPATH"] = str(ROOT)
    known.pop("PYTEST_XDIST_WORKER", None)
    return known


def _early(known: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in known.items() if name.startswith(_READ_EARLY) and name != "PYTHONPATH"}


def _serve() -> None:
    """Starts the server, which has this process's variables for good."""
    if _server:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)
        first = _SERVED.Process(target=int)
        first.start()
        first.join()
    _server.update(_early(os.environ))


def _become(folder: Path, words: tuple[str, ...], known: Mapping[str, str], said: Path) -> None:
    """Makes this process what `python -m` would be."""
    for number, name in ((1, "output"), (2, "error")):
        file = os.open(said / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8", closefd=False) for n in (1, 2))
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
    os.environ.clear()
    os.environ.update(known)
    os.chdir(folder)
    installed = [path for path in sys.path if Path(path).is_relative_to(sys.base_prefix) or "site-packages" in path]
    sys.path[:] = [str(folder), *filter(None, known["PYTHONPATH"].split(os.pathsep)), *installed]
    sys.argv[:] = words
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
