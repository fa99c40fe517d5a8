"""Generates kernels: from a seed, a Pallas kernel that is right by construction, and its oracle in another form.

`forms`, `integer_forms` and `conversion_forms` contain equivalent expressions: kernels use one, and oracles the
other. `pointwise_frames` applies elementwise functions to arrays in each dialect. The productions, functions in the
modules named `*_kernels`, each make one kind of kernel. `productions` chooses one for a seed and writes the source,
which runs by itself.
"""
