"""Right kernels in the styles of others, with plain oracles and no tolerance but where it says why.

Each computes what its oracle says by another way that authors choose: other formulas, other orders, casts where theirs
have them. Whatever accuses one of them is a false alarm.
`python -m benchmarks.strangers [NAME ...]` runs each at `quick` and at `standard`, with seeds 0 and 1.
"""

import argparse
import inspect
import itertools
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.api import Result

REALS = (-np.inf, np.inf)  # but not the largest and the smallest that a dtype has: a square of these is lost
FINITE = (-1e4, 1e4)
ROWS = {"m": kt.dim(values=(3, 1, 8)), "n": kt.dim(values=(64, 16, 128))}
LOG2_E = math.log2(math.e)
EPSILON = 1e-5

F32 = jnp.float32


def _by_row(row: Callable[..., jax.Array], outputs: Any = None) -> Callable[..., jax.Array]:
    """A kernel that gives each row of its first arguments, `(m, n)`, to one program, and vectors `(n,)` to all."""

    def kernel(*arrays: jax.Array) -> jax.Array:
        m, n = arrays[0].shape
        wanted = outputs(arrays[0]) if outputs else jax.ShapeDtypeStruct((m, n), arrays[0].dtype)
        one = pl.BlockSpec((None, n), lambda i: (i, 0))
        all_rows = pl.BlockSpec((n,), lambda i: (0,))
        narrow = [
            one if len(each.shape) == 2 else pl.BlockSpec((None,), lambda i: (i,)) for each in jax.tree.leaves(wanted)
        ]

        def body(*refs: Any) -> None:
            results = row(*(ref[...] for ref in refs[: len(arrays)]))
            for ref, result in zip(refs[len(arrays) :], jax.tree.leaves(results), strict=True):
                ref[...] = result.astype(ref.dtype)

        specs = [one if array.ndim == 2 else all_rows for array in arrays]
        tree = jax.tree.unflatten(jax.tree.structure(wanted), narrow)
        return pl.pallas_call(body, out_shape=wanted, grid=(m,), in_specs=specs, out_specs=tree)(*arrays)

    kernel.__signature__ = inspect.signature(row)  # type: ignore[attr-defined]
    return kernel


def _a_row_each(dtype: Any = None) -> Callable[[jax.Array], Any]:
    return lambda x: jax.ShapeDtypeStruct(x.shape[:1], dtype or x.dtype)


def _softmax_exp2(x: jax.Array) -> jax.Array:
    scaled = x.astype(F32) * LOG2_E
    e = jnp.exp2(scaled - jnp.max(scaled))
    return e * (1.0 / jnp.sum(e))


