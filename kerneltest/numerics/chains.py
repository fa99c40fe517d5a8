"""Sums that an oracle writes as a chain of `+` and `-`, whose terms a kernel may add in another order."""

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.numerics.partial_sums import Chain
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.samples import Operand, SampledArray


def chain_of_sum(inputs: tuple[Operand, ...], exact: Array, made: SampledArray, *, subtracts: bool) -> Chain | None:
    """Returns the terms of a sum one of whose operands is a sum; None for a sum of two.

    Args:
      inputs: the operands.
      exact: the exact sums, in samples.
      made: the result.
      subtracts: whether it is a difference.
    """
    known = [_chain_of(each) if isinstance(each, SampledArray) else None for each in inputs]
    if not any(known):
        return None

    def align(part: Array) -> Array:
        return part.reshape(len(part), *(1,) * (exact.ndim - part.ndim), *part.shape[1:])

    one, other = (
        (chain or Chain.of(_first_row(each, made.machine))).map(align)
        for chain, each in zip(known, inputs, strict=True)
    )
    return one.join(other, made.machine.row(exact, 0), made.compute, subtracts=subtracts)


def round_chain(made: SampledArray, chain: Chain) -> None:
    """Rounds a sum of three terms or more, which a kernel may add in another order."""
    partial = chain.partial_sums(made.machine.row(made.samples, 0), made.compute)
    mass = chain.positive + chain.negative
    made.chain = chain
    made.samples = made.machine.round_sum(made.samples, mass, chain.count, made.compute, partial=partial)


def _chain_of(array: SampledArray) -> Chain | None:
    """Returns the terms of a sum, in row 0, (cases or 1, ...); None for another result."""
    if array.chain is None and array.terms is not None:
        one, other = (
            Chain.of(array.machine.row(each, 0) if each.ndim == array.samples.ndim else np.asarray(each)[None])
            for each in array.terms
        )
        total = array.machine.row(array.samples, 0)
        array.chain = one.join(other, total, array.compute, subtracts=array.subtracts)
    return array.chain


def _first_row(operand: Operand, machine: RoundingModel) -> Array:
    return machine.row(operand.samples, 0) if isinstance(operand, SampledArray) else np.asarray(operand)[None]
