import ctypes
import platform
import resource
import sys

import numpy as np
import pytest

from kerneltest.core.freed import keep_freed


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory as it likes")
def test_arrays_take_the_place_of_those_before_them() -> None:
    keep_freed()
    keep_freed()
    count = 2**20  # 8 MiB each
    faults = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        one = np.ones(count)
        (one + one) * one
        del one
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert faults[-1] < 8 * count / 4096 / 8


@pytest.mark.parametrize("name", ["GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"])
def test_what_the_user_has_set_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(ctypes, "CDLL", asked.append)
    monkeypatch.setenv(name, "1")
    keep_freed.__wrapped__()
    assert not asked
    monkeypatch.delenv(name)
    keep_freed.__wrapped__()
    assert asked == ([None] if sys.platform == "linux" else [])
