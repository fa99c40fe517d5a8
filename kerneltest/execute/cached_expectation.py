"""What is expected of a case, and what follows from its arguments: made once for all backends."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.judge.contents import special_inputs
from kerneltest.oracle.expectation import Expectation, oracle_noise
from kerneltest.records.evidence import SpecialInput

_A_NUMBER = 16  # bytes: as the kernel gets it and as the oracle does, or with how far it moves


@dataclass(frozen=True)
class CachedExpectation:
    """A case's arguments and what is expected of them.

    Attributes:
      arguments: by path.
      expectation: the oracle's answer, or how the oracle failed.
      bitwise: whether it holds bit for bit.
    """

    arguments: Mapping[str, Array]
    expectation: Expectation | Failure
    bitwise: bool

    @functools.cached_property
    def bytes(self) -> int:
        """About as many are kept with it."""
        values = () if isinstance(self.expectation, Failure) else self.expectation.values
        return _A_NUMBER * sum(each.size for each in (*self.arguments.values(), *values))

    @functools.cached_property
    def noise(self) -> float:
        """What the oracle's own rounding may leave of a zero."""
        return oracle_noise(self.arguments)

    @functools.cached_property
    def special_inputs(self) -> tuple[SpecialInput, ...]:
        """The special values among the arguments."""
        return special_inputs(self.arguments)
