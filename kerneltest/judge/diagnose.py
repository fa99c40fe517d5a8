"""Diagnoses of mismatches: rules for common mistakes, in order of preference. The first that fits is reported.

A rule fits only if it accounts for every wrong element. Its text is for people; nothing parses it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial

import numpy as np

from kerneltest.core.dtypes import Array, cast, float_format, is_float, parse_dtype
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.relations import (
    BudgetSpentError,
    MismatchContext,
    first_relation,
    relations_of_order,
    relations_of_output,
    relations_of_sums,
)
from kerneltest.plan.signatures import Signature
from kerneltest.records.evidence import ValueRelation
from kerneltest.trace.tracing import trace


def diagnose(mismatch: MismatchContext, *, is_gradient: bool = False) -> str:
    """Returns the text of the first rule that fits a mismatch; "" if none fits.

    The rules that read the inputs of the oracle say nothing of a gradient.
    """
    try:
        return next((words for rule in (_OF_OUTPUTS if is_gradient else _RULES) if (words := rule(mismatch))), "")
    except BudgetSpentError:
        return ""


def describe_special_inputs(arguments: Mapping[str, Array]) -> str:
    """Returns a list of NaNs and infinities among inputs, such as `x[3, 5] is nan`; a count if there are above four."""
    parts: list[str] = []
    for path, value in arguments.items():
        if not is_float(value.dtype):
            continue
        wide = value.astype(np.float64)
        places = np.argwhere(~np.isfinite(wide))
        if len(places) > 4:
            parts.append(f"{path} contains {len(places)} NaNs or infinities")
        else:
            parts += [f"{path}[{', '.join(map(str, place))}] is {wide[tuple(place)]}" for place in places.tolist()]
    return "; ".join(parts)


def _only_where_masked(mismatch: MismatchContext) -> str:
    for path, leaf in mismatch.signature.leaves(mismatch.pairing).items():
        mask = mismatch.arguments[path] == np.asarray(leaf.mask_values[1]).astype(mismatch.arguments[path].dtype)
        if not leaf.kind.is_mask or mask.shape != mismatch.comparison.wrong.shape:
            continue
        if not mask.all() and not (mismatch.comparison.wrong & mask).any():
            return f"only where {path} is false"
    return ""


_ENOUGH_WRONG = 8  # wrong elements that make a coincidence unlikely


# The sums stop near 2^p, above which adding 1 changes nothing in a format with p bits of precision.
def _narrow_accumulator(mismatch: MismatchContext) -> str:
    comparison = mismatch.comparison
    if not is_float(comparison.actual.dtype) or not mismatch.inputs_are_finite:
        return ""
    got, wanted = (np.abs(values[comparison.wrong]) for values in (comparison.got, comparison.expected))
    own = float_format(comparison.actual.dtype).precision
    for name in ("bfloat16", "float16", "float32"):
        narrow = parse_dtype(name)
        precision = float_format(narrow).precision
        limit = 2.0**precision
        near = np.abs(got - limit) <= (limit / 8 if len(got) >= _ENOUGH_WRONG else 0)
        held = cast(got, narrow).astype(np.float64) == got
        if ((wanted > limit) & (got < wanted) & held & near).all():
            remark = "" if own > precision else ", which is the output's dtype"
            return f"sums stop growing at about {limit:g}: they are accumulated in {name}{remark}"
    return ""


def _permuted_blocks(mismatch: MismatchContext) -> str:
    comparison = mismatch.comparison
    arrays = comparison.rounded, comparison.actual, comparison.wrong
    for place, axis in enumerate(mismatch.axes):
        if not axis.block or axis.length // axis.block < 2:
            continue
        expected, actual, is_wrong = (_whole_blocks(each, place, axis.block) for each in arrays)
        owner = {block.tobytes(): i for i, block in enumerate(expected)}
        if len(owner) < len(expected):
            return ""  # equal blocks cannot be told apart
        moved = [(int(i), owner.get(actual[i].tobytes())) for i in np.flatnonzero(is_wrong.any(axis=1))]
        every = is_wrong.sum() == comparison.wrong.sum()  # and none is past the last whole block
        if every and len(moved) > 1 and all(j is not None for _, j in moved):
            pairs = ", ".join(f"block {i} has the values of block {j}" for i, j in moved[:4])
            return f"blocks of {axis.name} are permuted: {pairs}"
    return ""


# A row for each block, with zeros of one sign.
def _whole_blocks(values: Array, place: int, block: int) -> Array:
    whole = values.shape[place] // block
    first = np.moveaxis(values, place, 0)[: whole * block]
    rows = np.ascontiguousarray(first).reshape(whole, -1)
    return np.where(rows == 0, np.zeros_like(rows), rows)


# Integers wrapped in a dtype with too few bits.
def _narrow_integers(mismatch: MismatchContext) -> str:
    comparison = mismatch.comparison
    if comparison.actual.dtype.kind not in "iu":
        return ""
    got = comparison.actual[comparison.wrong].astype(np.int64)
    wanted = np.asarray(comparison.expected)[comparison.wrong].astype(np.int64)
    for size in reversed(range(1, min(comparison.actual.dtype.itemsize, 3))):  # in bytes; few may fit 8 bits by chance
        kinds = (np.dtype(f"{kind}{size}") for kind in "iu")
        if fitting := [narrow.name for narrow in kinds if (got == wanted.astype(narrow)).all()]:
            one, other = int(got[0]), int(wanted[0])
            return f"{one} is {other} modulo {1 << 8 * size}: it was stored as {' or '.join(fitting)}"
    return ""


# Values that the relation to other ones explains.
def _related(mismatch: MismatchContext, relations: Callable[[MismatchContext], Iterator[ValueRelation]]) -> str:
    found = first_relation(mismatch, relations(mismatch)) if mismatch.inputs_are_finite else None
    return found.text() if found is not None else ""


def _keeps_state(mismatch: MismatchContext) -> str:
    changes = _changes_when_traced(mismatch.pairing, mismatch.signature)
    return "the kernel keeps state: it is another one each time that it is traced" if changes else ""


@lru_cache(maxsize=256)
def _changes_when_traced(pairing: Pairing, signature: Signature) -> bool:
    try:
        first, second = (_ADDRESS.sub("", str(trace(pairing, signature).jaxpr)) for _ in range(2))
    except Failure:
        return False
    return first != second


_ADDRESS = re.compile("0x[0-9a-f]+")


Rule = Callable[[MismatchContext], str]
_RULES: tuple[Rule, ...] = (
    _only_where_masked,
    _narrow_integers,
    partial(_related, relations=relations_of_sums),
    _permuted_blocks,
    _narrow_accumulator,
    partial(_related, relations=relations_of_output),
    partial(_related, relations=relations_of_order),
    _keeps_state,
)
_OF_OUTPUTS: tuple[Rule, ...] = (_permuted_blocks, partial(_related, relations=relations_of_output))
