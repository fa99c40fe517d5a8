"""Products of matrices: operands rounded to what the machine multiplies, sums in any order."""

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import TF32, Array, dtype_named, float_format
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.samples import SampledArray, promote

_ONE_SIGN, _ONE_SIZE = 0.9, 1.1  # of terms that are about the same: their sum, and the mean of their squares
_LETTERS = string.ascii_letters
_NAMES = {
    TF32: "TF32",
    float_format(dtype_named("bfloat16")): "bfloat16",
    float_format(np.dtype(np.float16)): "float16",
}


def matmul(left: Any, right: Any) -> SampledArray:
    """`left @ right`, of any number of axes; one of the two may be an ordinary array."""
    a, b = np.ndim(left), np.ndim(right)
    if not a or not b:
        raise ValueError("matmul takes no scalars")
    batch = [_LETTERS[3 + i] for i in range(max(a, b) - 2)]
    one = [*batch[len(batch) - max(a - 2, 0) :], *("mk" if a > 1 else "k")] if batch else list("mk" if a > 1 else "k")
    two = [*batch[len(batch) - max(b - 2, 0) :], *("kn" if b > 1 else "k")] if batch else list("kn" if b > 1 else "k")
    names = {"m": "A", "k": "B", "n": "C"}
    one, two = [names.get(c, c) for c in one], [names.get(c, c) for c in two]
    out = [*batch, *("A" if a > 1 else ""), *("C" if b > 1 else "")]
    return product(left, one, right, two, out)


def einsum(subscripts: str, operands: Sequence[Any]) -> Any:
    """`np.einsum`, from left to right where there are more than two operands."""
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
    result: Any = np.transpose(left, order)
    scaled: Any = getattr(left, "scaled", None)
    if scaled:
        result.scaled = lambda: np.transpose(scaled(), order)
    return result


