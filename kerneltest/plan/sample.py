"""Which programs and elements to look at where there are too many to look at all."""

from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import Array

# Exponents of two at which an offset, in elements or bytes, runs out of bits; those that matter most come first.
_EXPONENTS = (31, 32, 30, 24, 16, 15, 29, 33, 28, 11, 8, 7)


def sample(count: int, most: int, sizes: Sequence[int]) -> Array:
    """Some of the numbers under `count`, ascending, int64.

    Both ends come first, then the numbers at which an offset reaches a power of two, then random ones.

    Args:
      count: of all.
      most: how many to take.
      sizes: of arrays, in elements, over which the numbers are spread evenly.
    """
    if not count:
        return np.zeros(0, np.int64)
    reached = [2**each * count // size for each in _EXPONENTS for size in sizes if 2**each < size]
    wanted = [0, count - 1, *(number + step for number in reached for step in (0, 1, -1)), 1, count - 2]
    wanted += [2**exponent for exponent in reversed(range(count.bit_length()))]
    wanted += np.random.Generator(np.random.PCG64(count)).integers(0, count, most).tolist()
    chosen = [number for number in dict.fromkeys(wanted) if 0 <= number < count][:most]
    return np.array(sorted(chosen), np.int64)