@kt.oracle_for(_by_row(_softmax_exp2), x=kt.array("m n", domain=FINITE), dims=ROWS)
def softmax_exp2(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _log_softmax(x: jax.Array) -> jax.Array:
    x = x.astype(F32)
    largest = jnp.max(x)
    return (x - largest) - jnp.log(jnp.sum(jnp.exp(x - largest)))


# x - (max + log(sum)) would err by a rounding of max, however small the result: a bug, and it is found.
@kt.oracle_for(_by_row(_log_softmax), x=kt.array("m n", domain=FINITE), dims=ROWS)
def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _layer_norm_one_pass(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    x = x.astype(F32)
    mean = jnp.sum(x) / x.size
    variance = jnp.sum(x * x) / x.size - mean * mean
    return (x - mean) * lax.rsqrt(variance + 0.1) * weight.astype(F32) + bias.astype(F32)


# E[x^2] - E[x]^2 errs by rounding of E[x^2]. Where x is at most 2 and epsilon 0.1, that is 2^-18 of what stands under
# the root at worst: right. With inputs far from zero it is a bug, which benchmarks/variants keeps.
@kt.oracle_for(
    _by_row(_layer_norm_one_pass),
    x=kt.array("m n", "float32", domain=(-2, 2)),
    weight=kt.array("n", "float32", domain=(-2, 2)),
    bias=kt.array("n", "float32", domain=(-2, 2)),
    dims=ROWS,
)
def layer_norm_one_pass(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    mean = x.mean(axis=-1, keepdims=True)
    variance = np.mean(x * x, axis=-1, keepdims=True) - mean * mean
    return (x - mean) / np.sqrt(variance + 0.1) * weight + bias


def _layer_norm_welford(x_ref: Any, o_ref: Any) -> None:
    n = x_ref.shape[0]

    def step(i: Any, carry: Any) -> Any:
        mean, squares = carry
        value = x_ref[i].astype(F32)
        off = value - mean
        mean = mean + off / (i + 1).astype(F32)
        return mean, squares + off * (value - mean)

    mean, squares = lax.fori_loop(0, n, step, (jnp.float32(0), jnp.float32(0)))
    o_ref[...] = ((x_ref[...].astype(F32) - mean) * lax.rsqrt(squares / n + EPSILON)).astype(o_ref.dtype)


def _welford(x: jax.Array) -> jax.Array:
    spec = pl.BlockSpec((None, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(_layer_norm_welford, out_shape=x, grid=x.shape[:1], in_specs=[spec], out_specs=spec)(x)


@kt.oracle_for(_welford, x=kt.array("m n", domain=REALS), dims=ROWS)
def layer_norm_welford(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + EPSILON)


def _rms_norm_cast(x: jax.Array, weight: jax.Array) -> jax.Array:
    wide = x.astype(F32)
    normed = wide * lax.rsqrt(jnp.mean(wide * wide) + EPSILON)
    return normed.astype(x.dtype) * weight


# It rounds to the input's dtype before its last product, of which no oracle in float64 can know: `compute` says it.
@kt.oracle_for(
    _by_row(_rms_norm_cast),
    x=kt.array("m n", domain=REALS),
    weight=kt.array("n", domain=REALS),
    dims=ROWS,
    tolerance=kt.tolerance.rounding(compute="input"),
)
def rms_norm_cast(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight


def _gelu(x: jax.Array) -> jax.Array:
    return 0.5 * x.astype(F32) * (1 + lax.erf(x.astype(F32) * math.sqrt(0.5)))


@kt.oracle_for(
    _by_row(_gelu),
    x=kt.array("m n"),
    dims=ROWS,
    xfail=[
        kt.xfail(
            "unimplemented",
            backend="simulate:*",
            reason="Pallas has no lowering of erf to Triton",
            url="https://docs.jax.dev/en/latest/pallas/index.html",
        )
    ],
)
def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x / np.sqrt(2)))


def _sigmoid(x: jax.Array) -> jax.Array:
    return 0.5 * jnp.tanh(0.5 * x.astype(F32)) + 0.5


# 1 + tanh loses small results: right beside an oracle that is written so.
@kt.oracle_for(_by_row(_sigmoid), x=kt.array("m n"), dims=ROWS)
def sigmoid_by_tanh(x: np.ndarray) -> np.ndarray:
    return (1 + np.tanh(x / 2)) / 2


def _softplus(x: jax.Array) -> jax.Array:
    x = x.astype(F32)
    return jnp.where(x > 0, x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


@kt.oracle_for(_by_row(_softplus), x=kt.array("m n", domain=FINITE), dims=ROWS)
def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0)


def _entropy(p: jax.Array) -> jax.Array:
    p = p.astype(F32)
    return -jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1)), 0))


@kt.oracle_for(_by_row(_entropy, _a_row_each()), p=kt.array("m n", domain=(0, 1)), dims=ROWS)
def entropy(p: np.ndarray) -> np.ndarray:
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(axis=-1)


def _l2(x: jax.Array) -> jax.Array:
    x = x.astype(F32)
    return x * lax.rsqrt(jnp.maximum(jnp.sum(x * x), 1e-12))


@kt.oracle_for(_by_row(_l2), x=kt.array("m n", domain=(-1e3, 1e3)), dims=ROWS)
def l2_normalised(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.maximum((x * x).sum(axis=-1, keepdims=True), 1e-12))


def _cosine(x: jax.Array, y: jax.Array) -> jax.Array:
    x, y = x.astype(F32), y.astype(F32)
    return jnp.sum(x * y) * lax.rsqrt(jnp.sum(x * x) * jnp.sum(y * y) + 1e-6)


@kt.oracle_for(
    _by_row(_cosine, _a_row_each()), x=kt.array("m n", domain=(-99, 99)), y=kt.array("m n", domain=(-99, 99)), dims=ROWS
)
def cosine(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1) + 1e-6)


