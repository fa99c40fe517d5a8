"""The registry of the operators that mutation tests use: those of localisation that plant a mistake, and users' own."""

from collections.abc import Callable, Iterator

from kerneltest.core.extension_registry import AFTER_BUILT_IN, Registry
from kerneltest.localize.edits import EquationChange as EquationChange
from kerneltest.localize.operators import OPERATORS as BUILT_IN
from kerneltest.localize.operators import Operator
from kerneltest.trace.jax_compat.jaxprs import Equation

Mutate = Callable[[Equation], Iterator[EquationChange]]

OPERATORS: Registry[Operator] = Registry("mutation operator", extended_by="mutations")


def mutation_operator(*, order: int = AFTER_BUILT_IN) -> Callable[[Mutate], Mutate]:
    """Registers a function as a mutation operator. Its name, with `-` for `_`, is the operator's.

        @mutation_operator()
        def square_dropped(equation):
            \"\"\"A sum of squares lacks the squares.\"\"\"
            if primitive_name(equation) == "square":
                yield EquationChange("x for x**2", lambda: compute(equation, lambda x: x))

    Its docstring names the bug that it plants.

    Args:
      order: its position in lists.

    Raises:
      ValueError: another module has registered the name.
    """

    def register(mutate: Mutate) -> Mutate:
        mistake = (mutate.__doc__ or "").strip().rstrip(".")
        operator = Operator(mutate.__name__.replace("_", "-"), mistake, lambda site: mutate(site.equation))
        OPERATORS.add(operator, mutate.__module__, order)
        return mutate

    return register


for _position, _operator in enumerate(BUILT_IN):
    if _operator.plant is not None:
        OPERATORS.add(_operator, __name__, _position)
