"""TPU code without a TPU: JAX's lowering to Mosaic, and XLA's TPU compiler.

`lower` takes a traced kernel and a generation to modules, and `compile` takes these to bundles of instructions in child
processes that run `compiler`. `memory` lists the arrays that a call has in VMEM, and `rules` explains errors of JAX,
Mosaic and XLA. `tiers` has the backends.
"""
