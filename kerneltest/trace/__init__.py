"""Kernels as jaxprs.

A pairing and a signature enter `trace`; a `Traced` leaves, with the kernel's jaxpr, its Pallas calls and what its
arithmetic does. `rewrite` turns jaxprs into others, `runnable` and `evaluate` run them, `references` gives the arrays
of a call. All of these may be called from outside; JAX's private parts are touched in `compat` alone.
"""

import jax

OLDEST = (0, 10, 2)

if jax.__version_info__[:3] < OLDEST:  # before anything is imported from it that it may not have
    _oldest = ".".join(map(str, OLDEST))
    raise ImportError(
        f"JAX {jax.__version__} is older than {_oldest}, the oldest that kerneltest knows: "
        f"pip install -U 'jax>={_oldest}'"
    )
