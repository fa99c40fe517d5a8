"""The pairings: every kernel in `kernels/` with its oracle."""
