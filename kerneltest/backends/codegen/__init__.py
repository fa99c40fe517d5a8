"""GPU code without a GPU: JAX's lowering, and the compilers after it.

`lower` takes a traced kernel and a target to Triton IR, and `compile` takes that to machine code in child processes.
`tiers` and `xla` are the backends. `program_reduction` searches for the smallest part of a kernel that does not lower,
which `plain` and `repro_source` write as a script. Child processes run `triton_compiler` and
`xla_compiler`, which are imported by no other module.
"""
