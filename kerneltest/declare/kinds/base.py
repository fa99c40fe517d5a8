"""The table of kinds of array arguments, and the two descriptions of an argument that they are asked about.

A kind (`mask`, `index`, `partition`, ...) is one module of this package: the function that declares it, and a subclass
of `ArgumentKind`, which `register` puts into `KINDS`. Other code asks the kind of an argument and never compares names.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import (
    DTYPE_NAMES,
    Array,
    DtypeError,
    UnknownDtypeError,
    cast,
    is_float,
    is_integer,
    parse_dtype,
)
from kerneltest.core.extension_registry import ABBREVIATED, suggest
from kerneltest.core.failures import DeclarationError
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.dims import Axis, Derivation, parse_axis
from kerneltest.declare.domains import EVERYTHING, Domain, DType, Interval, parse_domain

Rng = np.random.Generator
XpArray = Any  # an array of NumPy, or of a namespace that is compatible with it
Namespace = Any  # NumPy, or such a namespace


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """The declaration of an array argument, or of one leaf of a pytree."""

    shape: tuple[Axis, ...]  # its axes, outermost first
    dtypes: tuple[str, ...]  # that it may have; arguments that declare the same several dtypes change together
    role: str = "data"  # the name of its kind
    domain: Domain = EVERYTHING  # the values that data may have, for all dtypes or by dtype
    bounded_by: Axis | None = None  # that an index points into, a length counts or a partition divides
    exhaustive: bool = False  # whether the parts of a partition add up to all of `bounded_by`, and offsets end there
    mask_values: tuple[float, float] = (0, 1)  # of a masked element and of a visible one
    derivation: Derivation | None = None  # how it follows from other arguments
    sentinel: int | None = None  # an integer that stands for no index
    least: int = 0  # the least position or count
    structure: Callable[[Array], Array] | None = None  # from an array (float64) to the nearest one that is admitted
    on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # dtypes on some backends, by pattern
    problem: str = ""  # a mistake in the declaration

    @property
    def kind(self) -> "ArgumentKind":
        """The kind of argument it is."""
        return KINDS[self.role]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of its shape, and the one that bounds its values."""
        return self.shape if self.bounded_by is None else (*self.shape, self.bounded_by)

    @property
    def bound(self) -> Axis:
        """The axis that bounds its values: `bounded_by`, or else its own last axis; 0 without axes."""
        return self.bounded_by if self.bounded_by is not None else self.shape[-1] if self.shape else 0

    @property
    def globally_unique(self) -> bool:
        """True if all values of the array differ, rather than those of each row."""
        return self.kind.distinct and self.bounded_by is not None

    def interval(self, dtype: str) -> Interval:
        """Returns its domain in a dtype."""
        return self.domain if isinstance(self.domain, Interval) else self.domain[dtype]


