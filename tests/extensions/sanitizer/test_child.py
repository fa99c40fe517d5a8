"""The process under a tool, on a CPU: a driver of the host's memory stands for the device's."""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerneltest.core.dtypes import ShapeDtype, parse_dtype
from kerneltest.core.failures import Failure
from kerneltest.extensions.sanitizer import child
from kerneltest.extensions.sanitizer.child import PATTERN, CaseRunner, GuardedArray
from kerneltest.extensions.sanitizer.group import write_kernel
from kerneltest.trace.tracing import trace_function

ZONE = 256


class Host:
    kind, device = 1, 0  # a CPU, as DLPack calls it

    def __init__(self, *_: Any) -> None:
        self.made: dict[int, Any] = {}

    def allocate(self, count: int) -> int:
        memory = ctypes.create_string_buffer(count + 256)
        address = -(-ctypes.addressof(memory) // 256) * 256  # as a device's are
        self.made[address] = memory
        return address

    def free(self, address: int) -> None:
        assert self.made.pop(address, None) is not None

    def put(self, address: int, values: Any) -> None:
        ctypes.memmove(address, values.ctypes.data, values.nbytes)

    def get(self, address: int, count: int) -> Any:
        return np.frombuffer(ctypes.string_at(address, count), np.uint8)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(child, "DeviceDriver", Host)
    return CaseRunner({"platform": "cpu", "device": 0, "x64": jax.config.jax_enable_x64, "zone": ZONE})


def _exported(folder: Path, function: Callable[..., Any], *leaves: Any) -> Path:
    traced = trace_function(function, tuple(ShapeDtype(x.shape, x.dtype) for x in leaves), "")
    write_kernel(traced, leaves, "cpu", folder)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_a_case_runs_on_memory_of_its_own_size(runner: Any, tmp_path: Path, dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(parse_dtype(dtype))
    answer = runner.run(_exported(tmp_path, lambda x: [x + x], x))
    assert "error" not in answer, answer
    assert [(what, number, size) for what, number, _, size in answer["arrays"]] == [
        ("input", 0, x.nbytes),
        ("output", 0, x.nbytes),
    ]
    assert answer["zone_writes"] == []
    assert not runner.driver.made  # all given back


def test_empty_arrays_have_no_zones(runner: Any, tmp_path: Path) -> None:
    answer = runner.run(_exported(tmp_path, lambda x: [x], np.zeros((0, 3), np.float32)))
    assert answer["arrays"] == []
    assert answer["unguarded"] == []


def test_what_running_raises_is_told_with_the_places(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise RuntimeError("unspecified launch failure")

    _exported(tmp_path, lambda x: [x], np.zeros(3, np.float32))
    monkeypatch.setattr(jax, "block_until_ready", refused)
    answer = runner.run(tmp_path)
    assert answer["error"] == ["RuntimeError", "unspecified launch failure"]
    assert [what for what, *_ in answer["arrays"]] == ["input", "output"]


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (24, [("after", 1, 0, 0)]),
        (24 + 95, [("after", 1, 95, 95)]),
        (-1, [("before", 1, 0, 0)]),
        (-ZONE, [("before", 1, ZONE - 1, ZONE - 1)]),
        (23, []),
        (0, []),
    ],
)
def test_a_byte_beside_an_array_is_seen(host: Host, at: int, told: list[tuple[str, int, int, int]]) -> None:
    array_memory = GuardedArray(host, (6,), np.dtype(np.float32), ZONE)  # type: ignore[arg-type]
    assert list(array_memory.zone_writes()) == []
    host.put(array_memory.address + at, np.array([PATTERN ^ 1], np.uint8))
    assert list(array_memory.zone_writes()) == told


def test_jax_sees_the_memory_itself(host: Host) -> None:
    array_memory = GuardedArray(host, (2, 3), np.dtype(np.float32), 0)  # type: ignore[arg-type]
    host.put(array_memory.address, np.arange(6, dtype=np.float32))
    array = jax.dlpack.from_dlpack(array_memory)
    assert array.unsafe_buffer_pointer() == array_memory.address
    assert np.array_equal(array, jnp.arange(6.0).reshape(2, 3))


def test_what_cannot_be_handed_over_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="elements of int4 have no addresses of their own") as caught:
        _exported(tmp_path, lambda x: [x], np.zeros(4, parse_dtype("int4")))
    assert caught.value.verdict == "unavailable"
