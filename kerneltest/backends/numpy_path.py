"""The fast path of JAX's interpreters: kernels evaluated in NumPy instead of code that XLA compiles.

An evaluation is compared with JAX's own interpreter, bit for bit, on the first case of each signature with equations
of a new kind, and with compiled code once for a pairing and dtype, within the oracle's bounds.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from kerneltest.backends.base import Agree, Executable, Inputs
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.guard import warn_of_recovery
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.scalars import UnknownError
from kerneltest.trace.tracing import Traced

_DOING = "preparing to evaluate a kernel in NumPy"


class NumpyExecutable(Executable, Protocol):
    """A kernel evaluated in NumPy."""

    @property
    def kinds(self) -> frozenset[Hashable]:
        """The kinds of the kernel's equations, as `equation_kinds` returns them; none if JAX's interpreter runs."""
        ...

    def is_faithful(self, leaves: Sequence[Array]) -> bool:
        """Checks whether JAX's own interpreter gives the same bits for some inputs."""
        ...


class NumpyPath:
    """Evaluations of the kernels of one pairing in one dtype.

    Args:
      evaluate: returns the evaluation of a kernel; None, or an exception, if a kernel needs a compiler.
      compiled: returns the compiled kernel.
      count: called for each evaluation that is prepared.
    """

    def __init__(
        self,
        evaluate: Callable[[Traced], NumpyExecutable | None],
        compiled: Callable[[Traced], Executable],
        count: Callable[[], None],
    ) -> None:
        self._evaluate, self._compiled, self._count = evaluate, compiled, count
        self._evaluations: dict[Traced, NumpyExecutable | None] = {}
        self._faithful: dict[Traced, bool] = {}
        self._known_kinds: set[Hashable] = set()  # of equations that were evaluated faithfully
        self._compares_all = False  # once an evaluation was not faithful
        self._agrees_with_compiled: bool | None = None  # not compared yet
        self._contradicted = False

    def covers(self, traced: Traced) -> bool:
        return self.prepare_unchecked(traced) is not None

    def prepare_checked(self, traced: Traced, inputs: Inputs, agree: Agree) -> NumpyExecutable | None:
        if self._agrees_with_compiled is False:
            return None
        evaluation = self.prepare_unchecked(traced)
        if evaluation is None:
            return None
        if traced not in self._faithful:
            self._faithful[traced] = False  # stays so if the comparison raises
            leaves, kinds = inputs(), evaluation.kinds
            is_known = kinds <= self._known_kinds and not self._compares_all
            self._faithful[traced] = is_known or evaluation.is_faithful(leaves)
            if self._faithful[traced]:
                self._known_kinds |= kinds
            else:
                self._compares_all = True
            if self._faithful[traced] and self._agrees_with_compiled is None:
                self._agrees_with_compiled = False
                wanted = self._compiled(traced).run(leaves)
                self._agrees_with_compiled = agree(evaluation.run(leaves), wanted, evaluation.precision)
                self._contradicted = not self._agrees_with_compiled
        return evaluation if self.is_trusted(traced) else None

    def is_trusted(self, traced: Traced) -> bool:
        return self._faithful.get(traced, False) and bool(self._agrees_with_compiled)

    def is_contradicted(self, traced: Traced) -> bool:
        return self._contradicted and self._faithful.get(traced, True)

    def prepare_unchecked(self, traced: Traced) -> NumpyExecutable | None:
        if traced not in self._evaluations:
            evaluation = self._evaluations[traced] = self._evaluate_or_none(traced)
            if evaluation is not None:
                self._count()
        return self._evaluations[traced]

    def _evaluate_or_none(self, traced: Traced) -> NumpyExecutable | None:
        """Returns the evaluation of a kernel; None if it needs a compiler, which then reports any fault of it."""
        try:
            return self._evaluate(traced)
        except Failure as failure:
            if failure.verdict is Verdict.HANG:
                raise
            warn_of_recovery(failure, _DOING, UnknownError)
        except Exception as error:  # whatever it is, code that JAX compiles does not depend on it
            warn_of_recovery(error, _DOING, UnknownError)
        return None
