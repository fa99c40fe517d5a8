"""Keys of `jax.random`. Declared by `kt.key`."""

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.kinds.base import ArgumentKind, ArrayArgument, Rng, Slot, XpArray, register


def key(*, raw: bool = False) -> ArrayArgument:
    """Declares a key of `jax.random`. The oracle gets its data, two or more numbers of uint32.

    Args:
      raw: the kernel gets the data as well, as `jax.random.PRNGKey` returns it, rather than a key object, as
        `jax.random.key` returns it.
    """
    import jax  # noqa: PLC0415 - the kernel has imported it

    (length,) = jax.eval_shape(jax.random.PRNGKey, 0).shape
    return ArrayArgument((length,), ("uint32",), "raw_key" if raw else "key")


@register("raw_key")
class RawKey(ArgumentKind):
    """The data of a key."""

    noun = "key"
    jointly_constrained = True
    positional = False

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns random bits."""
        return rng.integers(0, 2**32, slot.shape)

    def pass_value(self, values: XpArray, *, oracle: bool) -> XpArray:
        """Returns the data as uint32, also where an oracle's integers have been widened."""
        return values.astype(np.uint32)


@register("key")
class Key(RawKey):
    """A key object, made from its data."""

    is_key_object = True

    def pass_value(self, values: XpArray, *, oracle: bool) -> XpArray:
        """Returns the data for the oracle, and a key object for the kernel."""
        import jax  # noqa: PLC0415 - the kernel has imported it

        data = super().pass_value(values, oracle=oracle)
        return data if oracle else jax.random.wrap_key_data(data)
