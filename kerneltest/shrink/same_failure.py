"""The test by which a smaller case shows the same failure as the original one."""

import numpy as np

from kerneltest.core.details import Mismatch
from kerneltest.records.evidence import Element, Evidence
from kerneltest.records.schema import Record


def resembles(record: Record, other: Record) -> bool:
    """Checks whether two cases of a family fail in the same way.

    They do if their verdicts are equal, and, for wrong values, the output (or the argument of the gradient) and the
    kind of error of the worst element; for other failures, the essence of their details and the source line.
    """
    return record.verdict == other.verdict and _common_traits(record) == _common_traits(other)


def _common_traits(record: Record) -> tuple[object, ...]:
    """Returns what records of failures of the same kind have in common."""
    evidence, detail = record.evidence or Evidence(), record.detail
    if evidence.actual is not None and evidence.expected is not None:
        gradient_of = detail.gradient_of if isinstance(detail, Mismatch) else ""
        return evidence.output, gradient_of, _kind_of_error(evidence.actual, evidence.expected)
    return (detail.essence, detail.place) if detail is not None else ()


def _kind_of_error(actual: Element, expected: Element) -> str:
    """Returns the kind of error of an element, for comparison with others."""
    got, wanted = float(actual), float(expected)
    if np.isfinite(got) and not np.isfinite(wanted):
        return f"finite, not {wanted}"
    if got == wanted == 0:
        return "wrong sign of zero"
    return "off" if np.isfinite(got) else str(got)
