"""What a device does at production sizes, as far as a CPU shows it: contents, samples, and memory that does not do."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.backends.device import DeviceAtScale, _materialize, _take_samples
from kerneltest.core.failures import Failure
from kerneltest.core.precision import NVIDIA
from kerneltest.plan.production_sizes import part_arguments, position_coded_arrays, production_signatures, required_part
from kerneltest.trace.tracing import trace


def everything() -> kt.Pairing:
    pair = kt.oracle_for(
        lambda x, seen, at, lengths: x,
        x=kt.array("m n", ("float32", "bfloat16", "int8")),
        seen=kt.mask("m n"),
        at=kt.indices("m", into="n"),
        lengths=kt.lengths("m", up_to="n"),
        dims=dict(m=kt.dim(production=300), n=kt.dim(block=16, production=70)),
    )
    return pair(lambda x, seen, at, lengths: x)


def test_a_device_holds_what_the_oracle_gets() -> None:
    pairing = everything()
    for signature in production_signatures(pairing):
        held = position_coded_arrays(pairing, signature)
        expected = part_arguments(pairing, required_part(pairing, signature, {}), held)
        for path, content in held.items():
            made = np.asarray(_materialize(content))
            assert (made.shape, made.dtype) == (content.shape, content.dtype)
            np.testing.assert_array_equal(made, expected[path])
        assert expected["at"].max() < 70
        assert expected["lengths"].max() <= 70
        assert 0 < expected["seen"].mean() < 1


@pytest.mark.parametrize("shape", [(3_000,), (40, 70), (2, 3, 500), (0, 4)])
def test_the_elements_that_come_back_are_those_of_their_offsets(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).reshape(shape)
    samples = _take_samples(jnp.asarray(values))
    np.testing.assert_array_equal(samples.values, values.reshape(-1)[samples.offsets])
    assert samples.offsets.size == min(48, values.size)
    assert not values.size or {0, values.size - 1} <= set(samples.offsets.tolist())


@dataclass
class Small:
    device_kind: str = "a small GPU"

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": 2**30, "bytes_in_use": 2**29}


def test_what_does_not_fit_is_unavailable_with_the_bytes_needed_and_free() -> None:
    pair = kt.oracle_for(lambda x: x + 1, x=kt.array("n", "float32"), dims=dict(n=kt.dim(production=2**28)))
    pairing = pair(lambda x: x + 1)
    traced = trace(pairing, production_signatures(pairing)[0])
    at_scale = DeviceAtScale(traced, Small(), NVIDIA)
    with pytest.raises(
        Failure, match=r"take 2\.0 GiB at these sizes, but only 0\.5 GiB of a small GPU are free"
    ) as caught:
        at_scale._check_memory(jax.jit(lambda: 0).lower().compile())
    assert caught.value.verdict == "unavailable"
