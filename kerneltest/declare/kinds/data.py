"""Data: numbers to compute with. Declared by `kt.array` and `kt.scalar`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, cast, is_float
from kerneltest.core.failures import DeclarationError, format_exception, raises_for_user
from kerneltest.declare.dims import Derivation, required_parameters
from kerneltest.declare.domains import interval
from kerneltest.declare.kinds.base import (
    DEFAULT_FLOATS,
    AnyDomain,
    ArgumentKind,
    ArrayArgument,
    Dtypes,
    EdgeValues,
    Rng,
    Slot,
    XpArray,
    array_argument,
    register,
)
from kerneltest.declare.problems import hide_frames

Structure = Callable[[Array], Array]

_LARGEST = 2.0**6  # of an array with a structure


@hide_frames
def array(
    shape: str,
    dtypes: Dtypes = DEFAULT_FLOATS,
    *,
    domain: AnyDomain = None,
    structure: Structure | None = None,
    on: Mapping[str, Dtypes] | None = None,
) -> ArrayArgument:
    """Declares an array of data.

        kt.array("m k"), kt.array("b 3 n", "int8"), kt.array("n", ("float32", "bfloat16"), domain=(0, 1))
        kt.array("m 2*h"), kt.array("h*g s d"), kt.array("n", domain=kt.interval(nonzero=True))
        kt.array("n n", structure=kt.structure.symmetric)

    Args:
      shape: its axes, outermost first, separated by spaces: dims, fixed lengths, and products and sums of them.
        `h*g` is laid out h-major.
      dtypes: one dtype's name or several. Arguments that declare the same several dtypes change together.
      domain: the least and the greatest value, `kt.interval(...)`, or either of them by dtype name. None for every
        value of the dtype, NaN and infinities included. A pair with an infinite end admits that infinity and NaN, but
        not the dtype's largest and smallest numbers: `(-inf, inf)` is everything without these.
      structure: what holds of the array as a whole: one of `kt.structure`, or a function of yours, from an array
        (float64) to the nearest one that the kernel takes. Its values are finite.
      on: dtypes on some backends, by patterns of their ids or by `gpu`, `nvidia`, `amd` or `tpu`.
    """
    if structure is None:
        return array_argument(shape, dtypes, "data", domain=domain, on=on)
    problem = "" if callable(structure) else f"structure= is one of kt.structure or a function, not {structure!r}"
    bounded = interval(-_LARGEST, _LARGEST, extremes=False) if domain is None else domain
    return array_argument(shape, dtypes, "structured", domain=bounded, on=on, problem=problem, structure=structure)


@hide_frames
def scalar(
    dtypes: Dtypes = DEFAULT_FLOATS, *, domain: AnyDomain = None, on: Mapping[str, Dtypes] | None = None
) -> ArrayArgument:
    """Declares an array without axes, as in `kt.scalar("float32", domain=(0, 1))`.

    Args:
      dtypes: one dtype's name or several, as for `array`.
      domain: the values it may have, as for `array`.
      on: dtypes on some backends, as for `array`.
    """
    return array_argument("", dtypes, "data", domain=domain, on=on)


@register("data")
class ArrayData(ArgumentKind):
    """Numbers of any dtype, each within the argument's domain."""

    noun = "array"
    is_data = True
    differentiable = True

    def edge_values(self) -> Sequence[EdgeValues]:
        """Returns the edge cases of booleans; those of numbers are families of their own."""
        return [
            EdgeValues(self.all_false, lambda slot: slot.dtype == np.bool_ and slot.size > 0),
            EdgeValues(self.one_true, _has_several_booleans),
            EdgeValues(self.one_false, _has_several_booleans),
        ]

    def all_false(self, slot: Slot, rng: Rng) -> Array:
        """All booleans are False."""
        return slot.cast(np.zeros(slot.shape))

    def one_true(self, slot: Slot, rng: Rng) -> Array:
        """One boolean is True."""
        return slot.cast(np.arange(slot.size).reshape(slot.shape) == rng.integers(slot.size))

    def one_false(self, slot: Slot, rng: Rng) -> Array:
        """One boolean is False."""
        return slot.cast(self.one_true(slot, rng) == 0)

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns small integers, booleans, or normally distributed numbers if floats need not be exact."""
        if slot.dtype == np.bool_:
            return slot.cast(rng.integers(0, 2, slot.shape))
        if not exact and is_float(slot.dtype):
            return slot.cast(rng.standard_normal(slot.shape))
        limit = min(slot.exact_limit, 100)
        return slot.cast(rng.integers(-limit, limit + 1, slot.shape))

    def canonical(self, slot: Slot) -> Array:
        return slot.coerce(np.full(slot.shape, slot.nearest(0)))

    def coerce(self, slot: Slot, values: Array) -> Array:
        return slot.domain.replace_zeros(values, slot.dtype) if slot.domain.nonzero else values

    def longest_sums(self, slot: Slot) -> Array:
        return np.ones(slot.shape)

    def element(self, slot: Slot, number: float) -> Array:
        return slot.cast(np.asarray(number))

    def code_table(self, slot: Slot, codes: Array) -> Array:
        """Returns integers whose products can be summed exactly, moved into the domain; both values of booleans."""
        if slot.dtype == np.bool_:
            return slot.cast(codes % 3 == 0)
        limit = max(min(slot.exact_limit, codes.size), 2)
        return slot.cast(codes % limit - limit // 2)


def _has_several_booleans(slot: Slot) -> bool:
    return slot.dtype == np.bool_ and slot.size > 1


@register("structured")
class StructuredData(ArrayData):
    """Numbers that depend on each other, such as those of a symmetric matrix."""

    noun = "structured array"
    jointly_constrained = True
    positional = False

    def find_mistake(self, leaf: ArrayArgument) -> str:
        if getattr(leaf.structure, "is_square", False) and (len(leaf.shape) < 2 or leaf.shape[-1] != leaf.shape[-2]):
            name = getattr(leaf.structure, "__name__", "")
            return f"a {name} matrix is square: its last two axes are equal, as in 'n n'"
        return ""

    def coerce(self, slot: Slot, values: Array) -> Array:
        if not slot.size or slot.structure is None or values.shape != slot.shape:
            return values  # a number alone has none
        made = np.asarray(_apply(slot.structure, np.asarray(values, np.float64)))
        if made.shape != slot.shape:
            raise DeclarationError(f"its structure= returned shape {made.shape} instead of {slot.shape}")
        return cast(made, slot.dtype)

    def repair(self, slot: Slot, values: Array) -> Array:
        return self.coerce(slot, values)

    def longest_sums(self, slot: Slot) -> Array:
        return self.coerce(slot, np.ones(slot.shape, slot.dtype))


@raises_for_user
def _apply(structure: Structure, values: Array) -> Array:
    return structure(values)


# Arrays that follow from other arguments. Declared by `kt.derived`, and by `kt.same_as` once it is resolved.


@hide_frames
def derived(shape: str, function: Callable[..., Any], *, dtypes: Dtypes = DEFAULT_FLOATS) -> ArrayArgument:
    """Declares an array that follows from other arguments. It is recomputed when a finding's arguments are shrunk.

        count=kt.derived("", lambda mask: mask.sum(), dtypes="int32")
        tables=kt.derived("b p", lambda rng, lengths, pages: ..., dtypes="int32")

    Args:
      shape: as for `array`.
      function: returns the array. Its parameters are names of arguments (NumPy arrays in the kernel's dtypes, static
        values), of dims (lengths), and `rng`, a NumPy generator whose seed depends on the arrays it gets. Parameters
        with a default are not passed.
      dtypes: as for `array`; the function's result is cast.
    """
    try:
        of = required_parameters(function)
    except (TypeError, ValueError) as error:
        problem = f"its function has no parameters that Python can inspect: {format_exception(error)}"
        return ArrayArgument((), (), "derived", problem=problem)
    return array_argument(shape, dtypes, "derived", derivation=Derivation(function, of))


def copy_of(name: str, other: ArrayArgument) -> ArrayArgument:
    """Returns an argument that always equals another array, which has some name."""
    return replace(other, role="derived", derivation=Derivation(lambda **values: values[name], (name,)))


@register("derived")
class Derived(ArgumentKind):
    """Values that `plan` computes from the other arguments whenever these change."""

    noun = "derived"
    jointly_constrained = True
    differentiable = True
    positional = False

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns zeros, which the derived values replace."""
        return np.zeros(slot.shape)

    def simplify(self, slot: Slot, values: Array) -> Array:
        """Returns `values`, since they follow from other arguments."""
        return values


# Keys of `jax.random`. Declared by `kt.key`.


@hide_frames
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
        return rng.integers(0, 2**32, slot.shape)

    def pass_value(self, values: XpArray, *, oracle: bool) -> XpArray:
        """Returns the data as uint32, also where an oracle's integers have been widened."""
        return values.astype(np.uint32)


@register("key")
class Key(RawKey):
    """A key object, made from its data."""

    is_key_object = True

    def pass_value(self, values: XpArray, *, oracle: bool) -> XpArray:
        import jax  # noqa: PLC0415 - the kernel has imported it

        data = super().pass_value(values, oracle=oracle)
        return data if oracle else jax.random.wrap_key_data(data)
