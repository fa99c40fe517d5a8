"""Variations of a call run without compiling them, where the plain call comes out as the compiled one does."""

from collections.abc import Callable

from kerneltest.backends.base import Executable
from kerneltest.core.dtypes import widen
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.jaxprs.trace import Traced
from kerneltest.judge.compare import compare
from kerneltest.run.asked import Asked
from kerneltest.run.item import Outcome

Prepare = Callable[[Traced], Executable]


class NotKnownError(Exception):
    """A variation that only a compiler can run."""


def without_compiling(asked: Asked, judge: Callable[[Prepare], Outcome]) -> Outcome | None:
    """A pass of a case whose variations run without being compiled; None where there is none.

    What does not pass says nothing: the compiled variations are asked.

    Args:
      asked: the case.
      judge: the case, given what runs its variations.
    """

    def prepare(traced: Traced) -> Executable:
        if (executable := _uncompiled(asked, traced)) is None:
            raise NotKnownError
        return executable

    try:
        outcome = judge(prepare) if _agrees(asked) else None
    except Failure as failure:
        if failure.verdict is Verdict.HANG:
            raise
        return None
    except Exception:
        return None
    return outcome if outcome is not None and outcome.record.verdict is Verdict.PASS else None


def _uncompiled(asked: Asked, traced: Traced) -> Executable | None:
    known, key = asked.cache.uncompiled, (asked.backend.id, traced)
    if key not in known:
        known[key] = asked.backend.uncompiled(traced)
    return known[key]


def _agrees(asked: Asked) -> bool:
    """Whether the plain call comes out right, or wrong, as the compiled one does; asked once a signature."""
    executable = _uncompiled(asked, asked.traced)
    if executable is None:
        return False
    wanted = asked.cache.executable(asked.backend, asked.traced).run(asked.leaves)
    bounds = asked.expectation.all_bounds(wanted, executable.precision)
    pairs = zip(executable.run(asked.leaves), wanted, bounds, strict=True)
    if any(compare(got, widen(want), bound, signed_zeros=False).wrong.any() for got, want, bound in pairs):
        asked.cache.uncompiled[asked.backend.id, asked.traced] = None
        return False
    return True
