"""The cases of a pairing in one dtype on one backend, with what all mutants of its kernel share."""

from dataclasses import dataclass, field

from kerneltest.backends.base import Backend
from kerneltest.core.dtypes import is_float, parse_dtype
from kerneltest.core.group_names import GroupName
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.extensions.mutation.differences import SignatureCases
from kerneltest.extensions.mutation.mutant_tracer import LocatedTraces
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature

VALUES = frozenset({GroupName.STRUCTURAL, GroupName.NUMERIC, GroupName.SPECIAL, GroupName.MASKS})


@dataclass(slots=True)
class KernelCases:
    """The cases of a pairing in one dtype on one backend, with what its mutants share.

    Attributes:
      dtype, backend: the dtype and the backend of the cases.
      traces: the kernel's traces.
      cache: a cache with the oracle's results.
      reads_indices: whether an argument holds integers or booleans, on which the addresses of accesses may depend.
      values: the cases of each signature that compare values of the kernel as it is called.
      others: all other cases, mainly those of invariants.
      known: the group and id of the cases with findings in the unchanged kernel.
    """

    dtype: str
    backend: Backend
    traces: LocatedTraces
    cache: Cache
    reads_indices: bool
    values: dict[Signature, SignatureCases] = field(default_factory=dict)
    others: list[tuple[Item, AnyCase]] = field(default_factory=list)
    known: set[tuple[str, str]] = field(default_factory=set)


def reads_indices(pairing: Pairing) -> bool:
    """Returns whether an argument holds integers or booleans, on which the addresses of accesses may depend."""
    return any(not is_float(parse_dtype(dtype)) for leaf in pairing.leaves.values() for dtype in leaf.dtypes)
