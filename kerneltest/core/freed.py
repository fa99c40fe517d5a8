"""How much of what a process frees it keeps for itself."""

import ctypes
import functools
import os
import sys

_TRIM, _MAP = -1, -3  # what `mallopt` sets: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>

_SETTINGS = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")  # by which users set the same

_KEPT = 2**27  # bytes: several arrays of an oracle, in all samples

_MAPPED = 2**25  # bytes: the most that it takes


@functools.cache
def keep_freed() -> None:
    """Has the C library keep freed memory at hand, where it is glibc and its user has not set how much it keeps.

    By itself it gives arrays beyond a few hundred kilobytes back to the system at once, which then hands out the next
    one page by page. That takes longer than to compute what is in it. Nobody can ask what was set before, so it stays.
    """
    if not os.environ.keys().isdisjoint(_SETTINGS):
        return
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(_TRIM, _KEPT)
        mallopt(_MAP, _MAPPED)