@dataclass(frozen=True, slots=True)
class Slot:
    """One array argument of one signature, as a family sees it that fills it with values.

    Attributes:
      role: the name of its kind: `data`, `mask`, `index`, `length`, `partition`, ...
      shape: its lengths in elements, outermost first.
      dtype: of its values.
      blocks: the kernel's block length along each axis, in elements, or None.
      domain: the values that data may have.
      order: its position among the array arguments.
      end: the length of the axis that an index points into, a length counts or a partition divides.
      limit: computes `exact_limit`, for which it evaluates the oracle once a signature.
      globally_unique: all indices of a permutation differ, rather than those of each row.
      end_block: the kernel's block length along the axis whose length is `end`, in elements, or all of it.
      owner: the pairing and the signature whose argument it is; None in a slot that stands alone.
      exhaustive, mask_values, sentinel, least, structure: as in `ArrayArgument`.
    """

    role: str
    shape: tuple[int, ...]
    dtype: DType
    blocks: tuple[int | None, ...]
    domain: Interval
    order: int
    end: int
    limit: Callable[[], int]
    exhaustive: bool = False
    globally_unique: bool = False
    mask_values: tuple[float, float] = (0, 1)
    end_block: int = 1
    sentinel: int | None = None
    least: int = 0
    structure: Callable[[Array], Array] | None = None
    owner: tuple[Any, Any] | None = None

    @property
    def kind(self) -> "ArgumentKind":
        """The kind of argument it is."""
        return KINDS[self.role]

    @property
    def exact_limit(self) -> int:
        """The largest integer such that products of pairs and their sums need no rounding."""
        return self.limit()

    @property
    def is_float_data(self) -> bool:
        """True if it holds data of a floating dtype."""
        return self.kind.is_data and is_float(self.dtype)

    @property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @property
    def block(self) -> int:
        """The block length along the last axis, or all of its length; 1 without axes."""
        return (self.blocks[-1] or max(self.shape[-1], 1)) if self.shape else 1

    def cast(self, values: Array) -> Array:
        """Returns `values` moved into the domain, in the slot's dtype, as `Interval.cast` does."""
        return self.domain.cast(values, self.dtype)

    def coerce(self, values: Array) -> Array:
        """Returns `values` in the form its kind requires: a mask's own numbers for booleans, data without zeros."""
        return self.kind.coerce(self, values)

    def nearest(self, number: float) -> Array:
        """Returns the number nearest to another one that an element may be, without axes."""
        low, high = self.kind.finite_range(self)
        return self.coerce(cast(np.asarray(min(max(number, low), high)), self.dtype))

    def sample(self, rng: Rng, *, exact: bool = False) -> Array:
        """Returns random values, in the slot's dtype; if `exact`, integers on which a kernel's arithmetic is exact.

        ValueError: no values meet the constraints, such as a permutation of fewer elements than it has.
        """
        return self.repair(self.kind.sample(self, rng, exact))

    def repair(self, values: Array) -> Array:
        """Returns valid values near some numbers, in the slot's dtype; valid ones stay. Raises as `sample`."""
        valid = np.asarray(self.kind.repair(self, values))
        if self.kind.counts and is_integer(self.dtype) and valid.size:
            greatest, most = int(valid.max()), int(ml_dtypes.iinfo(self.dtype).max)
            if greatest > most:
                raise DeclarationError(f"it counts up to {greatest}; {self.dtype} ends at {most}: use a wider dtype")
        return cast(valid, self.dtype)

    def canonical(self) -> Array:
        """Returns the simplest values, in the slot's dtype: zeros, all visible, equal parts, indices in order."""
        return self.repair(self.kind.canonical(self))


@dataclass(frozen=True, slots=True)
class EdgeValues:
    """Edge-case values of a kind, which the plan registers as a family under the function's name."""

    # takes a slot and a generator and returns values; its docstring describes the family in reports
    make: Callable[[Slot, Rng], Array]
    applies: Callable[[Slot], bool] = lambda slot: slot.size > 0  # whether a slot of the kind can be filled with them
    group: str = GroupName.STRUCTURAL  # the family's group, `structural` or `masks`


class ArgumentKind:
    """One kind of array argument. Subclasses override what differs from an array of independent positions."""

    noun: ClassVar[str]  # the kind in words, as reports show it
    is_data: ClassVar[bool] = False  # its values are numbers to compute with
    is_mask: ClassVar[bool] = False  # its values say which elements count
    is_key_object: ClassVar[bool] = False  # the kernel gets a key of `jax.random` that is made from the values
    counts: ClassVar[bool] = False  # its values are positions or numbers of elements, so its dtype must be an integer
    includes_end: ClassVar[bool] = False  # its values may equal the length of the axis that bounds them
    pointwise: ClassVar[bool] = False  # each of its values refers to the axis that bounds it, whatever the others are
    along_last_axis: ClassVar[bool] = False  # its values depend on each other along the last axis, so it must have one
    jointly_constrained: ClassVar[bool] = False  # no element can be changed by itself
    distinct: ClassVar[bool] = False  # no value occurs twice
    differentiable: ClassVar[bool] = False  # the gradient with respect to it is compared
    positional: ClassVar[bool] = True  # each value can be computed from its position, for arrays too large for memory

    def find_mistake(self, leaf: ArrayArgument) -> str:
        """Returns the mistake in a declaration whose dtypes are valid; "" if there is none."""
        return ""

    def edge_values(self) -> Sequence[EdgeValues]:
        """Returns its own edge cases. Kinds whose functions have the same name share a family."""
        return ()

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns random values, still to be repaired. Arguments and errors are those of `Slot.sample`."""
        raise NotImplementedError

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns valid values near some numbers, in any dtype that holds them."""
        return values

    def canonical(self, slot: Slot) -> Array:
        """Returns the simplest values, still to be repaired."""
        return np.zeros(slot.shape, slot.dtype)

    def simplify(self, slot: Slot, values: Array) -> Array:
        """Returns the simplest values that may replace a case's `values`."""
        return slot.canonical()

    def coerce(self, slot: Slot, values: Array) -> Array:
        """Returns a family's `values` in the form that the kind requires."""
        return values

    def finite_range(self, slot: Slot) -> tuple[float, float]:
        """Returns the least and the greatest finite number that an element may be."""
        return slot.domain.finite_range(slot.dtype)

    def longest_sums(self, slot: Slot) -> Array:
        """Returns values for which the oracle's sums have the most terms; 1 for each number that is summed."""
        return slot.canonical()

    def element(self, slot: Slot, number: float) -> Array | float:
        """Returns the element that a drawn number stands for."""
        return number % max(slot.end, 1)

    def code_table(self, slot: Slot, codes: Array) -> Array:
        """Returns the value of each position code (int64); an empty array if `element_at` computes values instead."""
        return np.zeros(0, slot.dtype)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        """Returns integers or booleans at positions (by axis, int64, they broadcast) of an array too large for memory.

        `code` is the code of each position.
        """
        raise NotImplementedError

    def pass_value(self, values: XpArray, *, oracle: bool) -> XpArray:
        """Returns the argument that the kernel, or the oracle, gets for some values."""
        return values


