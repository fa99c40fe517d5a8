"""The array arguments of a signature: a slot for each that a family fills, and the values of those that follow."""

import functools
import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from kerneltest.core.dtypes import Array, parse_dtype
from kerneltest.core.failures import DeclarationError
from kerneltest.declare.axis_expressions import Axis, AxisExpression, dims_in, length_of
from kerneltest.declare.kinds.base import Slot as Slot
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature


def build_slots(pairing: Pairing, signature: Signature, limit: Callable[[], int]) -> dict[str, Slot]:
    """Returns a slot for each array argument that is not absent, by path.

    Args:
      pairing: the declaration of the arguments.
      signature: their lengths and dtypes.
      limit: computes `Slot.exact_limit`.
    """
    lengths, dtypes = dict(signature.dims), dict(signature.dtypes)

    def block(axis: Axis) -> int | None:
        dims = dims_in(axis)  # the innermost dim, whose elements are contiguous, determines the block
        return pairing.dims[dims[-1]].block if dims else None

    found = {}
    for order, (path, leaf) in enumerate(pairing.leaves.items()):
        if path in dtypes:
            end = length_of(leaf.bound, lengths)
            found[path] = Slot(
                role=leaf.role,
                shape=signature.shape(leaf),
                dtype=parse_dtype(dtypes[path]),
                blocks=tuple(map(block, leaf.shape)),
                domain=leaf.interval(dtypes[path]),
                order=order,
                end=end,
                limit=limit,
                exhaustive=leaf.exhaustive,
                globally_unique=leaf.globally_unique,
                mask_values=leaf.mask_values,
                end_block=block(leaf.bound) or end,
                sentinel=leaf.sentinel,
                structure=leaf.structure,
            )
    return found


@functools.lru_cache(maxsize=256)
def last_blocks(pairing: Pairing) -> Mapping[str, int]:
    """Returns the block length along the last axis, in elements, of array arguments that have one, by path.

    An axis `32*b` or `b*32` has blocks of 32.
    """
    found = {}
    for path, leaf in pairing.leaves.items():
        last = leaf.shape[-1] if leaf.shape else None
        if isinstance(last, AxisExpression):
            numbers = [factor for term in last.terms for factor in term if isinstance(factor, int)]
            length = numbers[0] if len(last.terms) == len(numbers) == 1 and not last.extra else None
        else:
            length = pairing.dims[last].block if isinstance(last, str) else None
        if length:
            found[path] = length
    return found


@functools.lru_cache(maxsize=256)
def data_paths(pairing: Pairing) -> frozenset[str]:
    """Returns the paths of the arguments that are data: they do not point, count or mask."""
    return frozenset(path for path, leaf in pairing.leaves.items() if leaf.kind.is_data)


def fill_derived(pairing: Pairing, signature: Signature, values: Mapping[str, Array]) -> dict[str, Array]:
    """Returns all array arguments by path, with those that follow from others computed from these.

    Args:
      pairing: the declaration of the arguments.
      signature: their lengths, dtypes and static arguments.
      values: the arguments, by path. Values of arguments that follow from others are ignored.

    Raises:
      ValueError: a derived argument does not have the declared shape.
    """
    known = {**pairing.option_values(dict(signature.statics)), **dict(signature.dims)}
    complete = dict(values)
    for path, leaf in signature.leaves(pairing).items():
        if leaf.derivation is None:
            continue
        arrays = {name: values.get(name) for name in leaf.derivation.parameters if name in pairing.leaves}
        taken = {name: known[name] for name in leaf.derivation.parameters if name in known} | arrays
        if "rng" in leaf.derivation.parameters:
            digest = hashlib.sha256(path.encode())
            for each in arrays.values():
                digest.update(b"|" if each is None else np.ascontiguousarray(each).tobytes())
            taken["rng"] = np.random.Generator(np.random.PCG64(int.from_bytes(digest.digest()[:8], "big")))
        value = np.asarray(leaf.derivation.function(**taken))
        if value.shape != (shape := signature.shape(leaf)):
            raise DeclarationError(f"{path!r} is declared with shape {shape}, but its function returned {value.shape}")
        complete[path] = value.astype(parse_dtype(dict(signature.dtypes)[path]))
    return complete
