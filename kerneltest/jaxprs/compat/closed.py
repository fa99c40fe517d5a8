"""The class of a closed jaxpr. Since JAX 0.12 it is `Jaxpr` itself, and its old name is there but not exported."""

from jax.extend.core import ClosedJaxpr as ClosedJaxpr  # type: ignore[attr-defined, unused-ignore]
