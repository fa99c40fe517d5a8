"""GPU code with no GPU: JAX's lowering, and the compilers after it.

A traced kernel and a target enter `lower`; kernels as Triton IR leave. `compile` takes these to machine code in child
processes; `tiers` and `xla` are the backends. `cut` looks for the smallest part of a kernel that does not lower, and
`plain` and `spelling` write it as a script. `triton_compiler` is what a child runs: it imports nothing of kerneltest,
and nobody imports it.
"""
