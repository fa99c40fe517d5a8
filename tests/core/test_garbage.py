import gc

import pytest

from kerneltest.core.garbage import seldom_collected


@pytest.mark.parametrize(("before", "inside"), [(700, 20_000), (0, 0), (50_000, 50_000)])
def test_garbage_is_looked_for_seldom_and_then_as_before(before: int, inside: int) -> None:
    was = gc.get_threshold()
    gc.set_threshold(before, *was[1:])
    try:
        with seldom_collected():
            assert gc.get_threshold()[0] == inside
        assert gc.get_threshold() == (before, *was[1:])
    finally:
        gc.set_threshold(*was)
