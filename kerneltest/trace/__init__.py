"""Kernels as jaxprs.

`tracing` takes a pairing and a signature, and returns a `Traced`: the kernel's jaxpr, its Pallas calls and the
properties of its arithmetic. `primitives` says what each primitive does, `rewrite` turns jaxprs into others, `runnable`
has XLA run them, and `machine` evaluates them in NumPy. Only `jax_compat` touches JAX's private parts,
and it restores whatever it replaces.
"""

import jax

OLDEST = (0, 10, 2)

if jax.__version_info__[:3] < OLDEST:  # before imports that an older JAX cannot satisfy
    _oldest = ".".join(map(str, OLDEST))
    raise ImportError(
        f"JAX {jax.__version__} is older than {_oldest}, the oldest version that kerneltest supports: "
        f"pip install -U 'jax>={_oldest}'"
    )
