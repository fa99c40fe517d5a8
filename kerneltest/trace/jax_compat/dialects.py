"""Pallas' languages: which of them a parameter, a memory space or a primitive belongs to."""

import functools
import sys
from types import ModuleType

from jax._src.pallas import primitives as shared_primitives
from jax.extend.core import Primitive

from kerneltest.trace.jax_compat.jaxpr_types import Equation

_DIALECT_BY_PREFIX = {
    "jax._src.pallas.triton.": "triton",
    "jax._src.pallas.mosaic_gpu.": "mosaic_gpu",
    "jax._src.pallas.mosaic.": "mosaic_tpu",
}


def is_of_pallas(kind: type) -> bool:
    """Returns whether a class is one of Pallas' own."""
    return kind.__module__.startswith("jax._src.pallas")


def dialect_of(parameter: object) -> str:
    """The language that a parameter of a Pallas call, or a memory space, belongs to.

    Returns:
      `triton`, `mosaic_gpu` or `mosaic_tpu`; "" if it does not belong to a single language.
    """
    home = type(parameter).__module__
    return next((dialect for prefix, dialect in _DIALECT_BY_PREFIX.items() if home.startswith(prefix)), "")


@functools.cache
def _own_primitives(module: ModuleType) -> frozenset[Primitive]:
    """The primitives of a language's module, without those that all languages share."""
    shared = vars(shared_primitives).values()
    return frozenset(each for each in vars(module).values() if isinstance(each, Primitive) and each not in shared)


def dialect_of_operation(equation: Equation) -> str:
    """The only language that has an equation's primitive, or the memory that it works on; "" if all have both."""
    for prefix, dialect in _DIALECT_BY_PREFIX.items():
        module = sys.modules.get(f"{prefix}primitives")  # a language that is not imported is not in use
        if module is not None and equation.primitive in _own_primitives(module):
            return dialect
    spaces = (getattr(variable.aval, "memory_space", None) for variable in equation.invars)
    return next(filter(None, map(dialect_of, spaces)), "")
