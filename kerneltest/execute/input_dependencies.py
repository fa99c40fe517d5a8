"""A check of `needs=` and `batch_dims=`: the inputs on which they say an output element depends must be all of them."""

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

_CHECKED = 5  # elements of each output
_ROUNDING = 1e-9  # relative difference in float64, since an oracle sums a part in another order


def find_derived_axis(pairing: Pairing, dtype: str, depth: str, outputs: Sequence[ShapeDtype]) -> str:
    """Returns an axis of an output whose length varies and is not a dim, as `axis 0 of output 1`; "" if there is none.

    Args:
      pairing, dtype, depth: determine the planned signatures.
      outputs: shapes of the outputs at production sizes.
    """
    short = trace(pairing, next(each for each in signatures(pairing, depth) if each.dtype == dtype)).outputs
    for number, (one, other) in enumerate(zip(short, outputs, strict=True)):
        for axis, name in enumerate(output_dims(pairing, number, depth)):
            if not name and one.shape[axis] != other.shape[axis]:
                return f"axis {axis} of output {number}"
    return ""


@functools.lru_cache(maxsize=256)
def check_needs(pairing: Pairing, dtype: str, depth: str) -> None:
    """Checks that the oracle gives the same values for parts of its inputs as for whole ones, for a planned signature.

    Raises:
      Failure: `oracle_error`; names the element and both values.
    """
    planned = [each for each in signatures(pairing, depth) if each.dtype == dtype]
    signature = max(planned, key=lambda each: min((n for _, n in each.dims), default=0))
    outputs, inputs = trace(pairing, signature).outputs, position_coded_arrays(pairing, signature)
    everything = required_part(pairing, signature, {})
    whole = expect(pairing, signature, part_arguments(pairing, everything, inputs), outputs, bitwise=True).values
    for number, values in enumerate(whole):
        names = output_dims(pairing, number, depth)
        for offset in np.unique(np.linspace(0, values.size - 1, _CHECKED).astype(np.int64)) if values.size else ():
            index = [int(i) for i in axis_indices(offset, values.shape)]
            part = required_part(pairing, signature, position_along_dims(names, index))
            shapes = tuple(part_output(part, each, output_dims(pairing, i, depth)) for i, each in enumerate(outputs))
            arguments = part_arguments(pairing, part, inputs)
            in_part = expect(pairing, part.signature, arguments, shapes, bitwise=True).values[number]
            value = in_part[tuple(i - part.start.get(name, 0) for i, name in zip(index, names, strict=True))]
            if not np.isclose(values[tuple(index)], value, rtol=_ROUNDING, atol=0, equal_nan=True):
                detail = Stated(
                    "output {output}{element} needs more than batch_dims= and needs= say of {dims}: the oracle gives "
                    "{whole} for the whole input, and {part} for the part ({signature})",
                    {
                        "output": number,
                        "element": format_element(values.shape, int(offset)),
                        "dims": ", ".join(pairing.needs),
                        "whole": str(values[tuple(index)]),
                        "part": str(value),
                        "signature": str(signature),
                    },
                )
                raise Failure(Verdict.ORACLE_ERROR, detail)
