"""The child process under a tool: runs exported kernels one after another, without importing the user's code.

The first line of its input names the device, and each further line the folder of a case: a pickled
`jax.export.Exported` and the bytes of its inputs. It replies to each with a line of JSON. The memory of inputs and
outputs is exactly as large as they are; outputs get theirs by donation.
"""

import ctypes
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.children import answer_requests
from kerneltest.core.dtypes import Array

# Device memory allocated through the driver: exactly as large as an array, optionally between guard zones.
#
# XLA rounds its own allocations up to 256 bytes, and no tool sees accesses to the padding.

PATTERN = 0xA5


class DeviceDriver:
    """The memory functions of CUDA's driver or ROCm's runtime for a device, in the context that JAX uses."""

    def __init__(self, platform: str, device: int) -> None:
        self.device = device
        if platform == "cuda":
            self._library = ctypes.CDLL("libcuda.so.1")
            self._names = {"allocate": "cuMemAlloc_v2", "free": "cuMemFree_v2"}
            self._names |= {"put": "cuMemcpyHtoD_v2", "get": "cuMemcpyDtoH_v2"}
            self.kind = 2  # DLPack's device types
            handle, context = ctypes.c_int(), ctypes.c_void_p()
            self._call("cuDeviceGet", ctypes.byref(handle), device)
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
            self._call("cuCtxSetCurrent", context)
        else:
            self._library = ctypes.CDLL("libamdhip64.so")
            self._names = {"allocate": "hipMalloc", "free": "hipFree", "put": "hipMemcpyHtoD", "get": "hipMemcpyDtoH"}
            self.kind = 10
            self._call("hipSetDevice", device)

    def allocate(self, count: int) -> int:
        """Allocates `count` bytes, which are not initialised, and returns their address."""
        address = ctypes.c_uint64()
        self._call(self._names["allocate"], ctypes.byref(address), ctypes.c_size_t(count))
        return address.value

    def free(self, address: int) -> None:
        self._call(self._names["free"], ctypes.c_uint64(address))

    def put(self, address: int, values: Array) -> None:
        source, count = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
        self._call(self._names["put"], ctypes.c_uint64(address), source, count)

    def get(self, address: int, count: int) -> Array:
        values = np.empty(count, np.uint8)
        target = ctypes.c_void_p(values.ctypes.data)
        self._call(self._names["get"], target, ctypes.c_uint64(address), ctypes.c_size_t(count))
        return values

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} failed with error {code}")


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# XLA reads a tensor when it releases the buffer, which may be after a case has ended, so tensors are never freed.
_retained: list[tuple[_Tensor, "ctypes.Array[ctypes.c_int64]"]] = []
_no_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda managed: None)  # `close` frees the memory


