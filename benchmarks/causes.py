"""Counts the broken variants of which findings name the right cause: `python -m benchmarks.causes [--jobs N]`.

Each variant of `benchmarks/variants` runs at `quick` on `interpret`, and on `simulate:sm_90` if that finds no wrong
values. What its findings say most often (another formula, too much rounding, an unstable formula) is compared with the
cause that the variant has, judged by hand. Wrong NaNs and infinities, and findings other than wrong values, name none.
"""

import argparse
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import kerneltest as kt
from benchmarks.variants import VARIANTS, Variant
from kerneltest.core.details import ErrorCause, Mismatch

FORMULA, ROUNDING, UNSTABLE = ErrorCause.FORMULA, ErrorCause.ROUNDING, ErrorCause.UNSTABLE

# Variants whose cause is not what `Variant.numeric` says: rounding if it is true, otherwise a formula.
OTHERS: dict[str, tuple[ErrorCause, ...]] = {
    # Right but for overflow and underflow.
    "no maximum is subtracted": (ROUNDING, UNSTABLE),
    "the maximum starts from 0": (ROUNDING, UNSTABLE),
    "the maximum starts from 0 instead of -inf": (ROUNDING, UNSTABLE),
    "each block's own maximum is subtracted, so rescaling overflows": (ROUNDING, UNSTABLE),
    "the sigmoid is exp(x) / (1 + exp(x)), which overflows": (ROUNDING, UNSTABLE),
    "the cap's tanh is of exponentials that overflow": (ROUNDING, UNSTABLE),
    "exponentials of capped logits are unshifted and in float16": (ROUNDING, UNSTABLE),
    # Right but for cancellation.
    "the sigmoid is a tanh, which cancels far below zero": (UNSTABLE, ROUNDING),
    "the variance is the mean of squares less the square of the mean": (UNSTABLE,),
    # Of infinities, the difference is another formula.
    "a tile's sums from its start are its total less those from its end": (UNSTABLE, FORMULA),
    "sums from the end are the total less those from the start": (UNSTABLE, FORMULA),
    "sine is the root of 1 - cos^2": (UNSTABLE, FORMULA),
    # Too little precision that stays in float64: constants, polynomials, storage in 8 bits.
    "an epsilon of float16 is added to the total": (FORMULA,),
    "an epsilon is added to the sigmoid's denominator": (FORMULA,),
    "1e-6 is added to the sum against division by zero": (FORMULA,),
    "the scale is applied after the softmax": (FORMULA,),
    "the weighted sum is not rescaled": (FORMULA,),
    "the total is not rescaled": (FORMULA,),
    "1e-5 is added to the sum against a logarithm of zero": (FORMULA,),
    "sine and cosine are polynomials of degree 7 and 6": (FORMULA,),
    "angles are reduced by a rounded 2 pi": (FORMULA, ROUNDING),
    "weights are rounded to float8": (FORMULA, ROUNDING),
    "epsilon is added outside of the root": (FORMULA,),
    "the variance's mean is over the padded row": (FORMULA,),
    # Rounding of whole numbers, or to a format that the case asks for.
    "positions are computed in bfloat16, so wrong from 257 on": (ROUNDING,),
    "the precision asked for is ignored": (ROUNDING,),
}


def count_causes(number: int) -> Counter[str]:
    """Returns the causes that the findings of wrong values of a variant name, "" for none."""
    warnings.filterwarnings("ignore")
    variant = VARIANTS[number]
    for backends in (["interpret"], ["simulate:sm_90"]):
        findings = kt.check(variant.broken(), backends=backends, depth="quick", minimize=0).findings
        details = [each.record.detail for each in findings]
        found = Counter(str(each.cause.what) if each.cause else "" for each in details if isinstance(each, Mismatch))
        if found:
            return found
    return Counter()


def expected(variant: Variant) -> tuple[ErrorCause, ...]:
    """Returns the causes that may be named."""
    return OTHERS.get(variant.bug, (ROUNDING if variant.numeric else FORMULA,))


def main() -> int:
    """Prints a line for each variant and the totals; exits with 1 if under 95% of the named causes are right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="variants whose name contains this text")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    totals: Counter[str] = Counter()
    chosen = [number for number, variant in enumerate(VARIANTS) if options.only in variant.name]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for number, found in zip(chosen, pool.map(count_causes, chosen), strict=True):
            named = Counter({cause: count for cause, count in found.items() if cause})
            first = max(named, key=lambda cause: named[cause], default="")
            right = first in expected(VARIANTS[number])
            outcome = "none named" if not first else "right" if right else "WRONG"
            totals[outcome] += 1
            print(f"{outcome:10}  {VARIANTS[number].name}: {dict(found)}", flush=True)
    print(dict(totals))
    judged = totals["right"] + totals["WRONG"]
    return int(totals["right"] < 0.95 * judged)


if __name__ == "__main__":
    sys.exit(main())
