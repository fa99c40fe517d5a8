"""Lowered kernels through Triton's compiler: in child processes, side by side, answers kept on disk by content."""

import atexit
import functools
import gzip
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from kerneltest.backends.codegen.lower import Kernel
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict

_MOST_STDERR = 8000


class Worker:
    """A child process that runs a module which answers JSON lines with JSON lines; started again when it died.

    Args:
      module: to run.
      name: what failures call it.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")  # noqa: SIM115

    def ask(self, request: Mapping[str, Any], seconds: float) -> Any:
        """The answer to one request, with what the child wrote to standard error meanwhile under `stderr`.

        Raises:
          Failure: the child died, or took longer than `seconds` and was ended.
        """
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", self.module]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        start = self._errors.seek(0, os.SEEK_END)
        timer = threading.Timer(seconds, process.kill)
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
            raise Failure(Verdict.HANG, f"{self.name} gave no answer within {seconds:g} s and was ended", errors)
        last = [text for text in errors.splitlines() if text.strip()][-3:]
        said = f": {' | '.join(last)}" if last else ""
        raise Failure(Verdict.CRASH, f"{self.name} died with exit code {code}{said}", errors)

    def kill(self) -> None:
        """Ends the child at once, whatever it does."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Ends the child, once it has answered."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
        self._errors.close()


class Workers:
    """As many workers as threads ask at once, kept for the next question."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._busy: set[Worker] = set()

    def ask(self, request: Mapping[str, Any], seconds: float) -> Any:
        """As `Worker.ask`, by a worker that is idle or a new one."""
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
        """Ends the children, those that are at work too."""
        for worker in list(self._busy):
            worker.kill()
        while not self._idle.empty():
            self._idle.get_nowait().close()


# A block that is too large for the registers can take LLVM minutes.
SECONDS = 120.0

_workers = Workers("kerneltest.backends.codegen.triton_compiler", "Triton's compiler")
atexit.register(_workers.close)
_folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of one kernel.

    Attributes:
      facts: registers a thread, bytes of shared memory, of stack and of spilled registers, counts of instructions.
      advice: what its author may want to change.
      assembly: PTX or AMDGCN.
    """

    facts: dict[str, int]
    advice: tuple[str, ...]
    assembly: str


def keep_answers(folder: Path) -> None:
    """Keeps the compiler's answers in `folder` between runs."""
    global _folder
    _folder = folder
    folder.mkdir(parents=True, exist_ok=True)


@functools.cache
def triton_version() -> str:
    """Of the installed triton package."""
    return metadata.version("triton")


def compile_kernel(kernel: Kernel, target: Target) -> Compiled:
    """Compiles one kernel, or recalls it.

    Raises:
      Failure: what the compiler says, or that it died or took too long.
    """
    text = kernel.text
    request = {
        "text": text,
        "platform": target.platform,
        "arch": target.arch,
        "warp": target.warp,
        "warps": kernel.warps,
        "stages": kernel.stages,
        "shared_memory": target.shared_memory,
    }
    answer = _recalled(request) or _asked(request)
    if "verdict" in answer:
        raise Failure(Verdict(answer["verdict"]), answer["message"])
    return Compiled(answer["facts"], _advice(answer["facts"], text, target), answer["assembly"])


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = _workers.ask(request, SECONDS)
    said = [line for line in answer.pop("stderr").splitlines() if "error" in line.lower()]
    if answer.get("verdict") == Verdict.COMPILE_ERROR and said:
        answer["message"] += f" ({said[-1].strip()})"
    path = _path(request)
    if path is not None:
        temporary = path.with_suffix(f".{os.getpid()}.{id(answer)}")
        temporary.write_bytes(gzip.compress(json.dumps(answer).encode()))
        temporary.replace(path)
    return answer


def _recalled(request: dict[str, Any]) -> dict[str, Any] | None:
    path = _path(request)
    if path is None or not path.exists():
        return None
    try:
        answer = json.loads(gzip.decompress(path.read_bytes()))
        if not ({"facts", "assembly"} <= answer.keys() or {"verdict", "message"} <= answer.keys()):
            raise ValueError("it is not an answer of the compiler")
    except (OSError, ValueError, AttributeError, EOFError) as error:
        warnings.warn(f"{path} cannot be read ({error}): compiling again", stacklevel=2)
        return None
    return dict(answer)


def _path(request: dict[str, Any]) -> Path | None:
    if _folder is None:
        return None
    content = json.dumps({**request, "triton": triton_version()}, sort_keys=True)
    return _folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json.gz"


def _advice(facts: dict[str, int], text: str, target: Target) -> tuple[str, ...]:
    advice = []
    if facts.get("spills"):
        advice.append(
            f"{facts['spills']} bytes a thread spilled from registers to memory: smaller blocks, or more warps"
        )
    if facts["shared memory"] * 2 > target.shared_memory:
        share = facts["shared memory"] / target.shared_memory
        advice.append(f"{share:.0%} of the target's shared memory, so one block at a time: smaller blocks or stages")
    if facts["float64 instructions"] and "f64" not in text:
        advice.append(f"{facts['float64 instructions']} float64 instructions in a kernel without float64 values")
    if "tt.dot" in text and not facts["matrix instructions"]:
        asked = " (inputPrecision = ieee asks for that)" if "inputPrecision = ieee" in text else ""
        advice.append(f"a dot without matrix instructions{asked}: every product is an ordinary multiply-add")
    return tuple(advice)
