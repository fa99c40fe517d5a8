"""Bounds on integers for which a kernel's sums of products are exact."""

import itertools
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from kerneltest.core.dtypes import TF32, Array, float_format, is_float, parse_dtype, widen
from kerneltest.core.failures import Failure
from kerneltest.core.precision import SIMULATED
from kerneltest.declare.pairing import Pairing
from kerneltest.numerics.numpy_patch import instrument
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import sample_outputs
from kerneltest.numerics.ufuncs import EXACT_UFUNCS
from kerneltest.plan.signatures import Signature
from kerneltest.plan.slots import Slot, build_slots, fill_derived

# Operations that are exact on integers. A kernel that does more is not judged bit for bit.
_EXACT = EXACT_UFUNCS | set("add subtract multiply square product add.reduce add.accumulate moved where cast".split())


_MOST_KNOWN = 256
_known: dict[tuple[Pairing, Signature], int | None] = {}  # results of `_largest_sum`; None also while it runs


def exact_limit(pairing: Pairing, signature: Signature) -> int:
    """Returns the largest integer such that products of pairs, summed over a case, are exact in every precision used.

    Operands fit the narrowest input format and TF32. Sums of |a b| fit float32's 24 bits and float16's range.
    """
    formats = [float_format(dtype) for name in dict(signature.dtypes).values() if is_float(dtype := parse_dtype(name))]
    largest = max((math.prod(signature.shape(leaf)) for leaf in signature.leaves(pairing).values()), default=1)
    key = pairing, signature
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = None  # so that an oracle that hangs is not evaluated again
        _known[key] = _largest_sum(pairing, signature)
    terms = _known[key]
    terms = largest if terms is None else min(largest, terms)
    total = min([2**24, *(int(2**f.max_exponent) for f in formats)])
    limit = 2 ** min([TF32.precision, *(f.precision for f in formats)])
    return max(1, min(int(limit) // 2, math.isqrt(total // max(terms, 1))))


def is_exact(pairing: Pairing, signature: Signature, arguments: Mapping[str, Array]) -> bool:
    """Returns whether the floats that no structural family chose alone are integers within `exact_limit` too."""
    checked = [path for path, leaf in signature.leaves(pairing).items() if leaf.kind.jointly_constrained]
    floats = [np.asarray(arguments[path], np.float64) for path in checked if is_float(arguments[path].dtype)]
    limit = exact_limit(pairing, signature) if floats else 0
    return all(bool(np.all((each == np.rint(each)) & (np.abs(each) <= limit))) for each in floats)


def _largest_sum(pairing: Pairing, signature: Signature) -> int | None:
    """Returns the largest number that the oracle computes from ones; None if it has no matrix products."""
    tape = trace_oracle(pairing, signature)
    steps = list(itertools.takewhile(lambda step: step.name in _EXACT, tape or ()))
    if not any(step.name == "product" and set(step.options["one"]) - set(step.options["result"]) for step in steps):
        return None
    # An infinity that masks scores is only moved, never summed.
    sizes = (np.abs(step.output.samples) for step in steps)
    return math.ceil(max(float(np.max(each, initial=0.0, where=np.isfinite(each))) for each in sizes))


def trace_oracle(pairing: Pairing, signature: Signature) -> list[Any] | None:
    """Returns the oracle's operations on ones, in order; None if it raises or a value escapes tracking."""
    tape: list[Any] = []
    machine = RoundingModel(SIMULATED, rows=1, rows_by_source={}, tape=tape)  # without parts, nothing is perturbed
    oracle, dims, statics = instrument(pairing.oracle), dict(signature.dims), dict(signature.statics)

    def evaluate(arrays: Mapping[str, Any]) -> tuple[()]:
        pairing.call_as_oracle(oracle, pairing.assemble(arrays, dims, statics, oracle=True))
        return ()

    try:
        filled = {path: _ones(slot) for path, slot in build_slots(pairing, signature, lambda: 1).items()}
        ones = fill_derived(pairing, signature, filled)
        formats = {path: float_format(np.dtype(np.float32)) for path, value in ones.items() if is_float(value.dtype)}
        with warnings.catch_warnings(action="ignore"):
            sample_outputs(evaluate, ones, formats, machine)
    except (KeyboardInterrupt, GeneratorExit, Failure):  # the watchdog raises a Failure into an oracle that hangs
        raise
    except BaseException:  # it will be reported when a case evaluates the oracle
        return None
    return None if machine.escape else tape


def _ones(slot: Slot) -> Array:
    """Returns ones for data and, for other arguments, the values that make sums the longest, as an oracle gets them."""
    values = slot.kind.longest_sums(slot)
    return values if slot.dtype == np.bool_ else widen(values)
