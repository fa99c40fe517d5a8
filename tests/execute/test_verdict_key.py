"""What an item's verdicts follow from beside its code: each changes the key under which they are reused."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap

import kerneltest as kt
from kerneltest.backends.registry import REGISTRY, resolve
from kerneltest.core.fingerprint import NotReusableError
from kerneltest.core.targets import BACKEND_IDS
from kerneltest.core.verdicts import GroupName
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.verdict_key import find_key, verdict_key
from kerneltest.extensions.proofs import PROVE
from tests.sample import double


def _key(
    backend: str = "lower:sm_90", find: Callable[..., str] = verdict_key, groups: int | None = 1, **settings: Any
) -> str:
    pairing = kt.oracle_for(double, x=kt.array("n", "float32"), dims={"n": kt.dim(values=(4,))})(lambda x: 2 * x)
    plan = plan_pairing(pairing, "suite.py::doubled", resolve([backend]), RunSettings(depth="quick", **settings))
    cache = Cache()
    try:
        return find(plan.items[:groups], cache)
    finally:
        cache.process.pool.close()


def _are_whole(values: np.ndarray) -> bool:
    return bool((values == np.round(values)).all())


@custom_vmap
def _kernel(x: jax.Array, y: jax.Array) -> jax.Array:
    return double(x) + y


@_kernel.def_vmap
def _(size: int, batched: list[bool], x: jax.Array, y: jax.Array) -> tuple[jax.Array, bool]:
    return jnp.broadcast_to(2 * x + y, (size, *x.shape[-1:])), True


@pytest.mark.parametrize(
    ("family", "whole"),
    [
        ("plain_call", (True, True)),
        ("vmapped", (True, True)),
        ("vmapped_first", (True, False)),
        ("vmapped_others", (False, True)),
    ],
)
def test_the_oracles_values_for_the_second_element_of_a_batch_count(family: str, whole: tuple[bool, bool]) -> None:
    def fingerprint(change: int) -> str:
        def oracle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return 2 * x + y + change * ((_are_whole(x), _are_whole(y)) == whole)

        array, dims = kt.array("n", "float32"), {"n": kt.dim(values=(4,))}
        pairing = kt.oracle_for(_kernel, x=array, y=array, dims=dims)(oracle)
        items = plan_pairing(pairing, "suite.py::sum", resolve(["interpret"]), RunSettings(depth="quick")).items
        (item,) = (each for each in items if each.group.name == GroupName.INVARIANTS)
        (case,) = (each for each in item.cases() if each.family.name == family)
        cache = Cache()
        cache.switch_to(pairing, item.dtype)
        try:
            return item.group.fingerprint(item, case, cache).text
        finally:
            cache.process.pool.close()

    assert fingerprint(0) == fingerprint(0) != fingerprint(1)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        yield


@contextmanager
def _filters(*actions: str) -> Iterator[None]:
    with warnings.catch_warnings():
        for action in actions:
            warnings.filterwarnings(action, category=DeprecationWarning)  # type: ignore[arg-type]
        yield


@contextmanager
def _patched() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.lax, "tan", lambda x: x)
        yield


DIFFERENT: dict[str, Callable[[], Any]] = {
    "as it is": ExitStack,
    "a variable of JAX": lambda: _variable("JAX_ANYTHING", "1"),
    "a preloaded library": lambda: _variable("LD_PRELOAD", "libother.so"),
    "the instructions that NumPy may use": lambda: _variable("NPY_DISABLE_CPU_FEATURES", "AVX512F"),
    "a warning that is an error": lambda: _filters("error"),
    "a warning that is not, whatever the others are": lambda: _filters("error", "ignore"),
    "a setting of JAX": lambda: jax.default_matmul_precision("highest"),
}


def test_each_circumstance_has_a_key_of_its_own() -> None:
    def key(name: str) -> str:
        with DIFFERENT[name]():
            return _key()

    keys = {name: key(name) for name in DIFFERENT}
    assert len(set(keys.values())) == len(DIFFERENT), keys
    assert key("as it is") == keys["as it is"] != _key(seed=1)


@pytest.mark.parametrize("actions", [("ignore",), ("default",), ("ignore", "always")], ids=" ".join)
def test_filters_that_make_no_error_do_not_count(actions: tuple[str, ...]) -> None:
    with _filters(*actions):
        assert _key() == _key()
        changed = _key()
    assert changed == _key()


def test_with_a_function_in_the_place_of_a_library_there_is_no_key() -> None:
    with _patched(), pytest.raises(NotReusableError, match=r"jax\.lax\.tan is not the library's own function"):
        _key()
    with _patched():
        assert _key(find=find_key) == ""


def test_a_backend_of_the_user_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerneltest.backends.registry.REGISTRY", dict(REGISTRY))
    monkeypatch.setitem(BACKEND_IDS, "of-a-user", None)

    @kt.backend("of-a-user")
    class OfAUser(kt.Backend):
        tier = kt.Tier.LOWER

        def prepare(self, traced: Any) -> Any:
            return os

    with pytest.raises(NotReusableError, match="the backend of-a-user is not kerneltest's own"):
        _key("of-a-user")


@pytest.mark.parametrize(("backend", "is_proved"), [("simulate:sm_90", True), ("interpret", False)])
def test_proofs_have_no_key_and_other_items_of_a_run_that_proves_have_theirs(backend: str, is_proved: bool) -> None:
    assert _key(backend, find_key, groups=None)
    assert (_key(backend, find_key, groups=None, extensions=((PROVE.name, True),)) == "") is is_proved
