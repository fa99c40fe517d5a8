"""Data: numbers to compute with. Declared by `kt.array` and `kt.scalar`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kerneltest.core.blame import raises_for_user
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import DeclarationError
from kerneltest.declare.domains import interval
from kerneltest.declare.kinds.array_argument import DEFAULT_FLOATS, AnyDomain, Dtypes, array_argument
from kerneltest.declare.kinds.base import ArgumentKind, ArrayArgument, EdgeValues, Rng, Slot, register

Structure = Callable[[Array], Array]

_LARGEST = 2.0**6  # of an array with a structure


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
    if structure is not None:
        return structured_array(shape, dtypes, domain, structure, on)
    return array_argument(shape, dtypes, "data", domain=domain, on=on)


def scalar(
    dtypes: Dtypes = DEFAULT_FLOATS, *, domain: AnyDomain = None, on: Mapping[str, Dtypes] | None = None
) -> ArrayArgument:
    """Declares an array without axes.

    Args:
      dtypes: one dtype's name or several, as for `array`.
      domain: the values it may have, as for `array`.
      on: dtypes on some backends, as for `array`.
    """
    return array_argument("", dtypes, "data", domain=domain, on=on)


def structured_array(
    shape: str, dtypes: Dtypes, domain: AnyDomain, structure: Structure, on: Mapping[str, Dtypes] | None
) -> ArrayArgument:
    """Returns an array that has a structure. It has no infinities and no numbers at the ends of its dtype."""
    problem = "" if callable(structure) else f"structure= is one of kt.structure or a function, not {structure!r}"
    bounded = interval(-_LARGEST, _LARGEST, extremes=False) if domain is None else domain
    leaf = array_argument(shape, dtypes, "structured", domain=bounded, on=on, problem=problem)
    return replace(leaf, structure=structure)


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
        values = np.zeros(slot.shape)
        values.reshape(-1)[rng.integers(slot.size)] = 1
        return slot.cast(values)

    def one_false(self, slot: Slot, rng: Rng) -> Array:
        """One boolean is False."""
        values = np.ones(slot.shape)
        values.reshape(-1)[rng.integers(slot.size)] = 0
        return slot.cast(values)

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns small integers, booleans, or normally distributed numbers if floats need not be exact."""
        if slot.dtype == np.bool_:
            return slot.cast(rng.integers(0, 2, slot.shape))
        if not exact and is_float(slot.dtype):
            return slot.cast(rng.standard_normal(slot.shape))
        limit = min(slot.exact_limit, 100)
        return slot.cast(rng.integers(-limit, limit + 1, slot.shape))

    def canonical(self, slot: Slot) -> Array:
        """Returns zeros, or the numbers of the domain next to them."""
        return slot.coerce(np.full(slot.shape, slot.nearest(0)))

    def coerce(self, slot: Slot, values: Array) -> Array:
        """Returns the values without zeros if the domain excludes them."""
        return slot.domain.replace_zeros(values, slot.dtype) if slot.domain.nonzero else values

    def longest_sums(self, slot: Slot) -> Array:
        """Returns ones."""
        return np.ones(slot.shape)

    def element(self, slot: Slot, number: float) -> Array:
        """Returns the number, moved into the domain."""
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
        """Checks that a structure of square matrices has two equal axes."""
        if getattr(leaf.structure, "is_square", False) and (len(leaf.shape) < 2 or leaf.shape[-1] != leaf.shape[-2]):
            name = getattr(leaf.structure, "__name__", "")
            return f"a {name} matrix is square: its last two axes are equal, as in 'n n'"
        return ""

    def coerce(self, slot: Slot, values: Array) -> Array:
        """Returns the nearest values that have the structure."""
        if not slot.size or slot.structure is None or values.shape != slot.shape:
            return values  # a number alone has none
        made = np.asarray(_apply(slot.structure, np.asarray(values, np.float64)))
        if made.shape != slot.shape:
            raise DeclarationError(f"its structure= returned shape {made.shape} instead of {slot.shape}")
        return made.astype(slot.dtype)

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns the nearest values that have the structure."""
        return self.coerce(slot, values)

    def longest_sums(self, slot: Slot) -> Array:
        """Returns the ones, made to have the structure."""
        return self.coerce(slot, np.ones(slot.shape, slot.dtype))


@raises_for_user
def _apply(structure: Structure, values: Array) -> Array:
    return structure(values)
