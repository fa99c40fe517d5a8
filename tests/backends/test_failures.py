"""Exceptions of JAX and the drivers, as data."""

from dataclasses import dataclass
from typing import Any

import pytest

import kerneltest as kt
from kerneltest.backends.jitted import compile_failure, running_failure
from kerneltest.backends.user_backend import UserBackend
from kerneltest.core.details import DeviceLost, NotBuilt, Raised, ResourceExceeded
from kerneltest.core.failures import Failure


@dataclass
class Device:
    platform: str


STICKY = "INTERNAL: CUDA error: Failed: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access"


@pytest.mark.parametrize(
    ("said", "platform", "kind", "verdict"),
    [
        (STICKY, "gpu", DeviceLost, "out_of_bounds"),
        ("hipErrorLaunchFailure", "gpu", DeviceLost, "runtime_error"),
        ("RESOURCE_EXHAUSTED: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "gpu", Raised, "resource_exceeded"),
        ("INTERNAL: something else", "gpu", Raised, "runtime_error"),
        (STICKY, "cpu", Raised, "out_of_bounds"),
    ],
)
def test_an_error_that_poisons_the_device_is_told_apart(said: str, platform: str, kind: type, verdict: str) -> None:
    failure = running_failure(RuntimeError(said), Device(platform))
    assert (type(failure.detail), failure.verdict) == (kind, verdict)
    assert str(failure) == f"the kernel raised RuntimeError: {said}"


@pytest.mark.parametrize(
    ("said", "kind", "verdict"),
    [
        ("unimplemented primitive x", NotBuilt, "unimplemented"),
        ("out of resource: shared memory", ResourceExceeded, "resource_exceeded"),
        ("something else\nin two lines", NotBuilt, "compile_error"),
    ],
)
def test_a_compilation_that_fails_says_how(said: str, kind: type, verdict: str) -> None:
    failure = compile_failure(RuntimeError(said))
    assert (type(failure.detail), failure.verdict) == (kind, verdict)
    assert str(failure) == f"RuntimeError: {said}"
    assert not failure.does_not_lower


class Poisoned(kt.Backend):
    id, tier = "poisoned", kt.Tier.DEVICE

    def prepare(self, traced: Any) -> Any:
        raise RuntimeError(STICKY)


def test_a_users_backend_can_lose_its_device() -> None:
    with pytest.raises(Failure) as caught:
        UserBackend(Poisoned()).prepare(None)  # type: ignore[arg-type]
    assert isinstance(caught.value.detail, DeviceLost)
    assert str(caught.value).startswith("backend poisoned raised RuntimeError: INTERNAL")
