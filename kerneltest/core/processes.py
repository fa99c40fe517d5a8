"""The state of the running process: memory, garbage collection, warnings, threads of BLAS, stacks of threads."""

import ctypes
import functools
import gc
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from threadpoolctl import ThreadpoolController

_CONTROL_GROUP = Path("/sys/fs/cgroup")  # of a container
_LIMITS = (  # its limit and its usage; the second pair is that of cgroups v1
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def free_memory(control_group: Path = _CONTROL_GROUP) -> int:
    """Returns the bytes that a process could still allocate: on this machine, or in its container if that has fewer."""
    free = int(psutil.virtual_memory().available)
    for names in _LIMITS:
        try:
            limit, usage = ((control_group / name).read_text(encoding="ascii").strip() for name in names)
            free = min(free, int(limit) - int(usage))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return max(free, 0)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's <malloc.h>
_MALLOC_VARIABLES = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
_TRIM_THRESHOLD = 2**27  # bytes: several arrays of an oracle, in all samples
_MMAP_THRESHOLD = 2**25  # bytes: the largest that glibc accepts

# Tracing allocates thousands of short-lived objects: with Python's default, a twelfth of a run is garbage collection.
_GC_THRESHOLD = 20_000

_frames_lock = threading.Lock()


@functools.cache
def retain_freed_memory() -> None:
    """Makes glibc keep freed memory for reuse, unless the user has set its thresholds.

    By default glibc returns arrays beyond a few hundred kilobytes to the system at once. The system then hands out the
    next array page by page, which takes longer than computing its contents. glibc has no way to read the thresholds, so
    they cannot be restored.
    """
    if not os.environ.keys().isdisjoint(_MALLOC_VARIABLES):
        return
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)


@contextmanager
def throttle_gc() -> Iterator[None]:
    """Makes garbage collections rare inside, unless they are already; a threshold that is set inside stays."""
    before = gc.get_threshold()
    rare = (_GC_THRESHOLD if 0 < before[0] < _GC_THRESHOLD else before[0], *before[1:])
    gc.set_threshold(*rare)
    try:
        yield
    finally:
        if gc.get_threshold() == rare:
            gc.set_threshold(*before)


_shown_warnings: set[tuple[type[Warning], str]] = set()


@contextmanager
def show_warnings_once() -> Iterator[None]:
    """Shows each warning once per process and raises none, whatever the user's filters say; they may still ignore it.

    A filter that makes warnings errors is for the user's tests. Here it would fail right kernels because JAX warns
    while it lowers them. Filters belong to the process, so use this in its main thread only.
    """
    show = warnings.showwarning
    if getattr(show, "shows_once", False):
        yield
        return

    def show_once(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
        key = category, str(message)
        if key not in _shown_warnings:
            _shown_warnings.add(key)
            show(message, category, *place, **options)

    show_once.shows_once = True  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        kept = [("always" if action == "error" else action, *rest) for action, *rest in warnings.filters]
        warnings.filters[:] = kept  # type: ignore[index]
        warnings.showwarning = show_once
        yield


def available_processors() -> int:
    """Returns the number of processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def thread_stacks() -> Iterator[dict[int, FrameType]]:
    """Yields the innermost frame of each running thread, by thread id. Use frames and their `f_back` only inside.

    Python 3.11 creates frame objects on demand, which can trigger a garbage collection. Code that this runs can switch
    threads, and by then the frame may be gone: the process crashes. So garbage collection is off inside.
    """
    with _frames_lock:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield sys._current_frames()
        finally:
            if collects:
                gc.enable()


def blas_threads() -> AbstractContextManager[object]:
    """Returns a context in which BLAS runs single-threaded."""
    context: AbstractContextManager[object] = _thread_pools(len(sys.modules)).limit(limits=1, user_api="blas")
    return context


@functools.lru_cache(maxsize=1)
def _thread_pools(modules: int) -> ThreadpoolController:
    """Returns the controller of loaded BLAS libraries; `modules` is a key, since each imported module may load more."""
    return ThreadpoolController()
