"""Error budgets: the parts of a bound as records keep them, and in words."""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from kerneltest.core.source_location import relative_path
from kerneltest.numerics.error_budget import ErrorShare
from kerneltest.records.evidence import BudgetPart

_MOST, _LEAST = 5, 0.01  # parts that a record keeps, and the smallest part
_MOST_SHOWN, _LEAST_SHOWN = 3, 0.05  # parts that a line shows, and the smallest part
_UNSTABLE = 32.0  # amplification of a rounding; a function with an error of 16 ulps stays below it


def budget_parts(shares: Iterable[ErrorShare]) -> tuple[BudgetPart, ...]:
    """Returns the largest parts of a bound, largest first; many small ones make up the rest."""
    return tuple(
        BudgetPart(
            each.source.description,
            relative_path(each.source.origin.file),
            each.source.origin.line,
            round(each.part, 4),
            float(f"{each.amplified:.3g}") if each.source.kind == "rounding" else 0.0,
        )
        for each in list(shares)[:_MOST]
        if each.part >= _LEAST
    )


def format_budget(parts: Sequence[BudgetPart]) -> str:
    """Formats parts: `72% TF32 rounding of the operands of `q @ k.T` (test_attention.py:12), 20% ...`."""
    shown_parts = [part for part in parts[:_MOST_SHOWN] if part.part >= _LEAST_SHOWN]
    return ", ".join(f"{part.part:.0%} {_format_part(part)}" for part in shown_parts)


def instability_note(parts: Sequence[BudgetPart]) -> str:
    """Returns a note on the oracle's operation that amplifies rounding most, and what to do; "" if none does."""
    worst = max(parts, key=lambda part: part.amplified, default=None)
    if worst is None or worst.amplified < _UNSTABLE:
        return ""
    return (
        f"{_format_part(worst)} moves the result {worst.amplified:.3g} times as far as a rounding of the inputs does: "
        "a formula that cancels less there, if there is one, makes the bound tighter"
    )


def vacuous_bound_note(shares: Sequence[ErrorShare], tolerance: str) -> str:
    """Returns a note on why a bound is vacuous, and what to do about it."""
    problem, parts = f"the bound by {tolerance} is so wide that zeros would pass", budget_parts(shares)
    if not parts:
        return f"{problem}: choose a tighter error model"
    return f"{problem}: {format_budget(parts)}\n{instability_note(parts) or _advice(shares[0])}"


def _advice(largest: ErrorShare) -> str:
    if largest.source.kind.endswith(" operands"):
        return (
            "if the kernel asks for full precision of its products, name the static argument that does: "
            "kt.tolerance.rounding(precision=NAME)"
        )
    return "give values that cancel less (domain=), or a closed form of the bound, such as kt.tolerance.reduction"


def _format_part(part: BudgetPart) -> str:
    return f"{part.words} ({PurePosixPath(part.file).name}:{part.line})" if part.file else part.words
