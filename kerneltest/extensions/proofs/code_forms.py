"""Forms of a kernel's code: equal code but for numbers, each of which is a formula of the sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kerneltest.extensions.proofs.formulas import FormulaLanguage, Sizes, SizeTest
from kerneltest.extensions.proofs.lowered_code import LoweredCode
from kerneltest.extensions.proofs.polynomial import Polynomial
from kerneltest.extensions.proofs.program_slice import SliceStep
from kerneltest.extensions.proofs.size_samples import Row

TestResults = tuple[tuple[SizeTest, bool], ...]


@dataclass(frozen=True)
class Form:
    """The code of a Pallas call at some sizes.

    Attributes:
      code: with formulas of the sizes as numbers; None if the kernel makes no such call at these sizes.
      when: tests on the sizes that have this form, with their results.
      seen: the sampled sizes that have it.
    """

    code: LoweredCode[Polynomial] | None
    when: TestResults
    seen: tuple[Row, ...]

    def covers(self, sizes: Sizes) -> bool:
        """Returns whether the code has this form at some sizes."""
        return all(test(sizes) == holds for test, holds in self.when)

    def __str__(self) -> str:
        return " and ".join(test.describe(holds) for test, holds in self.when) or "all sizes"


@dataclass(frozen=True)
class Forms:
    """All forms of a kernel's calls.

    Attributes:
      calls: the forms of each Pallas call, in order.
      language: of their formulas.
      seen: the number of sampled sizes at which the kernel lowers.
      refused: the number of those at which it does not.
    """

    calls: tuple[tuple[Form, ...], ...]
    language: FormulaLanguage
    seen: int
    refused: int


def align_program_ids(codes: Sequence[LoweredCode[int] | None]) -> list[LoweredCode[int] | None]:
    """Rewrites codes so that they read the same program ids, if that is all in which their structures differ.

    Lowering replaces a program id by 0 if the grid has one program along its axis.
    """
    groups: dict[LoweredCode[int], list[int]] = {}
    for i, code in enumerate(codes):
        if code is not None:
            groups.setdefault(_without_program_ids(code).skeleton(), []).append(i)
    aligned = list(codes)
    for numbers in groups.values():
        columns = zip(*(code.body.steps for i in numbers if (code := codes[i]) is not None), strict=True)
        steps = tuple(max(column, key=lambda step: step.name == "tt.get_program_id") for column in columns)
        for i in numbers:
            code = codes[i]
            assert code is not None
            aligned[i] = with_program_ids(code, replace(code, body=replace(code.body, steps=steps)))
    return aligned


def _without_program_ids(code: LoweredCode[int]) -> LoweredCode[int]:
    steps = tuple(
        replace(step, name="arith.constant", numbers=(0,), fixed=()) if step.name == "tt.get_program_id" else step
        for step in code.body.steps
    )
    return replace(code, body=replace(code.body, steps=steps))


def with_program_ids(code: LoweredCode[int], like: LoweredCode[int]) -> LoweredCode[int]:
    """Returns code in which each 0 that replaces a program id of `like` is that program id again."""
    if len(code.body.steps) != len(like.body.steps):
        return code
    steps = tuple(
        other if _is_replaced(own, other, code.grid) else own
        for own, other in zip(code.body.steps, like.body.steps, strict=True)
    )
    return replace(code, body=replace(code.body, steps=steps))


def _is_replaced(own: SliceStep[int], other: SliceStep[int], grid: tuple[int, ...]) -> bool:
    """Returns whether a step is the 0 that replaces another step's program id."""
    if other.name != "tt.get_program_id" or own.name != "arith.constant" or own.numbers != (0,):
        return False
    return own.results == other.results and own.types == other.types and grid[dict(other.fixed)["axis"]] == 1
