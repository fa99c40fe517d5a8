"""GPU code without a GPU: JAX's lowering, and the compilers after it.

`gpu_lowering` takes a traced kernel and a target to Triton IR, and `triton_compile` takes that to machine code.
`gpu_tiers` and `xla_cuda` are the backends. `program_reduction` searches for the smallest part of a kernel that does
not lower, which `repro_source` and `repro_script` write as a script. Child processes run `triton_compiler` and
`xla_compiler`, which no other module imports.
"""
