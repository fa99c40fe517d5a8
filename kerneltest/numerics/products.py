"""Matrix products of tracked arrays: operands rounded to the format of the machine's multiplier, sums in any order."""

import math
from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import TF32, Array, FloatFormat, float_format, is_float, parse_dtype
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.samples import (
    Chain,
    Formats,
    Operand,
    SampledArray,
    align_samples,
    join_formats,
    product_partial_sums,
    round_constants,
    samples_of,
)

_ONE_SIGN, _ONE_SIZE = 0.9, 1.1
_SIXTEEN_BITS = {float_format(parse_dtype("bfloat16")): "bfloat16", float_format(np.dtype(np.float16)): "float16"}
_NAMES = {TF32: "TF32", **_SIXTEEN_BITS}


def are_nearly_equal(total: Array, mass: Array, squares: Array, terms: "int | Array") -> Array:
    """Returns whether the terms t of sums are nearly equal: of one sign, and of one size.

    That is, |sum t| > 0.9 sum |t|, and n sum t^2 < 1.1 (sum |t|)^2.
    """
    return np.asarray((np.abs(total) > _ONE_SIGN * mass) & (terms * squares < _ONE_SIZE * mass**2))


def matmul(left: Operand, right: Operand) -> SampledArray:
    """Returns `left @ right`, for any number of axes; one of the two may be a NumPy array."""
    a, b = np.ndim(left), np.ndim(right)
    if not a or not b:
        raise ValueError("matmul does not take scalars")
    one, two = "...mk" if a > 1 else "k", "...kn" if b > 1 else "k"
    parts, out = _letters(f"{one},{two}->...{'m' * (a > 1)}{'n' * (b > 1)}", (left, right))
    return product(left, parts[0], right, parts[1], out)


def einsum(subscripts: str, operands: Sequence[Operand]) -> Operand:
    """Returns `np.einsum(subscripts, *operands)`, contracted from left to right."""
    parts, out = _letters(subscripts.replace(" ", ""), operands)
    (left, one), *others = map(_diagonals, operands, parts)
    for i, (right, two) in enumerate(others):
        later = {letter for part in (out, *(letters for _, letters in others[i + 1 :])) for letter in part}
        kept = [letter for letter in dict.fromkeys([*one, *two]) if letter in later]
        left, one = product(left, one, right, two, kept), kept
    summed = tuple(i for i, letter in enumerate(one) if letter not in out)
    left = np.sum(left, axis=summed) if summed else left
    one = [letter for letter in one if letter in out]
    order = [one.index(letter) for letter in out]
    result: Operand = np.transpose(left, order)
    for attribute in ("again", "scaled"):
        if compute := getattr(left, attribute, None):
            setattr(result, attribute, lambda compute=compute: np.transpose(compute(), order))
    return result


# A diagonal in place of axes that have the same letter.
def _diagonals(operand: Operand, letters: list[str]) -> tuple[Operand, list[str]]:
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            operand = np.diagonal(operand, axis1=first, axis2=second)
            letters = [*(each for i, each in enumerate(letters) if i not in (first, second)), letter]
    return operand, letters


# A name for each axis of each operand and of the result. Axes of an ellipsis are numbered, from the last.
def _letters(subscripts: str, operands: Sequence[Operand]) -> tuple[list[list[str]], list[str]]:
    inputs, arrow, output = subscripts.partition("->")
    most = 0
    parts = []
    for part, operand in zip(inputs.split(","), operands, strict=True):
        hidden = np.ndim(operand) - len(part.replace("...", ""))
        most = max(most, hidden if "..." in part else 0)
        parts.append(_expand_ellipsis(part, hidden))
    if not arrow:
        every = [letter for part in parts for letter in part]
        once = sorted(letter for letter in set(every) if every.count(letter) == 1 and not letter.startswith("."))
        return parts, [*_expand_ellipsis("...", most), *once]
    return parts, _expand_ellipsis(output, most)


def _expand_ellipsis(part: str, hidden: int) -> list[str]:
    before, dots, after = part.partition("...")
    return [*before, *(f".{i}" for i in range(hidden, 0, -1) if dots), *after]


