"""The effect of rounded stored outputs on the sums of a backward pass.

For `o = p @ v`, `sum_k p_k dp_k` is `sum_d o_d do_d`: a sum of values times their cotangents is equal on both sides of
a matrix product. If the backward pass needs the first, as that of a softmax does, a kernel may compute the second from
its stored output (Dao, "FlashAttention-2", 2023, section 3.1), including the rounding errors of the output. The error
of values times cotangents is called a stray here.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.numerics.samples import Operand, SampledArray, TapeEntry, align_samples
from kerneltest.numerics.ufuncs import zero_nonfinite

_SAME = frozenset("exp exp2 cast where".split())  # the sum of values times cotangents is that of their inputs


def strays(output: SampledArray, cotangent: SampledArray, fmt: FloatFormat) -> Array:
    """Returns the error of an output's values times their cotangents after it is stored in a format, (rows, *shape)."""
    stored = output.machine.round_stored(output.samples, fmt)
    return zero_nonfinite(cotangent.samples * (stored - output.samples))


def sum_strays(step: TapeEntry, operand: SampledArray, stray: Array) -> Array:
    """Returns the error of the cotangent of an operand that was broadcast.

    Args:
      step: an elementwise sum, difference, product or quotient.
      operand: one of its operands.
      stray: the stray of its output, which broadcasts to the output's shape; an axis of length 1 is the sum over it.
    """
    shape = (1,) * (step.output.ndim - operand.ndim) + operand.shape
    axes = tuple(1 + i for i, length in enumerate(shape) if length == 1)
    whole: Array = np.sum(stray, axis=axes, keepdims=True)
    if step.name in ("multiply", "divide"):
        (values,) = align_samples([operand], len(shape))
        whole = zero_nonfinite(whole / values)
    sign = -1.0 if step.name in ("divide", "subtract") and operand is step.inputs[1] else 1.0
    return sign * whole.reshape(len(whole), *operand.shape)


def propagate_strays(step: TapeEntry, cotangent: SampledArray, stray: Array) -> Iterator[tuple[SampledArray, Array]]:
    """Yields the strays of the inputs of a step for which a sum over them is a sum over the output."""
    tracked = [each for each in step.inputs if isinstance(each, SampledArray)]
    if step.name in _SAME or (step.name in ("multiply", "divide") and len(tracked) == 1):
        yield from ((each, stray) for each in tracked if each.shape == step.output.shape)
    elif step.name == "product":
        one, two, result = (step.options[name] for name in ("one", "two", "result"))
        (left, right), exact = step.inputs, _exact_product(step.inputs, one, two, result)
        whole = stray + zero_nonfinite(cotangent.samples * (step.output.samples - exact))
        for each, mine in ((left, one), (right, two)):
            if isinstance(each, SampledArray):
                yield each, _sum_to_operand(whole, result, each, mine, step.options["lengths"])


def _exact_product(inputs: Sequence[Operand], one: Sequence[str], two: Sequence[str], result: Sequence[str]) -> Array:
    """Returns the matrix product without rounding."""
    numbers = {letter: i for i, letter in enumerate(dict.fromkeys([*one, *two]), 1)}
    left, right = (each.samples if isinstance(each, SampledArray) else np.asarray(each)[None] for each in inputs)
    return np.asarray(
        np.einsum(
            left,
            [0, *(numbers[letter] for letter in one)],
            right,
            [0, *(numbers[letter] for letter in two)],
            [0, *(numbers[letter] for letter in result)],
            optimize=True,
        )
    )


def _sum_to_operand(
    stray: Array, result: Sequence[str], own: SampledArray, mine: Sequence[str], lengths: Mapping[str, int]
) -> Array:
    """Sums the stray of a product over the axes that an operand lacks, in the operand's axis order."""
    whole = [letter for i, letter in enumerate(mine) if own.shape[i] == lengths[letter] and letter in result]
    summed: Array = np.sum(stray, axis=tuple(i for i, letter in enumerate(result, 1) if letter not in whole))
    order = [letter for letter in result if letter in whole]
    summed = summed.transpose(0, *(1 + order.index(letter) for letter in mine if letter in whole))
    kept = iter(summed.shape[1:])
    return summed.reshape(len(summed), *(next(kept) if letter in whole else 1 for letter in mine))
