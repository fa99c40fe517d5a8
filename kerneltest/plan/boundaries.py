"""Depths of a plan, and the boundary lengths at which kernels tend to fail."""

from kerneltest.declare.dims import Dim

DEPTHS = ("quick", "standard", "deep")


def boundary_lengths(dim: Dim, depth: str = "standard") -> tuple[int, ...]:
    """Returns lengths (in elements) at which kernels tend to fail.

    They are 1, lengths around one block and two blocks, odd lengths past these, and 0 if allowed. They are rounded up
    to the dim's multiple and limited to its bounds. `Dim.values` replaces them.
    """
    if dim.values:
        return dim.values
    block = dim.block or 16
    past = 2 * block + max(block // 2, 1) - (1 if block % 4 == 0 else 0)
    wanted = {
        "quick": [block + 1, block, 1, past],
        "standard": [block + 1, 1, block - 1, block, 2 * block, past, 4 * block + 3],
        "deep": [
            block + 1, 1, block - 1, block, 2 * block - 1, 2 * block, 2 * block + 1, past, 2, 3 * block, 4 * block + 3
        ],
    }[depth]  # fmt: skip
    if dim.minimum == 0:
        wanted.append(0)
    lengths: list[int] = []
    for length in wanted:
        fitting = dim.fit(length)
        if dim.admits(fitting) and fitting not in lengths:
            lengths.append(fitting)
    return tuple(lengths)
