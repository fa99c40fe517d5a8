"""The cells of a map: their selection, their outcomes, and the results that merge equal ones."""

import difflib
import re
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from .lowering import EmptyError, Target, lower
from .probes import AbsentError, LoweringProbe, probes


class Cell(NamedTuple):
    """A probe for one dtype and one target."""

    probe: LoweringProbe
    dtype: str
    target: Target


class CellOutcome(NamedTuple):
    """The outcome of a cell."""

    outcome: str  # `compiles`, `lowers`, `error`, `unimplemented` or `absent`
    message: str  # JAX's or the compiler's; "" for a cell that lowers


def select_cells(targets: Sequence[Target], primitives: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Returns the cells of primitives, named with or without a variant (() for all); ValueError for an unknown one."""
    names = {probe: {probe.name, probe.name.split("[")[0]} for probe in probes()}
    every = set().union(*names.values())
    if unknown := [name for name in primitives if name not in every]:
        close = difflib.get_close_matches(unknown[0], sorted(every), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown primitive {', '.join(unknown)}{hint}")
    chosen = [probe for probe in names if not primitives or names[probe] & set(primitives)]
    return tuple(
        Cell(probe, dtype, target)
        for probe in chosen
        for dtype in probe.dtypes
        for target in targets
        if probe.only in ("", "tpu" if target.topology else "gpu")
    )


def probe_cell(cell: Cell, *, compiled: bool) -> CellOutcome | None:
    """Lowers a cell, and compiles it if `compiled`; None if lax itself refuses the dtype."""
    try:
        if not lower(*cell, compiled=compiled):
            return None
    except AbsentError as error:
        return CellOutcome("absent", str(error))
    except EmptyError as error:
        return CellOutcome("error", str(error))
    except Exception as error:
        message = first_cause(error)
        return CellOutcome("unimplemented" if "unimplemented primitive" in message.lower() else "error", message)
    return CellOutcome("compiles" if compiled else "lowers", "")


def merge_outcomes(cells: Sequence[Cell], outcomes: Sequence[CellOutcome | None]) -> list[dict[str, Any]]:
    """Returns the results of a map as JSON: dtypes and targets with the same primitive and outcome share a result."""
    accepted = {cell.probe.name for cell, outcome in zip(cells, outcomes, strict=True) if outcome}
    refused = CellOutcome("absent", "lax refuses it for every dtype")
    dtypes: dict[tuple[str, str, CellOutcome, str], list[str]] = {}
    for (probe, dtype, target), outcome in zip(cells, outcomes, strict=True):
        if outcome := outcome if probe.name in accepted else refused:
            dtypes.setdefault((probe.name, probe.group, outcome, target.id), []).append(dtype)
    targets: dict[tuple[str, str, CellOutcome, tuple[str, ...]], list[str]] = {}
    for (name, group, outcome, target_id), shared in dtypes.items():
        targets.setdefault((name, group, outcome, tuple(shared)), []).append(target_id)
    return [
        {"primitive": name, "group": group, **outcome._asdict(), "dtypes": shared, "targets": ids}
        for (name, group, outcome, shared), ids in targets.items()
    ]


# Messages of JAX and compilers, shortened to one line that is the same for the same failure.

MAX_LENGTH = 300
# The text that MLIR and XLA put around a cause: the place in the probe, the instruction, the pass that failed.
_AROUND = re.compile(
    r"""(?<=error:\ )"[^\n]{0,999}?\):\ | (?<!\s)\s+(?:note:\ "|see\ current\ operation:|at\ location:\ loc\().*
    | :\ %\S+\ =\ .* | \b\w+:\ Mosaic\ failed\ to\ compile\ TPU\ kernel[^:]*:\s+""",
    re.VERBOSE | re.DOTALL,
)
# The line with the cause, as LLVM, the C library, libtpu and ptxas write it.
_REASON = re.compile(r"LLVM ERROR: .*|Assertion .*|^F\d{4} .*|(?<=error: )(?!Failures have been detected).*", re.M)
_STAMP = re.compile(r"\bF\d{4} [\d:.]+ +\d+ \S+\] ")  # the time, the process and the line of libtpu's source


def first_cause(error: BaseException) -> str:
    """Returns the type and text of the innermost cause, without the exceptions that JAX wraps around it."""
    while error.__cause__ is not None and type(error.__cause__).__name__ != "JaxStackTraceBeforeTransformation":
        error = error.__cause__
    words = str(error)
    if not words and error.__traceback__:
        words = "in " + list(traceback.walk_tb(error.__traceback__))[-1][0].f_code.co_name
    return one_line(f"{type(error).__name__}: {_AROUND.sub('', words)}")


def one_line(text: str) -> str:
    """Returns the text on one line, truncated, without folders, times and the random names of temporary files."""
    without_folders = re.sub(r"(?<![\w:/])/(?:[^/\s:\"']+/)+", "", " ".join(text.split()))
    return re.sub(r"\btmp\w{8}\b", "tmp", _STAMP.sub("", without_folders))[:MAX_LENGTH]


def with_reason(message: str, printed: str) -> str:
    """Returns a message, followed by the line of a compiler's output that gives the cause."""
    reason = re.search(_REASON, printed)
    line = reason[0] if reason else printed.strip().partition("\n")[0]
    return one_line(f"{message}: {line}".rstrip(": "))
