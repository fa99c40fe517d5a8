"""How far a backend takes a kernel."""

from enum import StrEnum


class Tier(StrEnum):
    """What a backend can say of a kernel. A member is its own name as records write it."""

    INTERPRET = "interpret"
    LOWER = "lower"
    COMPILE = "compile"
    SIMULATE = "simulate"
    DEVICE = "device"

    @property
    def gives_values(self) -> bool:
        """Whether a kernel is run there, so that there are values to compare."""
        return self not in (Tier.LOWER, Tier.COMPILE)
