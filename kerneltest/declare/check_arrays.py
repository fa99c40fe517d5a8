"""What is wrong with the arrays of a pairing: their dtypes, domains, fills and axes."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ml_dtypes import iinfo

from kerneltest.core.dtypes import DtypeError, dtype_named, is_float, is_integer
from kerneltest.declare.arguments import ALONG_AN_AXIS, COUNTING, ArrayArgument
from kerneltest.declare.axes import all_names, length_of, names_in
from kerneltest.declare.pairing import Pairing

Wrong = Callable[[str, str], Exception]  # from what and what is wrong with it to what is raised


def check_leaves(pairing: Pairing, wrong: Wrong) -> None:
    """That dtypes, domains and fills go together."""
    for path, leaf in pairing.leaves.items():
        if not leaf.dtypes or not all(leaf.on.values()):
            raise wrong(f"argument {path!r}", "name at least one dtype")
        for pattern, names in {"": leaf.dtypes, **leaf.on}.items():
            _check_dtypes(f"argument {path!r}" + f", on={pattern!r}" * bool(pattern), leaf, names, wrong)
        if leaf.role == "mask":
            _check_fills(path, leaf, wrong)
        if leaf.role == "mask" and not any(pairing.dims[name].block for name in all_names(leaf.shape)):
            axes = " ".join(map(str, leaf.shape))
            raise wrong(f"mask {path!r}", f"none of its dims ({axes}) has a block, so there is no whole block to mask; "
                        "declare one, as in dims=dict(n=kt.dim(block=64))")  # fmt: skip


def _check_dtypes(place: str, leaf: ArrayArgument, names: Sequence[str], wrong: Wrong) -> None:
    known: dict[np.dtype[Any], str] = {}
    for each in names:
        try:
            dtype = dtype_named(each)
        except DtypeError as error:
            raise wrong(place, f"{error}; remove it from the dtypes") from error
        if dtype in known:
            twice = each if known[dtype] == each else f"{dtype.name}, as {known[dtype]!r} and {each!r},"
            raise wrong(place, f"its dtypes name {twice} twice; remove one")
        known[dtype] = each
        if leaf.role in COUNTING and not is_integer(dtype):
            raise wrong(place, f"it counts, so its dtype is an integer such as 'int32', not {each!r}")
        if dtype.itemsize == 8 and not _keeps_64_bits():
            raise wrong(place, f"{each} would reach the kernel as 32 bits, since JAX's 64-bit mode is off; set "
                        "JAX_ENABLE_X64=1 or remove it from the dtypes")  # fmt: skip
        domain = leaf.interval(each)
        if is_integer(dtype):
            least, most = int(iinfo(dtype).min), int(iinfo(dtype).max)
            if any(math.isfinite(end) and not least <= end <= most for end in (domain.low, domain.high)):
                raise wrong(place, f"its domain {domain} reaches past {each}, which goes from {least} to {most}")
        low, high = domain.ends(dtype)
        if low > high:
            raise wrong(place, f"its domain {domain} holds no number of {each}")


def _check_fills(path: str, leaf: ArrayArgument, wrong: Wrong) -> None:
    """That each dtype tells what a mask hides from what it shows."""
    for each in dict.fromkeys([*leaf.dtypes, *(name for names in leaf.on.values() for name in names)]):
        dtype = dtype_named(each)
        if is_float(dtype):
            kept = [float(np.asarray(fill).astype(dtype)) for fill in leaf.fills]
            right = kept[0] != kept[1] and not any(math.isnan(fill) for fill in leaf.fills)
        else:
            least, most = (0, 1) if dtype == np.bool_ else (int(iinfo(dtype).min), int(iinfo(dtype).max))
            right = all(least <= fill <= most and fill == int(fill) for fill in leaf.fills)
        if not right or leaf.fills[0] == leaf.fills[1]:
            hidden, shown = leaf.fills
            raise wrong(f"mask {path!r}", f"{each} does not hold hidden={hidden:g} and shown={shown:g} apart; give the "
                        "mask a dtype that does, as in kt.mask('m n', 'float32', hidden=..., shown=...)")  # fmt: skip


def check_axes(pairing: Pairing, wrong: Wrong) -> None:
    """That no axis can be negative, and that there is one where values hang together along it."""
    least = {
        name: min(min(each.values) if each.values else each.fit(each.minimum) for each in (dim, *dim.on.values()))
        for name, dim in pairing.dims.items()
    }
    for path, leaf in pairing.leaves.items():
        for axis in leaf.axes:
            if length_of(axis, least) < 0:
                dim = names_in(axis)[0]
                raise wrong(f"argument {path!r}", f"{axis} is negative where {dim} is {least[dim]}; give the dim a "
                            "minimum")  # fmt: skip
        if leaf.role in ALONG_AN_AXIS and not leaf.shape:
            raise wrong(f"argument {path!r}", "it needs an axis along which its values hang together, as in 'n'")


def _keeps_64_bits() -> bool:
    """Whether JAX keeps 64-bit values; the kernel's own import has loaded JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.config.jax_enable_x64)
