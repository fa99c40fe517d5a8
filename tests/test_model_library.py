"""Kernels of a model library are paired with no change to them: see `tests/model_library`."""

from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
from tests.model_library import norms
from tests.model_library.caches import Cache, append
from tests.model_library.config import CacheConfig, NormConfig
from tests.model_library.norms import NormParams, rms_norm

Array = np.ndarray
REALS = (-np.inf, np.inf)
POWERS = kt.dim(values=(1, 16, 64))


def _norm() -> kt.Pairing:
    weights = kt.array("d", "float32", domain=REALS)

    @kt.oracle_for(
        rms_norm,
        params=kt.tree(NormParams(weights, kt.optional(weights))),
        x=kt.array("b s d", "float32", domain=REALS),
        config=kt.static(kt.named("by_8", NormConfig()), kt.named("by_4", NormConfig(1e-3, rows=4))),
        dims=dict(b=kt.dim(values=(1, 4)), s=kt.dim(values=(2, 16)), d=kt.dim(on={"gpu": POWERS})),
        where=lambda b, s, config: b * s % config.rows == 0,
        grad=True,
    )
    def rms_norm_oracle(params: NormParams, x: Array, config: NormConfig) -> dict[str, Array]:
        rstd = 1 / np.sqrt(np.mean(x * x, axis=-1) + config.epsilon)
        y = x * rstd[..., None] * params.scale
        return {"y": y if params.shift is None else y + params.shift, "rstd": rstd}

    return rms_norm_oracle


def _cache() -> kt.Pairing:
    @kt.oracle_for(
        append,
        cache=kt.tree(Cache(kt.array("b n d", "float32"), kt.lengths("b", up_to="2*n"))),
        new=kt.array("b d", "float32"),
        config=kt.static(kt.named("full", CacheConfig()), kt.named("ring", CacheConfig(ring=True))),
        dims=dict(b=kt.dim(values=(1, 3)), n=kt.dim(on={"gpu": POWERS}), d=kt.dim(on={"gpu": POWERS})),
        tolerance=kt.tolerance.exact(),
    )
    def append_oracle(cache: Cache, new: Array, config: CacheConfig) -> Cache:
        entries = np.array(cache.entries)
        capacity = entries.shape[1]
        for entry, used, row in zip(entries, cache.used, new, strict=True):
            if config.ring or used < capacity:
                entry[used % capacity] = row
        return Cache(entries, cache.used + 1)  # type: ignore[arg-type]

    return append_oracle


def _checked(pairing: kt.Pairing) -> Any:
    return kt.check(pairing, backends=["interpret", "simulate:sm_90"], depth="quick")


@pytest.mark.parametrize("made", [_norm, _cache])
def test_it_conforms(made: Any) -> None:
    result = _checked(made())
    assert [(f.backend, f.family, f.signature, f.message) for f in result.findings] == []
    assert {record.backend for record in result.records if record.compared} == {"interpret", "simulate:sm_90"}
    assert any(record.family == "gradient" for record in result.records) == (made is _norm)


def test_its_gradient_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(config: Any, kept: Any, pulled: Any) -> Any:
        params, dx = norms._rms_norm_backward(config, kept, pulled)
        return params, dx * (1 if params.shift is None else 2)

    monkeypatch.setattr(norms._rms_norm, "bwd", wrong)
    jax.clear_caches()
    findings = _checked(_norm()).findings
    jax.clear_caches()
    assert {finding.family for finding in findings} == {"gradient"}
    assert {dict(finding.record.statics)["params.shift"] for finding in findings} == {"given"}
