"""RMS normalisation of activations, with a gradient of its own."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tests.model_library.config import NormConfig


class NormParams(NamedTuple):
    """Weights of a normalisation: `scale`, and `shift` or None, both of the activations' last length."""

    scale: jax.Array
    shift: jax.Array | None = None


def _forward_body(x_ref: Any, scale_ref: Any, *rest: Any, epsilon: float) -> None:
    *shift_ref, y_ref, rstd_ref = rest
    x = x_ref[...].astype(jnp.float32)
    rstd = jax.lax.rsqrt(jnp.mean(x * x, axis=1) + epsilon)
    y = x * rstd[:, None] * scale_ref[...].astype(jnp.float32)
    y_ref[...] = (y + sum(ref[...].astype(jnp.float32) for ref in shift_ref)).astype(y_ref.dtype)
    rstd_ref[...] = rstd


def _normalised(params: NormParams, x: jax.Array, config: NormConfig) -> tuple[jax.Array, jax.Array]:
    rows, d = x.shape
    weights = [each for each in params if each is not None]
    of_rows = pl.BlockSpec((config.rows, d), lambda i: (i, 0))
    return pl.pallas_call(
        functools.partial(_forward_body, epsilon=config.epsilon),
        grid=(rows // config.rows,),
        in_specs=[of_rows, *(pl.BlockSpec((d,), lambda i: (0,)) for _ in weights)],
        out_specs=[of_rows, pl.BlockSpec((config.rows,), lambda i: (i,))],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((rows,), jnp.float32)],
    )(x, *weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _rms_norm(params: NormParams, x: jax.Array, config: NormConfig) -> dict[str, jax.Array]:
    y, rstd = _normalised(params, x, config)
    return {"y": y, "rstd": rstd}


def _rms_norm_forward(params: NormParams, x: jax.Array, config: NormConfig) -> tuple[dict[str, jax.Array], Any]:
    out = _rms_norm(params, x, config)
    return out, (params, x, out["rstd"])


def _rms_norm_backward(config: NormConfig, kept: Any, pulled: dict[str, jax.Array]) -> tuple[NormParams, jax.Array]:
    params, x, rstd = kept
    wide, dy = x.astype(jnp.float32), pulled["y"].astype(jnp.float32)
    unit = wide * rstd[:, None]
    scaled = dy * params.scale.astype(jnp.float32)
    dx = rstd[:, None] * (scaled - unit * jnp.mean(scaled * unit, axis=1, keepdims=True))
    dx = dx - (pulled["rstd"] * rstd**3 / x.shape[1])[:, None] * wide
    shift = None if params.shift is None else dy.sum(axis=0).astype(params.shift.dtype)
    return NormParams((dy * unit).sum(axis=0).astype(params.scale.dtype), shift), dx.astype(x.dtype)


_rms_norm.defvjp(_rms_norm_forward, _rms_norm_backward)


@functools.partial(jax.jit, static_argnames="config")
def rms_norm(params: NormParams, x: jax.Array, *, config: NormConfig) -> dict[str, jax.Array]:
    """`x / rms(x) * scale + shift` over the last axis, and the reciprocal of that root mean square.

    Args:
      params: weights of shape (d,).
      x: activations, (batch, sequence, d); batch times sequence is a multiple of `config.rows`.
      config: how.
    """
    batch, sequence, d = x.shape
    out = _rms_norm(params, x.reshape(batch * sequence, d), config)
    return {"y": out["y"].reshape(x.shape), "rstd": out["rstd"].reshape(batch, sequence)}
