"""What a probe is, and the dtypes, shapes and functions that probes are made of."""

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
FLOAT32 = ("float32",)  # for what does not depend on a dtype

SCALAR, VECTOR, MATRIX, BLOCK = (), (16,), (8, 16), (32, 32)

_MODULES = {"jax": jax, "jnp": jnp, "lax": lax, "pl": pl, "plt": plt, "pltpu": pltpu}


class AbsentError(Exception):
    """This JAX has no such function."""


@dataclass(frozen=True)
class Probe:
    """A kernel around one primitive.

    Attributes:
      name: the primitive's, as JAX calls it, with the variant in brackets.
      group: the heading that it stands under.
      body: maps values to values. Where `output` is given, it takes references instead, the last to the output, and
        returns nothing.
      dtypes: those to ask for.
      operands: for each, its shape, or its shape and dtype where that is not the dtype asked for.
      output: likewise; None where the body's values tell.
      grid: of the kernel.
      block: that all operands and the output are cut into, the place in the grid being the place of the block; () for
        whole arrays. Of probes for TPUs.
      only: `gpu` or `tpu`, where the others have no such function; "" where both may be asked.
    """

    name: str
    group: str
    body: Callable[..., Any]
    dtypes: tuple[str, ...]
    operands: tuple[Any, ...]
    output: Any = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    only: str = ""


def first_available(*paths: str) -> Any:
    """The first of some functions, such as `pl.dot`, that this JAX has: functions move between versions.

    Raises:
      AbsentError: it has none of them.
    """
    for path in paths:
        module, *names = path.split(".")
        value: Any = _MODULES[module]
        with suppress(AttributeError):
            for name in names:
                value = getattr(value, name)
            return value
    raise AbsentError(f"this JAX has no {' or '.join(paths)}")


def lax_function(name: str, *static: Any, **options: Any) -> Callable[..., Any]:
    """A body that calls a function of lax on its values, then `static`; lax is searched when the body is called."""
    return lambda *values: first_available(f"lax.{name}")(*values, *static, **options)
