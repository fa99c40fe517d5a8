"""What of a jaxpr runs whatever its values are: neither in a branch, nor in a loop that may not turn."""

from collections.abc import Iterator, Mapping
from typing import Any

from kerneltest.trace.walk import name_of, nested, scan_counts

_CALLS = frozenset(
    """jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vmap_call checkpoint remat2""".split()
)


def certain(jaxpr: Any, known: Mapping[Any, int]) -> Iterator[tuple[Any, list[int | None]]]:
    """Every equation that runs in any case, at any depth, each with what is known of its operands.

    Args:
      jaxpr: an open one.
      known: numbers of some of its variables.

    Yields:
      An equation, and for each operand the number of the variable that it is, or None for any other.
    """
    for equation in jaxpr.eqns:
        operands = [None if hasattr(v, "val") else known.get(v) for v in equation.invars]
        yield equation, operands
        name = name_of(equation)
        inner = next((each for value in equation.params.values() for each in nested(value)), None)
        if inner is None:
            continue
        if name in _CALLS and len(inner.invars) == len(operands):
            yield from certain(inner, _numbered(inner.invars, operands))
        elif name == "run_scoped":
            yield from certain(inner, _numbered(inner.constvars, operands))
        elif name == "scan" and equation.params["length"] > 0:
            consts, _ = scan_counts(equation.params)  # what is carried may be another value in the next turn
            yield from certain(inner, _numbered(inner.invars[:consts], operands[:consts]))


def _numbered(variables: Any, numbers: list[int | None]) -> dict[Any, int]:
    return {v: number for v, number in zip(variables, numbers, strict=True) if number is not None}
