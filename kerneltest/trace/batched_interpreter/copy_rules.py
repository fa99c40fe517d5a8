"""Rules for asynchronous copies, which are made when they start, as by Pallas' interpreter."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.access_regions import Locate, OperandLeaf, locator
from kerneltest.trace.batched_interpreter.batched_values import BatchedRef, EquationFunction, UnknownError, Value
from kerneltest.trace.batched_interpreter.reference_rules import operand_leaves, read_region, write_region
from kerneltest.trace.jax_compat.jaxpr_types import Equation


def _dma_start(equation: Equation) -> EquationFunction:
    """Evaluates `make_async_copy(source, target, semaphore).start()`.

    Raises:
      UnknownError: it copies to another device, or adds to what is there.
    """
    source, target, *_, device = equation.params["tree"].unflatten(operand_leaves(equation))
    if device is not None or equation.params.get("add"):
        raise UnknownError("a copy to another device, or one that adds")
    read, (number, steps) = _reader(equation, source), _memory(equation, target)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        _write(operands[number], steps, operands, read(operands))
        return ()

    return evaluate


def _memory(equation: Equation, reference: Any) -> tuple[int, list[Locate]]:
    """The number of a reference's operand, and the regions that lead from its memory to what it refers to."""
    leaf: OperandLeaf = getattr(reference, "ref", reference)
    shape, steps = tuple(equation.invars[leaf.number].aval.shape), []
    for transform in getattr(reference, "transforms", ()):
        steps.append(locator([transform], shape))
        shape = tuple(transform.get_indexer_shape())
    return leaf.number, steps or [locator((), shape)]


def _reader(equation: Equation, reference: Any) -> Callable[[Sequence[Value]], Array]:
    number, steps = _memory(equation, reference)

    def read(operands: Sequence[Value]) -> Array:
        array: Array = operands[number].array
        for locate in steps:
            array = read_region(array, locate(operands))
        return array

    return read


def _write(memory: BatchedRef, steps: Sequence[Locate], operands: Sequence[Value], values: Array) -> None:
    """Writes what the first regions select, after the others have changed it."""
    region = steps[0](operands)
    if len(steps) > 1:
        part = BatchedRef(read_region(memory.array, region))
        _write(part, steps[1:], operands, values)
        values = part.array
    write_region(memory, region, values)


def _wait(equation: Equation) -> EquationFunction:
    """Evaluates `make_async_copy(...).wait()`, which has nothing left to do."""
    return lambda operands: ()


COPIES: Mapping[str, Callable[[Equation], EquationFunction]] = {
    "dma_start": _dma_start,
    "dma_wait": _wait,
}
