"""What shows that an output is wrong: where, how far, and what that looks like."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltest.judge.diagnose import Mismatch, diagnose, fed
from kerneltest.core.dtypes import Array
from kerneltest.run.item import Item
from kerneltest.judge.compare import Comparison, describe
from kerneltest.judge.locate import Axis, axes_of, locate
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.schema import Evidence, Record
from kerneltest.jaxprs.trace import TraceError, trace
from kerneltest.judge.windows import input_windows, output_window


def mismatch(
    item: Item,
    signature: Signature,
    base: Record,
    number: int,
    comparison: Comparison,
    arguments: Mapping[str, Array],
    gradient_of: str = "",
) -> Record:
    """`base` as a finding: output `number`, or the gradient with respect to a leaf, is wrong."""
    named = item.pairing.leaves[gradient_of].shape if gradient_of else _output_dims(item.pairing, number, item.depth)
    axes = _axes(item.pairing, [str(name) for name in named], comparison.actual.shape)
    place = locate(comparison, axes)
    interpreted = item.backend.tier == "interpret"
    told = Mismatch(item.pairing, signature, arguments, number, comparison, axes, interpreted)
    diagnosis = "" if gradient_of else diagnose(told)
    special = fed(arguments) if item.group != "structural" else ""
    wrong, total = int(comparison.wrong.sum()), comparison.wrong.size
    where = f"[{', '.join(map(str, place.index))}]"
    tile = f", tile {place.tile}" if place.tile else ""
    which = f"by {gradient_of}: " if gradient_of else f"output {number}: " if number else ""
    message = f"{which}{wrong} of {total} elements wrong"
    message += f", {place.pattern}" if place.pattern else ""
    message += f"; worst at {where}{tile}: {describe(comparison, place.index)}"
    message += f"\n{diagnosis}" if diagnosis else ""
    message += f"\n{special}" if special else ""
    evidence = Evidence(
        output=number,
        index=place.index,
        tile=place.tile,
        wrong_tiles=place.wrong_tiles,
        pattern=place.pattern,
        diagnosis=diagnosis,
        actual=_plain(comparison.actual[place.index]),
        expected=_plain(comparison.expected[place.index]),
        bound=float(comparison.bound[place.index]),
        arguments={path: _excerpt(value) for path, value in arguments.items()},
        window=output_window(comparison, place.index, axes),
        inputs=input_windows(
            item.pairing, arguments, dict(zip([axis.name for axis in axes], place.index, strict=True))
        ),
    )
    return replace(base, verdict=comparison.verdict, message=message, wrong=wrong, evidence=evidence)


def _axes(pairing: Pairing, names: Sequence[str], shape: tuple[int, ...]) -> tuple[Axis, ...]:
    return tuple(
        Axis(name or f"axis{i}", length, pairing.dims[name].tile if name in pairing.dims else None)
        for i, (name, length) in enumerate(zip(names, shape, strict=True))
    )


@functools.lru_cache(maxsize=64)
def _output_dims(pairing: Pairing, output: int, depth: str) -> tuple[str, ...]:
    """The dims of an output's axes, from its shapes over signatures. Traced again, since only a finding needs it."""
    shapes, lengths = [], []
    for signature in signatures(pairing, depth):
        try:
            shapes.append(trace(pairing, signature).outputs[output].shape)
        except TraceError:
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
