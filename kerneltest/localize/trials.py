"""Trials: cases made for an experiment, judged in NumPy where it agrees with the backend about recorded cases."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.localize.equation_replay import EquationReplay, EvaluatedKernel, equation_replays
from kerneltest.plan.explicit import AnyCase

# Without the roundings of the kernel's dtypes, too, or only with them, whichever agrees better with the backend.
_JUDGES: tuple[Callable[[EquationReplay], bool], ...] = (attrgetter("is_wrong"), attrgetter("is_wrong_as_rounded"))


class Trials:
    """Judges cases made for an experiment in NumPy.

    Attributes:
      count: number of cases judged.
      agrees: whether NumPy finds the failing case wrong, and at most half of those that passed.
    """

    def __init__(
        self, pairing: Pairing, family: str, failing: AnyCase, passing: Sequence[AnyCase], cache: Cache
    ) -> None:
        self._pairing, self._family, self._cache = pairing, family, cache.branch()
        self._kernels: dict[int, EvaluatedKernel] = {}
        self.count = 0
        bad = list(self._replays([failing]))
        good = list(self._replays(passing)) if bad else []
        self._judge = min(_JUDGES, key=lambda judge: (not any(map(judge, bad)), sum(map(judge, good))))
        self.agrees = any(map(self._judge, bad)) and sum(map(self._judge, good)) * 2 <= len(good)

    def fails(self, cases: Iterable[AnyCase]) -> bool | None:
        """Returns whether one of some cases fails; None if none of them could be judged."""
        verdict = None
        for replay in self._replays(cases):
            verdict = self._judge(replay)
            if verdict:
                break
        return verdict

    def _replays(self, cases: Iterable[AnyCase]) -> Iterator[EquationReplay]:
        for replay in equation_replays(
            self._pairing, cases, self._family, distinctive=False, cache=self._cache, kernels=self._kernels
        ):
            self.count += 1
            yield replay
