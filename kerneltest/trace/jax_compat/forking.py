"""Forking a process that has imported JAX: the fork inherits JAX's modules, but not its threads."""

import sys

from jax._src import xla_bridge


def may_fork() -> bool:
    """Returns whether a fork of this process can use JAX: on Linux, as long as JAX has not started its devices."""
    return sys.platform == "linux" and not xla_bridge.backends_are_initialized()
