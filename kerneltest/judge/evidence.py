"""What shows that an output is wrong: where, how far, and what that looks like."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.jaxprs.trace import trace
from kerneltest.judge.compare import Comparison, describe
from kerneltest.judge.diagnose import Mismatch, diagnose, special_inputs
from kerneltest.judge.locate import Axis, axes_of, locate
from kerneltest.judge.windows import input_windows, output_window
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.schema import Evidence, Record


def mismatch(
    record: Record,
    pairing: Pairing,
    signature: Signature,
    arguments: Mapping[str, Array],
    output: int,
    comparison: Comparison,
    *,
    depth: str,
    interpreted: bool,
    structural: bool,
    gradient_of: str = "",
) -> Record:
    """A record as a finding, with its evidence.

    Args:
      record: of the case.
      pairing, signature: of the case.
      arguments: its array arguments, by path.
      output: which output is wrong, counted from 0.
      comparison: of that output; some element is wrong.
      depth: of the run, whose signatures tell which dims the output has.
      interpreted: the kernel ran on an interpreter.
      structural: the values keep the kernel's arithmetic exact, so specials among them are not what went wrong.
      gradient_of: the leaf with respect to which the output is a gradient, or "".
    """
    named = pairing.leaves[gradient_of].shape if gradient_of else _output_dims(pairing, output, depth)
    axes = _axes(pairing, [str(name) for name in named], comparison.actual.shape)
    place = locate(comparison, axes)
    diagnosis = ""
    if not gradient_of:
        diagnosis = diagnose(Mismatch(pairing, signature, arguments, output, comparison, axes, interpreted))
    special = "" if structural else special_inputs(arguments)
    wrong, total = int(comparison.wrong.sum()), comparison.wrong.size
    where = f"[{', '.join(map(str, place.index))}]"
    block = f", block {place.block}" if place.block else ""
    which = f"by {gradient_of}: " if gradient_of else f"output {output}: " if output else ""
    message = f"{which}{wrong} of {total} elements wrong"
    message += f", {place.pattern}" if place.pattern else ""
    message += f"; worst at {where}{block}: {describe(comparison, place.index)}"
    message += f"\n{diagnosis}" if diagnosis else ""
    message += f"\n{special}" if special else ""
    evidence = Evidence(
        output=output,
        index=place.index,
        block=place.block,
        wrong_blocks=place.wrong_blocks,
        pattern=place.pattern,
        diagnosis=diagnosis,
        actual=_plain(comparison.actual[place.index]),
        expected=_plain(comparison.expected[place.index]),
        bound=float(comparison.bound[place.index]),
        arguments={path: _excerpt(value) for path, value in arguments.items()},
        window=output_window(comparison, place.index, axes),
        inputs=input_windows(pairing, arguments, dict(zip([axis.name for axis in axes], place.index, strict=True))),
    )
    return replace(record, verdict=comparison.verdict, message=message, wrong=wrong, evidence=evidence)


def _axes(pairing: Pairing, names: Sequence[str], shape: tuple[int, ...]) -> tuple[Axis, ...]:
    return tuple(
        Axis(name or f"axis{i}", length, pairing.dims[name].block if name in pairing.dims else None)
        for i, (name, length) in enumerate(zip(names, shape, strict=True))
    )


@functools.lru_cache(maxsize=64)
def _output_dims(pairing: Pairing, output: int, depth: str) -> tuple[str, ...]:
    """The dims of an output's axes, from its shapes over signatures. Traced again, since only a finding needs it."""
    shapes, lengths = [], []
    for signature in signatures(pairing, depth):
        try:
            shapes.append(trace(pairing, signature).outputs[output].shape)
        except Failure:
            continue
        lengths.append(dict(signature.dims))
        if len(shapes) > 1 and all(axes_of(shapes, lengths)):
            break
    return axes_of(shapes, lengths)


def _plain(value: Any) -> float | int | bool:
    number = value.item() if hasattr(value, "item") else value
    return number if isinstance(number, (bool, int)) else float(number)


def _excerpt(value: Array) -> str:
    with np.printoptions(threshold=40, edgeitems=3, precision=6, linewidth=100):
        return f"{value.dtype.name}{list(value.shape)} {value.astype(np.float64) if value.dtype != bool else value}"
