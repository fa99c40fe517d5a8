"""TPU code with no TPU: JAX's lowering to Mosaic, and XLA's TPU compiler after it.

A traced kernel and a generation enter `lower`; modules leave. `compile` takes these to bundles of instructions in child
processes, with `compiler`; `memory` tells what a call keeps in VMEM; `rules` says in words what JAX, Mosaic and XLA
say. `tiers` holds the backends.
"""