class GuardedArray:
    """An array in memory between two zones with a pattern, each of a multiple of 256 bytes, for `jax.dlpack`."""

    def __init__(self, driver: DeviceDriver, shape: tuple[int, ...], dtype: np.dtype[Any], zone: int) -> None:
        self.driver, self.dtype, self.zone = driver, dtype, zone
        self.size = int(np.prod(shape)) * dtype.itemsize
        self._start = driver.allocate(self.size + 2 * zone)
        self.address = self._start + zone
        self._shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        kind = _Type(_CODES[dtype.kind], 8 * dtype.itemsize, 1)
        on_device = _Device(driver.kind, driver.device)
        deleter = ctypes.cast(_no_deleter, ctypes.c_void_p)
        self._tensor = _Tensor(self.address, on_device, len(shape), kind, self._shape, None, 0, None, deleter)
        _retained.append((self._tensor, self._shape))
        for start in self._zones() if zone else ():
            driver.put(start, np.full(zone, PATTERN, np.uint8))

    def __dlpack__(self, **options: object) -> object:
        return _capsule(ctypes.addressof(self._tensor), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.driver.kind, self.driver.device

    def zone_writes(self) -> Iterator[tuple[str, int, int, int]]:
        """Yields zones written to: `before` or `after`, bytes lost, and the least and greatest distance."""
        for side, start in zip(("before", "after"), self._zones(), strict=True) if self.zone else ():
            wrong = np.flatnonzero(self.driver.get(start, self.zone) != PATTERN)
            if len(wrong):
                away = self.zone - 1 - wrong if side == "before" else wrong
                yield side, len(wrong), int(away.min()), int(away.max())

    def close(self) -> None:
        """Frees the memory; the array must not be read afterwards."""
        self.driver.free(self._start)

    def _zones(self) -> tuple[int, int]:
        return self._start, self.address + self.size


try:
    import jax.experimental.mosaic.gpu  # registers the runtime of its kernels
except Exception as error:
    print(f"Mosaic GPU kernels cannot run: {error}", file=sys.stderr)


Layout = tuple[tuple[int, ...], np.dtype[Any]]  # the shape and dtype of an array


class CaseRunner:
    """Runs cases on a device of this process: `platform`, number, x64, and the bytes of each guard zone."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        jax.config.update("jax_enable_x64", settings["x64"])
        number = settings["device"]
        self.device = jax.devices(settings["platform"])[number]
        self.driver = DeviceDriver(settings["platform"], self.device.local_hardware_id)
        self.zone = settings["zone"]
        jax.block_until_ready(jax.device_put(np.zeros(1, np.float32), self.device))

    def run(self, folder: Path) -> dict[str, Any]:
        """Runs the case in a folder; returns its arrays on the device and the guard zones that were written to."""
        exported = pickle.loads((folder / "exported.pickle").read_bytes())
        input_layouts = [(tuple(a.shape), np.dtype(a.dtype)) for a in exported.in_avals]
        output_layouts = [(tuple(a.shape), np.dtype(a.dtype)) for a in exported.out_avals]
        inputs = [self._allocate(*layout) for layout in input_layouts]
        outputs = [self._allocate(*layout) for layout in output_layouts]
        for number, array in enumerate(inputs):
            if array is not None:
                self.driver.put(array.address, np.fromfile(folder / f"{number}.bin", np.uint8))

        def call(leaves: list[jax.Array], into: list[jax.Array]) -> list[jax.Array]:
            cast = jax.lax.bitcast_convert_type
            dtypes = [dtype for _, dtype in input_layouts]
            arguments = [x if x.dtype == dtype else cast(x, dtype) for x, dtype in zip(leaves, dtypes, strict=True)]
            results = jax.tree_util.tree_leaves(exported.call(*arguments))
            return [x if x.dtype == i.dtype else cast(x, i.dtype) for x, i in zip(results, into, strict=True)]

        try:
            with jax.default_device(self.device):
                leaves, into = self._arrays(inputs, input_layouts), self._arrays(outputs, output_layouts)
                compiled = jax.jit(call, donate_argnums=1, keep_unused=True).lower(leaves, into).compile()
                results = jax.block_until_ready(compiled(leaves, into))
        except Exception as error:  # the process can no longer use the device
            pairs = (("input", inputs), ("output", outputs))
            places = [
                [role, i, a.address, a.size] for role, known in pairs for i, a in enumerate(known) if a is not None
            ]
            return {**_error_reply(error), "arrays": places}
        guarded = {array.address for array in outputs if array is not None}
        # XLA may swap two outputs of the same shape and dtype.
        order = {x.unsafe_buffer_pointer(): i for i, x in enumerate(results) if x.size}
        arrays = [("input", i, a) for i, a in enumerate(inputs) if a is not None]
        arrays += [("output", order.get(a.address, i), a) for i, a in enumerate(outputs) if a is not None]
        reply = {
            "arrays": [[role, number, a.address, a.size] for role, number, a in arrays],
            "zone_writes": [[role, number, *write] for role, number, a in arrays for write in a.zone_writes()],
            "unguarded": [i for i, x in enumerate(results) if x.size and x.unsafe_buffer_pointer() not in guarded],
        }
        del leaves, into, results
        for _, _, array in arrays:
            array.close()
        return reply

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> GuardedArray | None:
        return GuardedArray(self.driver, shape, _numpy_dtype(dtype), self.zone) if np.prod(shape) else None

    def _arrays(self, memory: Sequence[GuardedArray | None], layouts: Sequence[Layout]) -> list[jax.Array]:
        return [
            jax.dlpack.from_dlpack(each) if each is not None else jnp.zeros(shape, _numpy_dtype(dtype))
            for each, (shape, dtype) in zip(memory, layouts, strict=True)
        ]


def _error_reply(error: Exception) -> dict[str, Any]:
    return {"error": [type(error).__name__, str(error)]}


# Returns the dtype in which JAX gets an array: unsigned integers for those unknown to NumPy, such as bfloat16.
def _numpy_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.type.__module__ == "numpy" else np.dtype(f"u{dtype.itemsize}")


_runners: list[CaseRunner] = []  # of this process: none before the first request, then one


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if _runners:
            return _runners[0].run(Path(request["folder"]))
        _runners.append(CaseRunner(request))
    except Exception as error:
        return _error_reply(error)
    return {}


if __name__ == "__main__":
    answer_requests(_reply)
