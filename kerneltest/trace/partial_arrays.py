"""Arrays with undefined elements, as they occur in the function around the Pallas calls."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.details import Undefined, UndefinedSource
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jaxpr_types import JaxArray

# Codes of undefined elements. An output's verdict is that of its highest code.
UNWRITTEN, UNINITIALISED = 1, 2


@dataclass(frozen=True, slots=True)
class PartialArray:
    """An array of which some elements may be undefined.

    Attributes:
      values: its elements, an array of NumPy's or JAX's.
      undefined: a code for each undefined element and 0 for the others, uint8; None if all are defined.
      sources: the reads that the undefined elements come from.
    """

    values: JaxArray
    undefined: Array | None = None
    sources: tuple[UndefinedSource, ...] = ()


def require_defined(outputs: Sequence[PartialArray]) -> tuple[Array, ...]:
    """The values of outputs, all of which must be defined.

    Raises:
      Failure: an element of an output is undefined.
    """
    for number, output in enumerate(outputs):
        if output.undefined is not None and output.undefined.any():
            raise _failure(f"output {number}", output.undefined, output.sources)
    return tuple(np.asarray(output.values) for output in outputs)


def _failure(array: str, codes: Array, sources: Sequence[UndefinedSource]) -> Failure:
    """The failure of an array with undefined elements."""
    first = format_element(codes.shape, int(np.flatnonzero(codes)[0]))
    unwritten = int(codes.max()) == UNWRITTEN
    count = int(np.count_nonzero(codes))
    detail = Undefined(array, unwritten, count, codes.size, first, () if unwritten else tuple(sources))
    return Failure(Verdict.UNWRITTEN if unwritten else Verdict.UNINITIALISED, detail)


def format_element(shape: tuple[int, ...], offset: int) -> str:
    """The indices of an element, as in `[3, 4]`, from its flat offset in an array."""
    return f"[{', '.join(str(int(i)) for i in np.unravel_index(offset, shape))}]"