KINDS: dict[str, ArgumentKind] = {}


def register(role: str) -> Callable[[type[ArgumentKind]], type[ArgumentKind]]:
    """Registers the decorated class as the kind that `ArrayArgument.role` names `role`."""

    def add(kind: type[ArgumentKind]) -> type[ArgumentKind]:
        KINDS[role] = kind()
        return kind

    return add


# The part of a declaration that all kinds of array arguments share: axes, dtypes and bounds, parsed and checked.

DEFAULT_FLOATS = ("float32", "bfloat16", "float16")
DEFAULT_INTEGERS = ("int32", "int8", "uint8")

Ends = tuple[float, float]
AnyDomain = Ends | Interval | Mapping[str, Ends | Interval | None] | None
Dtype = str | type | np.dtype[Any]  # `"bfloat16"`, `jnp.bfloat16`, `x.dtype`
Dtypes = Dtype | Sequence[Dtype]


def array_argument(
    shape: object,
    dtypes: object,
    role: str,
    *,
    domain: object = None,
    bounded_by: object = None,
    on: object = None,
    problem: str = "",
    **fields: Any,
) -> ArrayArgument:
    """Returns an array argument, given as to `kt.array`; for a wrong declaration, one whose `problem` says why."""
    try:
        if problem:
            raise ValueError(problem)
        axes, names, by = _axes(shape), _dtype_names(dtypes), _bounding_axis(bounded_by)
        if on is not None and not isinstance(on, Mapping):
            raise ValueError(f"on= gives dtypes by backend, as in on={{'tpu': 'bfloat16'}}, not {on!r}")
        others = {pattern: _dtype_names(each) for pattern, each in (on or {}).items()}
        known = tuple(dict.fromkeys([*names, *(name for other in others.values() for name in other)]))
        return ArrayArgument(axes, names, role, parse_domain(domain, known), by, on=others, **fields)
    except ValueError as error:
        return ArrayArgument((), (), role, problem=str(error))


def _axes(shape: object) -> tuple[Axis, ...]:
    if not isinstance(shape, str):
        axes = " ".join(map(str, shape if isinstance(shape, (tuple, list)) else (shape,)))
        raise ValueError(f"its shape is one string, as in {axes!r}, not {shape!r}")
    return tuple(map(parse_axis, shape.split()))


def _bounding_axis(given: object) -> Axis | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    if not isinstance(given, str) or not given:
        raise ValueError(f"the axis that bounds its values is a dim such as 'n', or made of dims, not {given!r}")
    if len(given.split()) > 1:
        raise ValueError(f"the axis that bounds its values is one length, such as 'n' or 'n*m', not {given!r}")
    return parse_axis(given)


def _dtype_names(dtypes: object) -> tuple[str, ...]:
    """Returns the names of dtypes that are given by name, or as NumPy or JAX have them."""
    given = dtypes if isinstance(dtypes, (tuple, list)) else (dtypes,)
    if not given:
        raise ValueError("name at least one dtype")
    names = tuple(map(_dtype_name, given))
    for name in names:
        try:
            parse_dtype(name)
        except DtypeError as error:
            hint = suggest(name, DTYPE_NAMES, ABBREVIATED) if isinstance(error, UnknownDtypeError) else ""
            raise ValueError(f"{error}{hint or '; remove it from the dtypes'}") from error
    return names


def _dtype_name(given: Any) -> str:
    if isinstance(given, str):
        return given
    try:
        if given is not None:  # which NumPy takes for float64
            return str(np.dtype(given).name)
    except TypeError:
        pass
    raise ValueError(f"its dtypes are given by name, as in 'float32', not {given!r}")
