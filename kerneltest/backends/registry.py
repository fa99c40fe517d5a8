"""The backends there are, by id."""

from collections.abc import Sequence

from kerneltest.backends.base import Backend
from kerneltest.backends.device import Device
from kerneltest.backends.interpret import Interpret
from kerneltest.options import BACKENDS

_MADE: dict[str, Backend] = {
    "interpret": Interpret(),
    "cuda": Device("cuda", foreign=frozenset({"mosaic_tpu"})),
    "rocm": Device("rocm", foreign=frozenset({"mosaic_tpu", "mosaic_gpu"})),
}


def resolve(ids: Sequence[str]) -> tuple[Backend, ...]:
    """The backends with these ids, in this order.

    Raises:
      ValueError: an unknown id; lists the known ones.
    """
    for each in ids:
        if each not in _MADE:
            raise ValueError(f"unknown backend {each!r}; known are {', '.join(BACKENDS)}")
    return tuple(_MADE[each] for each in dict.fromkeys(ids))
