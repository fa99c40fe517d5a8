"""The cells of a map: which to ask for, what becomes of one, and the results that share rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .kernels import probes
from .kernels.base import AbsentError, Probe
from .lower import EmptyError, lower
from .messages import first_cause
from .target import Target, Tpu


class Cell(NamedTuple):
    """A probe for one dtype and one target."""

    probe: Probe
    dtype: str
    target: Target


class Answer(NamedTuple):
    """What became of a cell.

    Attributes:
      outcome: `compiles`, `lowers`, `error`, `unimplemented` or `absent`.
      message: JAX's or the compiler's; "" for a cell that lowers.
    """

    outcome: str
    message: str


def select_cells(targets: Sequence[Target], primitives: Sequence[str] = ()) -> tuple[Cell, ...]:
    """The cells of some primitives, or of all if none is named; `sort` selects the primitive with its variants.

    What only GPUs or only TPUs have is not asked of the others.

    Raises:
      ValueError: a primitive is unknown.
    """
    names = {probe: {probe.name, probe.name.split("[")[0]} for probe in probes()}
    if unknown := [name for name in primitives if name not in set().union(*names.values())]:
        raise ValueError(f"unknown primitive {', '.join(unknown)}")
    chosen = [probe for probe in names if not primitives or names[probe] & set(primitives)]
    return tuple(
        Cell(probe, dtype, target)
        for probe in chosen
        for dtype in probe.dtypes
        for target in targets
        if probe.only in ("", "tpu" if isinstance(target, Tpu) else "gpu")
    )


def ask(cell: Cell, *, compiled: bool) -> Answer | None:
    """What becomes of a cell when it is lowered, and compiled if asked; None where lax has no such operation."""
    try:
        if not lower(*cell, compiled=compiled):
            return None
    except AbsentError as error:
        return Answer("absent", str(error))
    except EmptyError as error:
        return Answer("error", str(error))
    except Exception as error:
        message = first_cause(error)
        return Answer("unimplemented" if "unimplemented primitive" in message.lower() else "error", message)
    return Answer("compiles" if compiled else "lowers", "")


def merge_answers(cells: Sequence[Cell], answers: Sequence[Answer | None]) -> list[dict[str, Any]]:
    """The results of a map: the dtypes and targets that share a primitive and an answer share a result."""
    accepted = {cell.probe.name for cell, answer in zip(cells, answers, strict=True) if answer}
    refused = Answer("absent", "lax refuses it for every dtype asked for")
    dtypes: dict[tuple[str, str, Answer, str], list[str]] = {}
    for (probe, dtype, target), answer in zip(cells, answers, strict=True):
        if answer := answer if probe.name in accepted else refused:
            dtypes.setdefault((probe.name, probe.group, answer, target.id), []).append(dtype)
    targets: dict[tuple[str, str, Answer, tuple[str, ...]], list[str]] = {}
    for (name, group, answer, target_id), shared in dtypes.items():
        targets.setdefault((name, group, answer, tuple(shared)), []).append(target_id)
    return [
        {"primitive": name, "group": group, **answer._asdict(), "dtypes": shared, "targets": ids}
        for (name, group, answer, shared), ids in targets.items()
    ]
