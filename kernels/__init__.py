"""Pallas kernels that a user could call, one family a file. They import JAX and nothing of kerneltest."""
