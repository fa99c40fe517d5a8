"""Places to run kernels, and stages to take them to.

A traced kernel enters. An `Executable` leaves, which turns arrays into outputs, or an `Artifact` where the tier gives
no values; what goes wrong leaves as a `Failure`. Other rooms ask `registry` for backends by id and know them as
`base.Backend`; checks that need lowered code itself call `codegen.lower` and `simulate`.
"""
