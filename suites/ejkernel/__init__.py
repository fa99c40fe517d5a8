"""Pairings of the kernels of ejkernel, a library of attention and matrix kernels, unchanged."""
