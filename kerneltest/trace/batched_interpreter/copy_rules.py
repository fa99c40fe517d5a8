"""Rules for asynchronous copies, which are made when they start, as by Pallas' interpreter."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerneltest.trace.batched_interpreter.access_regions import Locate, OperandLeaf, locators
from kerneltest.trace.batched_interpreter.batched_values import EquationFunction, UnknownError, Value
from kerneltest.trace.batched_interpreter.reference_rules import operand_leaves, read_through, write_through
from kerneltest.trace.jax_compat.jaxpr_types import Equation


def _dma_start(equation: Equation) -> EquationFunction:
    """Evaluates `make_async_copy(source, target, semaphore).start()`.

    Raises:
      UnknownError: it copies to another device, or adds to what is there.
    """
    source, target, *_, device = equation.params["tree"].unflatten(operand_leaves(equation))
    if device is not None or equation.params.get("add"):
        raise UnknownError("a copy to another device, or one that adds")
    (read, read_steps), (written, write_steps) = _memory(equation, source), _memory(equation, target)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        values = read_through(operands[read].array, read_steps, operands)
        write_through(operands[written], write_steps, operands, values)
        return ()

    return evaluate


def _memory(equation: Equation, reference: Any) -> tuple[int, list[Locate]]:
    """The number of a reference's operand, and the regions that lead from its memory to what it refers to."""
    leaf: OperandLeaf = getattr(reference, "ref", reference)
    return leaf.number, locators(getattr(reference, "transforms", ()), tuple(equation.invars[leaf.number].aval.shape))


def _wait(equation: Equation) -> EquationFunction:
    """Evaluates `make_async_copy(...).wait()`, which has nothing left to do."""
    return lambda operands: ()


COPIES: Mapping[str, Callable[[Equation], EquationFunction]] = {
    "dma_start": _dma_start,
    "dma_wait": _wait,
}
