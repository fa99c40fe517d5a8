"""A small map, and maps like it with another outcome, for the tests of this folder."""

from dataclasses import replace
from typing import Any

from kerneltest.lowering_map.map import LoweringMap, LoweringOutcome, Result

_UNIMPLEMENTED = "Unimplemented primitive: sort"
_TARGETS = ("sm_90", "gfx942")

EXP = Result("exp", "elementwise", LoweringOutcome.LOWERS, "", ("float32", "float16"), _TARGETS)
SORT = Result("sort", "indexing", LoweringOutcome.UNIMPLEMENTED, _UNIMPLEMENTED, ("float32",), _TARGETS)
MAP = LoweringMap(2, "1.2.3", "1.2.3", "3.12.1", "", _TARGETS, (EXP, SORT))


def with_exp(outcome: str, **changed: Any) -> LoweringMap:
    """`MAP` with another outcome for `exp`, and other fields if given."""
    known = LoweringOutcome(outcome)
    result = replace(EXP, outcome=known, message="" if known.is_lowered else "why", **changed)
    return replace(MAP, results=(result, SORT))
