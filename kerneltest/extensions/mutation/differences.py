"""The cases in which a mutant's bits differ from the kernel's, evaluated for a whole signature at once.

All other cases have the kernel's own verdict, so they are not judged. A case counts as different if its outputs differ
in the kernel's own dtypes, or without rounding: the pairing tests both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kerneltest.backends.interpret import NumpyEvaluation, evaluate
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.execute.batching import kernel_inputs
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.promoted_outputs import NotPromotedError, formula_kernel
from kerneltest.plan.explicit import AnyCase
from kerneltest.trace.tracing import Traced

_Outputs = list[Array] | None  # of all cases, (cases, *shape) each; None if they cannot be evaluated


@dataclass(slots=True)
class SignatureCases:
    """The cases of one signature, with the outputs of the kernel itself.

    Attributes:
      pairs: the cases, each with its item.
    """

    pairs: list[tuple[Item, AnyCase]] = field(default_factory=list)
    _inputs: list[Array] | None = None
    _own: _Outputs = None
    _wide: _Outputs = None
    _is_evaluated: bool = False
    _is_widened: bool = False

    def differing(
        self, plain: Cache, original: Traced, mutated: Cache, mutant: Traced, *, with_wide: bool = True
    ) -> Iterator[tuple[tuple[Item, AnyCase], float | None]]:
        """Yields the cases in which a mutant's bits differ, first in its own dtypes and then without rounding.

        Args:
          plain: the kernel's cache.
          original: the kernel.
          mutated: the mutant's cache.
          mutant: the mutant.
          with_wide: whether to compare them without rounding too.

        Yields:
          A case with its item, and the largest difference relative to the largest result; None if that is unknown.
        """
        if self._inputs is None:
            columns = zip(*(kernel_inputs(item, case, plain) for item, case in self.pairs), strict=True)
            self._inputs = [np.stack(column) for column in columns]
        if not self._is_evaluated:
            self._is_evaluated, self._own = True, _own(original, self._inputs)
        if with_wide and not self._is_widened:
            self._is_widened, self._wide = True, self._without_rounding(plain, original)
        seen: set[int] = set()
        for before, is_own in ((self._own, True), (self._wide, False))[: 1 + with_wide]:
            if before is None and seen:
                continue
            outputs = _own(mutant, self._inputs) if is_own else self._without_rounding(mutated, mutant)
            for row, pair in enumerate(self.pairs):
                if row in seen:
                    continue
                size = None if before is None or outputs is None else _difference(before, outputs, row)
                if size != 0:
                    seen.add(row)
                    yield pair, size

    def _without_rounding(self, cache: Cache, traced: Traced) -> _Outputs:
        item, case = self.pairs[0]
        try:
            return list(formula_kernel(item, case, cache, traced)(self._inputs or []))
        except NotPromotedError:
            return None
        except Exception:  # told where the case is judged
            return None


def _own(traced: Traced, inputs: Sequence[Array]) -> _Outputs:
    try:
        evaluation = evaluate(traced)
        if not isinstance(evaluation, NumpyEvaluation):
            return None
        for leaves in zip(*inputs, strict=True):
            evaluation.check_blocks(leaves)
        return list(evaluation.rows(inputs))
    except Failure:
        return None
    except Exception:  # told where the case is judged
        return None


def _difference(before: Sequence[Array], outputs: Sequence[Array], row: int) -> float:
    """Returns the largest difference of a case, relative to the largest result; infinite if one is NaN."""
    largest = 0.0
    for old, new in zip(before, outputs, strict=True):
        if old[row].tobytes() == new[row].tobytes():
            continue
        with np.errstate(all="ignore"):
            one, other = new[row].astype(np.float64), old[row].astype(np.float64)
            same = (one == other) | (np.isnan(one) & np.isnan(other))
            error = np.where(same, 0.0, np.abs(one - other))
            size = np.max(np.abs(other[np.isfinite(other)]), initial=0.0) or 1.0
            found = np.max(np.where(np.isnan(error), np.inf, error / size), initial=0.0)
        largest = max(largest, float(found), np.finfo(np.float64).tiny)
    return largest
