"""What makes a bound, as records keep it and as people read it."""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from kerneltest.core.source_location import shown
from kerneltest.numerics.error_budget import Share
from kerneltest.records.schema import BudgetPart

_MOST, _LEAST = 5, 0.01  # parts of a record, and how large each is
_MOST_TOLD, _LEAST_TOLD = 3, 0.05  # the same of a line
_UNSTABLE = 32.0  # a function of 16 ulps is below it


def budget(shares: Iterable[Share]) -> tuple[BudgetPart, ...]:
    """The largest parts of a bound, largest first; what they lack of 1 is made by many small ones."""
    return tuple(
        BudgetPart(
            each.source.words,
            shown(each.source.place.file),
            each.source.place.line,
            round(each.part, 4),
            float(f"{each.amplified:.3g}") if each.source.kind == "rounding" else 0.0,
        )
        for each in list(shares)[:_MOST]
        if each.part >= _LEAST
    )


def in_words(parts: Sequence[BudgetPart]) -> str:
    """`72% TF32 rounding of the operands of `q @ k.T` (test_attention.py:12), 20% ...`; "" where nothing is known."""
    told = [part for part in parts[:_MOST_TOLD] if part.part >= _LEAST_TOLD]
    return ", ".join(f"{part.part:.0%} {_placed(part)}" for part in told)


def unstable(parts: Sequence[BudgetPart]) -> str:
    """Which operation of the oracle moves the result much farther than its inputs do, and what to do; "" for none."""
    worst = max(parts, key=lambda part: part.amplified, default=None)
    if worst is None or worst.amplified < _UNSTABLE:
        return ""
    return (
        f"{_placed(worst)} moves the result {worst.amplified:,.0f} times as far as a rounding of the inputs does: a "
        "formula that cancels less there, if there is one, makes the bound tighter"
    )


def too_wide(shares: Sequence[Share], tolerance: str) -> str:
    """Why a bound says nothing, and what to do about it."""
    said, parts = f"zeros would pass, so wide is the bound by {tolerance}", budget(shares)
    if not parts:
        return f"{said}: choose a tighter error model"
    return f"{said}: {in_words(parts)}\n{unstable(parts) or _advice(shares[0])}"


def _advice(largest: Share) -> str:
    if largest.source.kind.endswith(" operands"):
        return (
            "if the kernel asks for full precision of its products, name the static argument that does: "
            "kt.tolerance.rounding(precision=NAME)"
        )
    return "give values that cancel less (domain=), or a closed form of the bound, such as kt.tolerance.reduction"


def _placed(part: BudgetPart) -> str:
    return f"{part.words} ({PurePosixPath(part.file).name}:{part.line})" if part.file else part.words
