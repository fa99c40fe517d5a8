"""Compilers in child processes, which run in parallel, are killed if they hang and restarted if they die."""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kerneltest.core.details import Crashed, Hung
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict

# The child gets its parent's `sys.path`, which pytest or a script may have changed.
_RUN = "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[1]); runpy.run_module(sys.argv[2], None, '__main__')"


_LOG_PREFIX = re.compile(r"[IWEF]\d{4} [\d:.]{1,20} +\d{1,9} [^\s\]]{1,99}\] ")  # of Google's libraries
_STACK = ("stack trace:", "Begin stack trace", "Stack dump:")


def _last_words(errors: str) -> str:
    """Returns the last three lines of standard error, joined: those before a stack trace, if there are any."""
    lines = [line for line in errors.splitlines() if line.strip()]
    end = next((i for i, line in enumerate(lines) if any(words in line for words in _STACK)), 0) or len(lines)
    return " | ".join(_LOG_PREFIX.sub("", line, count=1) for line in lines[max(0, end - 3) : end])


class Worker:
    """A child process that answers JSON lines with JSON lines. It is restarted if it dies.

    Args:
      module: the module that it runs.
      name: its name in failures.
      under: a command with options to run it under, such as a debugger's, which may start further processes.
      environment: variables to set for it.
    """

    def __init__(
        self, module: str, name: str, under: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.module, self.name = module, name
        self.under, self.environment = under, environment
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")  # noqa: SIM115

    def start(self) -> "subprocess.Popen[str]":
        """Returns the child, started if there is none or if it died."""
        if self._process is None or self._process.poll() is not None:
            command = [*self.under, sys.executable, "-c", _RUN, json.dumps(sys.path), self.module]
            pipe = subprocess.PIPE
            environment = {**os.environ, **self.environment} if self.environment else None
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, env=environment,
                start_new_session=bool(self.under),
            )  # fmt: skip
        return self._process

    def ask(self, request: Mapping[str, Any], seconds: float) -> Any:
        """Returns the answer to one request; its key `stderr` holds the child's standard error meanwhile.

        Raises:
          Failure: the child died, or took longer than `seconds` and was killed.
        """
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        start = self._errors.seek(0, os.SEEK_END)
        timer = threading.Timer(seconds, self.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            expired = not timer.is_alive()
            timer.cancel()
        if line.endswith("\n"):
            self._errors.seek(start)
            return {**json.loads(line), "stderr": self._errors.read()}
        code = process.wait()
        self._errors.seek(start)
        errors = self._errors.read()
        if expired:
            words = f"{self.name} did not answer within {seconds:g} s and was killed"
            raise Failure(Verdict.HANG, Hung(words), errors)
        said = _last_words(errors)
        raise Failure(
            Verdict.CRASH, Crashed("", f"{self.name} died with exit code {code}{said and f': {said}'}"), errors
        )

    def kill(self) -> None:
        """Kills the child."""
        if self._process is None or self._process.poll() is not None:
            return
        if self.under:  # with the processes that it has started
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()

    def close(self, seconds: float | None = None) -> None:
        """Ends the child after its current answer; kills it if that takes longer than `seconds`."""
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                self._process.wait()
        self._errors.close()


class Workers:
    """A pool of workers that grows to the number of threads that ask at the same time."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._busy: set[Worker] = set()

    def ask(self, request: Mapping[str, Any], seconds: float) -> Any:
        """Returns the answer of an idle worker or a new one; see `Worker.ask`."""
        try:
            worker = self._idle.get_nowait()
        except queue.Empty:
            worker = Worker(self.module, self.name)
        self._busy.add(worker)
        try:
            return worker.ask(request, seconds)
        finally:
            self._busy.discard(worker)
            self._idle.put(worker)

    def close(self) -> None:
        """Ends all children; kills those that are busy."""
        for worker in list(self._busy):
            worker.kill()
        while not self._idle.empty():
            self._idle.get_nowait().close()


def answer_requests(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers each line on standard input with a line, until it ends: the child's side of a `Worker`.

    Args:
      answer: returns the answer to a request; it may print, which does not reach the answers.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)
