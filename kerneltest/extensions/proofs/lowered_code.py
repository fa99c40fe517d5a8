"""The lowered code of a Pallas call at given sizes, with its grid and arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic

import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from kerneltest.backends.codegen.gpu_lowering import lower_call
from kerneltest.backends.simulate.ir import Region
from kerneltest.backends.simulate.parse import parse_body
from kerneltest.core.details import NotBuilt, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.program_slice import M, N, SliceBlock, Undecided, map_block, slice_region
from kerneltest.plan.signatures import Signature
from kerneltest.trace.runnable import call_arrays
from kerneltest.trace.tracing import Call, Traced, trace
from kerneltest.trace.walk import nested_jaxprs, primitive_name

_CONTROL = frozenset({"scan", "while", "cond"})
_MOVES = frozenset({"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose", "copy", "copy_p"})


@dataclass(frozen=True)
class LoweredArray(Generic[N]):
    """An array that a call reads or writes.

    Attributes:
      name: the kernel's name for it.
      shape: of the array.
      leaf: the path of the argument whose elements it holds; "" if it holds others.
      allocation: the number of the array in whose memory it is: its own, or that of an input that it aliases.
      is_output: whether the call writes it.
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
      body: the slice of its code.
      grid: the number of programs along x, y and z.
      arrays: the inputs, then the outputs.
    """

    name: str
    body: SliceBlock[N]
    grid: tuple[N, ...]
    arrays: tuple[LoweredArray[N], ...]

    def map_numbers(self, change: Callable[[N], M]) -> "LoweredCode[M]":
        """Returns the code with each number replaced by its image under `change`, which is called in their order."""
        grid = tuple(map(change, self.grid))
        arrays = tuple(
            LoweredArray(a.name, tuple(map(change, a.shape)), a.leaf, a.allocation, a.is_output) for a in self.arrays
        )
        return LoweredCode(self.name, map_block(self.body, change), grid, arrays)

    def numbers(self) -> tuple[N, ...]:
        """Returns all numbers, in their order."""
        found: list[N] = []
        self.map_numbers(found.append)
        return tuple(found)

    def skeleton(self) -> "LoweredCode[int]":
        """Returns the code with 0 for each number."""
        return self.map_numbers(lambda _: 0)


def lower_calls(pairing: Pairing, signature: Signature, target: Target) -> tuple[LoweredCode[int], ...]:
    """Lowers each Triton call of a kernel at the sizes of a signature.

    Raises:
      Failure: the kernel refuses these sizes or does not lower at them.
      Undecided: a call cannot be followed.
    """
    traced = trace(pairing, signature, target.platform)
    return tuple(
        extract_code(traced, call, target, tuple(path for path, _ in signature.dtypes)) for call in traced.calls
    )


def extract_code(traced: Traced, call: Call, target: Target, leaves: tuple[str, ...]) -> LoweredCode[int]:
    """Lowers one call.

    Args:
      traced: the kernel with the call.
      call: to lower.
      target: a GPU.
      leaves: the paths of the kernel's arguments, in order.

    Raises:
      Failure: the call does not lower.
      Undecided: it does not lower to Triton IR, or to operations that cannot be followed.
    """
    (kernel,) = lower_call(call, target)
    if kernel.language != "triton":
        raise Undecided(f"{call.name} is not lowered to Triton IR")
    body = parse_code(kernel.bytecode)
    inputs, outputs = call_arrays(call)
    paths = _operand_origins(
        traced.jaxpr.jaxpr, call.equation, dict(zip(traced.jaxpr.jaxpr.invars, leaves, strict=True))
    )
    arrays = [
        LoweredArray(r.name, r.shape, path, i, is_output=False)
        for i, (r, path) in enumerate(zip(inputs, paths or (), strict=True))
    ]
    for i, r in enumerate(outputs):
        arrays.append(LoweredArray(r.name, r.shape, "", kernel.aliases.get(i, len(arrays)), is_output=True))
    return LoweredCode(call.name, slice_region(body), kernel.grid, tuple(arrays))


def parse_code(bytecode: bytes) -> Region:
    """Parses the body of a lowered call.

    Raises:
      Failure: Triton refuses it, as it does tensors that are too long.
      Undecided: it has unknown types.
    """
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
        for value in equation.params.values():
            for inner in nested_jaxprs(value):
                passed_on = len(inner.invars) == len(operands) and primitive_name(equation) not in _CONTROL
                paths = operands if passed_on else [""] * len(inner.invars)
                found = _operand_origins(
                    inner, wanted, {v: path for v, path in zip(inner.invars, paths, strict=True) if path}
                )
                if found is not None:
                    return found
        if primitive_name(equation) in _MOVES or _is_widening(equation):
            known[equation.outvars[0]] = operands[0]
    return None


def _is_widening(equation: JaxprEqn) -> bool:
    """Returns whether an equation converts integers to a type that holds all of them."""
    if primitive_name(equation) != "convert_element_type":
        return False
    before = np.dtype(equation.invars[0].aval.dtype)  # type: ignore[attr-defined]
    after = np.dtype(equation.params["new_dtype"])
    return before.kind in "iu" and after.kind in "iu" and np.can_cast(before, after)
