"""`Probe`, and the dtypes, shapes and functions that probes use."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plt

FLOATS = tuple("float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2".split())
INTEGERS = tuple("int64 int32 int16 int8 uint32 uint8".split())
NUMBERS = FLOATS + INTEGERS
BITWISE = (*INTEGERS, "bool")
DTYPES = (*NUMBERS, "bool")
FLOAT32 = ("float32",)  # for primitives whose lowering does not depend on the dtype

SCALAR, VECTOR, MATRIX, BLOCK = (), (16,), (8, 16), (32, 32)

Value = Any  # an array while it is traced; functions that are looked up by name have no types
Ref = Any  # JAX exports no type for references
Body = Callable[..., Any]
Operand = tuple[int, ...] | tuple[tuple[int, ...], str]  # a shape, of the probed dtype or of one that it names

_MODULES = {"jax": jax, "jnp": jnp, "lax": lax, "pl": pl, "plt": plt, "pltpu": pltpu}


class AbsentError(Exception):
    """This JAX has no such function."""


@dataclass(frozen=True)
class LoweringProbe:
    """A kernel around one primitive.

    Attributes:
      name: the primitive's name in JAX, with the variant in brackets.
      group: the heading in reports.
      body: maps values to values. If there is an `output`, it takes references instead, the last to the output, and
        returns nothing.
      dtypes: to probe.
      operands: their shapes, with a dtype if it is not the probed one.
      output: the same of the output; None if it is that of the body's values.
      grid: of the kernel.
      block: the block shape of all operands and the output, whose index is the program's; () for whole arrays. For
        TPUs only.
      only: `gpu` or `tpu` if only these have the function; "" for both.
    """

    name: str
    group: str
    body: Body
    dtypes: tuple[str, ...]
    operands: tuple[Operand, ...]
    output: Operand | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    only: str = ""


def first_available(*paths: str) -> Any:
    """Returns the first of some functions, such as `pl.dot`, that this JAX has: functions move between versions.

    Raises:
      AbsentError: this JAX has none of them.
    """
    for path in paths:
        module, *names = path.split(".")
        value: Any = _MODULES[module]
        with suppress(AttributeError):
            for name in names:
                value = getattr(value, name)
            return value
    raise AbsentError(f"this JAX has no {' or '.join(paths)}")


def lax_function(name: str, *static: Any, **options: Any) -> Body:
    """Returns a body that calls a function of lax on its values and `static`. It looks the function up when called."""
    return lambda *values: first_available(f"lax.{name}")(*values, *static, **options)
