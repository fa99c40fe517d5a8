"""Triton IR as plain data, and what the simulator has to know of an operation to run it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict

Compute = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Type:
    """Of a value: a scalar or a tensor (one a program), of numbers or of pointers.

    Attributes:
      shape: () for a scalar.
      dtype: of the numbers, or of what the pointers point to.
      pointer: whether it holds pointers.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pointer: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """How to compute an operation, on arrays with one leading axis for the programs.

    A value of type tensor<a x b> is an array of shape (programs, a, b) in which any axis may have length 1 while its
    values are all the same along it; a scalar is one of shape (programs,).

    Attributes:
      compute: from the operands' arrays to the result, or a tuple of results.
      undefined: from the operands' arrays and their masks of undefined elements (None where all are defined, but not
        for every operand) to the results' mask.
    """

    compute: Compute
    undefined: Callable[[Sequence[Any], Sequence[Any]], Any]


def any_operand(values: Sequence[Any], masks: Sequence[Any]) -> Any:
    """Undefined where any operand is."""
    return functools.reduce(np.logical_or, [mask for mask in masks if mask is not None])


def given(values: Sequence[Any], masks: Sequence[Any]) -> tuple[Any, ...]:
    """The masks, with one for each operand that is defined everywhere too."""
    return tuple(
        np.zeros((1,) * value.ndim, bool) if mask is None else mask for value, mask in zip(values, masks, strict=True)
    )


def unknown(op: "Operation") -> Rule:
    """The rule of an operation that has none.

    Raises:
      Failure: `unimplemented`; names the operation.
    """
    where = f" ({op.place})" if op.place else ""
    raise Failure(Verdict.UNIMPLEMENTED, f"operation {op.name} is not one that the simulator runs{where}")


@dataclass(frozen=True, slots=True)
class Semantics:
    """What there is to know of one kind of operation.

    Attributes:
      rule: how to compute an operation of the kind from its operands.
      execute: runs it in an interpreter, given its operands, where that takes more than a rule: memory, control flow.
      has_effect: it does something besides giving results, so it is not dead where nobody uses these.
      bare: nothing is asked of it but its operands and types, so its attributes and its source line are not read: that
        is most of the time that parsing takes.
    """

    rule: Callable[["Operation"], Rule] = unknown
    execute: Callable[[Any, "Operation", Sequence[Any]], Sequence[Any]] | None = None
    has_effect: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
      name: as in `arith.addf`.
      semantics: of operations of that name.
      operands, results: numbers of values.
      operand_types, types: of the operands and of the results.
      attributes: by name, as plain data.
      regions: nested code.
      place: the kernel's source line behind it, as FILE:LINE.
      location: all that the IR says of where it comes from, where that was asked for.
    """

    name: str
    semantics: Semantics
    operands: tuple[int, ...]
    results: tuple[int, ...]
    operand_types: tuple[Type, ...]
    types: tuple[Type, ...]
    attributes: Mapping[str, Any]
    regions: "tuple[Region, ...]"
    place: str
    location: str = ""

    def uses(self) -> set[int]:
        """The numbers of the values that it and the code nested in it use."""
        return set(self.operands).union(*(region.uses() for region in self.regions))

    def has_effect(self) -> bool:
        """Whether it, or code nested in it, does something besides giving results."""
        return self.semantics.has_effect or any(op.has_effect() for region in self.regions for op in region.operations)


@dataclass(frozen=True, slots=True)
class Region:
    """A block of operations.

    Attributes:
      arguments: the numbers of the values it is entered with.
      operations: in order, without the one that ends it.
      yields: the numbers of the values that it ends with.
    """

    arguments: tuple[int, ...]
    operations: tuple[Operation, ...]
    yields: tuple[int, ...]

    def uses(self) -> set[int]:
        """The numbers of the values that are used in it."""
        return set(self.yields).union(*(op.uses() for op in self.operations))

    def function(self) -> Callable[..., tuple[Any, ...]]:
        """A region of plain computation as a function, from an array for each argument to a tuple of those it yields.

        Raises:
          Failure: `unimplemented`, for an operation in it that has no rule.
        """
        steps = [(op.semantics.rule(op).compute, op.operands, op.results) for op in self.operations]

        def run(*arguments: Any) -> tuple[Any, ...]:
            environment = dict(zip(self.arguments, arguments, strict=True))
            for compute, operands, results in steps:
                values = compute(*(environment[number] for number in operands))
                environment.update(zip(results, values if isinstance(values, tuple) else (values,), strict=True))
            return tuple(environment[number] for number in self.yields)

        return run
