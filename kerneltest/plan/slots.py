"""The array arguments of a signature: a slot for each that a family fills, and the values of those that follow."""

import functools
import hashlib
import itertools
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.dtypes import TF32, Array, float_format, is_float, parse_dtype, widen
from kerneltest.core.failures import DeclarationError, Failure, check_raises_again, reraise_interrupt
from kerneltest.core.precision import SIMULATED
from kerneltest.declare.dims import Axis, AxisExpression, dims_in, length_of
from kerneltest.declare.kinds.base import Slot as Slot
from kerneltest.declare.pairing import Pairing
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import sample_outputs
from kerneltest.numerics.tracked import instrument
from kerneltest.numerics.ufuncs import EXACT_UFUNCS
from kerneltest.plan.signatures import Signature


def build_slots(pairing: Pairing, signature: Signature, limit: Callable[[], int]) -> dict[str, Slot]:
    """Returns a slot for each array argument that is not absent, by path; `limit` computes `Slot.exact_limit`."""
    lengths, dtypes = dict(signature.dims), dict(signature.dtypes)

    def block(axis: Axis) -> int | None:
        dims = dims_in(axis)  # the innermost dim, whose elements are contiguous, determines the block
        return pairing.dims[dims[-1]].block if dims else None

    found = {}
    for order, (path, leaf) in enumerate(pairing.leaves.items()):
        if path in dtypes:
            end = length_of(leaf.bound, lengths)
            found[path] = Slot(
                role=leaf.role,
                shape=signature.shape(leaf),
                dtype=parse_dtype(dtypes[path]),
                blocks=tuple(map(block, leaf.shape)),
                domain=leaf.interval(dtypes[path]),
                order=order,
                end=end,
                limit=limit,
                exhaustive=leaf.exhaustive,
                globally_unique=leaf.globally_unique,
                mask_values=leaf.mask_values,
                end_block=block(leaf.bound) or end,
                sentinel=leaf.sentinel,
                least=leaf.least,
                structure=leaf.structure,
                owner=(pairing, signature),
            )
    return found


@functools.lru_cache(maxsize=256)
def last_blocks(pairing: Pairing) -> Mapping[str, int]:
    """Returns the block length along the last axis, in elements, of array arguments that have one, by path.

    An axis `32*b` or `b*32` has blocks of 32.
    """
    found = {}
    for path, leaf in pairing.leaves.items():
        last = leaf.shape[-1] if leaf.shape else None
        if isinstance(last, AxisExpression):
            numbers = [factor for term in last.terms for factor in term if isinstance(factor, int)]
            length = numbers[0] if len(last.terms) == len(numbers) == 1 and not last.extra else None
        else:
            length = pairing.dims[last].block if isinstance(last, str) else None
        if length:
            found[path] = length
    return found


def fill_derived(
    pairing: Pairing, signature: Signature, values: Mapping[str, Array], entropy: str = ""
) -> dict[str, Array]:
    """Returns all array arguments by path, with those that follow from others computed from these.

    Their random numbers depend on the arrays that they follow from, and on `entropy`. DeclarationError: one does not
    have the declared shape.
    """
    known = {**pairing.option_values(dict(signature.statics)), **dict(signature.dims)}
    complete = dict(values)
    for path, leaf in signature.leaves(pairing).items():
        if leaf.derivation is None:
            continue
        arrays = {name: values.get(name) for name in leaf.derivation.parameters if name in pairing.leaves}
        taken = {name: known[name] for name in leaf.derivation.parameters if name in known} | arrays
        if "rng" in leaf.derivation.parameters:
            digest = hashlib.sha256(f"{entropy}|{path}".encode())
            for array in arrays.values():
                digest.update(b"|" if array is None else np.ascontiguousarray(array).tobytes())
            taken["rng"] = np.random.Generator(np.random.PCG64(int.from_bytes(digest.digest()[:8], "big")))
        value = np.asarray(leaf.derivation.function(**taken))
        if value.shape != (shape := signature.shape(leaf)):
            raise DeclarationError(f"{path!r} is declared with shape {shape}, but its function returned {value.shape}")
        complete[path] = value.astype(parse_dtype(dict(signature.dtypes)[path]))
    return complete


# The axes whose elements integer arguments count, or divide into parts.


@dataclass(frozen=True, slots=True)
class CountedAxis:
    """The axis whose elements an argument with the role `length`, `partition` or `offsets` counts, or divides."""

    role: str
    name: str  # the axis as it was declared
    length: int
    block: int  # the elements of one page or block of the axis; 0 if it has none
    block_name: str  # the same in words


_ROLES = frozenset({"length", "partition", "offsets"})


