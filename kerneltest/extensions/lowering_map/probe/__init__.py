"""Probes the installed JAX: which Pallas primitive lowers, for which dtype, on which GPU and TPU.

The probe imports nothing of kerneltest, because it also runs where kerneltest is not installed: on Python 3.10 to 3.13
with JAX 0.4.35 to 0.12 and NumPy, and with Triton or libtpu for `--compile`. It needs no GPU and no TPU.

`python PATH/probe --targets JSON` takes a JSON list of targets (see `lowering.Target`) and prints a map as JSON. Each
probe is a kernel of a few lines around one primitive. If lax itself refuses a dtype outside of Pallas, the map has no
cell for it. The probes run in child processes, so that a compiler that aborts costs one cell.
"""
