"""Kernels without rounding, and what comparing them with the oracle has found, for the pairing at hand."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kerneltest.core.dtypes import Array
from kerneltest.execute.bounded_store import BoundedStore
from kerneltest.judge.compare import Comparison
from kerneltest.records.schema import FormulaAnswer
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel
from kerneltest.trace.batched_interpreter.sampling_rule import SampleArithmetic
from kerneltest.trace.tracing import Traced

_MAX_BYTES = 2**26  # of comparisons, and of samples


def _comparison_bytes(found: Sequence[Comparison]) -> int:
    return sum(each.bytes for each in found)


def _sample_bytes(samples: Sequence[Array]) -> int:
    return sum(each.nbytes for each in samples)


@dataclass(slots=True)
class FormulaCache:
    """Kernels with their floats promoted to float64, and answers about their formulas.

    A wrong output is judged twice, on a fast path and on the prepared executable, and again on every other backend.
    What a comparison finds without rounding is the same each time.

    Attributes:
      kernels: with their floats promoted, constants included where that is possible.
      own_kernels: the same, with the constants of the kernels' own dtypes; the reason if there is none.
      unrounded: the same without explicit rounding; None for a kernel that has none.
      outputs: of such kernels, evaluated ahead of their cases' turn.
      samples: of such kernels in the formula's arithmetic, evaluated ahead likewise.
      sampled: how often samples were asked, by kernel.
      unbatched: the kernels of which several cases cannot be sampled at once.
      right: the answers for kernels and cases whose formula is not wrong.
      comparisons: with the oracle, for cases with wrong outputs; () if they cannot be made.
      own_samples: of kernels in a format, for such cases; () likewise.
    """

    kernels: dict[Traced, PromotedKernel] = field(default_factory=dict)
    own_kernels: dict[Traced, PromotedKernel | str] = field(default_factory=dict)
    unrounded: dict[Traced, PromotedKernel | None] = field(default_factory=dict)
    outputs: dict[tuple[Traced, str], tuple[Array, ...]] = field(default_factory=dict)
    samples: BoundedStore[tuple[Traced, str], tuple[Array, ...]] = field(
        default_factory=lambda: BoundedStore(_MAX_BYTES, _sample_bytes)
    )
    sampled: Counter[Traced] = field(default_factory=Counter)
    unbatched: set[Traced] = field(default_factory=set)
    right: dict[tuple[Traced, str], FormulaAnswer] = field(default_factory=dict)
    comparisons: BoundedStore[tuple[Traced, str], Sequence[Comparison]] = field(
        default_factory=lambda: BoundedStore(_MAX_BYTES, _comparison_bytes)
    )
    own_samples: BoundedStore[tuple[Traced, str, SampleArithmetic], Sequence[Array]] = field(
        default_factory=lambda: BoundedStore(_MAX_BYTES, _sample_bytes)
    )
