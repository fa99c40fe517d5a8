"""Mosaic GPU kernels, executed in NumPy as the dialect that JAX lowers them to after it has chosen their layouts.

`program` reads the dialect, `operations` is the table of its operations, `products` has those of tensor cores,
`machine` runs the threads of a block and the asynchronous work that they start, `memory` orders accesses, and `backend`
connects them to the simulate tier.
"""
