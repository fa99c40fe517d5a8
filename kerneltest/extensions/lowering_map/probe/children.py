"""Cells probed in child processes: one that aborts or hangs costs one outcome; the next child continues after it."""

import faulthandler
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence

from .cells import Cell, CellOutcome, probe_cell
from .messages import with_reason
from .tpu_topology import ENVIRONMENT

SECONDS_PER_CELL = 120


def probe_in_children(count: int, command: Sequence[str]) -> list[CellOutcome | None]:
    """Returns the outcomes of cells that child processes probe.

    Args:
      count: the number of cells.
      command: starts a child, with the number of its first cell appended.
    """
    outcomes: list[CellOutcome | None] = []
    while len(outcomes) < count:
        with tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                [*command, str(len(outcomes))],
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                env={**os.environ, **ENVIRONMENT, "JAX_PLATFORMS": "cpu"},
            )
            assert process.stdout is not None
            lines = [json.loads(line) for line in process.stdout if line.endswith("\n")]
            outcomes += [CellOutcome(*outcome) if outcome else None for outcome in lines]
            status = process.wait()
            if len(outcomes) < count:
                stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - 4000))
                outcomes.append(CellOutcome("error", _death(status, stderr.read().decode(errors="replace"))))
    return outcomes


def print_outcomes(cells: Sequence[Cell], *, compiled: bool) -> None:
    """Prints the outcome of each cell as one line of JSON; in a child, whose stderr must be a file."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keeps everything else that is printed out of the outcomes
    for cell in cells:
        faulthandler.dump_traceback_later(SECONDS_PER_CELL, exit=True)
        start = os.lseek(2, 0, os.SEEK_END)
        outcome = probe_cell(cell, compiled=compiled)
        if outcome and outcome.outcome == "error":
            printed = os.pread(2, 1 << 16, start).decode(errors="replace")
            outcome = CellOutcome("error", with_reason(outcome.message, printed))
        output.write(json.dumps(outcome) + "\n")
        output.flush()


def _death(status: int, printed: str) -> str:
    if "Timeout (" in printed:
        return f"no answer within {SECONDS_PER_CELL} s"
    cause = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return with_reason(f"the compiler died ({cause})", printed)
