"""Delinearisation: rewrites an offset into an array as an index along each axis, by the products in it."""

from collections.abc import Iterator, Mapping, Sequence

from kerneltest.extensions.proofs.polynomial import (
    ONE,
    ZERO,
    Constraint,
    Monomial,
    Polynomial,
    all_of,
    between,
    product,
)


def index_forms(offset: Polynomial, shape: Sequence[Polynomial]) -> Iterator[tuple[Polynomial, ...]]:
    """Yields ways to write an offset as the sum of indices times strides, the likeliest first.

    That the indices are within their axes is not implied and must be proved.
    """
    strides = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    if any(len(stride.terms) != 1 for stride in strides):
        return
    seen = set()
    for lengths_too in (False, True):
        rest, found = offset, []
        for stride in strides[:-1]:
            index, rest = split_multiple(rest, stride, lengths_too)
            found.append(index)
        form = (*found, rest)
        if form not in seen:
            seen.add(form)
            yield form


def split_multiple(offset: Polynomial, stride: Polynomial, lengths_too: bool) -> tuple[Polynomial, Polynomial]:
    """Splits an offset into a multiple of a stride and a remainder.

    Args:
      offset: to split.
      stride: a single term.
      lengths_too: whether constant multiples of the stride, such as `-n` in `i n - n + j`, belong to the multiple.

    Returns:
      The multiple divided by the stride, and the remainder.
    """
    if stride == ONE:
        return offset, ZERO
    ((names, factor),) = stride.terms
    multiple = ZERO
    for monomial, coefficient in offset.terms:
        left = _divide_monomial(monomial, names)
        if left is None or coefficient % factor or not (left or lengths_too):
            continue
        multiple = multiple + Polynomial(((left, coefficient // factor),))
    return multiple, offset - multiple * stride


def _divide_monomial(monomial: Monomial, names: Monomial) -> Monomial | None:
    left = list(monomial)
    for name in names:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)


def is_within(indices: Sequence[Polynomial], shape: Sequence[Polynomial], known: Mapping[str, int]) -> Constraint:
    """Returns the constraint that indices are within their axes, some of whose names have known values."""
    return all_of(*(between(index, 0, n.substitute(known)) for index, n in zip(indices, shape, strict=True)))
