"""The child process under a tool: runs exported kernels one after another, without importing the user's code.

The first line of its input names the device, and each further line the folder of a case: a pickled
`jax.export.Exported` and the bytes of its inputs. It replies to each with a line of JSON. The memory of inputs and
outputs is exactly as large as they are; outputs get theirs by donation.
"""

import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.children import answer_requests
from kerneltest.extensions.sanitizer.device_memory import DeviceDriver, GuardedArray

try:
    import jax.experimental.mosaic.gpu  # registers the runtime of its kernels
except Exception as error:
    print(f"Mosaic GPU kernels cannot run: {error}", file=sys.stderr)


Layout = tuple[tuple[int, ...], np.dtype[Any]]  # the shape and dtype of an array


class CaseRunner:
    """Runs cases on the device of this process.

    Args:
      settings: `platform`, `device` (its number there), `x64` (JAX's setting) and `zone` (bytes of each guard zone).
    """

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
        inputs = [self._allocate(*each) for each in input_layouts]
        outputs = [self._allocate(*each) for each in output_layouts]
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
            places = [["input", i, a.address, a.size] for i, a in enumerate(inputs) if a is not None]
            places += [["output", i, a.address, a.size] for i, a in enumerate(outputs) if a is not None]
            return {**_error_reply(error), "arrays": places}
        guarded = {array.address for array in outputs if array is not None}
        # XLA may swap two outputs of the same shape and dtype.
        order = {x.unsafe_buffer_pointer(): i for i, x in enumerate(results) if x.size}
        arrays = [("input", i, a) for i, a in enumerate(inputs) if a is not None]
        arrays += [("output", order.get(a.address, i), a) for i, a in enumerate(outputs) if a is not None]
        reply = {
            "arrays": [[role, number, a.address, a.size] for role, number, a in arrays],
            "zone_writes": [[role, number, *each] for role, number, a in arrays for each in a.zone_writes()],
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


def _numpy_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the dtype in which JAX gets an array: unsigned integers for those unknown to NumPy, such as bfloat16."""
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
