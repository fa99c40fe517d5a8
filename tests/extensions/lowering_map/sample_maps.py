"""A small map, and maps like it with another outcome, for the tests of this folder."""

from dataclasses import replace
from typing import Any

from kerneltest.extensions.lowering_map.model import LoweringMap, LoweringOutcome, LoweringResult

_UNIMPLEMENTED = "Unimplemented primitive: sort"
_TARGETS = ("sm_90", "gfx942")

EXP = LoweringResult("exp", "elementwise", LoweringOutcome.LOWERS, "", ("float32", "float16"), _TARGETS)
SORT = LoweringResult("sort", "indexing", LoweringOutcome.UNIMPLEMENTED, _UNIMPLEMENTED, ("float32",), _TARGETS)
MAP = LoweringMap(2, "1.2.3", "1.2.3", "3.12.1", "", "", _TARGETS, (EXP, SORT))


def with_exp(outcome: str, **changed: Any) -> LoweringMap:
    """`MAP` with another outcome for `exp`, and other fields if given."""
    known = LoweringOutcome(outcome)
    result = replace(EXP, outcome=known, message="" if known.is_lowered else "why", **changed)
    return replace(MAP, results=(result, SORT))


def with_tpu(outcome: str) -> LoweringMap:
    """`MAP` with a TPU, which is asked for `exp` with some outcome, and for blocks, which GPUs do not have."""
    known = LoweringOutcome(outcome)
    asked = replace(EXP, outcome=known, message="" if known.is_lowered else "why", targets=("tpu-v5e",))
    blocks = LoweringResult("blocks", "blocks", LoweringOutcome.LOWERS, "", ("float32",), ("tpu-v5e",))
    return replace(MAP, targets=(*_TARGETS, "tpu-v5e"), results=(EXP, asked, SORT, blocks))
