"""Where a kernel is run, or how far it is taken. Each tier is a module; a backend is a line in the registry."""

from kerneltest.backends.base import Artifact, Backend, BackendError, Executable
from kerneltest.backends.jitted import cache_on_disk
from kerneltest.backends.registry import resolve

__all__ = ["Artifact", "Backend", "BackendError", "Executable", "cache_on_disk", "resolve"]
