"""An experiment: a family of values on both sides of the constants in a kernel's jaxpr, as fuzzers choose values.

`python -m benchmarks.families --constants` uses it. The README of this folder says what is known of it.
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

import kerneltest as kt
from kerneltest.core.dtypes import is_float
from kerneltest.core.failures import Failure
from kerneltest.plan.signatures import signatures
from kerneltest.trace.jax_compat.jaxpr_types import Equation, Literal
from kerneltest.trace.tracing import trace
from kerneltest.trace.walk import iter_equations, primitive_name

NAME = "around_constants"
_COMPARE = frozenset("lt le gt ge eq ne max min clamp rem".split())
_near: list[float] = []  # what the family fills in, for the pairing that is checked


def constants(pairing: kt.Pairing) -> frozenset[float]:
    """Returns the numbers with which a kernel compares floats, and the limits of narrower types to which it casts."""
    try:
        jaxpr = trace(pairing, signatures(pairing, "quick")[0]).jaxpr
    except Failure:
        return frozenset()
    found = {abs(number) for equation, _ in iter_equations(jaxpr) for number in _constants_of(equation)}
    return frozenset(number for number in found if 2.0**-20 < number < 2.0**60)


def _constants_of(equation: Equation) -> Iterator[float]:
    name = primitive_name(equation)
    if name in _COMPARE:
        yield from (float(each.val) for each in equation.invars if isinstance(each, Literal) and np.ndim(each.val) == 0)
    if name == "convert_element_type":
        made, taken = np.dtype(equation.params["new_dtype"]), np.dtype(equation.invars[0].aval.dtype)
        if is_float(taken) and made.itemsize < taken.itemsize and made != np.bool_:
            yield float((ml_dtypes.finfo if is_float(made) else ml_dtypes.iinfo)(made).max)


def _around(number: float) -> Iterator[float]:
    """Yields values on both sides, and the number itself if every dtype holds it."""
    if float(ml_dtypes.bfloat16(number)) == number:
        yield from (number, float(np.nextafter(np.float32(number), np.float32(0))))
        yield float(np.nextafter(np.float32(number), np.float32(np.inf)))
    yield from (number * (1 - 2.0**-6), number * (1 + 2.0**-6))


def use_constants_of(pairing: kt.Pairing) -> None:
    """Lets the family fill in values around the constants of a pairing's kernel."""
    _near[:] = sorted({near for number in constants(pairing) for near in _around(number)})


def _in_domain(slot: kt.Slot) -> list[float]:
    low, high = slot.domain.finite_range(slot.dtype)
    return [sign * near for near in _near for sign in (1, -1) if low <= sign * near <= high]


def _applies(slot: kt.Slot) -> bool:
    return slot.is_float_data and slot.size > 0 and bool(_in_domain(slot))


@kt.family(group="numeric", each=True, name=NAME, applies=_applies)
def around_constants(slot: kt.Slot, rng: np.random.Generator) -> np.ndarray:
    """Values on both sides of the constants with which the kernel compares."""
    near = rng.choice(_in_domain(slot), slot.shape)
    return slot.cast(np.where(rng.random(slot.shape) < 0.5, near, rng.standard_normal(slot.shape)))
