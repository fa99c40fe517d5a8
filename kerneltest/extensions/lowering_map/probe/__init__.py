"""Asks the JAX that runs it which Pallas primitive lowers, for which dtype, on which GPU and TPU.

It imports nothing of kerneltest, since it also runs where kerneltest is not installed: on Python 3.10 to 3.13 with JAX
0.4.35 to 0.12 and NumPy, for `--compile` with Triton or libtpu. It needs no GPU and no TPU.

`python PATH/probe --targets JSON` takes a JSON list of targets (see `target.Target`) and prints a map as JSON. Each
probe is a kernel of a few lines around one primitive. Whatever lax itself refuses for a dtype, outside of Pallas, is
not in the map. The probes run in child processes: a compiler that aborts costs one cell.
"""
