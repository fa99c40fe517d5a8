"""The Pallas language that a call is written in, and the evidence for it."""

from collections.abc import Iterator

from kerneltest.trace.jax_compat.dialects import dialect_of, dialect_of_operation
from kerneltest.trace.jax_compat.jaxpr_types import Equation
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.walk import iter_equations, nested_jaxprs, primitive_name

DIALECT_MODULES = {"triton": "pallas.triton", "mosaic_gpu": "pallas.mosaic_gpu", "mosaic_tpu": "pallas.tpu"}


def language_of(equation: Equation) -> tuple[str, str]:
    """Determines the language of a Pallas call.

    Parameters decide first, then prefetched scalars, the memory of blocks and scratch, and operations.

    Returns:
      The language and the evidence in words; `any` and "" if nothing in the call is particular to one language.
    """
    return next(_evidence(equation), ("any", ""))


def _evidence(equation: Equation) -> Iterator[tuple[str, str]]:
    """Yields the languages that parts of a call belong to, each with that part in words."""
    for name, value in equation.params.items():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if dialect := dialect_of(item):
                yield dialect, f"{name} is {DIALECT_MODULES[dialect]}.{type(item).__name__}"
    if count := getattr(equation.params.get("grid_mapping"), "num_index_operands", 0):
        yield "mosaic_tpu", f"{count} scalar argument{'s are' if count > 1 else ' is'} prefetched"
    bodies = [body for value in equation.params.values() for body in nested_jaxprs(value)]
    for body in bodies:
        names = list(getattr(body.debug_info, "arg_names", None) or ())
        for number, variable in enumerate(body.invars):
            space = getattr(variable.aval, "memory_space", None)
            if dialect := dialect_of(space):
                name = names[number] if len(names) == len(body.invars) else ""
                yield dialect, f"{name or f'argument {number}'} is in {DIALECT_MODULES[dialect]}.{space!r}"
    for body in bodies:
        for inner, _ in iter_equations(body):
            if dialect := dialect_of_operation(inner):
                line = line_of(inner.source_info)
                place = f" ({line})" if line else ""
                yield (
                    dialect,
                    f"{primitive_name(inner)} is from {DIALECT_MODULES[dialect]}{place}",
                )
