"""GPU code with no GPU: JAX's lowering, and the compilers after it.

A traced kernel and a target enter `lower`; kernels as Triton IR leave. `compile` takes these to machine code in child
processes; `tiers` and `xla` are the backends. `triton_compiler` is what a child runs: it imports nothing of kerneltest,
and nobody imports it.
"""
