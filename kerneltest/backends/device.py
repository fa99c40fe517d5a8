"""Real devices, as JAX finds them."""

import functools
import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.backends.base import Backend, DelegatingBackend, Executable, OutputSamples
from kerneltest.backends.jitted import compile_for, mesh_problem, running_failure
from kerneltest.core.children import ask_nvidia_smi, printed_lines
from kerneltest.core.failures import Failure
from kerneltest.core.precision import AMD, NVIDIA, TPU, XLA_AMD, XLA_NVIDIA, Precision
from kerneltest.core.targets import WHEELS, Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.plan.production_sizes import PositionCodedArray, sample_positions
from kerneltest.trace.jax_compat.jax_triton import jax_triton_problem
from kerneltest.trace.partial_arrays import axis_indices
from kerneltest.trace.tracing import Traced, device_problem, kernel_device

# Kernels on a real device at production sizes: arrays are computed there, and samples of the outputs come back.

_SAMPLED = 48  # elements of each output


@dataclass(frozen=True, eq=False, slots=True)
class DeviceAtScale:
    """A kernel on a device, `unavailable` if its arrays do not fit into the device's memory."""

    traced: Traced
    device: Any
    precision: Precision

    def run(self, leaves: Sequence[PositionCodedArray]) -> tuple[OutputSamples, ...]:
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
        analysis = compiled.memory_analysis() if hasattr(compiled, "memory_analysis") else None
        temporary = int(getattr(analysis, "temp_size_in_bytes", 0) or 0)
        arrays = (*self.traced.inputs, *self.traced.outputs)
        needed = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays) + temporary
        stats = self.device.memory_stats() or {}
        free = stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0)
        if stats and needed > free:
            raise Failure(
                Verdict.UNAVAILABLE,
                f"the arrays take {needed / 2**30:,.1f} GiB at these sizes, but only {free / 2**30:,.1f} GiB of "
                f"{self.device.device_kind} are free",
            )


# Returns all elements of an argument, computed on the device with 64-bit indices: it may have more than 2^31.
def _materialize(leaf: PositionCodedArray) -> Any:
    with jax.enable_x64(True):

        def fill() -> Any:
            indices = [jax.lax.broadcasted_iota(jnp.int64, leaf.shape, axis) for axis in range(len(leaf.shape))]
            return jnp.broadcast_to(leaf.at(indices, jnp), leaf.shape)

        return jax.block_until_ready(jax.jit(fill)())


def _take_samples(output: Any) -> OutputSamples:
    count = math.prod(output.shape)
    offsets = sample_positions(count, _SAMPLED, [count]) if count else np.zeros(0, np.int64)
    places = list(zip(*(index.tolist() for index in axis_indices(offsets, output.shape)), strict=True))

    def gather(array: Any) -> Any:
        return jnp.stack([jax.lax.slice(array, at, [i + 1 for i in at]).reshape(()) for at in places])

    values = np.asarray(jax.jit(gather)(output)) if places else np.zeros(0, output.dtype)
    output.delete()
    return OutputSamples(tuple(output.shape), np.dtype(output.dtype), offsets, values, np.zeros(offsets.size, bool))


# The rounding inside Pallas calls, and of the operations around them.
_PRECISIONS = {"cuda": (NVIDIA, XLA_NVIDIA), "rocm": (AMD, XLA_AMD), "tpu": (TPU, TPU)}


@dataclass(frozen=True, slots=True)
class Device(Backend):
    """The device of one platform, as JAX names it. Dialects that are `foreign` have no lowering for it."""

    id: str
    foreign: frozenset[str]
    tier = Tier.DEVICE
    runs_jaxpr = True
    supports_scale = True

    @property
    def platform(self) -> str:
        return self.id

    def unavailable(self) -> str:
        problem = device_problem(self.id)
        driver, plugins = _DRIVERS.get(self.id, (None, ()))
        if not problem or driver is None or not driver.exists() or any(map(find_spec, plugins)):
            return problem
        return f"{problem}. This machine has its driver: pip install '{WHEELS[self.id]}'"

    def unsupported_reason(self, traced: Traced) -> str:
        foreign = traced.foreign_dialect(self.foreign)
        return f"a kernel written for {foreign} cannot be compiled for {self.id}" if foreign else ""

    def unavailable_for(self, traced: Traced) -> str:
        return mesh_problem(traced, self.id) or (traced.in_triton and jax_triton_problem())

    def prepare(self, traced: Traced) -> Executable:
        return compile_for(traced, kernel_device(self.id), self._precision_of(traced), interpret=False)

    def prepare_at_scale(self, traced: Traced) -> DeviceAtScale:
        return DeviceAtScale(traced, kernel_device(self.id), self._precision_of(traced))

    def _precision_of(self, traced: Traced) -> Precision:
        return traced.adapt_precision(*_PRECISIONS[self.id])

    def environment(self) -> dict[str, Any]:
        place = kernel_device(self.id)
        return {
            "platform": place.client.platform_version.splitlines()[0],
            "device": place.device_kind,
            **({"driver": _driver(self.id)} if self.id in ("cuda", "rocm") else {}),
        }


def device_responds(platform: str) -> bool:
    """Checks whether the device of a platform ("" for none) still works: some errors poison it for the process."""
    if not platform:
        return True
    try:
        return bool(np.asarray(jax.device_put(np.ones(1, bool), kernel_device(platform)))[0])
    except Exception:
        return False


# For each platform: a file that its driver makes, and JAX's plugins for it.
_DRIVERS = {
    "cuda": (Path("/dev/nvidiactl"), ("jax_cuda13_plugin", "jax_cuda12_plugin")),
    "rocm": (Path("/dev/kfd"), ("jax_rocm7_plugin", "jax_rocm60_plugin")),
}


@functools.cache
def _driver(platform: str) -> str:
    try:
        amd = "rocm-smi", "--showdriverversion", "--csv"
        shown = ask_nvidia_smi("driver_version") if platform == "cuda" else printed_lines(*amd)
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({type(error).__name__})"
    return shown[-1] if shown else "unknown"


class RemoteBackend(DelegatingBackend):
    """A backend as another machine serves it, or why not: kernels can be planned for it here, but not run."""

    def __init__(self, wrapped: Backend, reason: str, facts: Mapping[str, str]) -> None:
        super().__init__(wrapped)
        self._reason, self._facts = reason, facts

    def unavailable(self) -> str:
        return self._reason

    def prepare(self, traced: Traced) -> NoReturn:
        raise Failure(Verdict.UNAVAILABLE, f"{self.id} is on another machine")

    prepare_at_scale = prepare

    def fast_path(self, compiled: Callable[[Traced], Executable], count: Callable[[], None]) -> None:
        return None

    def environment(self) -> dict[str, Any]:
        return dict(self._facts)
