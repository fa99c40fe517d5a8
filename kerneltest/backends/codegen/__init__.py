"""GPU code without a GPU: JAX's lowering, and the compilers after it.

`tiers` and `xla_cuda` are the backends. `reduction` searches for the smallest part of a kernel that does not lower.
Child processes run `triton_compiler` and `xla_compiler`, which no other module imports.
"""
