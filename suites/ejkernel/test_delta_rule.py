"""Pairings of ejkernel's gated delta rule: a matrix of keys and values that decays, and learns from each token."""

import numpy as np
import pytest

import kerneltest as kt

gated_delta_rule = pytest.importorskip("ejkernel.kernels._pallas.tpu.gated_delta_rule").gated_delta_rule
ragged = pytest.importorskip("ejkernel.kernels._pallas.tpu.ragged_gated_delta_rule")

HEADS = dict(h=kt.dim(values=(2,)), dk=kt.dim(values=(16,)), dv=kt.dim(values=(24,)))


def inputs(axes, dtypes="float32"):
    small = dict(query=f"{axes} h dk", key=f"{axes} h dk", value=f"{axes} h dv")
    arrays = {name: kt.array(shape, dtypes, domain=(-1, 1)) for name, shape in small.items()}
    gates = dict(beta=kt.array(f"{axes} h", dtypes, domain=(0, 1)), decay=kt.array(f"{axes} h", dtypes, domain=(-2, 0)))
    return arrays | gates


def unit(x):
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-6)


def step(state, q, k, v, beta, decay):
    """One token of each sequence: the state decays, is corrected where it maps the key wrongly, and is read."""
    decayed = state * np.exp(decay)[..., None, None]
    error = beta[..., None] * (v - np.einsum("...kv,...k->...v", decayed, k))
    new = decayed + np.einsum("...k,...v->...kv", k, error)
    return new, np.einsum("...kv,...k->...v", new, q) / np.sqrt(q.shape[-1])


@kt.oracle_for(
    gated_delta_rule,
    **inputs("b t"),
    initial_state=kt.optional(kt.array("b h dk dv", "float32", domain=(-1, 1))),
    chunk_size=kt.static(8),
    use_qk_l2norm=kt.static(True, False),
    dims=HEADS | dict(b=kt.dim(values=(1,)), t=kt.dim(block=8, values=(1, 8, 21))),
)
def chunked(query, key, value, beta, decay, use_qk_l2norm, initial_state=None):
    b, t, h, dk = query.shape
    state = np.zeros((b, h, dk, value.shape[-1])) if initial_state is None else initial_state
    if use_qk_l2norm:
        query, key = unit(query), unit(key)
    out = []
    for i in range(t):
        state, read = step(state, query[:, i], key[:, i], value[:, i], beta[:, i], decay[:, i])
        out.append(read)
    return np.stack(out, axis=1), state


@kt.oracle_for(
    ragged.ragged_gated_delta_rule_decode,
    **inputs("r", ("float32", "bfloat16")),
    recurrent_state=kt.array("slots h dk dv", "float32", domain=(-1, 1)),
    state_indices=kt.permutation("r", into="slots"),
    use_qk_l2norm=kt.static(True, False),
    dims=HEADS | dict(r=kt.dim(values=(1, 3)), slots=kt.dim(values=(4,))),
    tolerance=kt.tolerance.rounding(compute="input"),
)
def one_token(query, key, value, beta, decay, recurrent_state, state_indices, use_qk_l2norm):
    if use_qk_l2norm:
        query, key = unit(query), unit(key)
    states = recurrent_state.copy()
    states[state_indices], out = step(recurrent_state[state_indices], query, key, value, beta, decay)
    return out, states
