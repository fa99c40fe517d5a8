"""Diagnoses of mismatches: rules for common mistakes, in order of preference. The first that fits is reported.

A rule fits only if it accounts for every wrong element. Its text is for people; nothing parses it.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kerneltest.core.dtypes import Array, cast, float_format, is_float, parse_dtype, widen
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.judge.mismatch_context import MismatchContext, OutOfTimeError
from kerneltest.judge.output_relations import output_relation


def diagnose(mismatch: MismatchContext, *, is_gradient: bool = False) -> str:
    """Returns the text of the first rule that fits a mismatch; "" if none fits in time.

    The rules that read the inputs of the oracle say nothing of a gradient.
    """
    try:
        return next((words for rule in (_OF_OUTPUTS if is_gradient else _RULES) if (words := rule(mismatch))), "")
    except OutOfTimeError:
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
    """All wrong elements are masked out."""
    for path, leaf in mismatch.signature.leaves(mismatch.pairing).items():
        mask = mismatch.arguments[path] == np.asarray(leaf.mask_values[1]).astype(mismatch.arguments[path].dtype)
        if not leaf.kind.is_mask or mask.shape != mismatch.comparison.wrong.shape:
            continue
        if not mask.all() and not (mismatch.comparison.wrong & mask).any():
            return f"only where {path} is false"
    return ""


def _block_of_a_sum(mismatch: MismatchContext) -> str:
    """The output is a sum that omits one block of a dim, or counts that block twice."""
    has_floats = any(is_float(value.dtype) for value in mismatch.arguments.values())
    if not mismatch.inputs_are_finite or (has_floats and not is_float(mismatch.comparison.actual.dtype)):
        return ""  # integers made of floats are positions or counts, not sums
    for name, block, length in _summed_dims(mismatch):
        leaves = {path: widen(value) for path, value in mismatch.arguments.items()}
        last = -(-length // block) - 1
        for number, position in ((last, "last"), (0, "first")):
            part = slice(number * block, min((number + 1) * block, length))
            for factor, mistake in ((0, "omits"), (2, "counts twice")):
                declared = mismatch.signature.leaves(mismatch.pairing)
                changed = _scale_block(declared, leaves, name, part, factor)
                if changed is not None and mismatch.explains(mismatch.evaluate_oracle(changed)):
                    return f"the sum {mistake} the {position} block of {name} (from {part.start} to {part.stop})"
    return ""


def _summed_dims(mismatch: MismatchContext) -> Iterator[tuple[str, int, int]]:
    """Yields the dims that the output does not have, each with its block and its length."""
    kept = {axis.name for axis in mismatch.axes}
    for name, dim in mismatch.pairing.dims.items():
        length = dict(mismatch.signature.dims).get(name, 0)
        if name not in kept and dim.block and length:
            yield name, dim.block, length


def _scale_block(
    declared: Mapping[str, ArrayArgument], leaves: Mapping[str, Array], dim: str, block: slice, factor: float
) -> dict[str, Array] | None:
    """Returns the arguments with one block along a dim multiplied, in the first argument of data that has the dim."""
    changed = dict(leaves)
    for path, leaf in declared.items():
        if dim in leaf.shape and leaf.kind.is_data:
            values = leaves[path].copy()
            at = (slice(None),) * leaf.shape.index(dim) + (block,)
            values[at] = values[at] * factor
            changed[path] = values
            return changed
    return None


def _narrow_accumulator(mismatch: MismatchContext) -> str:
    """The sums stop near 2^p, above which adding 1 changes nothing in a format with p bits of precision."""
    comparison = mismatch.comparison
    if not is_float(comparison.actual.dtype) or not mismatch.inputs_are_finite:
        return ""
    got, wanted = np.abs(comparison.actual.astype(np.float64)), np.abs(comparison.expected)
    own = float_format(comparison.actual.dtype).precision
    wrong = comparison.wrong
    for name in ("bfloat16", "float16", "float32"):
        narrow = parse_dtype(name)
        limit = 2.0 ** float_format(narrow).precision
        beyond = bool((wanted[wrong] > limit).all() and (got[wrong] < wanted[wrong]).all())
        held = bool((cast(got[wrong], narrow).astype(np.float64) == got[wrong]).all())
        near = np.abs(got[wrong] - limit) <= (limit / 8 if wrong.sum() >= _ENOUGH else 0)
        if beyond and held and bool(near.all()):
            remark = "" if own > float_format(narrow).precision else ", which is the output's dtype"
            return f"sums stop growing at about {limit:g}: they are accumulated in {name}{remark}"
    return ""


def _constant_factor(mismatch: MismatchContext) -> str:
    """Every element is the expected one times one factor."""
    comparison = mismatch.comparison
    if not is_float(comparison.actual.dtype) or not mismatch.inputs_are_finite:
        return ""
    wrong = comparison.wrong & (comparison.expected != 0)
    if wrong.sum() < _ENOUGH or len(np.unique(comparison.expected[wrong])) < 3:
        return ""
    with np.errstate(all="ignore"):
        factor = float(np.median(comparison.actual.astype(np.float64)[wrong] / comparison.expected[wrong]))
    spread = 2 * float_format(comparison.actual.dtype).unit_roundoff
    if not math.isfinite(factor) or factor == 0 or abs(factor - 1) <= 16 * spread:
        return ""
    expected = np.asarray(comparison.expected, np.float64)
    if not mismatch.explains(expected * factor, spread):
        return ""
    if abs(factor + 1) <= spread:
        return "each has the opposite sign"
    if abs(off := factor - 1) < _NEARLY:
        return f"each is too {'large' if off > 0 else 'small'} by {abs(off):.2g} of the expected value"
    return f"each is {factor:.4g} times the expected value"


_ENOUGH = 8  # wrong elements that make a coincidence unlikely
_NEARLY = 1e-2  # relative error below which its size is said instead of the factor


def _permuted_blocks(mismatch: MismatchContext) -> str:
    """Whole blocks have the expected values of other blocks."""
    comparison = mismatch.comparison
    rounded = cast(comparison.expected, comparison.actual.dtype)
    for place, axis in enumerate(mismatch.axes):
        if not axis.block or axis.length // axis.block < 2:
            continue
        expected, actual, is_wrong = (
            _whole_blocks(each, place, axis.block) for each in (rounded, comparison.actual, comparison.wrong)
        )
        owner = {block.tobytes(): i for i, block in enumerate(expected)}
        if len(owner) < len(expected):
            return ""  # equal blocks cannot be told apart
        moved = [(int(i), owner.get(actual[i].tobytes())) for i in np.flatnonzero(is_wrong.any(axis=1))]
        every = is_wrong.sum() == comparison.wrong.sum()  # and none is past the last whole block
        if every and len(moved) > 1 and all(j is not None for _, j in moved):
            pairs = ", ".join(f"block {i} has the values of block {j}" for i, j in moved[:4])
            return f"blocks of {axis.name} are permuted: {pairs}"
    return ""


def _whole_blocks(values: Array, place: int, block: int) -> Array:
    """Returns the whole blocks along an axis, a row each, with zeros of one sign."""
    whole = values.shape[place] // block
    first = np.moveaxis(values, place, 0)[: whole * block]
    rows = np.ascontiguousarray(first).reshape(whole, -1)
    return np.where(rows == 0, np.zeros_like(rows), rows)


def _narrow_integers(mismatch: MismatchContext) -> str:
    """Integers wrapped in a dtype with too few bits."""
    comparison = mismatch.comparison
    if comparison.actual.dtype.kind not in "iu":
        return ""
    got = comparison.actual[comparison.wrong].astype(np.int64)
    wanted = np.asarray(comparison.expected)[comparison.wrong].astype(np.int64)
    for size in range(1, min(comparison.actual.dtype.itemsize, 3)):  # in bytes
        kinds = (np.dtype(f"{kind}{size}") for kind in "iu")
        if fitting := [narrow.name for narrow in kinds if (got == wanted.astype(narrow)).all()]:
            one, other = int(got[0]), int(wanted[0])
            return f"{one} is {other} modulo {1 << 8 * size}: it was stored as {' or '.join(fitting)}"
    return ""


def _repeated_blocks(mismatch: MismatchContext) -> str:
    """All blocks (or elements) along an axis equal the first one, and should not."""
    comparison = mismatch.comparison
    for place, axis in enumerate(mismatch.axes):
        length = axis.block or 1
        if axis.length < 2 * length or axis.length % length:
            continue
        shape = comparison.actual.shape
        parts = (*shape[:place], axis.length // length, length, *shape[place + 1 :])
        actual = comparison.actual.reshape(parts)
        rounded = cast(comparison.expected, comparison.actual.dtype).reshape(parts)
        first = np.take(actual, [0], place)
        equal = (actual == first) | ((actual != actual) & (first != first))
        differ = (rounded != np.take(rounded, [0], place)).any() and not comparison.wrong.reshape(parts).take(
            0, place
        ).any()
        if equal.all() and differ and len(np.unique(first.astype(np.float64))) > 1:
            return f"all {'blocks of' if axis.block else 'elements along'} {axis.name} equal the first"
    return ""


Rule = Callable[[MismatchContext], str]
_RULES: tuple[Rule, ...] = (
    _only_where_masked,
    _narrow_integers,
    _repeated_blocks,
    _block_of_a_sum,
    _permuted_blocks,
    _narrow_accumulator,
    _constant_factor,
    output_relation,
)
_OF_OUTPUTS: tuple[Rule, ...] = (_repeated_blocks, _permuted_blocks, _constant_factor, output_relation)
