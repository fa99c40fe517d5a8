"""Grid axes with one program and loops with one step, of which a case shows neither order nor carried state."""

import functools
from collections.abc import Iterator

from kerneltest.trace.jax_compat.jaxprs import open_jaxpr
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.rewrite import is_plain_call
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.walk import equations_in, primitive_name


@functools.lru_cache(maxsize=16)  # the cases of a signature follow one another
def single_steps(traced: Traced, longest: int) -> tuple[str, ...]:
    """Returns in words each loop that runs once, and each axis by which index maps choose blocks of several elements.

    Lengths past that block, which belongs to the words, would have more programs. A block shorter than `longest`, which
    every dim reaches in some case, is left out: it spans an axis that is no dim.
    """
    calls = (call for call in traced.calls if is_plain_call(call.equation))
    return tuple(dict.fromkeys(words for call in calls for words in (*_axes(call, longest), *_loops(call))))


def _axes(call: Call, longest: int) -> Iterator[str]:
    place = line_of(call.equation.source_info)
    for axis in (axis for axis, programs in enumerate(call.grid) if programs == 1):
        for mapping in call.equation.params["grid_mapping"].block_mappings:
            index_map = open_jaxpr(mapping.index_map_jaxpr)
            for index, block in zip(index_map.outvars, mapping.block_shape, strict=False):
                size = getattr(block, "block_size", 0)
                if index is index_map.invars[axis] and size > 1 and size >= longest:
                    longer = f"lengths past its block would have more, as in dims=dict(n=kt.dim(block={size}))"
                    yield f"axis {axis} of the grid at {place} has one program in every case; {longer}"


def _loops(call: Call) -> Iterator[str]:
    steps: dict[str, int] = {}  # of a line, which a kernel may reach by several calls
    for equation, _ in equations_in(call.equation):
        if primitive_name(equation) == "scan":
            place = line_of(equation.source_info)
            steps[place] = max(equation.params["length"], steps.get(place, 0))
    for place in (place for place, most in steps.items() if most == 1):
        yield f"the loop at {place} has one step in every case; plan longer lengths if these determine its steps"
