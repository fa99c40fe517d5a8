"""Arrays of the function around the Pallas calls, of which some elements may be undefined."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.details import Undefined, UndefinedSource
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict

# Codes of undefined elements, in the order in which an output's verdict is chosen.
UNWRITTEN, UNINITIALISED = 1, 2


@dataclass(frozen=True, slots=True)
class PartialArray:
    """An array of the function around the Pallas calls, of which some elements may be undefined.

    Attributes:
      values: its elements, an array of NumPy's or JAX's.
      undefined: codes of its undefined elements (0 for the others), or None.
      sources: the reads that those come from.
    """

    values: Any
    undefined: Array | None = None
    sources: tuple[UndefinedSource, ...] = ()


def all_defined(outputs: Sequence[PartialArray]) -> tuple[Array, ...]:
    """The values of some outputs.

    Raises:
      Failure: an element of one is undefined.
    """
    for number, output in enumerate(outputs):
        if output.undefined is not None and output.undefined.any():
            raise _undefined(f"output {number}", output.undefined, output.sources)
    return tuple(np.asarray(output.values) for output in outputs)


def _undefined(name: str, codes: Array, sources: Sequence[UndefinedSource]) -> Failure:
    """Returns the failure of an output with undefined elements."""
    unwritten = int(codes[codes > 0].max()) == UNWRITTEN
    first = element(codes.shape, int(np.flatnonzero(codes)[0]))
    count = int(np.count_nonzero(codes))
    detail = Undefined(name, unwritten, count, codes.size, first, () if unwritten else tuple(sources))
    return Failure(Verdict.UNWRITTEN if unwritten else Verdict.UNINITIALISED, detail)


def element(shape: tuple[int, ...], offset: int) -> str:
    """`[3, 4]`: the indices of an element of an array, from its flat offset."""
    return f"[{', '.join(str(int(i)) for i in np.unravel_index(offset, shape))}]"
