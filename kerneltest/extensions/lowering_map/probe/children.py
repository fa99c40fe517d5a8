"""Cells asked in child processes: one that aborts or hangs costs one answer, and the next child goes on behind it."""

import faulthandler
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence

from .cells import Answer, Cell, ask
from .messages import with_reason
from .tpu import ENVIRONMENT

SECONDS_PER_CELL = 120


def answer_in_children(count: int, command: Sequence[str]) -> list[Answer | None]:
    """The answers to `count` cells, from children started by `command` with the number of their first cell added."""
    answers: list[Answer | None] = []
    while len(answers) < count:
        with tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                [*command, str(len(answers))],
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                env={**os.environ, **ENVIRONMENT, "JAX_PLATFORMS": "cpu"},
            )
            assert process.stdout is not None
            lines = [json.loads(line) for line in process.stdout if line.endswith("\n")]
            answers += [Answer(*answer) if answer else None for answer in lines]
            status = process.wait()
            if len(answers) < count:
                stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - 4000))
                answers.append(Answer("error", _death(status, stderr.read().decode(errors="replace"))))
    return answers


def print_answers(cells: Sequence[Cell], *, compiled: bool) -> None:
    """In a child whose stderr is a file: prints the answer to each cell as one line of JSON."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed stays out of the answers
    for cell in cells:
        faulthandler.dump_traceback_later(SECONDS_PER_CELL, exit=True)
        start = os.lseek(2, 0, os.SEEK_END)
        answer = ask(cell, compiled=compiled)
        if answer and answer.outcome == "error":
            printed = os.pread(2, 1 << 16, start).decode(errors="replace")
            answer = Answer("error", with_reason(answer.message, printed))
        output.write(json.dumps(answer) + "\n")
        output.flush()


def _death(status: int, printed: str) -> str:
    if "Timeout (" in printed:
        return f"no answer within {SECONDS_PER_CELL} s"
    cause = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return with_reason(f"the compiler died ({cause})", printed)
