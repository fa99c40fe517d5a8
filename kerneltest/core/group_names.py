"""Names of the groups of families that more than one room asks about, as records hold them."""

PROOFS = "proofs"
"""Proofs over all sizes: their cases have no lengths and no inputs."""

SANITIZED = "sanitized"
"""Cases under a tool that watches memory: each runs in a process of its own, so a lost device affects no other."""
