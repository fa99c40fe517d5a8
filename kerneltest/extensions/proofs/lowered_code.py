"""The lowered code of a Pallas call at given sizes, with its grid and its arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np

from kerneltest.backends.codegen.lower import lower_call
from kerneltest.backends.simulate.ir import Region
from kerneltest.backends.simulate.parse import parse
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.program_slice import M, N, SliceBlock, Undecided, map_block, slice_region
from kerneltest.plan.signatures import Signature
from kerneltest.trace.runnable import references
from kerneltest.trace.tracing import Call, Traced, trace
from kerneltest.trace.walk import name_of, nested

_MOVES = frozenset({"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose", "copy", "copy_p"})


@dataclass(frozen=True)
class CallArray(Generic[N]):
    """An array that a call reads or writes.

    Attributes:
      name: the kernel's name for it.
      shape: of the array.
      leaf: the path of the argument whose elements it holds, "" where they are others.
      shares: the number of the array whose memory it is; its own where it has memory of its own.
      made: whether the call makes it.
    """

    name: str
    shape: tuple[N, ...]
    leaf: str
    allocation: int
    is_output: bool


@dataclass(frozen=True)
class LoweredCode(Generic[N]):
    """One Pallas call.

    Attributes:
      name: of the kernel function.
      body: what matters of its code.
      grid: programs along x, y and z.
      arrays: the inputs, then the outputs.
    """

    name: str
    body: SliceBlock[N]
    grid: tuple[N, ...]
    arrays: tuple[CallArray[N], ...]

    def map_numbers(self, change: Callable[[N], M]) -> "LoweredCode[M]":
        """The same code with every number changed, in the order in which they stand."""
        grid = tuple(map(change, self.grid))
        arrays = tuple(
            CallArray(a.name, tuple(map(change, a.shape)), a.leaf, a.allocation, a.is_output) for a in self.arrays
        )
        return LoweredCode(self.name, map_block(self.body, change), grid, arrays)

    def numbers(self) -> tuple[N, ...]:
        """All of them, in that order."""
        found: list[N] = []
        self.map_numbers(found.append)
        return tuple(found)

    def skeleton(self) -> "LoweredCode[int]":
        """The code without its numbers."""
        return self.map_numbers(lambda _: 0)


def lower_calls(pairing: Pairing, signature: Signature, target: Target) -> tuple[LoweredCode[int], ...]:
    """The code of each Triton call of a kernel at the sizes of a signature.

    Raises:
      Failure: the kernel refuses these sizes, or does not lower at them.
    """
    traced = trace(pairing, signature, target.platform)
    return tuple(
        extract_code(traced, call, target, tuple(path for path, _ in signature.dtypes)) for call in traced.calls
    )


def extract_code(traced: Traced, call: Call, target: Target, leaves: tuple[str, ...]) -> LoweredCode[int]:
    """The code of one call.

    Raises:
      Failure: it does not lower.
      Undecided: it is no Triton IR, or has operations that are not followed.
    """
    (kernel,) = lower_call(call, target)
    if kernel.language != "triton":
        raise Undecided(f"{call.name} is not lowered to Triton IR")
    body = parse_code(kernel.bytecode)
    inputs, outputs = references(call)
    paths = _operand_origins(
        traced.jaxpr.jaxpr, call.equation, dict(zip(traced.jaxpr.jaxpr.invars, leaves, strict=True))
    )
    arrays = [
        CallArray(r.name, r.shape, path, i, is_output=False)
        for i, (r, path) in enumerate(zip(inputs, paths or (), strict=True))
    ]
    for i, r in enumerate(outputs):
        arrays.append(CallArray(r.name, r.shape, "", kernel.aliases.get(i, len(arrays)), is_output=True))
    return LoweredCode(call.name, slice_region(body), kernel.grid, tuple(arrays))


def parse_code(bytecode: bytes) -> Region:
    """The body of a lowered call.

    Raises:
      Failure: Triton refuses it, as for tensors that are too long.
      Undecided: it has types that are not followed.
    """
    try:
        return parse(bytecode)
    except Failure as failure:
        raise Undecided(str(failure)) from failure
    except Exception as error:  # MLIR's own
        raise Failure(Verdict.COMPILE_ERROR, f"Triton refuses the lowered code: {error}") from error


def _operand_origins(jaxpr: Any, wanted: Any, leaves: Mapping[Any, str]) -> list[str] | None:
    """For each operand of an equation, the argument of the kernel that it is, or that it holds the elements of."""
    known = dict(leaves)

    def origin(variable: Any) -> str:
        return known.get(variable, "") if not hasattr(variable, "val") else ""

    for equation in jaxpr.eqns:
        operands = [origin(v) for v in equation.invars]
        if equation is wanted:
            return operands
        for value in equation.params.values():
            for inner in nested(value):
                named = operands if len(inner.invars) == len(operands) else [""] * len(inner.invars)
                named = named if name_of(equation) not in ("scan", "while", "cond") else [""] * len(inner.invars)
                found = _operand_origins(
                    inner, wanted, {v: path for v, path in zip(inner.invars, named, strict=True) if path}
                )
                if found is not None:
                    return found
        if name_of(equation) in _MOVES or _is_widening(equation):
            known[equation.outvars[0]] = operands[0]
    return None


def _is_widening(equation: Any) -> bool:
    """Whether it keeps every integer it is given."""
    if name_of(equation) != "convert_element_type":
        return False
    before, after = (np.dtype(v.aval.dtype) for v in (equation.invars[0], equation.outvars[0]))
    return before.kind in "iu" and after.kind in "iu" and np.can_cast(before, after)
