"""Forking a process that has imported JAX: the fork inherits JAX's modules, but not its threads."""

import importlib
import sys
from contextlib import suppress

from jax._src import xla_bridge

_INTERPRETERS = ("mosaic", "mosaic_gpu")


def may_fork() -> bool:
    """Returns whether a fork of this process can use JAX: on Linux, as long as JAX has not started its devices."""
    return sys.platform == "linux" and not xla_bridge.backends_are_initialized()


def import_interpreters() -> None:
    """Imports what JAX imports when it first interprets a Pallas kernel, so that a fork has it."""
    for dialect in _INTERPRETERS:
        with suppress(ImportError):  # as JAX does itself
            importlib.import_module(f"jax._src.pallas.{dialect}.interpret.interpret_pallas_call")
