import gc
import threading

import pytest

from kerneltest.core.stacks import stacks


@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_while_a_stack_is_looked_at(collects: bool) -> None:
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with stacks() as frames:
            assert threading.get_ident() in frames
            assert not gc.isenabled()
        assert gc.isenabled() is collects
    finally:
        (gc.enable if was else gc.disable)()


def test_two_threads_look_one_after_the_other() -> None:
    looked = threading.Event()

    def look() -> None:
        with stacks():
            looked.set()

    other = threading.Thread(target=look)
    with stacks():
        other.start()
        assert not looked.wait(0.1)
    assert looked.wait(10)
    other.join()
    assert gc.isenabled()
