"""The expectation of a case with its arguments, and of its gradients, computed once for all backends."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.bounded_store import BoundedStore
from kerneltest.judge.input_magnitudes import find_magnitudes
from kerneltest.judge.special_values import find_special_inputs
from kerneltest.oracle.expectation import Expectation, oracle_noise
from kerneltest.plan.counted_axes import CountedAxis, counted_axes
from kerneltest.plan.signatures import Signature
from kerneltest.plan.slots import data_paths, last_blocks
from kerneltest.records.evidence import SpecialInput
from kerneltest.records.magnitudes import Magnitudes

_BYTES_PER_ELEMENT = 16  # its value in the kernel's dtype and in float64, or its value and its bound
_GRADIENT_BYTES = 64  # for each number: its value, and two spreads with what they are made of
_MAX_GRADIENTS = 2**27  # bytes
_MAX_EXPECTATIONS = 3 * 2**27
_MAX_EVALUATIONS = 2**28


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The arguments of a case with the oracle's values for them, before its expectation is needed.

    Attributes:
      arguments: array arguments by path.
      outputs: the oracle's outputs, and where each is defined.
    """

    arguments: Mapping[str, Array]
    outputs: tuple[tuple[Array, ...], tuple[Array, ...]]


@dataclass(frozen=True)
class CachedExpectation:
    """The arguments of a case with the expectation for them.

    Attributes:
      arguments: array arguments by path.
      expectation: the oracle's values and bounds, or its failure.
      bitwise: whether outputs must equal it bit for bit.
      blocks: by path, the block length along the last axis of arguments that have one.
      counted: by path, the axes that integers count or divide.
      data: the paths of the arguments that are data.
    """

    arguments: Mapping[str, Array]
    expectation: Expectation | Failure
    bitwise: bool
    blocks: Mapping[str, int]
    counted: Mapping[str, CountedAxis]
    data: frozenset[str]

    @functools.cached_property
    def bytes(self) -> int:
        """Approximate size in bytes."""
        values = () if isinstance(self.expectation, Failure) else self.expectation.values
        return _size(self.arguments, values)

    @functools.cached_property
    def noise(self) -> float:
        """The absolute error that float64 rounding in the oracle may leave in a zero."""
        return oracle_noise(self.arguments)

    @functools.cached_property
    def special_inputs(self) -> tuple[SpecialInput, ...]:
        """The special values among the arguments."""
        return find_special_inputs(self.arguments, self.blocks, self.counted)

    @functools.cached_property
    def magnitudes(self) -> tuple[Magnitudes, ...]:
        """The binades of the numbers in arguments of data."""
        return find_magnitudes({path: value for path, value in self.arguments.items() if path in self.data})


def keep(
    pairing: Pairing,
    signature: Signature,
    arguments: Mapping[str, Array],
    expectation: Expectation | Failure,
    bitwise: bool,
) -> CachedExpectation:
    """Returns the expectation of a case, with its arguments and the axes that records describe them by."""
    axes = last_blocks(pairing), counted_axes(pairing, signature), data_paths(pairing)
    return CachedExpectation(arguments, expectation, bitwise, *axes)


def expectation_store() -> BoundedStore[str, CachedExpectation]:
    """Returns an empty store of expectations, by case."""
    return BoundedStore(_MAX_EXPECTATIONS, lambda expected: expected.bytes)


def evaluation_store() -> BoundedStore[str, Evaluation]:
    """Returns an empty store of evaluations, by case."""
    return BoundedStore(_MAX_EVALUATIONS, lambda known: _size(known.arguments, known.outputs[0]))


def _size(arguments: Mapping[str, Array], values: Sequence[Array]) -> int:
    """Returns the approximate size of a case in bytes."""
    return _BYTES_PER_ELEMENT * sum(each.size for each in (*arguments.values(), *values))


def gradient_store() -> BoundedStore[tuple[str, str], Expectation]:
    """Returns an empty store of expected gradients, by case and label of the check."""
    return BoundedStore(_MAX_GRADIENTS, _gradient_bytes)


def _gradient_bytes(expected: Expectation) -> int:
    return _GRADIENT_BYTES * sum(each.size for each in expected.values)
