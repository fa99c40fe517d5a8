"""An offset into an array as an index along each of its axes, where that can be read off the products in it."""

from collections.abc import Iterator, Sequence

from kerneltest.extensions.proofs.polynomial import ONE, ZERO, Monomial, Polynomial, product


def index_forms(offset: Polynomial, shape: Sequence[Polynomial]) -> Iterator[tuple[Polynomial, ...]]:
    """Ways to write an offset as the sum of indices, each times its axis' stride; the likeliest first.

    Nothing says that an index lies within its axis: that is to be proved.
    """
    strides = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    if any(len(stride.terms) != 1 for stride in strides):
        return
    seen = set()
    for lengths_too in (False, True):
        rest, found = offset, []
        for stride in strides[:-1]:
            index, rest = taken(rest, stride, lengths_too)
            found.append(index)
        way = (*found, rest)
        if way not in seen:
            seen.add(way)
            yield way


def taken(offset: Polynomial, stride: Polynomial, lengths_too: bool) -> tuple[Polynomial, Polynomial]:
    """What of an offset is a multiple of a stride, over the stride; and the rest.

    Args:
      offset: to split.
      stride: a product.
      lengths_too: whether to take what has nothing but the stride in it as well, such as `-n` of `i n - n + j`.
    """
    if stride == ONE:
        return offset, ZERO
    ((names, factor),) = stride.terms
    taken = ZERO
    for monomial, coefficient in offset.terms:
        left = _divide_monomial(monomial, names)
        if left is None or coefficient % factor or not (left or lengths_too):
            continue
        taken = taken + Polynomial(((left, coefficient // factor),))
    return taken, offset - taken * stride


def _divide_monomial(monomial: Monomial, names: Monomial) -> Monomial | None:
    left = list(monomial)
    for name in names:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)
