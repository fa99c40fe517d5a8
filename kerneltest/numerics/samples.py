"""What a watched array is made of, and what went into it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.origins import Place, place
from kerneltest.numerics.rounding_model import Machine


class UnfollowedError(TypeError):
    """A NumPy function whose rounding is not known here, or a use that no watched array has."""


class Sampled:
    """Values of one array of the oracle's, as different samples have them.

    Attributes:
      samples: (rows, *shape), or (1, *shape) where all rows are alike; float64, int64 or bool.
      machine: that rounds them.
      fmt: the format that a kernel keeps them in where it keeps what it computes in the dtype of its arguments; None
        for what the oracle makes itself, which takes the format of what it meets.
      terms: the two terms of a sum or a difference, aligned; a kernel may scale each of them before it adds.
      scaled: of a product of matrices: makes the product of operands that took in a factor before they were rounded.
    """

    __slots__ = ("fmt", "machine", "samples", "scaled", "terms")

    def __init__(self, samples: Array, machine: Machine, fmt: FloatFormat | None) -> None:
        self.samples, self.machine, self.fmt = samples, machine, fmt
        self.terms: tuple[Array, Array] | None = None
        self.scaled: Callable[[], Sampled] | None = None

    def made(self, samples: Array, fmt: FloatFormat | None = None) -> Self:
        """Another of the same machine."""
        return type(self)(samples, self.machine, fmt or self.fmt)

    def noted(self, name: str, inputs: Iterable[Any], **options: Any) -> Self:
        """This array, once the tape, where there is one, says how it came about."""
        if self.machine.tape is not None:
            self.machine.tape.append(Step(name, tuple(inputs), self, options, place()))
        return self

    @property
    def compute(self) -> FloatFormat:
        """The format in which a kernel computes with it."""
        return self.machine.compute or self.fmt or FLOAT32

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.samples.shape[1:])

    @property
    def ndim(self) -> int:
        return self.samples.ndim - 1


@dataclass(frozen=True, slots=True)
class Step:
    """An operation, for going back over it.

    Attributes:
      name: of the operation; `pullback` has a rule for each that it knows.
      inputs: what went in, watched or not.
      output: what came out.
      options: what else was asked, such as axes.
      place: where in the oracle.
    """

    name: str
    inputs: tuple[Any, ...]
    output: Sampled
    options: Mapping[str, Any]
    place: Place


def promoted(arrays: Iterable[Any]) -> FloatFormat | None:
    """The format of what a kernel makes of several arrays: theirs, and float32 of two that differ."""
    formats = {each.fmt for each in arrays if isinstance(each, Sampled)} - {None}
    return formats.pop() if len(formats) == 1 else FLOAT32 if formats else None


def aligned(arrays: Iterable[Any], ndim: int | None = None) -> list[Array]:
    """Arrays that broadcast as the operands would, with the samples' axis in front of all."""
    arrays = [each if isinstance(each, Sampled) else np.asarray(each) for each in arrays]
    most = max(each.ndim for each in arrays) if ndim is None else ndim
    return [
        each.samples.reshape(len(each.samples), *(1,) * (most - each.ndim), *each.shape)
        if isinstance(each, Sampled)
        else each
        for each in arrays
    ]


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes of the samples' array that stand for axes of the array."""
    chosen = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for each in chosen:
        if not -ndim <= each < ndim:
            raise np.exceptions.AxisError(each, ndim)
    return tuple(sorted(1 + each % ndim for each in chosen))
