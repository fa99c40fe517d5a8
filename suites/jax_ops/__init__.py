"""Pairings of the kernels that JAX ships in `jax.experimental.pallas.ops`, unchanged."""
