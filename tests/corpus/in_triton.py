"""Kernels in Triton itself, each with bugs that a constant selects; without one they are right."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import triton
import triton.language as tl

import kerneltest as kt
from suites.test_softmax import softmax as softmax_oracle
from tests.corpus.twin import Twin


@triton.jit
def total(x, y, n, out, block: tl.constexpr, bug: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    if bug == "programs":
        programs -= 1
    if bug == "overlap":
        apart: tl.constexpr = block - 8
    else:
        apart: tl.constexpr = block
    for start in range(program * apart, n, programs * apart):
        at = start + tl.arange(0, block)
        inside = at < n
        if bug == "mask":
            inside = at <= n
        if bug == "short":
            inside = at < n - 1
        a = tl.load(x + 2 * at, mask=inside, other=0) if bug == "stride" else tl.load(x + at, mask=inside, other=0)
        b = tl.load(y + at) if bug == "unmasked" else tl.load(y + at, mask=inside, other=0)
        if bug == "narrow":
            tl.store(out + at, a.to(tl.bfloat16) + b.to(tl.bfloat16), mask=inside)
        else:
            tl.store(out + at, a + b, mask=inside)


@triton.jit
def softmax(x, n, out, block: tl.constexpr, bug: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, block)
    inside = column < n
    stride = n
    if bug == "stride":
        stride = n + 1
    if bug == "no other":
        values = tl.load(x + row * stride + column, mask=inside)
    elif bug == "other":
        values = tl.load(x + row * stride + column, mask=inside, other=0.0)
    else:
        values = tl.load(x + row * stride + column, mask=inside, other=-float("inf"))
    most = tl.max(values, axis=0)
    shift = tl.where(most == -float("inf"), 0.0, most)
    if bug == "no guard":
        shift = most
    if bug == "no maximum":
        shift = 0.0
    e = tl.exp(values - shift)
    whole = tl.sum(e, axis=0)
    if bug == "epsilon":
        whole += 1e-6
    tl.store(out + row * n + column, e / tl.where(whole == 0.0, 1.0, whole), mask=inside)


@triton.jit
def matmul(x, y, m, n, k, out, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr, bug: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1)
    if bug == "exchanged":
        i, j = j, i
    rows, columns = i * bm + tl.arange(0, bm)[:, None], j * bn + tl.arange(0, bn)[None, :]
    result = tl.zeros((bm, bn), tl.float32)
    stride, last = k, k
    if bug == "stride":
        stride = n
    if bug == "loop" or (bug == "configuration" and bk == 16):
        last = k // bk * bk
    for start in range(0, last, bk):
        left, right = start + tl.arange(0, bk)[None, :], start + tl.arange(0, bk)[:, None]
        if bug == "tail":
            a = tl.load(x + rows * stride + left, mask=rows < m, other=0.0)
        else:
            a = tl.load(x + rows * stride + left, mask=(rows < m) & (left < k), other=0.0)
        b = tl.load(y + right * n + columns, mask=(right < k) & (columns < n), other=0.0)
        result += tl.dot(a, b, input_precision="ieee")
        if bug == "accumulation":
            result = result.to(tl.float16).to(tl.float32)
        if bug == "activation":
            result = tl.where(result < 0.0, 0.0, result)
    result = tl.where(result < 0.0, 0.0, result)  # keeps NaN
    tl.store(out + rows * n + columns, result, mask=(rows < m) & (columns < n))


@triton.jit
def column_sums(x, m, n, out, block: tl.constexpr, split: tl.constexpr, bug: tl.constexpr):
    part, column = tl.program_id(0), tl.program_id(1)
    length = tl.cdiv(m, split)
    if bug == "tail":
        length = m // split
    row = tl.arange(0, block)
    inside = row < tl.minimum(length, m - part * length)
    if bug == "overlap":
        inside = row < tl.minimum(length + 1, m - part * length)
    whole = tl.sum(tl.load(x + (part * length + row) * n + column, mask=inside, other=0.0), axis=0)
    if bug == "store":
        tl.store(out + column, tl.load(out + column) + whole)
    elif bug == "exchange":
        tl.atomic_xchg(out + column, whole)
    else:
        tl.atomic_add(out + column, whole)


@triton.jit
def added_by_index(x, indices, n, out, block: tl.constexpr, bug: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    index = tl.load(indices + at, mask=inside)  # undefined past the end, where the sum is masked, too
    value = tl.load(x + at, mask=inside)
    if bug == "mask":
        tl.atomic_add(out + index, tl.where(inside, value, 0.0))
    elif bug == "position":
        tl.atomic_add(out + at, value, mask=inside)
    else:
        tl.atomic_add(out + index, value, mask=inside)


Given = Mapping[str, Any]


def _total(bug: str) -> kt.Pairing:
    kernel = kt.triton_kernel(
        total,
        grid=(3,),
        outputs={"out": "x"},
        constants={"n": lambda given: given["x"].size, "block": 32, "bug": bug},
    )
    vector = kt.array("n", "float32")
    return kt.oracle_for(kernel, x=vector, y=vector, dims={"n": kt.dim(values=(100, 200))})(lambda x, y: x + y)


def _softmax(bug: str) -> kt.Pairing:
    kernel = kt.triton_kernel(
        softmax,
        grid=lambda given: (given["x"].shape[0],),
        outputs={"out": "x"},
        constants={"n": lambda given: given["x"].shape[1], "block": 64, "bug": bug},
    )
    dims = {"m": kt.dim(values=(3,)), "n": kt.dim(values=(33, 64))}
    return kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=dims, all_masked="zeros")(softmax_oracle)


def _matmul(bug: str) -> kt.Pairing:
    kernel = kt.triton_kernel(
        matmul,
        grid=lambda given: (triton.cdiv(given["m"], 16), triton.cdiv(given["n"], 16)),
        outputs={"out": lambda given: jax.ShapeDtypeStruct((given["m"], given["n"]), given["x"].dtype)},
        constants={
            "m": lambda given: given["x"].shape[0],
            "n": lambda given: given["y"].shape[1],
            "k": lambda given: given["x"].shape[1],
            "bm": 16,
            "bn": 16,
            "bug": bug,
        },
    )
    dims = {"m": kt.dim(values=(33,)), "n": kt.dim(values=(17,)), "k": kt.dim(values=(40,))}
    x, y = kt.array("m k", "float32"), kt.array("k n", "float32")
    return kt.oracle_for(kernel, x=x, y=y, bk=kt.static(8 * 4, 16), dims=dims)(lambda x, y: np.maximum(x @ y, 0))


def _column_sums(bug: str) -> kt.Pairing:
    def memory(given: Given) -> Any:
        shape = given["x"].shape[1:]
        return jax.ShapeDtypeStruct(shape, jnp.float32) if bug == "memory" else jnp.zeros(shape, jnp.float32)

    kernel = kt.triton_kernel(
        column_sums,
        grid=lambda given: (given["split"], given["n"]),
        outputs={"out": memory},
        constants={
            "m": lambda given: given["x"].shape[0],
            "n": lambda given: given["x"].shape[1],
            "block": 32,
            "split": 4,
            "bug": bug,
        },
    )
    dims = {"m": kt.dim(values=(50,)), "n": kt.dim(values=(5,))}
    return kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=dims)(lambda x: x.sum(0))


def _added_by_index(bug: str) -> kt.Pairing:
    def kernel(x: jax.Array, indices: jax.Array, bins: int) -> Any:
        call = kt.triton_kernel(
            added_by_index,
            grid=lambda given: (triton.cdiv(given["n"], given["block"]),),
            outputs={"out": jnp.zeros(bins, jnp.float32)},
            constants={"n": lambda given: given["x"].size, "block": 32, "bug": bug},
        )
        return call(x, indices)

    dims = {"n": kt.dim(values=(50, 159)), "bins": kt.dim(values=(1, 200))}  # 159 added in turn round more than a tree
    x, indices = kt.array("n", "float32"), kt.indices("n", into="bins")
    paired = kt.oracle_for(kernel, x=x, indices=indices, bins=kt.dim_size("bins"), dims=dims)
    return paired(lambda x, indices, bins: np.bincount(indices, x, bins))


def _twins(make: Callable[[str], kt.Pairing], *rows: tuple[str, str, str, str]) -> list[Twin]:
    return [
        Twin(
            name=f"{make.__name__[1:]}: {name}",
            make=lambda broken, bug=bug: make(bug if broken else ""),
            verdicts={"simulate:sm_90": verdict},
            right_on=("simulate:gfx942",),
            words=words,
            cases="any",
            right_is_tested=number > 0,
        )
        for number, (bug, name, verdict, words) in enumerate(rows)
    ]


IN_TRITON = (
    *_twins(
        _total,
        ("mask", "a mask one too far", "out_of_bounds", "store at out offset 100 of 100"),
        ("overlap", "programs overlap", "race", "in no order"),
        ("short", "the last element is masked", "unwritten", "1 of 100 elements"),
        ("unmasked", "a load without its mask", "out_of_bounds", "load at y offset 100"),
        ("stride", "a stride of two", "out_of_bounds", "load at x offset 100"),
        ("programs", "one program less than there are", "race", "in no order"),
        ("narrow", "a sum in bfloat16", "mismatch", ""),
    ),
    *_twins(
        _softmax,
        ("no other", "a masked load without other", "uninitialised", "a masked load without `other` at"),
        ("other", "masked elements count as zeros", "mismatch", "n=33"),
        ("no maximum", "no maximum is subtracted", "mismatch", "overflows"),
        ("no guard", "a row of -inf has no guard", "special_mismatch", "all_masked"),
        ("epsilon", "1e-6 in the divisor", "mismatch", "without rounding"),
        ("stride", "rows are one element further apart", "out_of_bounds", "load at x offset"),
    ),
    *_twins(
        _matmul,
        ("accumulation", "sums in float16", "mismatch|special_mismatch", ""),
        ("tail", "the tail of k is not masked", "out_of_bounds", "load at x offset"),
        ("loop", "the loop leaves out the tail", "mismatch", "k=40"),
        ("stride", "the stride of the other operand", "mismatch", "m=33"),
        ("activation", "the activation inside of the loop", "mismatch", ""),
        ("exchanged", "exchanged axes of the grid", "unwritten|out_of_bounds", ""),
        ("configuration", "a tail that one block size leaves out", "mismatch", "bk=16"),
    ),
    *_twins(
        _column_sums,
        ("tail", "a tail in no part", "mismatch", "m=50"),
        ("overlap", "parts that overlap", "mismatch", "m=50"),
        ("store", "parts are added without atomics", "race", "in no order"),
        ("exchange", "an atomic exchange in the place of a sum", "mismatch", ""),
        ("memory", "parts are added to unwritten memory", "special_mismatch", "got nan"),
    ),
    *_twins(
        _added_by_index,
        ("mask", "undefined indices are used", "out_of_bounds|uninitialised", "atomic at out"),
        ("position", "the position in the place of the index", "out_of_bounds|mismatch", ""),
    ),
)
