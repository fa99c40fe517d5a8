"""Kernels in Triton itself: the elementwise sum, softmax with its guard, 0 to n-1, and (batched) matrix products."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

BLOCK = 128
BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 32


@triton.jit
def add(x, y, n, out, block: tl.constexpr):
    """The sum of two vectors of `n` elements, `block` a program."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    total = tl.load(x + at, mask=inside, other=0) + tl.load(y + at, mask=inside, other=0)
    tl.store(out + at, total, mask=inside)


@triton.jit
def iota(n, out, block: tl.constexpr):
    """0, 1, 2, ... `n` - 1, `block` elements a program."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, at, mask=at < n)


@triton.jit
def softmax(x, n, out, block: tl.constexpr):
    """Softmax of a row of `n` elements a program, at most `block`. A row with nothing but -inf yields zeros."""
    row, column = tl.program_id(0), tl.arange(0, block)
    inside = column < n
    values = tl.load(x + row * n + column, mask=inside, other=-float("inf")).to(tl.float32)
    most = tl.max(values, axis=0)
    e = tl.exp(values - tl.where(most == -float("inf"), 0.0, most))
    total = tl.sum(e, axis=0)
    tl.store(out + row * n + column, e / tl.where(total == 0.0, 1.0, total), mask=inside)


@triton.jit
def matmul(
    x, y, m, n, k, x_batch, y_batch, out,
    activation: tl.constexpr, precision: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """A block of `activation(x @ y)` a program, summed in float32.

    The third axis of the grid is that of the batch, in which operands are `x_batch` and `y_batch` elements apart.
    """
    batch = tl.program_id(2)
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)[:, None]
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)[None, :]
    total = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        left, right = start + tl.arange(0, block_k)[None, :], start + tl.arange(0, block_k)[:, None]
        a = tl.load(x + batch * x_batch + rows * k + left, mask=(rows < m) & (left < k), other=0.0)
        b = tl.load(y + batch * y_batch + right * n + columns, mask=(right < k) & (columns < n), other=0.0)
        total += tl.dot(a, b, input_precision=precision)
    if activation == "relu":
        total = tl.where(total < 0.0, 0.0, total)  # keeps NaN
    elif activation == "gelu":
        inner = 0.7978845608028654 * (total + 0.044715 * total * total * total)  # the first number is sqrt(2 / pi)
        total *= 0.5 * (1.0 + libdevice.tanh(inner))
    elif activation == "silu":
        total *= tl.sigmoid(total)
    tl.store(out + batch * m * n + rows * n + columns, total, mask=(rows < m) & (columns < n))
