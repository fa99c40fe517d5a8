"""What can be read off a jaxpr: its equations, at any depth, and whether its arithmetic is exact."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jax.extend.core import Jaxpr, Literal

from kerneltest.core.dtypes import is_float
from kerneltest.trace.jax_compat.names import ClosedJaxpr

# The primitives by which a function enters a Pallas kernel.
ENTRIES = frozenset({"pallas_call", "core_map", "mpmd_map"})
_LOOPS = frozenset({"scan", "while"})


def name_of(equation: Any) -> str:
    """The name of its primitive."""
    return str(equation.primitive.name)


def nested(value: Any) -> Iterator[Any]:
    """The jaxprs in one parameter of an equation."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, ClosedJaxpr):
            yield item.jaxpr
        elif isinstance(item, Jaxpr):
            yield item


def equations(jaxpr: Any, *, looped: bool = False) -> Iterator[tuple[Any, bool]]:
    """Every equation at any depth, and whether it lies in a loop."""
    for equation in jaxpr.eqns:
        yield equation, looped
        for value in equation.params.values():
            for inner in nested(value):
                yield from equations(inner, looped=looped or name_of(equation) in _LOOPS)


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many of a scan's operands are constants, and how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carried, _ = params["ft_in"].unpack()  # since JAX 0.12
    return len(consts), len(carried)


_EXACT_ON_INTEGERS = frozenset(
    """add sub neg mul dot_general max min abs sign floor ceil round clamp select_n reduce_sum reduce_max reduce_min
    cumsum cummax cummin convert_element_type broadcast_in_dim reshape squeeze expand_dims transpose rev concatenate
    slice dynamic_slice dynamic_update_slice gather scatter scatter_add pad copy copy_p iota stop_gradient
    get swap addupdate masked_load masked_swap load store atomic_rmw full_like device_put optimization_barrier
    jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vmap_call cond scan while run_scoped
    run_state pallas_call core_map mpmd_map""".split()
)
_NARROW_IN_MEMORY = frozenset("get load masked_load swap store masked_swap jit pjit".split()) | ENTRIES
_MULTIPLIES = frozenset({"mul", "dot_general"})
_ARITHMETIC = frozenset({"add", "sub", "mul"})


def is_exact(jaxpr: Any) -> bool:
    """Whether it is exact, in any order, on small integers: sums, moves and at most one multiplication of floats."""
    multiplications = 0
    for equation, looped in equations(jaxpr):
        if not any(_holds_floats(v.aval) for v in equation.outvars):
            continue
        if name_of(equation) not in _EXACT_ON_INTEGERS:
            return False
        if name_of(equation) in _ARITHMETIC and any(map(_is_rounded, equation.invars)):
            return False
        if name_of(equation) in _MULTIPLIES:
            # A product in a loop may be multiplied again by the next turn; a dot only feeds a sum.
            multiplications += 2 if looped and name_of(equation) == "mul" else 1
    return multiplications <= 1


def _is_rounded(operand: Any) -> bool:
    """Whether it is a constant such as 0.1, of which the kernel has a rounded one and the oracle another."""
    if not isinstance(operand, Literal) or not _holds_floats(operand.aval):
        return False
    value = np.asarray(operand.val)[()]
    return float(str(value)) != float(value)


def _holds_floats(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    try:
        return dtype is not None and is_float(np.dtype(dtype))
    except TypeError:
        return False  # a key, a semaphore or a barrier


_MOVES = frozenset(
    """broadcast_in_dim reshape squeeze expand_dims transpose rev concatenate split slice dynamic_slice
    dynamic_update_slice gather scatter pad select_n copy copy_p iota stop_gradient full_like device_put
    optimization_barrier""".split()
)


def computes_around(jaxpr: Any) -> bool:
    """Whether anything is computed of floats outside of its Pallas calls, where moving them does not count."""
    for equation in jaxpr.eqns:
        inner = [each for value in equation.params.values() for each in nested(value)]
        if name_of(equation) in ENTRIES or name_of(equation) in _MOVES:
            continue
        if any(map(computes_around, inner)):
            return True
        if not inner and any(_holds_floats(v.aval) for v in equation.invars):
            return True
    return False


def has_reduced_dots(jaxpr: Any) -> bool:
    """Whether a float32 matrix product in it leaves its precision to the backend."""
    return any(_is_reduced_dot(equation) for equation, _ in equations(jaxpr))


def _is_reduced_dot(equation: Any) -> bool:
    if name_of(equation) != "dot_general" or equation.invars[0].aval.dtype != np.float32:
        return False
    asked = str(equation.params.get("precision"))
    return not ("HIGHEST" in asked or asked.endswith("F32_F32_F32"))


def named_dots(jaxpr: Any) -> str:
    """The dtype that a float32 matrix product in it names for its operands, where that is narrower than TF32; or ""."""
    asked = (str(equation.params.get("precision")) for equation, _ in equations(jaxpr) if _is_reduced_dot(equation))
    return "bfloat16" if any("BF16" in each for each in asked) else ""


def lowered_otherwise(jaxpr: Any) -> tuple[str, ...]:
    """What of a kernel may come out otherwise on a GPU than in interpret mode, without any rounding that is wrong.

    Formats narrower than float32, by name, in which it computes: XLA's CPU may keep float32 for them. `TF32`, where a
    product leaves its precision open. `maximum`, whose lowering to Triton drops NaN.
    """
    found: dict[str, None] = {}
    for equation, _ in equations(jaxpr):
        if name_of(equation) in _NARROW_IN_MEMORY:
            continue
        for variable in equation.outvars:
            if _holds_floats(variable.aval) and (dtype := np.dtype(variable.aval.dtype)).itemsize < 4:
                found.setdefault(dtype.name)
        if _is_reduced_dot(equation):
            found.setdefault("TF32")
        if name_of(equation) in ("max", "reduce_max", "min", "reduce_min"):
            found.setdefault("maximum")
    return tuple(found)
