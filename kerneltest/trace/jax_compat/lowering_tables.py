"""The primitives for which Pallas has rules: to lower them, or to interpret them."""

from collections.abc import Iterator
from typing import Any

from jax._src.pallas import hlo_interpreter
from jax._src.pallas.mosaic import lowering as tpu
from jax._src.pallas.mosaic import sc_lowering, sc_primitives
from jax._src.pallas.mosaic_gpu import lowering as gpu
from jax._src.pallas.mosaic_gpu import primitives as gpu_primitives
from jax._src.pallas.triton import lowering as triton
from jax._src.pallas.triton import primitives as triton_primitives
from jax._src.state import discharge
from jax.extend.core import Primitive

# The modules of primitives register rules when they are imported.
_MODULES = (triton, triton_primitives, gpu, gpu_primitives, tpu, sc_lowering, sc_primitives, hlo_interpreter, discharge)


def lowered_primitives() -> frozenset[str]:
    """The names of the primitives that Pallas can lower to Triton, Mosaic GPU or Mosaic TPU, or interprets itself."""
    return frozenset(name for module in _MODULES for table in vars(module).values() for name in _keys(table))


def _keys(table: Any) -> Iterator[str]:
    for key, value in table.items() if isinstance(table, dict) else ():
        yield from [str(key.name)] if isinstance(key, Primitive) else _keys(value)
