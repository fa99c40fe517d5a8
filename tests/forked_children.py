"""What a forked session starts, xdist's workers and isolated processes, is forked from the same server as the session.

Each is what a new process would be, which would import JAX first. A test of the processes themselves asks for new ones.
"""

import multiprocessing.context
import multiprocessing.forkserver
import multiprocessing.process
import multiprocessing.resource_tracker
import os
import sys
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import ModuleType
from typing import Any

from execnet import gateway_io
from execnet.gateway_base import Popen2IO

from kerneltest.core import children


class ForkedChild(multiprocessing.context.ForkServerProcess):
    """A process with the variables of the one that starts it, and with its streams or those that it is given."""

    def __init__(self, *args: Any, streams: tuple[int, int, int] = (0, 1, 2), **more: Any) -> None:
        super().__init__(*args, **more)
        self._streams: tuple[Any, ...] = streams
        self._variables: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        sent = {"_streams": tuple(map(DupFd, self._streams)), "_variables": dict(os.environ)}
        return {**self.__dict__, **sent}

    def run(self) -> None:
        for number, stream in enumerate(self._streams):
            file = stream.detach()
            os.dup2(file, number)
            os.close(file)
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)  # by lines, wherever it leads
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        os.environ.clear()
        os.environ.update(self._variables)
        forget_tests()
        super().run()


class _IsolatedProcess(ForkedChild):
    """One that starts none itself, and cannot harm the server: a test writes into all pipes that it holds."""

    def run(self) -> None:
        tracker: Any = multiprocessing.resource_tracker._resource_tracker  # type: ignore[attr-defined]
        with Path(os.devnull).open("wb") as nothing:
            for file in (_server()._forkserver_alive_fd, tracker._fd):
                os.dup2(nothing.fileno(), file)
        super().run()


class _Context(multiprocessing.context.ForkServerContext):
    Process = _IsolatedProcess


class _WorkerIO(Popen2IO):
    """The pipes to a worker of xdist, with the methods of `gateway_io.Popen2IOMaster`."""

    def __init__(self, args: list[str], execmodel: Any) -> None:
        their_input, output = os.pipe()
        input_, their_output = os.pipe()
        self._worker = ForkedChild(target=_serve, streams=(their_input, their_output, 2))
        self._worker.start()
        multiprocessing.process._children.discard(self._worker)  # type: ignore[attr-defined]
        os.close(their_input)
        os.close(their_output)
        super().__init__(os.fdopen(output, "wb"), os.fdopen(input_, "rb"), execmodel)

    def wait(self) -> int | None:
        self._worker.join()
        return self._worker.exitcode

    def kill(self) -> None:
        self._worker.kill()


def _serve() -> None:
    """Does what `python -c` would do with the line that execnet gives it."""
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined]
    share_server()
    sys.argv[:], sys.path[0] = ["-c"], ""
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec("import sys;exec(eval(sys.stdin.readline()))", main.__dict__)


def share_server() -> None:
    """Lets this process, which a server has forked, start its own from that server."""
    _server().ensure_running = lambda: None
    children.CONTEXTS["spawn"] = _Context()
    gateway_io.Popen2IOMaster = _WorkerIO  # type: ignore[assignment,misc]


def _server() -> Any:
    return multiprocessing.forkserver._forkserver  # type: ignore[attr-defined]


def forget_tests() -> None:
    """Lets a project have a package `tests` of its own."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]


# Processes are sent by the names of what they run, which `forget_tests` leaves.
sys.modules["forked_children"] = sys.modules[__name__]
ForkedChild.__module__ = _IsolatedProcess.__module__ = _serve.__module__ = "forked_children"
