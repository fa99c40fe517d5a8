"""Arrays that follow from other arguments. Declared by `kt.derived`, and by `kt.same_as` once it is resolved."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import format_exception
from kerneltest.declare.kinds.array_argument import DEFAULT_FLOATS, Dtypes, array_argument
from kerneltest.declare.kinds.base import ArgumentKind, ArrayArgument, Rng, Slot, register
from kerneltest.declare.relations import Derivation, required_parameters


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
    return replace(array_argument(shape, dtypes, "derived"), derivation=Derivation(function, of))


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
