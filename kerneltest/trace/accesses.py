"""Where a kernel reads and writes: the lines of its source, for what tells of an access but not of its line."""

import re
from collections.abc import Iterator
from typing import Any

from kerneltest.trace.jax_compat.names import line_of_function, line_of_nested
from kerneltest.trace.tracing import Call
from kerneltest.trace.walk import name_of, nested

_READS = frozenset(
    "get load masked_load copy_gmem_to_smem async_copy_gmem_to_smem atomic_rmw atomic_cas addupdate async_load".split()
)
_WRITES = frozenset(
    """swap store masked_swap masked_store copy_smem_to_gmem async_copy_smem_to_gmem atomic_rmw atomic_cas addupdate
    async_store""".split()
)


def on_device(name: str) -> str:
    """A kernel's name as the device has it."""
    return re.sub(r"[^\w.-]", "_", name)


def defined_at(call: Call) -> str:
    """`FILE:LINE` of a kernel, or ""."""
    return next(filter(None, map(line_of_function, _bodies(call))), "")


def lines_of(call: Call, access: str) -> tuple[str, ...]:
    """`FILE:LINE` of each place at which a kernel does what `access` says, `read` or `write`, in its order."""
    wanted = {"read": _READS, "write": _WRITES}.get(access, frozenset())
    found = (line for body in _bodies(call) for line in _lines(body, wanted, []))
    return tuple(dict.fromkeys(filter(None, found)))


def _bodies(call: Call) -> list[Any]:
    return [body for value in call.equation.params.values() for body in nested(value)]


def _lines(jaxpr: Any, wanted: frozenset[str], around: list[Any]) -> Iterator[str]:
    for equation in jaxpr.eqns:
        path = [*around, equation]
        if name_of(equation) in wanted:
            yield line_of_nested(path)
        for value in equation.params.values():
            for inner in nested(value):
                yield from _lines(inner, wanted, path)
