"""Triton IR as plain data: types, operations and regions, and the semantics by which operations are executed."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerneltest.core.details import NotBuilt, Stage
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict

Compute = Callable[..., Any]  # from arrays to an array or a tuple of arrays
Mask = Array | None  # undefined elements; None if all are defined


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value, in each program: a scalar of shape (), or a tensor; of numbers, or of pointers to such."""

    shape: tuple[int, ...]
    dtype: np.dtype
    pointer: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """The computation of an operation, on arrays whose first axis is that of the programs.

    A value of type tensor<a x b> is an array of shape (programs, a, b), in which an axis may have length 1 if the
    values are the same along it. A scalar is an array of shape (programs,).
    """

    compute: Compute  # from the operands' arrays to the result, or to a tuple of results
    # from the operands' arrays and their masks of undefined elements (None if all are defined, but not for every
    # operand) to the results' mask
    undefined: Callable[[Sequence[Array], Sequence[Mask]], Array]
    partial: bool = False  # whether results can be undefined though every operand is defined

    def undefined_mask(self, values: Sequence[Array], masks: Sequence[Mask]) -> Mask:
        """Returns the mask of the undefined elements of the results; None if all are defined."""
        if not self.partial and all(mask is None for mask in masks):
            return None
        mask = self.undefined(values, masks)
        return mask if mask.any() or not self.partial else None


def any_operand(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
    """Returns a mask of the elements for which any operand is undefined."""
    return functools.reduce(np.logical_or, [mask for mask in masks if mask is not None])


def undefined_logical(determining: bool) -> Callable[[Sequence[Array], Sequence[Mask]], Array]:
    """Returns the undefined elements of a conjunction or disjunction: False or True determines it by itself."""

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        (a, b), (ua, ub) = values, (np.asarray(False) if mask is None else mask for mask in masks)
        if a.dtype != np.bool_:
            return np.logical_or(ua, ub)
        return np.asarray((ua & ub) | (ua & (b != determining)) | (ub & (a != determining)))

    return undefined


def dense_masks(values: Sequence[Array], masks: Sequence[Mask]) -> tuple[Array, ...]:
    """Returns the masks, with an array of False in place of each None."""
    return tuple(
        np.zeros((1,) * value.ndim, bool) if mask is None else mask for value, mask in zip(values, masks, strict=True)
    )


def unsupported_failure(what: str, place: str = "") -> Failure:
    """Returns the failure for something that only the simulator lacks, at FILE:LINE."""
    said = f"kerneltest's simulator does not support {what}, which is not the kernel's fault"
    return Failure(Verdict.UNAVAILABLE, NotBuilt(Stage.SIMULATE, kernel="", error="", said=said, source=place))


@contextmanager
def naming_kernel(name: str) -> Iterator[None]:
    """Adds the name of a kernel to the failure for what the simulator lacks."""
    try:
        yield
    except Failure as failure:
        if isinstance(failure.detail, NotBuilt):
            raise Failure(failure.verdict, replace(failure.detail, kernel=name)) from failure
        raise


def unsupported_rule(op: "Operation") -> Rule:
    """Stands for the rule of an operation that has none."""
    raise unsupported_failure(f"operation {op.name}", op.place)


@dataclass(frozen=True, slots=True)
class Semantics:
    """The semantics of one kind of operation."""

    rule: Callable[["Operation"], Rule] = unsupported_rule  # returns the computation of an operation of this kind
    # runs it in an interpreter, given its operands, if a rule does not suffice: memory, control flow
    execute: Callable[[Any, "Operation", Sequence[Any]], Sequence[Any]] | None = None
    has_effect: bool = False  # whether it has an effect besides its results, so that it is not dead if these are unused
    # whether its operands and types suffice. Its attributes and its source line are then not read, which is most of the
    # time that parsing takes.
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation."""

    name: str  # the name in the IR, as `arith.addf`
    semantics: Semantics  # the semantics of operations of that name
    # operands, results: the numbers of the values
    operands: tuple[int, ...]
    results: tuple[int, ...]
    # operand_types, types: the types of the operands and of the results
    operand_types: tuple[Type, ...]
    types: tuple[Type, ...]
    attributes: Mapping[str, Any]  # the attributes by name, as plain data
    regions: "tuple[Region, ...]"  # nested code
    place: str  # FILE:LINE of the kernel's source that it was lowered from
    location: str = ""  # the IR's complete location; "" unless requested

    def uses(self) -> set[int]:
        """Returns the numbers of the values that it and the code nested in it use."""
        return set(self.operands).union(*(region.uses() for region in self.regions))

    def has_effect(self) -> bool:
        """Tells whether it, or code nested in it, has an effect besides its results."""
        return self.semantics.has_effect or any(op.has_effect() for region in self.regions for op in region.operations)


@dataclass(frozen=True, slots=True)
class Region:
    """A block of operations."""

    arguments: tuple[int, ...]  # the numbers of the values that it is entered with
    operations: tuple[Operation, ...]  # its operations in order, without the terminator
    yields: tuple[int, ...]  # the numbers of the values that the terminator yields

    def uses(self) -> set[int]:
        return set(self.yields).union(*(op.uses() for op in self.operations))

    def function(self) -> Callable[..., tuple[Array, ...]]:
        """Returns a region of pure computation as a function of arrays. Failure: an operation has no rule."""
        steps = [(op.semantics.rule(op).compute, op.operands, op.results) for op in self.operations]

        def run(*arguments: Array) -> tuple[Array, ...]:
            environment = dict(zip(self.arguments, arguments, strict=True))
            for compute, operands, results in steps:
                values = compute(*(environment[number] for number in operands))
                environment.update(zip(results, values if isinstance(values, tuple) else (values,), strict=True))
            return tuple(environment[number] for number in self.yields)

        return run
