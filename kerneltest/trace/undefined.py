"""Arrays of the function around the Pallas calls, of which some elements may be undefined."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
      sources: where those came from, in words.
    """

    values: Any
    undefined: Array | None = None
    sources: tuple[str, ...] = ()


def all_defined(outputs: Sequence[PartialArray]) -> tuple[Array, ...]:
    """The values of some outputs.

    Raises:
      Failure: an element of one is undefined.
    """
    for number, output in enumerate(outputs):
        if output.undefined is not None and output.undefined.any():
            raise _undefined(f"output {number}", output.undefined, output.sources)
    return tuple(np.asarray(output.values) for output in outputs)


def _undefined(name: str, codes: Array, sources: Sequence[str]) -> Failure:
    """What an output is of which some elements are undefined."""
    first = element(codes.shape, int(np.flatnonzero(codes)[0]))
    count = f"{np.count_nonzero(codes)} of {codes.size} elements of {name}"
    if int(codes[codes > 0].max()) == UNWRITTEN:
        return Failure(Verdict.UNWRITTEN, f"{count} were never written, the first {first}")
    because = f"; {'; '.join(sources)}" if sources else ""
    return Failure(Verdict.UNINITIALISED, f"{count} depend on memory never written, the first {first}{because}")


def element(shape: tuple[int, ...], offset: int) -> str:
    """`[3, 4]`: the indices of an element of an array, from its flat offset."""
    return f"[{', '.join(str(int(i)) for i in np.unravel_index(offset, shape))}]"
