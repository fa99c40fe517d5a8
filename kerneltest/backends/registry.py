"""The backends there are, by id."""

from collections.abc import Sequence
from dataclasses import replace

from kerneltest.backends.base import Backend
from kerneltest.backends.device import Device
from kerneltest.backends.interpret import Interpret
from kerneltest.backends.mosaic import InterpretMosaic
from kerneltest.backends.codegen.tiers import Compile, Lower
from kerneltest.backends.simulate.backend import Simulate
from kerneltest.backends.codegen.xla import XlaCompile
from kerneltest.core.backend_ids import backend_ids
from kerneltest.core.targets import TARGETS

_ALL: tuple[Backend, ...] = (
    Interpret(),
    InterpretMosaic("interpret-mosaic-gpu", "mosaic_gpu"),
    InterpretMosaic("interpret-tpu", "mosaic_tpu"),
    *(Lower(target) for target in TARGETS.values()),
    *(Compile(target) for target in TARGETS.values()),
    XlaCompile(TARGETS["sm_90"]),
    *(Simulate(target) for target in TARGETS.values()),
    Device("cuda", foreign=frozenset({"mosaic_tpu"})),
    Device("rocm", foreign=frozenset({"mosaic_tpu", "mosaic_gpu"})),
)
_MADE = {backend.id: backend for backend in _ALL}


def resolve(words: Sequence[str], orders: int = 0) -> tuple[Backend, ...]:
    """The backends that some ids or patterns stand for, in this order.

    Args:
      words: ids and patterns.
      orders: of `Simulate`.

    Raises:
      ValueError: an unknown id; lists the known ones.
    """
    found = [_MADE[each] for each in backend_ids(words)]
    return tuple(replace(each, orders=orders) if isinstance(each, Simulate) else each for each in found)
