"""Source lines at which a kernel reads and writes, for tools that report an access without its line."""

import re
from collections.abc import Iterator

from kerneltest.trace.jax_compat.jaxpr_types import Equation, Jaxpr
from kerneltest.trace.jax_compat.source_lines import line_of_function, line_of_nested
from kerneltest.trace.tracing import Call
from kerneltest.trace.walk import nested_jaxprs, primitive_name

_READS = frozenset(
    "get load masked_load copy_gmem_to_smem async_copy_gmem_to_smem atomic_rmw atomic_cas addupdate async_load".split()
)
_WRITES = frozenset(
    """swap store masked_swap masked_store copy_smem_to_gmem async_copy_smem_to_gmem atomic_rmw atomic_cas addupdate
    async_store""".split()
)


def device_name(name: str) -> str:
    """A kernel's name as the device's tools show it."""
    return re.sub(r"[^\w.-]", "_", name)


def definition_line(call: Call) -> str:
    """`FILE:LINE` at which a kernel is defined, or ""."""
    return next(filter(None, map(line_of_function, _bodies(call))), "")


def access_lines(call: Call, access: str) -> tuple[str, ...]:
    """`FILE:LINE` of each access of a kernel, in program order and without duplicates.

    Args:
      call: the kernel's.
      access: `read` or `write`.
    """
    primitives = {"read": _READS, "write": _WRITES}.get(access, frozenset())
    found = (line for body in _bodies(call) for line in _lines(body, primitives, []))
    return tuple(dict.fromkeys(filter(None, found)))


def _bodies(call: Call) -> list[Jaxpr]:
    return [body for value in call.equation.params.values() for body in nested_jaxprs(value)]


def _lines(jaxpr: Jaxpr, primitives: frozenset[str], enclosing: list[Equation]) -> Iterator[str]:
    for equation in jaxpr.eqns:
        path = [*enclosing, equation]
        if primitive_name(equation) in primitives:
            yield line_of_nested(path)
        for value in equation.params.values():
            for inner in nested_jaxprs(value):
                yield from _lines(inner, primitives, path)