def product(
    left: Operand, one: list[str], right: Operand, two: list[str], out: list[str], *, scaled: bool = False
) -> SampledArray:
    """Returns the sum of the products of two arrays over all letters that `out` lacks; `one` and `two` are their axes.

    If it is `scaled`, a factor of the result is multiplied into an operand before that is rounded.
    """
    left, right = round_constants((left, right))
    left, one = _sum_unshared(left, one, two, out)
    right, two = _sum_unshared(right, two, one, out)
    first = left if isinstance(left, SampledArray) else right
    letters = one, two
    lengths = _lengths(left, one, right, two)
    # An axis of length 1 that broadcasts is treated as an axis that the operand lacks.
    left_values, one = _drop_broadcast_axes(left, one, lengths)
    right_values, two = _drop_broadcast_axes(right, two, lengths)
    formats = join_formats((left, right))
    both = [letter for letter in one if letter in two]
    batch = [letter for letter in both if letter in out]
    inner = [letter for letter in both if letter not in out]
    rows = [letter for letter in one if letter not in two]
    columns = [letter for letter in two if letter not in one]

    def size_of(letters: list[str]) -> int:
        return math.prod(lengths[letter] for letter in letters)

    a = _arrange(left_values, one, [*batch, *rows, *inner])
    b = _arrange(right_values, two, [*batch, *inner, *columns])
    a = a.reshape(len(a), size_of(batch), size_of(rows), size_of(inner))
    b = b.reshape(len(b), size_of(batch), size_of(inner), size_of(columns))
    made, rounding = first.with_samples(a, formats), first.rounding
    whole = not is_float(a.dtype) and not is_float(b.dtype)
    operands, wide = _operand_format(rounding, formats, scaled)
    if inner and operands is not None and not whole:
        truncates = wide and rounding.ask("truncates")
        kind = f"{_NAMES[operands]} operands"
        a, b = (
            rounding.round_operand(each, operands, truncates, kind, scaled=wide, axis=axis)
            for each, axis in ((a, 3), (b, 2))
        )
    order = [*batch, *rows, *columns]
    shape = [lengths[letter] for letter in order]
    if whole:
        samples = a @ b
    elif inner:
        exact = a @ b
        one_a, one_b, one_exact = (rounding.row(each, 0) for each in (a, b, exact))
        mass, squares = np.abs(one_a) @ np.abs(one_b), one_a**2 @ one_b**2
        partial = product_partial_sums(one_a, one_b, one_exact, mass, squares)
        # Float32, or the format of the arithmetic if that is wider.
        fmt = max(FLOAT32, rounding.compute or FLOAT32, key=lambda each: each.precision)
        # Each product may be rounded to a multiple of the least number, as a partial sum of normal size is.
        least: float | Array = fmt.smallest_normal
        if operands is not None and not wide and rounding.ask("aligns_subnormals"):
            least = np.maximum(least, largest_aligned(one_a, one_b, operands))
        partial = np.where(mass > 0, np.maximum(partial, least), partial)
        near_equal = are_nearly_equal(one_exact, mass, squares, size_of(inner))
        samples = rounding.round_sum(exact, mass, size_of(inner), fmt, partial=partial, near_equal=near_equal)
    else:
        samples = rounding.round_result(a[..., :1] * b[..., :1, :], 0.0, made.compute)
    missing = [letter for letter in out if letter not in order]
    samples = samples.reshape(len(samples), *shape, *(1 for _ in missing))
    result = first.with_samples(_arrange(samples, [*order, *missing], out), formats)
    # A kernel may convert narrow operands to float32 and scale one, which is then rounded.
    if inner and not wide and rounding.compute == FLOAT32:
        result.scaled = lambda: product(left, letters[0], right, letters[1], out, scaled=True)
    if inner and not whole and rounding.tape is None:
        result.again = lambda: product(left, letters[0], right, letters[1], out, scaled=scaled)
    return result.record("product", (left, right), one=letters[0], two=letters[1], result=out, lengths=lengths)


def largest_aligned(left: Array, right: Array, fmt: FloatFormat) -> Array:
    """Returns about the size to which a machine aligns the terms of matrix products, if the operands decide it.

    It takes zeros and subnormal numbers, which have the same exponent bits, for numbers of the least normal size. So a
    zero beside a large number costs digits of the other terms. The sizes of (..., rows, inner) and (..., inner,
    columns) are (..., rows, columns), or of lengths 1; 0 where all numbers are normal.
    """
    one, two = np.abs(left), np.abs(right)
    low, other = (x < fmt.smallest_normal for x in (one, two))
    if not (low.any() or other.any()):
        return np.zeros((1,) * left.ndim)
    rows = low.any(-1, keepdims=True) * two.max(-2, keepdims=True, initial=0.0)
    columns = other.any(-2, keepdims=True) * one.max(-1, keepdims=True, initial=0.0)
    return np.asarray(fmt.smallest_normal * np.maximum(rows, columns))


# The format to which a kernel may round operands of a product, or None, and whether these are wide.
def _operand_format(rounding: RoundingModel, formats: Formats, scaled: bool) -> tuple[FloatFormat | None, bool]:
    # A kernel may round both operands to the narrower format: dequantised weights to that of the inputs.
    narrow = min((each for each in formats if each in _SIXTEEN_BITS), key=lambda each: each.precision, default=None)
    if scaled or narrow is None or not rounding.ask("narrow_products"):
        return rounding.ask("dot_input", "float32"), True
    return narrow, False