@functools.lru_cache(maxsize=256)
def counted_axes(pairing: Pairing, signature: Signature) -> Mapping[str, CountedAxis]:
    """Returns the axis that each integer argument counts or divides, by path."""
    lengths, found = dict(signature.dims), {}
    for path, leaf in pairing.leaves.items():
        if leaf.role in _ROLES and path in dict(signature.dtypes):
            block, name = _block(pairing, leaf.bound, lengths)
            found[path] = CountedAxis(leaf.role, str(leaf.bound), length_of(leaf.bound, lengths), block, name)
    return found


def _block(pairing: Pairing, axis: Axis, lengths: Mapping[str, int]) -> tuple[int, str]:
    """Returns the elements in a page or block of an axis, and the same in words: `pages*size` has pages of `size`."""
    if isinstance(axis, AxisExpression):
        last = axis.terms[0][-1] if len(axis.terms) == 1 and len(axis.terms[0]) > 1 and not axis.extra else 0
        return (last if isinstance(last, int) else lengths[last]), str(last)
    block = pairing.dims[axis].block if isinstance(axis, str) else None
    return (block, f"{block} (the block of {axis})") if block else (0, "")


# Bounds on integers for which a kernel's sums of products are exact.

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
    """Returns whether the floats that no structural family chose alone are few-digit numbers, too.

    Those that depend on each other are integers within `exact_limit`. A domain moves data by its end, which may be 0.1:
    they are multiples of 1/4, as from 0.25 on.
    """
    leaves, dtypes = signature.leaves(pairing), dict(signature.dtypes)
    floats = {path: np.asarray(x, np.float64) for path, x in arguments.items() if path in leaves and is_float(x.dtype)}
    joint = [each for path, each in floats.items() if leaves[path].kind.jointly_constrained]
    bounded = (
        path for path in floats if leaves[path].kind.is_data and not leaves[path].interval(dtypes[path]).unbounded
    )
    moved = [4 * floats[path] for path in bounded]
    limit = exact_limit(pairing, signature) if joint else 0
    short = all(bool(np.all(each == np.rint(each))) for each in (*joint, *moved))
    return short and all(bool(np.all(np.abs(each) <= limit)) for each in joint)


def _largest_sum(pairing: Pairing, signature: Signature) -> int | None:
    """Returns the largest number that the oracle computes from ones; None if it has no matrix products."""
    tape = trace_oracle(pairing, signature)
    steps = list(itertools.takewhile(lambda step: step.name in _EXACT, tape or ()))
    if not any(step.name == "product" and set(step.options["one"]) - set(step.options["result"]) for step in steps):
        return None
    # An infinity that masks scores is only moved, never summed.
    sizes = (np.abs(step.output.samples) for step in steps)
    return math.ceil(max(float(np.max(size, initial=0.0, where=np.isfinite(size))) for size in sizes))


def trace_oracle(pairing: Pairing, signature: Signature) -> list[Any] | None:
    """Returns the oracle's operations on ones, in order; None if it raises each time or a value escapes tracking.

    Failure: `oracle_error`: the oracle raised the first time, and not the second; or it hangs.
    """
    try:
        return _trace_once(pairing, signature)
    except Failure:  # the watchdog raises a Failure into an oracle that hangs
        raise
    except BaseException as error:
        reraise_interrupt(error)
        check_raises_again(error, f"oracle {pairing.name}", lambda: _trace_once(pairing, signature))
        return None  # it cannot be tracked, or it will be reported when a case evaluates the oracle


def _trace_once(pairing: Pairing, signature: Signature) -> list[Any] | None:
    tape: list[Any] = []
    rounding = RoundingModel(SIMULATED, rows=1, rows_by_source={}, tape=tape)  # without parts, nothing is perturbed
    oracle, dims, statics = instrument(pairing.oracle), dict(signature.dims), dict(signature.statics)

    def evaluate(arrays: Mapping[str, Any]) -> tuple[()]:
        pairing.call_as_oracle(oracle, pairing.assemble(arrays, dims, statics, oracle=True))
        return ()

    # Ones for data and, for other arguments, the values that make sums the longest, as an oracle gets them.
    longest = {p: (s, s.kind.longest_sums(s)) for p, s in build_slots(pairing, signature, lambda: 1).items()}
    filled = {path: values if slot.dtype == np.bool_ else widen(values) for path, (slot, values) in longest.items()}
    ones = fill_derived(pairing, signature, filled)
    formats = {path: float_format(np.dtype(np.float32)) for path, value in ones.items() if is_float(value.dtype)}
    with warnings.catch_warnings(action="ignore"):
        sample_outputs(evaluate, ones, formats, rounding)
    return None if rounding.escape else tape
