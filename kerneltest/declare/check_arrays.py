"""Checks of a pairing's arrays: their dtypes, domains and axes, and the rules of their kinds."""

import math
import sys
from collections.abc import Sequence

from ml_dtypes import iinfo

from kerneltest.core.dtypes import is_integer, parse_dtype
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.axis_expressions import dims_in, length_of
from kerneltest.declare.domains import DType
from kerneltest.declare.pairing import Pairing
from kerneltest.declare.problems import Problems


def check_leaves(pairing: Pairing) -> Problems:
    """Checks that dtypes and domains go together, and what the kind of each array requires."""
    for path, leaf in pairing.leaves.items():
        problems = [
            problem
            for pattern, names in {"": leaf.dtypes, **leaf.on}.items()
            for problem in _check_dtypes(f"argument {path!r}" + f", on={pattern!r}" * bool(pattern), leaf, names)
        ]
        yield from problems
        if not problems and (mistake := leaf.kind.find_mistake(leaf)):
            yield f"argument {path!r}", mistake


def _check_dtypes(place: str, leaf: ArrayArgument, names: Sequence[str]) -> Problems:
    known: dict[DType, str] = {}
    for each in names:
        dtype = parse_dtype(each)
        if dtype in known:
            twice = each if known[dtype] == each else f"{dtype.name}, as {known[dtype]!r} and {each!r},"
            yield place, f"its dtypes name {twice} twice; remove one"
            continue
        known[dtype] = each
        if leaf.kind.counts and not is_integer(dtype):
            yield place, f"it counts, so its dtype is an integer such as 'int32', not {each!r}"
            continue
        if dtype.itemsize == 8 and not _keeps_64_bits():
            yield (
                place,
                f"{each} would reach the kernel as 32 bits, since JAX's 64-bit mode is off; set "
                "JAX_ENABLE_X64=1 or remove it from the dtypes",
            )
        domain = leaf.interval(each)
        if is_integer(dtype):
            least, most = int(iinfo(dtype).min), int(iinfo(dtype).max)
            if any(math.isfinite(end) and not least <= end <= most for end in (domain.low, domain.high)):
                yield place, f"its domain {domain} reaches past {each}, which goes from {least} to {most}"
                continue
        low, high = domain.ends(dtype)
        if low > high:
            yield place, f"its domain {domain} holds no number of {each}"


def check_axes(pairing: Pairing) -> Problems:
    """Checks that no axis can be negative, and that arrays with dependent values have an axis."""
    least = {
        name: min(min(each.values) if each.values else each.fit(each.minimum) for each in (dim, *dim.on.values()))
        for name, dim in pairing.dims.items()
    }
    for path, leaf in pairing.leaves.items():
        for axis in leaf.axes:
            if length_of(axis, least) < 0:
                dim = dims_in(axis)[0]
                yield (f"argument {path!r}", f"{axis} is negative where {dim} is {least[dim]}; give the dim a minimum")
        if leaf.kind.along_last_axis and not leaf.shape:
            yield (f"argument {path!r}", "it needs an axis for its values to depend on each other along, such as 'n'")


def _keeps_64_bits() -> bool:
    """Returns whether JAX keeps 64-bit values. Importing the kernel has imported JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.config.jax_enable_x64)
