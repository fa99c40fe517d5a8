"""What layers are configured by."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NormConfig:
    """How a layer normalises.

    Attributes:
      epsilon: added to the mean square.
      rows: that one program takes.
    """

    epsilon: float = 1e-6
    rows: int = 8


@dataclass(frozen=True)
class CacheConfig:
    """How a cache of keys and values is kept.

    Attributes:
      ring: the oldest entry is overwritten once it is full; else nothing is.
    """

    ring: bool = False
