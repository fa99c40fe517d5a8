"""Pallas' languages, told apart by the private package that defines a compiler parameter or a mesh."""

from typing import Any

_HOMES = {
    "jax._src.pallas.triton.": "triton",
    "jax._src.pallas.mosaic_gpu.": "mosaic_gpu",
    "jax._src.pallas.mosaic.": "mosaic_tpu",
}


def dialect_of(parameter: Any) -> str:
    """The language that one parameter of a Pallas call belongs to, `triton`, `mosaic_gpu` or `mosaic_tpu`, or ""."""
    home = type(parameter).__module__
    return next((dialect for prefix, dialect in _HOMES.items() if home.startswith(prefix)), "")
