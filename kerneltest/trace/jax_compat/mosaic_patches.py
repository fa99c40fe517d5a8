"""Replacements for functions of JAX's Mosaic interpreters: the same results with less work for each access."""

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import source_info_util
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as tpu
from jax._src.pallas.mosaic.interpret import race_detection_state, vector_clock
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, shared_memory

from kerneltest.core.dtypes import Array
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes


def patch_interpreters() -> AbstractContextManager[None]:
    """Puts the replacements in place while an interpreter is lowered or runs; may be entered more than once."""
    return replace_attributes(*_replacements())


@functools.cache
def _replacements() -> tuple[Replacement, ...]:
    return tuple(_find_replacements())


def _find_replacements() -> Iterator[Replacement]:
    """The replacements that this version of JAX needs."""
    if hasattr(vector_clock, "NpVectorClock"):  # since JAX 0.12
        yield Replacement(
            vector_clock.NpVectorClock, "ordered", lambda self, other: are_ordered(self.clock, other.clock)
        )
    else:
        yield Replacement(vector_clock, "ordered", are_ordered)
    if hasattr(getattr(gpu_callbacks, "HostAllocationRequest", None), "as_jax_array"):  # before JAX 0.12
        # It makes arrays on a device, which its caller converts back to NumPy's.
        on_host = SimpleNamespace(**{**vars(jnp), "array": np.array, "int32": np.int32})
        yield Replacement(gpu_callbacks, "jnp", on_host)
    if _jax_to_int is not None:
        yield Replacement(shared_memory, "_to_int", _to_int)
    # Each access is recorded with its line, which takes a walk through a traceback.
    line = functools.lru_cache(maxsize=4096)(source_info_util.summarize)
    yield Replacement(race_detection_state, "source_info_util", SimpleNamespace(summarize=line))
    yield Replacement(tpu, "_get_randomized_grid_coordinates", grid_order)


def are_ordered(x: Array, y: Array) -> bool:
    """Returns whether one of two vector clocks is before the other, that is, exactly one of them is ahead anywhere.

    JAX compares each access with all earlier ones to the same memory. It asks in each direction whether all components
    are at most the other's and any is less, which takes four times as long.
    """
    return bool(np.count_nonzero(x < y)) != bool(np.count_nonzero(x > y))


_jax_to_int: Any = getattr(shared_memory, "_to_int", None)  # since JAX 0.12


def _to_int(x: Any) -> Any:
    # The callbacks of an interpreter that is not compiled get NumPy's integers instead of JAX's arrays.
    return int(x) if isinstance(x, np.integer) else _jax_to_int(x)


_jax_grid_order = tpu._get_randomized_grid_coordinates


def grid_order(*args: Any) -> Any:
    """The order in which the TPU interpreter runs programs, as a constant: it depends only on the grid and a seed."""
    with jax.ensure_compile_time_eval():
        return _jax_grid_order(*args)
