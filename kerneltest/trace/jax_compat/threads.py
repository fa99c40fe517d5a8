"""What a fork of this process finds: JAX's modules, and none of its threads."""

import sys
from contextlib import suppress

from jax._src import xla_bridge


def may_fork() -> bool:
    """Returns whether a fork of this process can use JAX: on Linux, as long as JAX has not started its devices."""
    return sys.platform == "linux" and not xla_bridge.backends_are_initialized()


def import_interpreters() -> None:
    """Imports what JAX imports when it first interprets a Pallas kernel, so that a fork has it."""
    with suppress(ImportError):  # as JAX does itself
        from jax._src.pallas.mosaic.interpret import interpret_pallas_call as of_tpus  # noqa: F401
    with suppress(ImportError):
        from jax._src.pallas.mosaic_gpu.interpret import interpret_pallas_call as of_gpus  # noqa: F401
