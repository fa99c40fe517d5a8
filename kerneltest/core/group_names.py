"""The groups of families that kerneltest has itself. A record names its group; others may be registered."""

from enum import StrEnum


class GroupName(StrEnum):
    """A group of families, as records and ids name it."""

    STRUCTURAL = "structural"
    NUMERIC = "numeric"
    SPECIAL = "special"
    MASKS = "masks"
    SIGNATURES = "signatures"
    INVARIANTS = "invariants"
    PRODUCTION = "production"
    REJECTIONS = "rejects"
    DRAWN = "fuzz"
    PROOFS = "proofs"
    SANITIZED = "sanitized"
