"""The probe's command line, and the child processes that probe: one that aborts or hangs costs one cell."""

import argparse
import faulthandler
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import jax

from .cells import Cell, CellOutcome, merge_outcomes, probe_cell, select_cells, with_reason
from .lowering import LIBTPU_ENVIRONMENT, read_targets

SCHEMA = 2
_COMPILES_FOR = {"triton": "GPUs", "libtpu": "TPUs (pip install 'jax[tpu]')"}


def main() -> int:
    """Prints the map of the installed JAX; returns the exit status."""
    parser = argparse.ArgumentParser(prog="probe", description="Probe what the installed JAX lowers.")
    parser.add_argument("--targets", required=True, type=read_targets, metavar="JSON")
    parser.add_argument("--primitives", default="", help="such as exp,sort (default: all)")
    parser.add_argument("--compile", action="store_true", help="also compile what lowers, with triton and libtpu")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    try:
        cells = select_cells(chosen.targets, [name for name in chosen.primitives.split(",") if name])
        needed = {"libtpu" if target.topology else "triton" for target in chosen.targets} if chosen.compile else ()
        compilers = {name: metadata.version(name) if name in needed else "" for name in ("triton", "libtpu")}
    except ValueError as error:
        parser.error(str(error))
    except metadata.PackageNotFoundError as error:
        parser.error(f"--compile needs {error.name} for {_COMPILES_FOR[error.name]}")
    if chosen.child is not None:
        print_outcomes(cells[chosen.child :], compiled=chosen.compile)
        return 0
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent), *sys.argv[1:], "--child"]
    header = {
        "schema": SCHEMA,
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "python": platform.python_version(),
        **compilers,
        "targets": [target.id for target in chosen.targets],
    }
    print(json.dumps({**header, "results": merge_outcomes(cells, probe_in_children(len(cells), command))}))
    return 0


SECONDS_PER_CELL = 120


def probe_in_children(count: int, command: Sequence[str]) -> list[CellOutcome | None]:
    """Returns the outcomes of `count` cells. `command`, with the number of its first cell, starts a child process."""
    outcomes: list[CellOutcome | None] = []
    while len(outcomes) < count:
        with tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                [*command, str(len(outcomes))],
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                env={**os.environ, **LIBTPU_ENVIRONMENT, "JAX_PLATFORMS": "cpu"},
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
