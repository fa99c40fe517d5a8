"""The rounding of variations of a call: where the oracle's bounds do not admit it, the kernel's own formula may."""

from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.precision import Precision
from kerneltest.execute.formula_check import FORMULA_ARITHMETIC, least_bound, movement
from kerneltest.execute.invariant_context import InvariantContext, OutputCheck, Variation
from kerneltest.execute.output_comparison import BIT_FOR_BIT, CallOutputs
from kerneltest.execute.own_rounding import own_format, own_rounding
from kerneltest.execute.promoted_outputs import NotPromotedError, own_kernel, sample_kernel
from kerneltest.judge.compare import compare
from kerneltest.trace.batched_interpreter.promoted_kernel import SampleArithmetic


def admit_own_rounding(
    claim: CallOutputs, asked: InvariantContext, variation: Variation, share: OutputCheck, precision: Precision
) -> CallOutputs:
    """Returns a claim, with wider bounds if the outputs are right only as far as the kernel's own formula allows.

    Args:
      claim: the outputs with the bounds of the oracle's rounding.
      asked: the plain call.
      variation: the call that gave the outputs.
      share: which of its outputs they are.
      precision: the backend's arithmetic.
    """
    fmt = own_format(asked.pairing.tolerance, variation.traced)
    noise = asked.cache.noise(asked.case, asked.arguments)
    if fmt is None or claim.tolerance == BIT_FOR_BIT or not any(c.wrong.any() for c in claim.compare(noise)):
        return claim

    def samples(arithmetic: SampleArithmetic) -> list[Array]:
        outputs = sample_kernel(own_kernel(asked.cache, variation.traced), variation.leaves, arithmetic)
        rows = [share.take(tuple(output[row] for output in outputs)) for row in range(arithmetic.rows)]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    try:
        if not _is_formula_right(claim, samples(FORMULA_ARITHMETIC)):
            return claim
        own = samples(SampleArithmetic(fmt, precision))
    except NotPromotedError:
        return claim
    loose = share.wanted(tuple(claim.outputs), precision.never_exact()).bounds
    return own_rounding(own, claim, loose, fmt).admit(claim)


def _is_formula_right(claim: CallOutputs, samples: Sequence[Array]) -> bool:
    """Returns whether the kernel without rounding, in row 0, agrees with the oracle."""
    return not any(
        compare(
            each[0],
            value,
            least_bound(each[0], value, np.ones(value.shape, bool)) + movement(each),
            signed_zeros=False,
        ).wrong.any()
        for each, value in zip(samples, claim.values, strict=True)
    )
