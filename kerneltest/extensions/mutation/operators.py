"""The registry of mutation operators: the small bugs that people make, each as a change of one equation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kerneltest.core.extension_registry import AFTER_BUILT_IN, Registry
from kerneltest.trace.jax_compat.jaxpr_types import Equation


@dataclass(frozen=True, slots=True)
class EquationChange:
    """One change of an equation.

    Attributes:
      phrase: the change in words, the same for all signatures: "`<=` for `<`".
      equations: makes the equations that replace it. They define the same variables.
    """

    phrase: str
    equations: Callable[[], Sequence[Equation]]


Mutate = Callable[[Equation], Iterator[EquationChange]]


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind of change.

    Attributes:
      name: the name in results and options.
      bug: the bug that it plants.
      mutate: yields the changes of an equation; nothing for equations to which it does not apply.
    """

    name: str
    bug: str
    mutate: Mutate


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
        bug = (mutate.__doc__ or "").strip().rstrip(".")
        OPERATORS.add(Operator(mutate.__name__.replace("_", "-"), bug, mutate), mutate.__module__, order)
        return mutate

    return register
