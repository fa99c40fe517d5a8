"""The lowered code of a Pallas call at given sizes, with its grid and arrays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from kerneltest.backends.codegen.tiers import lower_call
from kerneltest.backends.simulate.ir import Operation, Region
from kerneltest.backends.simulate.operations import OPERATIONS
from kerneltest.backends.simulate.simulation import parse_body
from kerneltest.core.details import NotBuilt, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature
from kerneltest.trace.jax_compat.jaxprs import inner_jaxprs
from kerneltest.trace.primitives import Kind, called_jaxpr, kind_of
from kerneltest.trace.runnable import call_arrays
from kerneltest.trace.tracing import trace
from kerneltest.trace.walk import primitive_name

# A program slice of the lowered code: the operations that addresses, masks and control flow depend on.


class Undecided(Exception):  # noqa: N818 - an answer, not an error
    """A kernel is neither proved nor refuted; the message names the operation that stands in the way."""


N = TypeVar("N")
M = TypeVar("M")

ACCESSES = {"tt.load": "load", "tt.store": "store", "tt.atomic_rmw": "atomic", "tt.atomic_cas": "atomic"}
CONTROL = frozenset({"scf.for", "scf.if", "scf.while"})
# Attributes that do not depend on sizes.
_FIXED = ("predicate", "axis", "order", "operandSegmentSizes")
FOLLOWED = frozenset(
    """arith.addi arith.subi arith.muli arith.divsi arith.divui arith.remsi arith.remui arith.maxsi arith.minsi
    arith.maxui arith.minui arith.andi arith.ori arith.xori arith.shli arith.shrsi arith.shrui arith.cmpi arith.select
    arith.extsi arith.extui arith.trunci arith.index_cast arith.bitcast tt.bitcast tt.splat tt.broadcast tt.expand_dims
    tt.reshape tt.trans tt.addptr""".split()
)


@dataclass(frozen=True)
class ValueType(Generic[N]):
    """The type of a value."""

    dtype: str  # its name
    pointer: bool  # whether the value is a pointer to the dtype
    shape: tuple[N, ...]  # () for a scalar

    @property
    def matters(self) -> bool:
        """True if values of this type are followed: integers, booleans and pointers."""
        return self.pointer or np.dtype(self.dtype if self.dtype[:2] != "bf" else "float32").kind in "ib"


@dataclass(frozen=True)
class SliceStep(Generic[N]):
    """An operation."""

    # name, operands, results: as in the IR
    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[ValueType[N], ...]  # of the results
    numbers: tuple[N, ...]  # the value of a constant, or the start and end of a range
    fixed: tuple[tuple[str, Any], ...]  # attributes that do not depend on sizes
    blocks: "tuple[SliceBlock[N], ...]"  # nested code
    place: str = field(compare=False)  # FILE:LINE of the kernel's source, or ""


@dataclass(frozen=True)
class SliceBlock(Generic[N]):
    """A sequence of operations."""

    # arguments, yields: the numbers of the values with which it starts and ends
    arguments: tuple[int, ...]
    types: tuple[ValueType[N], ...]  # of the arguments
    steps: tuple[SliceStep[N], ...]  # in order
    yields: tuple[int, ...]

    def all_steps(self) -> "Iterator[SliceStep[N]]":
        for step in self.steps:
            yield step
            for inner in step.blocks:
                yield from inner.all_steps()


def _map_block(block: Any, change: Callable[[Any], Any]) -> Any:
    def values(types: Any) -> Any:
        return tuple(replace(kind, shape=tuple(map(change, kind.shape))) for kind in types)

    return replace(
        block,
        types=values(block.types),
        steps=tuple(
            replace(
                step,
                types=values(step.types),
                numbers=tuple(map(change, step.numbers)),
                blocks=tuple(_map_block(inner, change) for inner in step.blocks),
            )
            for step in block.steps
        ),
    )


class _Slicer:
    """Slices a function's body: follows values backwards from accesses and control flow."""

    def __init__(self, body: Region) -> None:
        self.producers: dict[int, tuple[Operation, int]] = {}
        self.sources: dict[int, tuple[int, ...]] = {}  # by argument of a block: the values that it may have
        self.types: dict[int, ValueType[int]] = dict.fromkeys(body.arguments, ValueType("int8", True, ()))
        self.needed = set(body.arguments)
        roots: list[int] = []
        self._read(body, roots)
        self._follow(roots)
        self.numbers = {number: i for i, number in enumerate(sorted(self.needed))}

    def _read(self, region: Region, roots: list[int]) -> None:
        for op in region.operations:
            if op.name not in OPERATIONS:
                raise Undecided(f"{op.name}{f' at {op.place}' if op.place else ''} cannot be followed")
            types = [ValueType(kind.dtype.name, kind.pointer, kind.shape) for kind in op.types]
            self.types.update(zip(op.results, types, strict=True))
            self.producers.update((number, (op, i)) for i, number in enumerate(op.results))
            if op.name in ACCESSES:
                roots += address_operands(op.name, op.operands, op.attributes.get("operandSegmentSizes"))
            if op.name not in CONTROL:
                continue
            if op.name == "scf.for":
                (inner,) = op.regions
                roots += op.operands[:3]
                self.types[inner.arguments[0]] = self.types[op.operands[0]]
                self._carry(inner.arguments[1:], op.operands[3:], inner.yields)
            elif op.name == "scf.if":
                roots += op.operands
            else:
                before, after = op.regions
                roots += before.yields[:1]
                self._carry(before.arguments, op.operands, after.yields)
                self.types.update(zip(after.arguments, types, strict=True))
                self.sources.update((a, (n,)) for a, n in zip(after.arguments, before.yields[1:], strict=True))
            for inner in op.regions:
                self._read(inner, roots)

    def _carry(self, arguments: tuple[int, ...], initial: tuple[int, ...], last: tuple[int, ...]) -> None:
        for argument, *ends in zip(arguments, initial, last, strict=True):
            self.types[argument] = self.types[ends[0]]
            self.sources[argument] = tuple(ends)

    def _follow(self, roots: list[int]) -> None:
        while roots:
            number = roots.pop()
            if number in self.needed or not self.types[number].matters:
                continue
            self.needed.add(number)
            roots += self.sources.get(number, ())
            op, i = self.producers.get(number, (None, 0))
            if op is None:
                continue
            if op.name == "scf.for":
                roots += (op.regions[0].arguments[i + 1], op.regions[0].yields[i], op.operands[i + 3])
            elif op.name == "scf.if":
                roots += (region.yields[i] for region in op.regions)
            elif op.name == "scf.while":
                roots.append(op.regions[0].yields[i + 1])
            elif op.name in FOLLOWED or op.name == "tt.load":
                roots += op.operands

    def block(self, region: Region) -> SliceBlock[int]:
        """Returns the slice of a region, in which values are renumbered and irrelevant ones are -1."""
        steps = [self._step(op) for op in region.operations if self._is_needed(op)]
        arguments, yields = self._renumber(region.arguments), self._renumber(region.yields)
        return SliceBlock(arguments, self._types_of(region.arguments), tuple(steps), yields)

    def _renumber(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.numbers.get(number, -1) for number in numbers)

    def _is_needed(self, op: Operation) -> bool:
        inner = (operation for region in op.regions for operation in region.operations) if op.name in CONTROL else ()
        return op.name in ACCESSES or not self.needed.isdisjoint(op.results) or any(map(self._is_needed, inner))

    def _types_of(self, numbers: tuple[int, ...]) -> tuple[ValueType[int], ...]:
        return tuple(self.types[n] if n in self.needed else ValueType("float32", False, ()) for n in numbers)

    def _step(self, op: Operation) -> SliceStep[int]:
        fixed = [(key, op.attributes[key]) for key in _FIXED if key in op.attributes]
        numbers: tuple[int, ...] = ()
        value = op.attributes.get("value")
        if op.name == "tt.make_range":
            numbers = (op.attributes["start"], op.attributes["end"])
        elif op.name == "arith.constant" and not isinstance(value, np.ndarray):
            numbers = (int(value or 0),) if self.types[op.results[0]].matters else ()
        return SliceStep(
            op.name,
            self._renumber(op.operands),
            self._renumber(op.results),
            self._types_of(op.results),
            numbers,
            tuple(fixed),
            tuple(map(self.block, op.regions)) if op.name in CONTROL else (),
            op.place,
        )


