"""Kernels as jaxprs.

A pairing and a signature enter `trace`; a `Traced` leaves, with the kernel's jaxpr, its Pallas calls and what its
arithmetic does. `rewrite` turns jaxprs into others, `runnable` and `evaluate` run them, `references` gives the arrays
of a call. All of these may be called from outside; JAX's private parts are touched in `compat` alone.
"""
