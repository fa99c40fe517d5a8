"""Device memory allocated through the driver: exactly as large as an array, optionally between guard zones.

XLA rounds its own allocations up to 256 bytes, and no tool sees accesses to the padding.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array

PATTERN = 0xA5


class DeviceDriver:
    """The memory functions of CUDA's driver or ROCm's runtime, in the context that JAX uses.

    Args:
      platform: `cuda` or `rocm`.
      device: its number among the devices of the process.
    """

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
        """Frees an allocation."""
        self._call(self._names["free"], ctypes.c_uint64(address))

    def put(self, address: int, values: Array) -> None:
        """Copies bytes to the device."""
        source, count = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
        self._call(self._names["put"], ctypes.c_uint64(address), source, count)

    def get(self, address: int, count: int) -> Array:
        """Copies `count` bytes from the device."""
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
    """Memory of one array, for `jax.dlpack.from_dlpack`, between two guard zones that hold a pattern.

    Args:
      driver: of the device.
      shape, dtype: of the array; one of NumPy's own dtypes.
      zone: the size of each zone in bytes, a multiple of 256 or 0.
    """

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
        """Yields the zones that were written to.

        Returns:
          `before` or `after`, the number of bytes that lost the pattern, and the smallest and largest distance of such
          a byte from the array.
        """
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
