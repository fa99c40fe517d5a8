"""A wrong output with its case, as the rules of diagnoses get it."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, cast, is_float
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.compare import Comparison
from kerneltest.judge.mismatch_location import OutputAxis
from kerneltest.oracle.evaluation import evaluator
from kerneltest.plan.signatures import Signature


class OutOfTimeError(Exception):
    """The time for a diagnosis is over."""


@dataclass(frozen=True, slots=True)
class MismatchContext:
    """A wrong output with its case: the input of every rule.

    Attributes:
      pairing, signature: of the case.
      arguments: the case's array arguments by path.
      output: the number of the wrong output, from 0.
      comparison: the output's comparison; at least one element is wrong.
      axes: the output's axes.
      deadline: when to stop evaluating the oracle, in seconds of the monotonic clock.
    """

    pairing: Pairing
    signature: Signature
    arguments: Mapping[str, Array]
    output: int
    comparison: Comparison
    axes: Sequence[OutputAxis]
    deadline: float = math.inf

    @property
    def inputs_are_finite(self) -> bool:
        """True if no argument contains a NaN or an infinity."""
        floats = (value for value in self.arguments.values() if is_float(value.dtype))
        return all(np.isfinite(value.astype(np.float64)).all() for value in floats)

    def explains(self, values: Array, spread: float = 0.0) -> bool:
        """Checks whether the output equals other values than the oracle's everywhere, within the same bound.

        Args:
          values: the other values.
          spread: their own relative error.
        """
        actual = self.comparison.actual
        rounded = cast(np.asarray(values), actual.dtype).astype(np.float64)
        got = actual.astype(np.float64)
        with np.errstate(all="ignore"):
            allowed = self.comparison.bound + spread * np.abs(values)
            near = np.abs(got - np.asarray(values, np.float64)) <= allowed
        unasked = np.isinf(self.comparison.bound)
        return bool(((got == rounded) | near | (np.isnan(got) & np.isnan(rounded)) | unasked).all())

    def evaluate_oracle(self, leaves: Mapping[str, Array]) -> Array:
        """Returns the oracle's value of this output for other arguments.

        Raises:
          OutOfTimeError: the deadline is over.
        """
        if time.monotonic() > self.deadline:
            raise OutOfTimeError
        return evaluator(self.pairing, self.signature, ())(leaves)[self.output]
