"""Replacements for primitives that have no lowering."""

_HINTS: dict[str, str] = {
    "is_finite": "jnp.abs(x) < jnp.inf, which is false for NaN too",
    "sort": "a sort outside the kernel, or a bitonic network of jnp.minimum and jnp.maximum",
    "top_k": "jnp.max and jnp.argmax in a loop, each time masking the element found",
    "erf_inv": "jax.scipy.special.erfinv outside the kernel",
    "cumprod": "jnp.exp(jnp.cumsum(jnp.log(x))) for positive x, or a loop over blocks",
    "cummax": "jax.lax.associative_scan(jnp.maximum, x)",
    "cummin": "jax.lax.associative_scan(jnp.minimum, x)",
    "dynamic_slice": "an index into the reference: ref[pl.ds(start, size)]",
    "dynamic_update_slice": "a store to the reference: ref[pl.ds(start, size)] = x",
    "gather": "an index into the reference: ref[indices]",
    "scatter": "a store to the reference: ref[indices] = x",
    "scatter-add": "plgpu.atomic_add(ref, indices, x)",
    "concatenate": "two stores to the output, or jnp.where on an iota",
    "pad": "a masked load: plgpu.load(ref.at[...], mask=..., other=...)",
    "rev": "an index that runs backwards: ref[n - 1 - jnp.arange(n)]",
    "random_bits": "random numbers drawn outside and passed in, or a counter-based generator in integer arithmetic",
}


def add_lowering_hint(primitive: str, text: str) -> None:
    """Adds advice to the finding of a primitive without a lowering, as in `write instead: TEXT`.

    Args:
      primitive: its name, as the finding shows it.
      text: what to write instead; it replaces an earlier hint for the primitive.

    Raises:
      ValueError: either is empty.
    """
    if not primitive.strip() or not text.strip():
        raise ValueError(f"add_lowering_hint: primitive and text must not be empty, not {primitive!r} and {text!r}")
    _HINTS[primitive] = text


def lowering_hint(primitive: str) -> str:
    """Returns what to write instead of a primitive, or ""."""
    return _HINTS.get(primitive, "")