def address_operands(name: str, operands: tuple[int, ...], segments: Sequence[int] | None) -> list[int]:
    """Returns the pointer of an access, and its mask if it has one."""
    pointer, *rest = operands
    if name == "tt.load":
        has_mask = segments[1] if segments is not None else len(rest) > 0
        return [pointer, *(rest[:1] if has_mask else ())]
    return [pointer, *(rest[1:2] if name != "tt.atomic_cas" else ())]


@dataclass(frozen=True)
class LoweredArray(Generic[N]):
    """An array that a call reads or writes."""

    name: str  # the kernel's name for it
    shape: tuple[N, ...]  # of the array
    leaf: str  # the path of the argument whose elements it holds; "" if it holds others
    allocation: int  # the number of the array in whose memory it is: its own, or that of an input that it aliases
    is_output: bool  # whether the call writes it


@dataclass(frozen=True)
class LoweredCode(Generic[N]):
    """One Pallas call."""

    name: str  # of the kernel function
    body: SliceBlock[N]  # the slice of its code
    grid: tuple[N, ...]  # the number of programs along x, y and z
    arrays: tuple[LoweredArray[N], ...]  # the inputs, then the outputs

    def map_numbers(self, change: Callable[[N], M]) -> "LoweredCode[M]":
        """Returns the code with each number replaced by its image under `change`, which is called in their order."""
        grid = tuple(map(change, self.grid))
        code: Any = self  # its numbers change their type
        arrays = tuple(replace(array, shape=tuple(map(change, array.shape))) for array in code.arrays)
        return LoweredCode(self.name, _map_block(self.body, change), grid, arrays)

    def numbers(self) -> tuple[N, ...]:
        found: list[N] = []
        self.map_numbers(found.append)
        return tuple(found)

    def skeleton(self) -> "LoweredCode[int]":
        """Returns the code with 0 for each number."""
        return self.map_numbers(lambda _: 0)


