"""Generates kernels: from a seed, a Pallas kernel that is right by construction, and its oracle in another form.

`forms` holds equal expressions, of which kernels take one and oracles the other. The productions, functions in
`elementwise_kernels`, `row_kernels` and `product_kernels`, make kernels of one shape each from them. `productions`
chooses one for a seed and writes the source, which runs by itself. `generate_command` prints it.
"""
