"""Generates kernels: from a seed, a Pallas kernel that is right by construction, and its oracle in another form.

`forms`, `integer_forms` and `conversion_forms` hold equal expressions, of which kernels take one and oracles the other.
`pointwise_frames` brings functions of single elements over arrays in each dialect. The productions, functions in the
modules named `*_kernels`, make kernels of one shape each. `productions` chooses one for a seed and writes the source,
which runs by itself. `generate_command` prints it.
"""