def lower_calls(pairing: Pairing, signature: Signature, target: Target) -> tuple[LoweredCode[int], ...]:
    """Lowers a kernel's Triton calls at a signature's sizes. Failure: it does not lower; Undecided: unknown code."""
    traced = trace(pairing, signature, target.platform)
    jaxpr = traced.jaxpr.jaxpr
    leaves = dict(zip(jaxpr.invars, (path for path, _ in signature.dtypes), strict=True))
    codes = []
    for call in traced.calls:
        (kernel,) = lower_call(call, target)
        if kernel.language != "triton":
            raise Undecided(f"{call.name} is not lowered to Triton IR")
        if kernel.arguments is not None:
            raise Undecided(f"{call.name} is written in Triton, and takes numbers beside pointers")
        body = parse_code(kernel.bytecode)
        inputs, outputs = call_arrays(call)
        paths = _operand_origins(jaxpr, call.equation, leaves) or ()
        arrays = [
            LoweredArray(r.name, r.shape, path, i, is_output=False)
            for i, (r, path) in enumerate(zip(inputs, paths, strict=True))
        ]
        for i, r in enumerate(outputs):
            arrays.append(LoweredArray(r.name, r.shape, "", kernel.aliases.get(i, len(arrays)), is_output=True))
        codes.append(LoweredCode(call.name, _Slicer(body).block(body), kernel.grid, tuple(arrays)))
    return tuple(codes)


def parse_code(bytecode: bytes) -> Region:
    """Parses the body of a lowered call. Failure: Triton refuses it; Undecided: it has unknown types."""
    try:
        return parse_body(bytecode)
    except Failure as failure:
        raise Undecided(str(failure)) from failure
    except Exception as error:  # by MLIR
        detail = NotBuilt(Stage.COMPILE, "", type(error).__name__, f"Triton refuses the lowered code: {error}")
        raise Failure(Verdict.COMPILE_ERROR, detail) from error


def _operand_origins(jaxpr: Jaxpr, wanted: JaxprEqn, leaves: Mapping[Var, str]) -> list[str] | None:
    """Returns the argument whose elements each operand of an equation holds, or ""; None if the equation is absent."""
    known = dict(leaves)

    def origin(atom: Var | Literal) -> str:
        return known.get(atom, "") if isinstance(atom, Var) else ""

    for equation in jaxpr.eqns:
        operands = [origin(v) for v in equation.invars]
        if equation is wanted:
            return operands
        for inner in inner_jaxprs(equation):
            paths = operands if called_jaxpr(equation) is not None else [""] * len(inner.invars)
            found = _operand_origins(inner, wanted, {v: p for v, p in zip(inner.invars, paths, strict=True) if p})
            if found is not None:
                return found
        if len(operands) == 1 and (kind_of(equation) is Kind.MOVE or _is_widening(equation)):
            known.update(dict.fromkeys(equation.outvars, operands[0]))
    return None


def _is_widening(equation: JaxprEqn) -> bool:
    if primitive_name(equation) != "convert_element_type":
        return False
    before = np.dtype(equation.invars[0].aval.dtype)  # type: ignore[attr-defined]
    after = np.dtype(equation.params["new_dtype"])
    return before.kind in "iu" and after.kind in "iu" and np.can_cast(before, after)
