"""Lowering maps: the outcome of lowering each primitive, for every dtype, target and version of JAX, without a device.

A `LoweringMap` is measured or read from a file. Maps are compared with each other and shown as tables, by the command
`kerneltest lowering`. `probes` has the kernels that `measuring` lowers.
"""
