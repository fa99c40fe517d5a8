"""Pairings of kernels in Triton of libraries for PyTorch, unchanged."""
