"""Mosaic GPU kernels, executed in NumPy as the dialect that JAX lowers them to after it has chosen their layouts.

`operations` is the table of its operations, `products` has their arithmetic, that of tensor cores included,
`machine` runs the threads of a block and the asynchronous work that they start, `memory` orders accesses, and `backend`
reads the dialect, and connects all of them to the simulate tier.
"""
