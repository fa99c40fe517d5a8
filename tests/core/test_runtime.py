import ctypes
import gc
import platform
import resource
import sys
import threading

import numpy as np
import pytest

from kerneltest.core.processes import retain_freed_memory, thread_stacks, throttle_gc


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory as it likes")
def test_arrays_take_the_place_of_those_before_them() -> None:
    retain_freed_memory()
    retain_freed_memory()
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
    retain_freed_memory.__wrapped__()
    assert not asked
    monkeypatch.delenv(name)
    retain_freed_memory.__wrapped__()
    assert asked == ([None] if sys.platform == "linux" else [])


@pytest.mark.parametrize(("before", "inside"), [(700, 20_000), (0, 0), (50_000, 50_000)])
def test_garbage_is_looked_for_seldom_and_then_as_before(before: int, inside: int) -> None:
    was = gc.get_threshold()
    gc.set_threshold(before, *was[1:])
    try:
        with throttle_gc():
            assert gc.get_threshold()[0] == inside
        assert gc.get_threshold() == (before, *was[1:])
        with throttle_gc():
            gc.set_threshold(800, *was[1:])  # as a test module may when pytest imports it
        assert gc.get_threshold()[0] == 800
    finally:
        gc.set_threshold(*was)


@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_while_a_stack_is_looked_at(collects: bool) -> None:
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with thread_stacks() as frames:
            assert threading.get_ident() in frames
            assert not gc.isenabled()
        assert gc.isenabled() is collects
    finally:
        (gc.enable if was else gc.disable)()


def test_two_threads_look_one_after_the_other() -> None:
    looked = threading.Event()

    def look() -> None:
        with thread_stacks():
            looked.set()

    other = threading.Thread(target=look)
    with thread_stacks():
        other.start()
        assert not looked.wait(0.1)
    assert looked.wait(120)
    other.join()
    assert gc.isenabled()
