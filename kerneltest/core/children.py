"""Child processes: each answers requests, a line of JSON with a line of JSON, and costs one request if it dies.

A child starts in one of three ways:

- `exec`: a new interpreter runs a module, perhaps under a tool. It imports only what it needs. Its standard error comes
  with its answers.
- `spawn`: `multiprocessing` starts a new interpreter, and `serve` with all that belongs to it is sent there. It shares
  this process's standard error, and is the first that the system ends if memory runs out.
- `forkserver`: as `spawn`, but forked from a server that has imported modules beforehand.

A child that dies is replaced at the next request. One that takes too long or too much memory is killed together with
all processes that it has started, and a child whose parent dies ends itself. Lines that are not JSON are ignored, since
tested code may write to any descriptor.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

import psutil

from kerneltest.core.details import Crashed, Hung
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict

Answer = dict[str, Any]
Serve = Callable[[], Callable[[Any], Mapping[str, Any]]]

_EVERY = 0.25  # seconds between two checks of a busy child
_IN_TRANSIT = 3.0  # seconds for the news of an exit to arrive
_RAISED = "raised"  # the key of an answer that is a traceback

CONTEXTS: dict[str, Any] = {"spawn": get_context("spawn"), "forkserver": get_context("forkserver")}
"""The ways in which `multiprocessing` starts a child. `fork` is left out: JAX's threads do not survive it."""


class End(Enum):
    """The reason why a child gave no answer."""

    DIED = auto()
    LATE = auto()
    MEMORY = auto()
    SILENT = auto()  # it lives, but nothing that it writes can arrive any more


class ChildEndedError(Failure):
    """A child ended or was killed before it answered: a `crash`, or a `hang` if it was too late."""

    def __init__(self, end: End, status: int, cause: str, message: str, stderr: str) -> None:
        is_late = end is End.LATE
        super().__init__(
            Verdict.HANG if is_late else Verdict.CRASH, Hung(message) if is_late else Crashed("", message), stderr
        )
        self.end, self.status = end, status  # a negative status is that of a signal
        self.cause = cause  # in words, without the name of the child


class ChildRaisedError(Exception):
    """A child raised an exception while it answered; the text is its traceback there."""


