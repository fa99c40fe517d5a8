"""Kernels as a model library keeps them, for tests: nothing in here knows of kerneltest."""
