"""Names for the parts of a jaxpr.

JAX's abstract values declare neither shape nor dtype, and its classes differ between releases. Most of these names
therefore tell a reader what a value is, and leave its attributes unchecked.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from jax.extend.core import ClosedJaxpr as ClosedJaxpr  # type: ignore[attr-defined, unused-ignore]
from jax.extend.core import Jaxpr as OpenJaxpr
from jax.extend.core import Literal as Literal

__all__ = [
    "AbstractValue",
    "Atom",
    "BlockMapping",
    "ClosedJaxpr",
    "DType",
    "Equation",
    "JaxArray",
    "Jaxpr",
    "Literal",
    "OpenJaxpr",
    "Params",
    "SourceInfo",
    "Var",
]

Jaxpr: TypeAlias = Any  # an `OpenJaxpr`; also a `ClosedJaxpr` where a docstring says "open or closed"
Equation: TypeAlias = Any  # `jax.core.JaxprEqn`
Var: TypeAlias = Any  # `jax.core.Var`
Atom: TypeAlias = Any  # a `Var` or a `Literal`
AbstractValue: TypeAlias = Any  # the type of an atom: an array's shape and dtype, a reference, a semaphore
BlockMapping: TypeAlias = Any  # how a Pallas call cuts one array into blocks
SourceInfo: TypeAlias = Any  # the traceback that an equation remembers
JaxArray: TypeAlias = Any  # an array of JAX's or NumPy's, or a tracer
Params: TypeAlias = Mapping[str, Any]  # an equation's parameters
DType: TypeAlias = np.dtype[Any]
