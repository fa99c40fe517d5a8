"""Sizes at which to lower a kernel: around the lengths at which its form may change, random ones and the largest."""

import itertools
import math
import random
from collections.abc import Callable

from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import covering_array

LIMIT = 2**31
"""Arrays without declared bounds are assumed to have fewer elements."""
_SAMPLES, _BEYOND = 48, 8

Row = tuple[tuple[str, int], ...]


def max_length(dim: Dim) -> int | None:
    """Returns the greatest length of a dim, or None if none is declared."""
    if dim.values:
        return max(dim.values)
    known = [each for each in (dim.maximum, dim.production) if each is not None]
    return max(known, default=None)


def boundary_lengths(dim: Dim) -> list[int]:
    """Returns lengths around one and two blocks, which may not be admitted."""
    block = dim.block or 16
    return [dim.minimum, 1, block - 1, block, block + 1, 2 * block + 1]


def random_length(dim: Dim, rng: random.Random, longest: int) -> int:
    """Returns a random admitted length, log-uniform up to `longest`."""
    if dim.values:
        return rng.choice(dim.values)
    length = round(math.exp(rng.uniform(0, math.log(longest))))
    block = dim.block or 16
    if rng.random() < 0.3:
        length = max(length // block, 1) * block
    return _fit_length(dim, length, rng)


def _fit_length(dim: Dim, length: int, rng: random.Random) -> int:
    """Returns an admitted length near another one."""
    if dim.values:
        return length
    fitting = dim.fit(length)
    if dim.multiple_of > 1 or length < dim.minimum:
        fitting = rng.choice((fitting, dim.fit(dim.minimum + (length - 1) * dim.multiple_of)))
    if dim.maximum is not None and fitting > dim.maximum - dim.multiple_of:
        fitting = dim.fit(rng.randint(dim.minimum, dim.maximum))
    return fitting


def admitted_lengths(dim: Dim) -> list[int]:
    """Returns a few dozen admitted lengths, short and long."""
    if dim.values:
        return sorted(set(dim.values))
    lengths = [dim.minimum + n * dim.multiple_of for n in (*range(40), 100, 1000, 4001)]
    return sorted({dim.fit(length) for length in lengths if dim.admits(dim.fit(length))})


def _length_generators(dim: Dim) -> list[Callable[[random.Random], int]]:
    """Returns generators of lengths, one for each range in which kernels may have another form."""
    if dim.values:
        return [lambda _, value=value: value for value in dim.values]  # type: ignore[misc]
    b = dim.block or 16
    ways: list[Callable[[random.Random], int]] = [
        lambda rng: rng.randrange(b + 1, 9 * b) // 2 * 2 + 1,
        lambda rng: b * rng.randrange(2, 12),
        lambda rng: rng.randrange(2, max(b, 3)),
        lambda rng: 1,
        lambda rng: b,
    ]
    return [*ways, lambda rng: 0] if dim.minimum == 0 else ways


def sample_sizes(pairing: Pairing, rng: random.Random) -> list[Row]:
    """Returns sizes to learn from: a pairwise covering of the generators of lengths, and random ones."""
    ways = [_length_generators(dim) for dim in pairing.dims.values()]
    chosen = covering_array([tuple(range(len(each))) for each in ways], 2)
    rng.shuffle(chosen)
    found = []
    for numbers in chosen[:_SAMPLES]:
        lengths = [way[number](rng) for way, number in zip(ways, numbers, strict=True)]
        fitted = (_fit_length(dim, x, rng) for dim, x in zip(pairing.dims.values(), lengths, strict=True))
        found.append(tuple(zip(pairing.dims, fitted, strict=True)))
    few = [
        tuple((name, random_length(dim, rng, 300)) for name, dim in pairing.dims.items())
        for _ in range(max(4, 12 - len(found)))
    ]
    return list(dict.fromkeys([*found, *few]))


def max_elements(pairing: Pairing) -> int:
    """Returns the greatest number of elements of an array with all dims, counting 1 for those without a bound."""
    return math.prod(max_length(dim) or 1 for dim in pairing.dims.values())


def sizes_beyond_int32(pairing: Pairing) -> list[Row]:
    """Returns a few sizes at which arrays have 2^31 elements or more; none if the declaration excludes them."""
    if max_elements(pairing) < LIMIT:
        return []
    beyond = [tuple(sizes.items()) for sizes in largest_sizes(pairing) if math.prod(sizes.values()) >= LIMIT]
    return list(dict.fromkeys(beyond))[:_BEYOND]


def largest_sizes(pairing: Pairing) -> list[dict[str, int]]:
    """Returns sizes at which one or more dims have their greatest length."""
    rows = []
    names = list(pairing.dims)
    for count in range(1, len(names) + 1):
        for chosen in itertools.combinations(names, count):
            for other in (1, 3, 65):
                sizes = {n: d.fit(other) if not d.values else min(d.values, key=lambda v: abs(v - other))
                         for n, d in pairing.dims.items()}  # fmt: skip
                space = LIMIT - 1
                for number, name in enumerate(chosen):
                    dim = pairing.dims[name]
                    greatest = max_length(dim)
                    if greatest is not None:
                        sizes[name] = dim.fit(greatest)
                        if dim.values:
                            sizes[name] = greatest
                        continue
                    rest = math.prod(n for other_name, n in sizes.items() if other_name not in chosen[number:])
                    share = int((space / max(rest, 1)) ** (1 / (count - number)))
                    sizes[name] = max(share // dim.multiple_of * dim.multiple_of, dim.fit(dim.minimum))
                rows.append(sizes)
    return rows