class Child:
    """A child process that answers requests one at a time."""

    def __init__(
        self,
        serve: str | Serve,
        name: str,
        start: Literal["exec", "spawn", "forkserver"] = "exec",
        *,
        under: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        memory: float = math.inf,
        temporary: Path | None = None,
    ) -> None:
        """Initialises the instance. The process starts with the first request, or with `start`.

        Args:
          serve: of `exec`, the module to run, which calls `answer_requests`. Otherwise a function that can be pickled:
            called in the child, it returns the one that answers requests.
          name: of the child in messages.
          start: how to start it.
          under: of `exec`, a command under which to run it, such as a debugger's.
          environment: of `exec`, further variables.
          memory: bytes that it may use.
          temporary: of `spawn`, a folder to delete if this process dies.
        """
        self.name, self.memory = name, memory
        self._serve, self._start, self._under, self._temporary = serve, start, under, temporary
        self._environment = environment
        self._process: _Executed | _Forked | None = None
        # In append mode, since reading moves the position that the child shares.
        self._errors = tempfile.TemporaryFile("a+b") if start == "exec" else None  # noqa: SIM115

    def start(self) -> None:
        """Starts the process if there is none, or if it died."""
        if self._process is not None and self._process.status() is None:
            return
        if self._process is not None:
            self._process.close()
        if isinstance(self._serve, str):
            self._process = _Executed(self._serve, self._under, self._environment, self._errors)
        else:
            self._process = _Forked(self._serve, CONTEXTS[self._start], self._start == "spawn", self._temporary)

    def ask(
        self, request: Mapping[str, Any], seconds: float = math.inf, on_wait: Callable[[], None] = lambda: None
    ) -> Answer:
        """Returns the answer to a request. Of `exec`, its key `stderr` holds what the child wrote there meanwhile.

        A child that takes longer than `seconds` is killed. `on_wait` is called several times a second; what it raises
        kills the child and is raised here. Raises a ChildEndedError if the child died or was killed, and a
        ChildRaisedError if it raised an exception, and goes on.
        """
        self.start()
        assert self._process is not None
        first = self._errors.seek(0, os.SEEK_END) if self._errors is not None else 0
        try:
            answer = self._exchange(self._process, json.dumps(request).encode() + b"\n", seconds, on_wait, first)
        except BaseException:
            self.kill()
            raise
        if _RAISED in answer:
            raise ChildRaisedError(answer[_RAISED])
        return answer if self._errors is None else {**answer, "stderr": self._written(first)}

    def _exchange(
        self, process: _Executed | _Forked, request: bytes, seconds: float, on_wait: Callable[[], None], first: int
    ) -> Answer:
        unsent, received, lines = memoryview(request), bytearray(), select.poll()
        lines.register(process.answers, select.POLLIN)
        lines.register(process.requests, select.POLLOUT)
        now = time.monotonic()
        deadline, next_check = now + seconds, now + _EVERY
        while True:
            ready = dict(lines.poll(1000 * max(0.0, min(next_check, deadline) - time.monotonic())))
            if process.requests in ready:
                try:
                    unsent = unsent[os.write(process.requests, unsent) :]
                except BrokenPipeError:  # it is dead, or will not read
                    unsent = unsent[:0]
                if not unsent:
                    lines.unregister(process.requests)
            if process.answers in ready:
                if not (text := os.read(process.answers, 2**20)):
                    ended = process.status(_IN_TRANSIT) is not None
                    raise self._ended(process, End.DIED if ended else End.SILENT, first)
                received += text
                *complete, received = received.split(b"\n") if b"\n" in text else (received,)
                for line in complete:
                    if (answer := _read_answer(line)) is not None:
                        return answer
            elif process.status() is not None:  # another process still holds the pipe open
                raise self._ended(process, End.DIED, first)
            now = time.monotonic()
            if now >= deadline:
                raise self._ended(process, End.LATE, first, f"did not answer within {seconds:g} s and was killed")
            if now >= next_check:
                next_check = now + _EVERY
                on_wait()
                if (used := self._used_memory(process)) > self.memory:
                    words = f"it used {used / 2**30:.1f} GiB; its limit is {self.memory / 2**30:.1f} GiB"
                    raise self._ended(process, End.MEMORY, first, words)

    def _ended(self, process: _Executed | _Forked, end: End, first: int, words: str = "") -> ChildEndedError:
        """Makes sure that the process has ended, and returns the error that says how."""
        if end is not End.DIED:
            self.kill()
        status = process.status(_IN_TRANSIT) or 0
        stderr = self._written(first) if self._errors is not None else ""
        if end is End.LATE:
            return ChildEndedError(end, status, words, f"{self.name} {words}", stderr)
        cause = words or ("what it writes does not arrive" if end is End.SILENT else _describe_exit(status))
        last_words = _last_words(stderr)
        message = words or f"died with exit code {status}{last_words and f': {last_words}'}"
        return ChildEndedError(end, status, cause, f"{self.name} {message}", stderr)

    def _used_memory(self, process: _Executed | _Forked) -> int:
        if self.memory == math.inf:
            return 0
        try:
            return int(psutil.Process(process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0

    def _written(self, first: int) -> str:
        assert self._errors is not None
        self._errors.seek(first)
        return self._errors.read().decode("utf-8", "replace")

    def kill(self, seconds: float = 0.0) -> None:
        """Kills the child and all processes that it has started; lets them end by themselves within some seconds."""
        if self._process is not None and self._process.status() is None:
            _end_processes(self._process.pid, seconds)
            self._process.status(_IN_TRANSIT)

    def close(self, seconds: float = math.inf) -> None:
        """Lets an idle child end by itself; kills it if that takes longer than `seconds`."""
        if self._process is not None:
            self._process.close_requests()
            if self._process.status(seconds) is None:
                self.kill()
            self._process.close()
            self._process = None
        if self._errors is not None:
            self._errors.close()


class Children:
    """A pool of the children that `make` returns, as many as threads ask at the same time."""

    def __init__(self, make: Callable[[], Child]) -> None:
        self._make = make
        self._idle: queue.LifoQueue[Child] = queue.LifoQueue()
        self._busy: set[Child] = set()

    def ask(self, request: Mapping[str, Any], seconds: float = math.inf) -> Answer:
        """Returns the answer of an idle child or a new one; see `Child.ask`."""
        try:
            child = self._idle.get_nowait()
        except queue.Empty:
            child = self._make()
        self._busy.add(child)
        try:
            return child.ask(request, seconds)
        finally:
            self._busy.discard(child)
            self._idle.put(child)

    def close(self) -> None:
        for child in list(self._busy):
            child.kill()
        while not self._idle.empty():
            self._idle.get_nowait().close()


def _end_processes(pid: int, seconds: float) -> None:
    try:
        root = psutil.Process(pid)
        alive = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for end in (psutil.Process.terminate, psutil.Process.kill) if seconds else (psutil.Process.kill,):
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(process)
        if seconds:
            _, alive = psutil.wait_procs(alive, timeout=seconds)


def _describe_exit(status: int) -> str:
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"it exited with status {status}" if status else "it exited without a crash report"


def run_tool(
    command: Sequence[str], seconds: float | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; returns its status and output. Raises OSError, `subprocess.TimeoutExpired`."""
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", timeout=seconds, env=environment, check=False
    )


def ask_nvidia_smi(field: str) -> list[str]:
    """Returns a property of each NVIDIA GPU, such as `index`; raises as `printed_lines` does."""
    return printed_lines("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader")


def printed_lines(*command: str) -> list[str]:
    """Returns the lines that a driver's tool prints; raises OSError, `subprocess.SubprocessError`."""
    done = run_tool(command, seconds=30)
    done.check_returncode()
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


# The parent's end of a process: the descriptors of its pipes, and its exit status once it has ended.

# The child gets this process's `sys.path`, which pytest or a script may have changed.
_RUN = "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[1]); runpy.run_module(sys.argv[2], None, '__main__')"


class _Pipes:
    _requests: Any
    _answers: Any

    def close_requests(self) -> None:
        self._requests.close()

    def close(self) -> None:
        self._requests.close()
        self._answers.close()


class _Executed(_Pipes):
    def __init__(self, module: str, under: Sequence[str], environment: Mapping[str, str] | None, errors: Any) -> None:
        command = [*under, sys.executable, "-c", _RUN, json.dumps(sys.path), module]
        # In a session of its own, it does not get the Ctrl-C that is meant for this process.
        self._process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            env={**os.environ, **(environment or {})}, start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.requests, self.answers = self._requests.fileno(), self._answers.fileno()
        os.set_blocking(self.requests, False)

    def status(self, seconds: float = 0.0) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(None if seconds == math.inf else seconds)
        return None


class _Forked(_Pipes):
    def __init__(self, serve: Serve, context: Any, is_worker: bool, temporary: Path | None) -> None:
        requests, self._requests = context.Pipe(duplex=False)
        self._answers, answers = context.Pipe(duplex=False)
        # At this process's exit, `multiprocessing` ends daemons, which may not start processes by it themselves.
        self._process = context.Process(
            target=_serve, args=(serve, requests, answers, is_worker, temporary), daemon=is_worker
        )
        with _hold_interrupts() if is_worker else contextlib.nullcontext():
            self._process.start()
        self._lock = threading.Lock()
        requests.close()
        answers.close()
        self.pid = int(self._process.pid)
        self.requests, self.answers = self._requests.fileno(), self._answers.fileno()
        os.set_blocking(self.requests, False)

    def status(self, seconds: float = 0.0) -> int | None:
        until = time.monotonic() + seconds
        while True:
            with self._lock:  # a status can be read once
                status: int | None = self._process.exitcode
            if status is not None or time.monotonic() >= until:
                return status
            # `join` would also wake up, and then wait, if tested code wrote to a pipe of `multiprocessing`.
            time.sleep(0.01)


# The child's side.


def answer_requests(answer: Callable[[Any], Mapping[str, Any]]) -> None:
    """Answers the requests on standard input until it ends: the child's side of `exec`. `answer` may print."""
    answers = os.dup(1)
    os.dup2(2, 1)
    _answer_lines(lambda: answer, 0, answers)


@contextlib.contextmanager
def _hold_interrupts() -> Iterator[None]:
    """Has a process that is started here inherit a block of Ctrl-C, which would end its imports with a traceback."""
    ensure_running()  # the start would start this tracker, which lifts the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    serve: Serve, requests: Connection, answers: Connection, is_worker: bool, temporary: Path | None
) -> None:  # of `spawn` and `forkserver`
    for connection in (requests, answers):
        os.set_inheritable(connection.fileno(), False)
    if is_worker:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        with contextlib.suppress(OSError):  # Linux only
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _answer_lines(serve, requests.fileno(), answers.fileno(), is_worker, temporary)


def _answer_lines(
    serve: Serve, requests: int, answers: int, is_worker: bool = False, temporary: Path | None = None
) -> None:
    is_busy = True

    def end_with_parent() -> None:
        hangup = select.poll()
        hangup.register(requests, 0)
        if any(event & select.POLLNVAL for _, event in hangup.poll()):
            return  # tested code closed it before this thread could wait for it
        if is_busy or is_worker:  # a worker is spared the exit handlers of tested code
            if temporary is not None:
                rmtree(temporary, ignore_errors=True)
            os.kill(os.getpid(), signal.SIGKILL)

    thread = threading.Thread(target=end_with_parent, name="kerneltest-parent", daemon=True)
    thread.start()
    answer, is_busy = serve(), False
    with open(requests, "rb", closefd=False) as lines:
        for line in lines:
            is_busy = True
            try:
                reply = json.dumps(answer(json.loads(line)))
            except Exception:
                reply = json.dumps({_RAISED: traceback.format_exc()})
            # After an empty line, since what tested code wrote may not have ended its own.
            text = memoryview(f"\n{reply}\n".encode())
            for pipe in (requests, answers):  # which tested code may have changed
                os.set_blocking(pipe, True)
            while text:
                text = text[os.write(answers, text) :]
            is_busy = False
    if is_worker:
        thread.join()


def _read_answer(line: bytes | bytearray) -> Answer | None:
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


_LOG_PREFIX = re.compile(r"[IWEF]\d{4} [\d:.]{1,20} +\d{1,9} [^\s\]]{1,99}\] ")  # of Google's libraries
_STACK = ("stack trace:", "Begin stack trace", "Stack dump:")


def _last_words(errors: str) -> str:
    """Returns the last three lines of standard error, joined: those before a stack trace, if there are any."""
    lines = [line for line in errors.splitlines() if line.strip()]
    end = next((i for i, line in enumerate(lines) if any(words in line for words in _STACK)), 0) or len(lines)
    return " | ".join(_LOG_PREFIX.sub("", line, count=1) for line in lines[max(0, end - 3) : end])
