"""Elementwise operations with their reference in NumPy, for the NumPy machine and for the Triton simulator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

F = ("float32", "float16", "bfloat16")
I = ("int32", "int8", "uint8", "int16", "uint32")  # noqa: E741


@dataclass(frozen=True, slots=True)
class Op:
    """An operation, and its reference on float64, or on integers of their own dtype.

    Attributes:
      dtypes: those of the simulator, which lowers some functions only for float32.
      domain: of the simulator's operands.
      ulps: by which the NumPy machine may differ from XLA.
    """

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    dtypes: tuple[str, ...] = F
    arity: int = 1
    domain: tuple[float, float] | None = None
    ulps: float = 0

    @property
    def machine_dtypes(self) -> tuple[str, ...]:
        """Those of the NumPy machine, which evaluates a function of one float dtype in all."""
        return tuple(dict.fromkeys((*self.dtypes, *(F if "float32" in self.dtypes else ()))))


def _trunc(x: Any) -> Any:
    return np.where(x < 0, np.ceil(x), np.floor(x))


OPS = [
    Op("add", jnp.add, np.add, F + I, 2),
    Op("sub", jnp.subtract, np.subtract, F + I, 2),
    Op("mul", jnp.multiply, np.multiply, F + I, 2),
    Op("div", jnp.divide, np.divide, ("float32",), 2, ulps=1),
    Op("integer div", lax.div, lambda a, b: _trunc(a / b.astype(np.float64)), I, 2, (1, 2**30)),
    Op("integer rem", lax.rem, np.fmod, I, 2, (1, 2**30)),
    Op("rem", lax.rem, np.fmod, ("float32",), 2, (-50, 50)),
    Op("maximum", jnp.maximum, np.fmax, F, 2),
    Op("minimum", jnp.minimum, np.fmin, F, 2),
    Op("integer maximum", jnp.maximum, np.maximum, I, 2),
    Op("integer minimum", jnp.minimum, np.minimum, I, 2),
    Op("neg", jnp.negative, np.negative, (*F, "int32", "int8")),
    Op("abs", jnp.abs, np.abs, (*F, "int32")),
    Op("sign", jnp.sign, np.sign, ("float32", "int32"), 1, (-100, 100)),
    Op("square", jnp.square, np.square, F),
    Op("floor", jnp.floor, np.floor, ("float32",)),
    Op("ceil", jnp.ceil, np.ceil, ("float32",)),
    Op("exp", jnp.exp, np.exp, ("float32",), ulps=8),
    Op("exp2", jnp.exp2, np.exp2, ("float32",), ulps=80),
    Op("expm1", jnp.expm1, np.expm1, ("float32",), ulps=12),
    Op("log", jnp.log, np.log, ("float32",), ulps=4),
    Op("log1p", jnp.log1p, np.log1p, ("float32",), ulps=4),
    Op("sqrt", jnp.sqrt, np.sqrt, ("float32",), ulps=1),
    Op("rsqrt", lax.rsqrt, lambda x: 1 / np.sqrt(x), ("float32",), ulps=4),
    Op("cbrt", jnp.cbrt, np.cbrt, ("float32",)),
    Op("sin", jnp.sin, np.sin, ("float32",), 1, (-100, 100), ulps=8),
    Op("cos", jnp.cos, np.cos, ("float32",), 1, (-100, 100), ulps=8),
    Op("tan", jnp.tan, np.tan, ("float32",), 1, (-1.5, 1.5), ulps=8),
    Op("asin", lax.asin, np.arcsin, ("float32",), 1, (-1, 1)),
    Op("atan2", lax.atan2, np.arctan2, ("float32",), 2, (-10, 10), ulps=8),
    Op("acos", lax.acos, np.arccos, ("float32",), 1, (-1, 1), ulps=8),
    Op("atan", lax.atan, np.arctan, ("float32",), ulps=8),
    Op("acosh", lax.acosh, np.arccosh, ("float32",), 1, (1, 10), ulps=8),
    Op("asinh", lax.asinh, np.arcsinh, ("float32",), 1, (-10, 10), ulps=8),
    Op("atanh", lax.atanh, np.arctanh, ("float32",), 1, (-1, 1), ulps=8),
    Op("cosh", lax.cosh, np.cosh, ("float32",), 1, (-10, 10), ulps=8),
    Op("sinh", lax.sinh, np.sinh, ("float32",), 1, (-10, 10)),
    Op("tanh", jnp.tanh, np.tanh, ("float32",), ulps=8),
    Op("pow", jnp.power, np.power, ("float32",), 2, (0.1, 5), ulps=12),
    Op("integer pow", lambda x: x**3, lambda x: x * x * x, ("float32",), 1, (-100, 100), ulps=2),
    Op("nextafter", lax.nextafter, None, ("float32",), 2),  # type: ignore[arg-type]
    Op("and", jnp.bitwise_and, np.bitwise_and, (*I, "bool"), 2),
    Op("or", jnp.bitwise_or, np.bitwise_or, (*I, "bool"), 2),
    Op("xor", jnp.bitwise_xor, np.bitwise_xor, (*I, "bool"), 2),
    Op("not", jnp.bitwise_not, np.bitwise_not, (*I, "bool")),
    Op("shift left", lax.shift_left, np.left_shift, ("int32", "uint32"), 2, (0, 31)),
    Op("shift right", lax.shift_right_arithmetic, np.right_shift, ("int32",), 2, (0, 31)),
    Op("logical shift", lax.shift_right_logical, np.right_shift, ("uint32",), 2, (0, 31)),
    Op("population count", lax.population_count, np.bitwise_count, ("uint32",)),
    Op("leading zeros", lax.clz, lambda x: 32 - np.vectorize(int.bit_length)(x.astype(object)), ("uint32",)),
    Op("clamp", lambda x: jnp.clip(x, -1, 1), lambda x: np.fmin(np.fmax(x, -1), 1), ("float32", "int32")),
    Op("where", lambda x, y: jnp.where(x > y, x, -y), lambda x, y: np.where(x > y, x, -y), ("float32", "int32"), 2),
    Op("is_finite", lambda x: jnp.where(jnp.isfinite(x), 1.0, 0.0), np.isfinite, ("float32",)),
    *(
        Op(name, getattr(jnp, name), getattr(np, name), ("float32", "int32", "uint32", "int8", "uint8"), 2)
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    ),
]  # fmt: skip
