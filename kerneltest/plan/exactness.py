"""How large integers may be so that a kernel's sums of products are exact."""

import itertools
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from kerneltest.core.dtypes import TF32, Array, dtype_named, float_format, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.precision import SIMULATED
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature
from kerneltest.rounding.creating import watching
from kerneltest.rounding.machine import Machine
from kerneltest.rounding.spread import sampled
from kerneltest.rounding.ufuncs import EXACT

# On integers. A kernel that does more is not judged bit for bit.
_EXACT = EXACT | set("add subtract multiply square product add.reduce add.accumulate moved where cast".split())


_MOST = 256
_known: dict[tuple[Pairing, Signature], int | None] = {}  # what `_terms` found, or has not found yet


def exact_limit(pairing: Pairing, signature: Signature) -> int:
    """The largest integer such that products of two, summed over a case, are exact in every precision in play.

    Operands fit the narrowest input format and TF32; the sum of |a b| fits float32's 24 bits and float16's range.
    """
    formats = [float_format(dtype) for name in dict(signature.dtypes).values() if is_float(dtype := dtype_named(name))]
    largest = max((math.prod(signature.shape(leaf)) for leaf in pairing.leaves.values()), default=1)
    key = pairing, signature
    if key not in _known:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = None  # an oracle that hangs is not asked again
        _known[key] = _terms(pairing, signature)
    terms = _known[key]
    terms = largest if terms is None else min(largest, terms)
    total = min([2**24, *(int(2**f.max_exponent) for f in formats)])
    limit = 2 ** min([TF32.precision, *(f.precision for f in formats)])
    return max(1, min(int(limit) // 2, math.isqrt(total // max(terms, 1))))


def _terms(pairing: Pairing, signature: Signature) -> int | None:
    """The largest number that the oracle makes of ones; None where it multiplies no matrices, or is not followed."""
    tape: list[Any] = []
    machine = Machine(SIMULATED, rows=1, parts={}, tape=tape)  # without parts that move, all stays exact
    oracle, dims, statics = watching(pairing.oracle), dict(signature.dims), dict(signature.statics)

    def evaluate(given: Mapping[str, Any]) -> tuple[()]:
        pairing.call_as_oracle(oracle, pairing.assemble(given, dims, statics, oracle=True))
        return ()

    ones = {path: _ones(leaf, signature) for path, leaf in pairing.leaves.items()}
    formats = {path: float_format(np.dtype(np.float32)) for path, value in ones.items() if is_float(value.dtype)}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            sampled(evaluate, ones, formats, machine)
    except (KeyboardInterrupt, GeneratorExit, Failure):  # a hang is raised into it as a failure
        raise
    except BaseException:  # whatever an oracle raises is told when a case asks it
        return None
    if machine.left:
        return None
    steps = list(itertools.takewhile(lambda step: step.name in _EXACT, tape))
    if not any(step.name == "product" and set(step.options["one"]) - set(step.options["result"]) for step in steps):
        return None
    return math.ceil(max(float(np.max(np.abs(step.output.samples), initial=0.0)) for step in steps))


def _ones(leaf: ArrayArgument, signature: Signature) -> Array:
    """Ones of floats; of other arguments what makes sums the longest."""
    value = {"index": 0, "length": dict(signature.dims).get(leaf.bounded_by, 0)}.get(leaf.role, 1)
    dtype = {"data": np.float64, "mask": np.bool_}.get(leaf.role, np.int64)
    return np.full(signature.shape(leaf), value, dtype)