def contract_otherwise(factors: Sequence[Operand]) -> SampledArray:
    """Returns an elementwise product whose sum a kernel may compute in another order.

    The sum over k of `p * (g @ v.T)` is that over d of `(p @ v) * g`, as attention's backward pass has it: `p` is then
    the operand of a product, and the errors of that are not those of `g @ v.T`.
    """
    first = next(each for each in factors if isinstance(each, SampledArray))
    formats, rounding = join_formats(factors), first.rounding
    operands, wide = _operand_format(rounding, formats, scaled=False)

    def factor(each: Operand) -> Operand:
        if isinstance(each, SampledArray) and each.again:
            return each.again()
        if not isinstance(each, SampledArray) or operands is None:
            return each
        kind, truncates = f"{_NAMES[operands]} operands", wide and rounding.ask("truncates")
        return each.with_samples(rounding.round_operand(each.samples, operands, truncates, kind, scaled=wide))

    one, two = align_samples(map(factor, factors))
    made = first.with_samples(one * two, formats)
    made.samples = rounding.round_result(made.samples, 0.0, made.compute)
    return made


# The length of each letter after broadcasting.
def _lengths(left: Operand, one: list[str], right: Operand, two: list[str]) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for letter, length in [*zip(one, np.shape(left), strict=True), *zip(two, np.shape(right), strict=True)]:
        known = lengths.setdefault(letter, length)
        if 1 not in (known, length) and known != length:
            raise ValueError(f"operands of shapes {np.shape(left)} and {np.shape(right)} cannot be multiplied")
        lengths[letter] = length if known == 1 else known
    return lengths


# The samples and their letters without axes of length 1 that broadcast.
def _drop_broadcast_axes(array: Operand, letters: list[str], lengths: dict[str, int]) -> tuple[Array, list[str]]:
    values = samples_of(array)
    lone = [i for i, letter in enumerate(letters) if values.shape[1 + i] == 1 and lengths[letter] != 1]
    kept = [letter for i, letter in enumerate(letters) if i not in lone]
    return values.reshape(len(values), *(n for i, n in enumerate(values.shape[1:]) if i not in lone)), kept


# Sums an array over the letters that neither the other array nor the result has.
def _sum_unshared(array: Operand, letters: list[str], others: list[str], out: list[str]) -> tuple[Operand, list[str]]:
    lone = tuple(i for i, letter in enumerate(letters) if letter not in others and letter not in out)
    if not lone:
        return array, letters
    return np.sum(array, axis=lone), [letter for i, letter in enumerate(letters) if i not in lone]


def _arrange(samples: Array, letters: list[str], order: list[str]) -> Array:
    return samples.transpose(0, *(1 + letters.index(letter) for letter in order))


# Sums that an oracle writes as a chain of `+` and `-`, whose terms a kernel may add in another order.


def chain_of_sum(inputs: tuple[Operand, ...], exact: Array, made: SampledArray, *, subtracts: bool) -> Chain | None:
    """Returns the terms of a sum one of whose operands is a sum; None for a sum of two."""
    known = [_chain_of(each) if isinstance(each, SampledArray) else None for each in inputs]
    if not any(known):
        return None

    def align(part: Array) -> Array:
        return part.reshape(len(part), *(1,) * (exact.ndim - part.ndim), *part.shape[1:])

    one, other = (
        (chain or Chain.of(made.rounding.row(samples_of(each), 0))).map(align)
        for chain, each in zip(known, inputs, strict=True)
    )
    return one.join(other, made.rounding.row(exact, 0), made.compute, subtracts=subtracts)


def round_chain(made: SampledArray, chain: Chain) -> None:
    """Rounds a sum of three terms or more, which a kernel may add in another order."""
    partial = chain.partial_sums(made.rounding.row(made.samples, 0), made.compute)
    mass = chain.positive + chain.negative
    made.chain = chain
    made.samples = made.rounding.round_sum(made.samples, mass, chain.count, made.compute, partial=partial)


# The terms of a sum, in row 0, (cases or 1, ...); None for another result.
def _chain_of(array: SampledArray) -> Chain | None:
    if array.chain is None and array.terms is not None:
        one, other = (
            Chain.of(array.rounding.row(term, 0) if term.ndim == array.samples.ndim else np.asarray(term)[None])
            for term in array.terms
        )
        total = array.rounding.row(array.samples, 0)
        array.chain = one.join(other, total, array.compute, subtracts=array.subtracts)
    return array.chain
