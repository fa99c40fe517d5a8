"""TPU code without a TPU: JAX's lowering to Mosaic, and XLA's TPU compiler.

`tiers` takes a traced kernel and a generation to modules, and these to bundles of instructions, in child processes that
run `compiler`. `errors` lists the arrays that a call has in VMEM, and explains errors of JAX, Mosaic and XLA.
"""