def _diagonals(operand: Any, letters: list[str]) -> tuple[Any, list[str]]:
    """An operand in whose letters none stands twice."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            operand = np.diagonal(operand, axis1=first, axis2=second)
            letters = [*(each for i, each in enumerate(letters) if i not in (first, second)), letter]
    return operand, letters


def _letters(subscripts: str, operands: Sequence[Any]) -> tuple[list[list[str]], list[str]]:
    """A name for each axis of each operand and of the result; those differentiating_at an ellipsis are numbered from the last."""
    given, arrow, wanted = subscripts.partition("->")
    most = 0
    parts = []
    for part, operand in zip(given.split(","), operands, strict=True):
        hidden = np.ndim(operand) - len(part.replace("...", ""))
        most = max(most, hidden if "..." in part else 0)
        parts.append(_spelled(part, hidden))
    if not arrow:
        every = [letter for part in parts for letter in part]
        once = sorted(letter for letter in set(every) if every.count(letter) == 1 and not letter.startswith("."))
        return parts, [*_spelled("...", most), *once]
    return parts, _spelled(wanted, most)


def _spelled(part: str, hidden: int) -> list[str]:
    before, dots, after = part.partition("...")
    return [*before, *(f".{i}" for i in range(hidden, 0, -1) if dots), *after]


def product(left: Any, one: list[str], right: Any, two: list[str], out: list[str], *, scaled: bool = False) -> SampledArray:
    """The sum over all letters that `out` lacks of the products of two arrays, whose axes are named by letters; with
    `scaled`, a factor of the result goes into an operand before that is rounded."""
    left, one = _without_lone(left, one, two, out)
    right, two = _without_lone(right, two, one, out)
    first = left if isinstance(left, SampledArray) else right
    letters = one, two
    lengths = _lengths(left, one, right, two)
    # An axis of length 1 that broadcasts is an axis that the operand lacks.
    left_values, one = _squeezed(left, one, lengths)
    right_values, two = _squeezed(right, two, lengths)
    fmt = promote((left, right))
    both = [letter for letter in one if letter in two]
    batch = [letter for letter in both if letter in out]
    inner = [letter for letter in both if letter not in out]
    rows = [letter for letter in one if letter not in two]
    columns = [letter for letter in two if letter not in one]

    def of(letters: list[str]) -> int:
        return math.prod(lengths[letter] for letter in letters)

    a = _arranged(left_values, one, [*batch, *rows, *inner])
    b = _arranged(right_values, two, [*batch, *inner, *columns])
    a = a.reshape(len(a), of(batch), of(rows), of(inner))
    b = b.reshape(len(b), of(batch), of(inner), of(columns))
    made = first.with_samples(a, fmt)
    wide = fmt is None or fmt == FLOAT32 or scaled
    operands = first.machine.precision.dot_input.get("float32") if wide else fmt
    if inner and operands is not None:
        truncates = first.machine.precision.truncates and wide
        kind = f"{_NAMES[operands]} operands"
        a, b = (
            first.machine.round_operand(each, operands, truncates, kind, scaled=wide, axis=axis)
            for each, axis in ((a, 3), (b, 2))
        )
    order = [*batch, *rows, *columns]
    shape = [lengths[letter] for letter in order]
    if inner:
        exact = a @ b
        one_a, one_b, one_exact = (first.machine.row(each, 0) for each in (a, b, exact))
        mass, squares = np.abs(one_a) @ np.abs(one_b), one_a**2 @ one_b**2
        alike = (np.abs(one_exact) > _ONE_SIGN * mass) & (of(inner) * squares < _ONE_SIZE * mass**2)
        samples = first.machine.round_sum(exact, mass, of(inner), FLOAT32, alike=alike)
    else:
        samples = first.machine.round_result(a[..., :1] * b[..., :1, :], 0.0, made.compute)
    missing = [letter for letter in out if letter not in order]
    samples = samples.reshape(len(samples), *shape, *(1 for _ in missing))
    result = first.with_samples(_arranged(samples, [*order, *missing], out), fmt)
    # A kernel may make them float32 and scale one; that is rounded then.
    if inner and not wide and first.machine.compute == FLOAT32 and "float32" in first.machine.precision.dot_input:
        result.scaled = lambda: product(left, letters[0], right, letters[1], out, scaled=True)
    return result.record("product", (left, right), one=letters[0], two=letters[1], result=out, lengths=lengths)


def _lengths(left: Any, one: list[str], right: Any, two: list[str]) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for letter, length in [*zip(one, np.shape(left), strict=True), *zip(two, np.shape(right), strict=True)]:
        known = lengths.setdefault(letter, length)
        if 1 not in (known, length) and known != length:
            raise ValueError(f"operands of shapes {np.shape(left)} and {np.shape(right)} do not fit each other")
        lengths[letter] = length if known == 1 else known
    return lengths


def _squeezed(array: Any, letters: list[str], lengths: dict[str, int]) -> tuple[Array, list[str]]:
    """The samples, without axes that broadcast."""
    values = array.samples if isinstance(array, SampledArray) else np.asarray(array)[None]
    lone = [i for i, letter in enumerate(letters) if values.shape[1 + i] == 1 and lengths[letter] != 1]
    kept = [letter for i, letter in enumerate(letters) if i not in lone]
    return values.reshape(len(values), *(n for i, n in enumerate(values.shape[1:]) if i not in lone)), kept


def _without_lone(array: Any, letters: list[str], others: list[str], out: list[str]) -> tuple[Any, list[str]]:
    """The array summed over what is neither in the other nor in the result."""
    lone = tuple(i for i, letter in enumerate(letters) if letter not in others and letter not in out)
    if not lone:
        return array, letters
    return np.sum(array, axis=lone), [letter for i, letter in enumerate(letters) if i not in lone]


def _arranged(samples: Array, letters: list[str], order: list[str]) -> Array:
    return samples.transpose(0, *(1 + letters.index(letter) for letter in order))
