"""The magnitudes of an argument's numbers, as the binades in which they lie."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

LOWEST, HIGHEST = -30, 31
"""Exponents of the least binade, which stands for all below it too, and of the greatest, which stands for all above."""

Bits = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, slots=True)
class Magnitudes:
    """The binades of the finite numbers of an argument; zeros have none.

    Attributes:
      argument: the path of the argument.
      positive, negative: the binades of its positive and its negative numbers: bit i stands for those of magnitude
        `2**(i + LOWEST)` up to, but without, the next power of two.
    """

    argument: str
    positive: Bits
    negative: Bits
