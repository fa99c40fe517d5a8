"""Lowered Triton IR, executed in NumPy: all programs at once, with an exact memory."""