def _quantised(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    x = x.astype(F32)
    scale = jnp.max(jnp.abs(x)) / 127.0
    scaled = x * (1.0 / jnp.where(scale == 0, 1, scale))
    return jnp.floor(scaled + 0.5), scale


@kt.oracle_for(
    _by_row(
        _quantised,
        lambda x: (jax.ShapeDtypeStruct(x.shape, jnp.int8), jax.ShapeDtypeStruct(x.shape[:1], F32)),
    ),
    x=kt.array("m n", domain=FINITE),
    dims=ROWS,
)
def quantised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = np.abs(x).max(axis=-1) / 127
    return np.round(x / np.where(scale == 0, 1, scale)[:, None]).astype(np.int8), scale


def _top(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    largest = jnp.max(x)
    return largest, jnp.min(jnp.where(x == largest, jnp.arange(x.size), x.size))


@kt.oracle_for(
    _by_row(_top, lambda x: (jax.ShapeDtypeStruct(x.shape[:1], x.dtype), jax.ShapeDtypeStruct(x.shape[:1], jnp.int32))),
    x=kt.array("m n", domain=(-1e30, 1e30)),
    dims=ROWS,
)
def top_1(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x.max(axis=-1), x.argmax(axis=-1)


def _count(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum((x.astype(F32) > y.astype(F32)).astype(jnp.int32))


@kt.oracle_for(_by_row(_count, _a_row_each(jnp.int32)), x=kt.array("m n"), y=kt.array("m n"), dims=ROWS)
def count_above(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x > y).sum(axis=-1)


def _kahan(x_ref: Any, o_ref: Any) -> None:
    def step(i: Any, carry: Any) -> Any:
        total, lost = carry
        term = x_ref[i].astype(F32) - lost
        grown = total + term
        return grown, (grown - total) - term

    o_ref[...] = lax.fori_loop(0, x_ref.shape[0], step, (jnp.float32(0), jnp.float32(0)))[0].astype(o_ref.dtype)


def _kahan_sum(x: jax.Array) -> jax.Array:
    return pl.pallas_call(
        _kahan,
        out_shape=jax.ShapeDtypeStruct(x.shape[:1], x.dtype),
        grid=x.shape[:1],
        in_specs=[pl.BlockSpec((None, x.shape[1]), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((None,), lambda i: (i,)),
    )(x)


@kt.oracle_for(_kahan_sum, x=kt.array("m n", domain=(-1e30, 1e30)), dims=ROWS)
def kahan_sum(x: np.ndarray) -> np.ndarray:
    return x.sum(axis=-1)


def _products(x_ref: Any, o_ref: Any) -> None:
    def step(i: Any, product: Any) -> Any:
        product = product * x_ref[i].astype(F32)
        o_ref[i] = product.astype(o_ref.dtype)
        return product

    lax.fori_loop(0, x_ref.shape[0], step, jnp.float32(1))


def _cumulative_product(x: jax.Array) -> jax.Array:
    spec = pl.BlockSpec((None, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(_products, out_shape=x, grid=x.shape[:1], in_specs=[spec], out_specs=spec)(x)


@kt.oracle_for(_cumulative_product, x=kt.array("m n"), dims=ROWS)
def cumulative_product(x: np.ndarray) -> np.ndarray:
    return np.cumprod(x, axis=-1)


def _interleaved(x: jax.Array, angles: jax.Array) -> jax.Array:
    m, n = x.shape

    def body(a_ref: Any, b_ref: Any, t_ref: Any, first_ref: Any, second_ref: Any) -> None:
        a, b = a_ref[...].astype(F32), b_ref[...].astype(F32)
        c, s = jnp.cos(t_ref[...].astype(F32)), jnp.sin(t_ref[...].astype(F32))
        first_ref[...] = (a * c - b * s).astype(first_ref.dtype)
        second_ref[...] = (b * c + a * s).astype(second_ref.dtype)

    half = pl.BlockSpec((None, n // 2), lambda i: (i, 0))
    pairs = x.reshape(m, n // 2, 2)
    out = jax.ShapeDtypeStruct((m, n // 2), x.dtype)
    both = pl.pallas_call(body, out_shape=[out, out], grid=(m,), in_specs=[half] * 3, out_specs=[half] * 2)(
        pairs[..., 0], pairs[..., 1], angles
    )
    return jnp.stack(both, axis=-1).reshape(m, n)


@kt.oracle_for(
    _interleaved,
    x=kt.array("m 32"),
    angles=kt.array("m 16", "float32", domain=(0, 100)),
    dims={"m": ROWS["m"]},
)
def rotary_interleaved(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    c, s = np.cos(angles), np.sin(angles)
    out = np.empty_like(x)
    out[:, ::2] = x[:, ::2] * c - x[:, 1::2] * s
    out[:, 1::2] = x[:, 1::2] * c + x[:, ::2] * s
    return out


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    def body(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any) -> None:
        scaled = q_ref[...].astype(F32) * (LOG2_E / math.sqrt(q_ref.shape[-1]))
        scores = jnp.dot(scaled, k_ref[...].astype(F32).T)
        p = jnp.exp2(scores - jnp.max(scores, axis=-1, keepdims=True))
        out = jnp.dot(p, v_ref[...].astype(F32)) / jnp.sum(p, axis=-1, keepdims=True)
        o_ref[...] = out.astype(o_ref.dtype)

    return pl.pallas_call(body, out_shape=q)(q, k, v)


@kt.oracle_for(
    _attention,
    q=kt.array("m d", domain=(-99, 99)),
    k=kt.array("n d", domain=(-99, 99)),
    v=kt.array("n d", domain=(-99, 99)),
    dims={"m": kt.dim(values=(16, 32)), "n": kt.dim(values=(32, 64)), "d": kt.dim(values=(16, 32))},
)
def attention_exp2(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q @ k.T / np.sqrt(q.shape[-1])
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True) @ v


def _jax_mha(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        from jax.experimental.pallas.ops.gpu.attention import BlockSizes, mha

    blocks = BlockSizes(
        **dict.fromkeys(("block_q", "block_k", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq"), 16)
    )
    return mha(q, k, v, None, sm_scale=1 / math.sqrt(q.shape[-1]), causal=causal, block_sizes=blocks)


# JAX's own, whose way back sums the output as it was stored.
@kt.oracle_for(
    _jax_mha,
    q=kt.array("b s h d", domain=(-30, 30)),
    k=kt.array("b s h d", domain=(-30, 30)),
    v=kt.array("b s h d", domain=(-30, 30)),
    causal=kt.static(False, True),
    dims={
        "b": kt.dim(values=(1, 2)),
        "s": kt.dim(values=(32, 64)),
        "h": kt.dim(values=(1, 2)),
        "d": kt.dim(values=(16, 32)),
    },
    grad=True,
)
def jax_mha(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", p / p.sum(axis=-1, keepdims=True), v)


def _convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    def body(x_ref: Any, w_ref: Any, o_ref: Any) -> None:
        total = jnp.zeros(o_ref.shape, F32)
        for tap in range(w_ref.shape[0]):
            total += x_ref[pl.ds(tap, o_ref.shape[0])].astype(F32) * w_ref[tap].astype(F32)
        o_ref[...] = total.astype(o_ref.dtype)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((x.shape[0] - 3,), x.dtype))(x, w)


@kt.oracle_for(
    _convolved, x=kt.array("n", domain=REALS), w=kt.array("4", domain=REALS),
    dims={"n": kt.dim(values=(67, 35, 131))},
)  # fmt: skip
def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.convolve(x, w[::-1], mode="valid")


def _masked_mean(x: jax.Array, keep: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(keep, x.astype(F32), 0)) / jnp.sum(keep.astype(F32))


@kt.oracle_for(
    _by_row(_masked_mean, _a_row_each()),
    x=kt.array("m n"),
    keep=kt.mask("m n"),
    dims=ROWS | {"n": kt.dim(block=16, values=(64, 16, 128))},
)
def masked_mean(x: np.ndarray, keep: np.ndarray) -> Any:
    count = keep.sum(axis=-1)
    total = np.where(keep, x, 0).sum(axis=-1)
    return kt.defined(total / np.where(count == 0, 1, count), where=count > 0)


STRANGERS = {name: value for name, value in list(globals().items()) if isinstance(value, kt.Pairing)}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(STRANGERS))
    parser.add_argument("--backends", default="interpret,simulate:sm_90")
    parser.add_argument("--depths", default="quick,standard")
    parser.add_argument("--seeds", default="0,1")
    options = parser.parse_args(words)
    depths, seeds = options.depths.split(","), [int(seed) for seed in options.seeds.split(",")]
    accused = 0
    for name, depth, seed in itertools.product(options.names, depths, seeds):
        result = kt.check(STRANGERS[name], backends=options.backends.split(","), depth=depth, seed=seed, minimize=0)
        print("\n".join(told(f"{name} {depth} {seed}", result)), flush=True)
        accused += len(result.findings)
    return int(accused > 0)


def told(name: str, result: Result) -> Iterator[str]:
    """What came out, what was used of the bounds, what was not followed, and a finding of each backend and family."""
    used: dict[str, float] = {}
    for record in result.records:
        used[record.backend] = max(used.get(record.backend, 0.0), record.bound_fraction or 0.0)
    shown = ", ".join(f"{backend} {part:.2f}" for backend, part in used.items())
    verdicts = Counter(f"{finding.backend} {finding.verdict}" for finding in result.findings)
    yield f"{name}: {len(result.findings)} of {result.cases} accused, used {shown} {dict(verdicts) or ''}"
    yield from (f"    {text}" for text in sorted({r.tolerance for r in result.records if ": " in r.tolerance}))
    first = {(finding.backend, finding.family): finding for finding in reversed(result.findings)}
    for (backend, family), finding in first.items():
        message = finding.message.replace("\n", " | ")
        yield f"    {backend} {family} {finding.signature}: {message}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
