"""Whether what a pairing says its output elements need is all that its oracle needs."""

import functools
from collections.abc import Sequence

import numpy as np

from kerneltest.core.details import Stated
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.mismatch_evidence import output_dims
from kerneltest.oracle.evaluation import expect
from kerneltest.plan.production_sizes import (
    part_arguments,
    part_output,
    position_along_dims,
    position_coded_arrays,
    required_part,
)
from kerneltest.plan.signatures import signatures
from kerneltest.trace.partial_arrays import format_element
from kerneltest.trace.tracing import trace
from kerneltest.trace.virtual_arrays import axis_indices

_LOOKED_AT = 5
_ROUNDED = 1e-9  # relative: an oracle sums the parts of an array in another order


def derived_output(pairing: Pairing, dtype: str, depth: str, outputs: Sequence[ShapeDtype]) -> str:
    """An axis of an output whose length is no dim and still not always the same, in words; "" where there is none."""
    short = trace(pairing, next(each for each in signatures(pairing, depth) if each.dtype == dtype)).outputs
    for number, (one, other) in enumerate(zip(short, outputs, strict=True)):
        for axis, name in enumerate(output_dims(pairing, number, depth)):
            if not name and one.shape[axis] != other.shape[axis]:
                return f"axis {axis} of output {number}"
    return ""


@functools.lru_cache(maxsize=256)
def check_needs(pairing: Pairing, dtype: str, depth: str) -> None:
    """Holds the oracle's answers for parts against its answer for the whole, for a signature that is planned.

    Raises:
      Failure: `oracle_error`; names the element and both answers.
    """
    planned = [each for each in signatures(pairing, depth) if each.dtype == dtype]
    signature = max(planned, key=lambda each: min((n for _, n in each.dims), default=0))
    outputs, held = trace(pairing, signature).outputs, position_coded_arrays(pairing, signature)
    whole_of = required_part(pairing, signature, {})
    whole = expect(pairing, signature, part_arguments(pairing, whole_of, held), outputs, bitwise=True).values
    for number, values in enumerate(whole):
        names = output_dims(pairing, number, depth)
        for offset in np.unique(np.linspace(0, values.size - 1, _LOOKED_AT).astype(np.int64)) if values.size else ():
            index = [int(i) for i in axis_indices(offset, values.shape)]
            part = required_part(pairing, signature, position_along_dims(names, index))
            shapes = tuple(part_output(part, each, output_dims(pairing, i, depth)) for i, each in enumerate(outputs))
            answers = expect(pairing, part.signature, part_arguments(pairing, part, held), shapes, bitwise=True).values
            answer = answers[number][tuple(i - part.start.get(name, 0) for i, name in zip(index, names, strict=True))]
            if not np.isclose(values[tuple(index)], answer, rtol=_ROUNDED, atol=0, equal_nan=True):
                detail = Stated(
                    "output {output}{element} needs more than batch_dims= and needs= say of {dims}: the oracle gives "
                    "{whole} for the whole input, and {part} for the part ({signature})",
                    {
                        "output": number,
                        "element": format_element(values.shape, int(offset)),
                        "dims": ", ".join(pairing.needs),
                        "whole": str(values[tuple(index)]),
                        "part": str(answer),
                        "signature": str(signature),
                    },
                )
                raise Failure(Verdict.ORACLE_ERROR, detail)
