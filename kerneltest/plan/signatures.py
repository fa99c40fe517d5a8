"""Signatures: which lengths, dtypes and static arguments a pairing is tried with."""

import functools
from dataclasses import dataclass
from typing import Any

from kerneltest.declare.arguments import ArrayArgument, Static
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.covering import covering
from kerneltest.plan.lengths import boundary_lengths


@dataclass(frozen=True, slots=True)
class Signature:
    """One choice of all lengths, dtypes and static arguments: the unit of compilation.

    Attributes:
      dims: length of each dim.
      dtypes: dtype of each leaf, by path.
      statics: the chosen option of each static argument, by name.
      dtype: the dtype that stands for the signature in ids.
    """

    dims: tuple[tuple[str, int], ...]
    dtypes: tuple[tuple[str, str], ...]
    statics: tuple[tuple[str, str], ...]
    dtype: str

    def __str__(self) -> str:
        """The dims, the dtype (each leaf's, where they differ) and the static arguments: `m=64,float32,mode=one`."""
        mixed = {name for _, name in self.dtypes if name != self.dtype} - {"bool", "int32"}
        dtypes = [f"{path}:{name}" for path, name in self.dtypes] if mixed else [self.dtype]
        return ",".join([*(f"{k}={v}" for k, v in self.dims), *dtypes, *(f"{k}={v}" for k, v in self.statics)])

    def shape(self, leaf: ArrayArgument) -> tuple[int, ...]:
        """The lengths of an array argument."""
        lengths = dict(self.dims)
        return tuple(axis if isinstance(axis, int) else lengths[axis] for axis in leaf.shape)


@functools.lru_cache(maxsize=256)
def signatures(pairing: Pairing, depth: str) -> tuple[Signature, ...]:
    """A covering array over dims, dtypes and static arguments: every pair of values occurs (every triple if deep)."""
    groups = list(dict.fromkeys(leaf.dtypes for leaf in pairing.leaves.values() if leaf.role == "data"))
    groups.sort(key=len, reverse=True)  # the widest choice is the dtype of ids; the sort keeps the rest in order
    factors: dict[str, tuple[Any, ...]] = {f"dtype {i}": group for i, group in enumerate(groups)}
    factors |= {f"dim {name}": boundary_lengths(axis, depth) for name, axis in pairing.dims.items()}
    factors |= {
        f"static {name}": tuple(option for option, _ in argument.options)
        for name, argument in pairing.arguments.items()
        if isinstance(argument, Static)
    }
    planned = []
    for row in covering(list(factors.values()), 3 if depth == "deep" else 2):
        chosen = dict(zip(factors, row, strict=True))
        dtypes = {group: chosen[f"dtype {i}"] for i, group in enumerate(groups)}
        planned.append(
            Signature(
                dims=tuple((name, chosen[f"dim {name}"]) for name in pairing.dims),
                dtypes=tuple((path, dtypes.get(leaf.dtypes, leaf.dtypes[0])) for path, leaf in pairing.leaves.items()),
                statics=tuple((key[7:], value) for key, value in chosen.items() if key.startswith("static ")),
                dtype=chosen["dtype 0"] if groups else "static",
            )
        )
    return tuple(dict.fromkeys(planned))  # balancing may make two rows alike


def dtypes_of(pairing: Pairing, depth: str) -> tuple[str, ...]:
    """The dtypes of a pairing's ids, in the order of their declaration."""
    declared = max((a.dtypes for a in pairing.leaves.values() if a.role == "data"), key=len, default=("static",))
    present = {signature.dtype for signature in signatures(pairing, depth)}
    return tuple(name for name in declared if name in present)
