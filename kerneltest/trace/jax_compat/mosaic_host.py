"""What JAX's interpreters of Mosaic kernels do for each access of a kernel, done in NumPy and no more than once."""

import functools
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
from jax._src import source_info_util
from jax._src.pallas.mosaic.interpret import race_detection_state, vector_clock
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks

from kerneltest.core.dtypes import Array


def ordered(x: Array, y: Array) -> bool:
    """Whether one of two vector clocks is before the other: just one of them is ahead anywhere.

    JAX asks in each direction whether all are at most and any is less, which takes four times as long. It compares
    each access with all earlier ones of the same memory.
    """
    return bool(np.count_nonzero(x < y)) != bool(np.count_nonzero(x > y))


if hasattr(vector_clock, "NpVectorClock"):  # since JAX 0.12
    vector_clock.NpVectorClock.ordered = lambda self, other: ordered(self.clock, other.clock)
else:
    vector_clock.ordered = ordered

if hasattr(getattr(gpu_callbacks, "HostAllocationRequest", None), "as_jax_array"):  # before JAX 0.12
    # It makes arrays of a device of what it holds in NumPy's, of which its caller makes NumPy's again.
    _numpy = SimpleNamespace(**{**vars(jnp), "array": np.array, "int32": np.int32})
    gpu_callbacks.jnp = _numpy  # type: ignore[assignment, attr-defined, unused-ignore]

# Each access is noted with its line, which takes a walk through a traceback.
_line = functools.lru_cache(maxsize=4096)(source_info_util.summarize)
race_detection_state.source_info_util = SimpleNamespace(summarize=_line)  # type: ignore[assignment, attr-defined, unused-ignore]
