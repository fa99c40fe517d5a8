"""Places to run kernels, and stages to take them to.

`base.Backend.prepare` takes a traced kernel and returns an `Executable`, which computes outputs from arrays, or an
`Artifact` if the tier computes no values. All errors leave as a `Failure`. Other rooms get backends by id from
`registry`; checks that need lowered code call `codegen` and `simulate` directly.
"""
