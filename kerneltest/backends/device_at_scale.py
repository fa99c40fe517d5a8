"""Kernels on a real device at production sizes: arrays are computed there, and samples of the outputs come back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.backends.base import OutputSamples, ProceduralArray
from kerneltest.backends.jitted import compile_for, running_failure
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.plan.production_sizes import sample_positions
from kerneltest.trace.tracing import Traced
from kerneltest.trace.virtual_arrays import axis_indices

_SAMPLED = 48  # elements of each output


@dataclass(frozen=True, eq=False, slots=True)
class DeviceAtScale:
    """A kernel on a device, `unavailable` if its arrays do not fit into the device's memory.

    Attributes:
      traced: the kernel, for production sizes.
      device: as JAX has it.
      precision: the rounding on the device.
    """

    traced: Traced
    device: Any
    precision: Precision

    def run(self, leaves: Sequence[ProceduralArray]) -> tuple[OutputSamples, ...]:
        """Returns some elements of each output.

        Raises:
          Failure: `unavailable`, with the memory needed and free; or the kernel's own failure.
        """
        jitted = compile_for(self.traced, self.device, self.precision, interpret=False)
        self._check_memory(jitted.compiled)
        try:
            with jax.default_device(self.device):
                inputs = [jax.device_put(_materialize(leaf), jitted.placement) for leaf in leaves]
                outputs = jax.block_until_ready(jitted.compiled(*inputs))
                for array in inputs:
                    array.delete()
                return tuple(map(_take_samples, outputs))
        except Exception as error:
            raise Failure(Verdict.RUNTIME_ERROR, running_failure(error, self.device).detail) from error

    def _check_memory(self, compiled: Any) -> None:
        """Raises Failure if arguments, outputs and temporaries need more memory than is free."""
        analysis = compiled.memory_analysis() if hasattr(compiled, "memory_analysis") else None
        temporary = int(getattr(analysis, "temp_size_in_bytes", 0) or 0)
        needed = sum(map(_bytes, (*self.traced.inputs, *self.traced.outputs))) + temporary
        stats = self.device.memory_stats() or {}
        free = stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0)
        if stats and needed > free:
            raise Failure(
                Verdict.UNAVAILABLE,
                f"the arrays take {needed / 2**30:,.1f} GiB at these sizes, but only {free / 2**30:,.1f} GiB of "
                f"{self.device.device_kind} are free",
            )


def _bytes(array: ShapeDtype) -> int:
    return math.prod(array.shape) * array.dtype.itemsize


def _materialize(leaf: ProceduralArray) -> Any:
    """Returns all elements of an argument, computed on the device with 64-bit indices: it may have more than 2^31."""
    with jax.enable_x64(True):

        def fill() -> Any:
            indices = [jax.lax.broadcasted_iota(jnp.int64, leaf.shape, axis) for axis in range(len(leaf.shape))]
            return jnp.broadcast_to(leaf.at(indices, jnp), leaf.shape)

        return jax.block_until_ready(jax.jit(fill)())


def _take_samples(output: Any) -> OutputSamples:
    """Returns some elements of an output on the device, and frees the output."""
    count = math.prod(output.shape)
    offsets = sample_positions(count, _SAMPLED, [count]) if count else np.zeros(0, np.int64)
    places = list(zip(*(index.tolist() for index in axis_indices(offsets, output.shape)), strict=True))

    def gather(array: Any) -> Any:
        return jnp.stack([jax.lax.slice(array, at, [i + 1 for i in at]).reshape(()) for at in places])

    values = np.asarray(jax.jit(gather)(output)) if places else np.zeros(0, output.dtype)
    output.delete()
    return OutputSamples(tuple(output.shape), np.dtype(output.dtype), offsets, values, np.zeros(offsets.size, bool))
