"""The input of every rule about wrong values: a wrong output with its case."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kerneltest.core.dtypes import Array, cast, is_float, widen
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.compare import Comparison, OutputAxis
from kerneltest.oracle.evaluation import evaluator
from kerneltest.plan.signatures import Signature


class OutOfTimeError(Exception):
    """The time for a diagnosis is over."""


@dataclass(frozen=True)
class MismatchContext:
    """A wrong output with its case: the input of every rule."""

    # pairing, signature, arguments: of the case
    pairing: Pairing
    signature: Signature
    arguments: Mapping[str, Array]
    output: int  # the number of the wrong output, from 0
    comparison: Comparison  # the output's comparison; at least one element is wrong
    axes: Sequence[OutputAxis]  # the output's axes
    deadline: float = math.inf  # when to stop evaluating the oracle, in seconds of the monotonic clock
    expecting: Callable[[], AbstractContextManager[None]] = nullcontext  # entered for each evaluation of the oracle

    @cached_property
    def got(self) -> Array:
        """The output in float64."""
        return self.comparison.got

    @cached_property
    def wanted(self) -> Array:
        """The expected output in float64."""
        return self.comparison.wanted

    @cached_property
    def widest(self) -> float:
        """The largest bound of an element that has one."""
        bound = self.comparison.bound
        return float(np.max(bound, where=np.isfinite(bound), initial=0.0))

    @cached_property
    def leaves(self) -> Mapping[str, Array]:
        """The arguments in float64, complex128 or int64, as the oracle takes them."""
        return {path: widen(value) for path, value in self.arguments.items()}

    @cached_property
    def declared(self) -> Mapping[str, ArrayArgument]:
        """The declarations of the arguments that are not absent."""
        return self.signature.leaves(self.pairing)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The static arguments that are whole numbers, by name; the length of a block may be one."""
        values = self.signature.static_values(self.pairing).items()
        return {name: value for name, value in values if type(value) is int}

    def block(self, axis: str) -> int:
        """Returns the kernel's block length along a dim, in elements; 0 for none."""
        return (self.pairing.dims[axis].block or 0) if axis in self.pairing.dims else 0

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
        rounded = cast(np.asarray(values), self.comparison.actual.dtype).astype(np.float64)
        got = self.comparison.got
        with np.errstate(all="ignore"):
            allowed = self.comparison.bound + spread * np.abs(values)
            near = np.abs(got - np.asarray(values, np.float64)) <= allowed
        unchecked = np.isinf(self.comparison.bound)
        return bool(((got == rounded) | near | (np.isnan(got) & np.isnan(rounded)) | unchecked).all())

    def evaluate_oracle(self, leaves: Mapping[str, Array], signature: Signature | None = None) -> Sequence[Array]:
        """Returns the oracle's outputs for some arguments, and for other static arguments if a signature is given.

        Raises:
          OutOfTimeError: the deadline is over.
        """
        if time.monotonic() > self.deadline:
            raise OutOfTimeError
        with self.expecting():
            return evaluator(self.pairing, signature or self.signature, ())(leaves)
