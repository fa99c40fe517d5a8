"""The group of drawn cases (`--kt-fuzz`): Hypothesis draws them, the same on any machine, and shrinks failing ones."""

import functools
import hashlib
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import ml_dtypes
import numpy as np

from kerneltest.core.details import Stated
from kerneltest.core.dtypes import DType, float_format, is_float, is_integer, parse_dtype
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.value_groups import ValueGroup
from kerneltest.plan import DEPTHS
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.explicit import DRAWN_FAMILY, AnyCase, ExplicitCase, Recipe, explicit_case, signature_pool
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


# Hypothesis strategies for the cases of a pairing. Values are drawn before the signature, so they shrink first.

_MAX_CHANGES = 6  # elements of an argument that are drawn one by one; all others are a family's
_MAX_INTEGER = 2**16  # of positions and seeds
_TINY = 2.0**-20  # smaller numbers are drawn together with subnormals, not with ordinary numbers

Draw = Callable[[Any], Any]  # returns a value of a strategy, as Hypothesis passes it to a composite strategy
Dtypes = tuple[tuple[str, str], ...]  # of a signature: each leaf's path and dtype

# A difficulty, and the path of the argument that must have it.
Difficulty = tuple[str, str]
_NO_DIFFICULTY: Difficulty = ("", "")
_NON_FINITE, _SUBNORMAL, _FAMILY = "non-finite", "subnormal", "family"


class MissingHypothesisError(ImportError):
    """Hypothesis is not installed. The message says how to install it."""


def import_hypothesis() -> Any:
    """Returns the Hypothesis package, which is imported on first use; raises a MissingHypothesisError."""
    try:
        import hypothesis
        import hypothesis.strategies
    except ImportError as error:
        raise MissingHypothesisError(
            "drawing cases needs Hypothesis, which is not installed: pip install 'kerneltest[fuzz]' "
            "or pip install hypothesis"
        ) from error
    return hypothesis


def cases(pairing: Pairing, depth: str = "standard") -> "SearchStrategy[ExplicitCase]":
    """Returns a Hypothesis strategy for cases of a pairing, to pass to `assert_conforms`.

    Every argument has the values of a family, or zeros, with up to six elements drawn one by one. A case has at most
    one difficulty: non-finite numbers, subnormals, or one argument filled by a family such as `largest_finite`. With
    two of them, the right result would be ambiguous if a sum overflows or a subnormal is flushed.

    At most sixteen signatures are drawn, so that no more are compiled. Examples shrink to zeros, few changed elements
    and small numbers, then to the shortest signature that still fails.

    Args:
      pairing: the pairing.
      depth: the depth of the plan from which most signatures come: quick, standard or deep.

    Raises:
      MissingHypothesisError: Hypothesis is not installed.
      ValueError: the depth is unknown.
    """
    if depth not in DEPTHS:
        raise ValueError(f"unknown depth {depth!r}; known are {', '.join(DEPTHS)}")
    return strategy_for(pairing, pairing.name, signature_pool(pairing, depth))


def strategy_for(pairing: Pairing, pairing_id: str, signatures: Sequence[Signature]) -> "SearchStrategy[ExplicitCase]":
    """Returns a strategy for cases with one of some signatures, of which there is at least one, simplest first."""
    st = import_hypothesis().strategies
    choices = list(dict.fromkeys(signature.dtypes for signature in signatures))
    fitting = {dtypes: [s for s in signatures if s.dtypes == dtypes] for dtypes in choices}
    derived = {path for path, leaf in pairing.leaves.items() if leaf.derivation}

    @functools.cache
    def difficulties(dtypes: Dtypes) -> list[Difficulty]:
        possible = [_NO_DIFFICULTY]
        for path, dtype in dtypes:
            if pairing.leaves[path].kind.is_data and is_float(parse_dtype(dtype)):
                possible += [(_NON_FINITE, path), (_SUBNORMAL, path)]
            if _families_for(pairing, path, fitting[dtypes], each=True):
                possible.append((_FAMILY, path))
        return possible

    @functools.cache  # making a strategy takes longer than drawing from it
    def recipe(path: str, dtypes: Dtypes, difficulty: Difficulty) -> "SearchStrategy[Recipe]":
        return _recipe(pairing, path, dtypes, fitting[dtypes], difficulty)

    @st.composite  # type: ignore[untyped-decorator]
    def draw_case(draw: Draw) -> ExplicitCase:
        dtypes = draw(st.sampled_from(choices))
        difficulty = draw(st.sampled_from(difficulties(dtypes)))
        recipes = {path: draw(recipe(path, dtypes, difficulty)) for path, _ in dtypes if path not in derived}
        return explicit_case(pairing, pairing_id, draw(st.sampled_from(fitting[dtypes])), recipes)

    strategy: SearchStrategy[ExplicitCase] = draw_case()
    return strategy


def _recipe(
    pairing: Pairing, path: str, dtypes: Dtypes, signatures: Sequence[Signature], difficulty: Difficulty
) -> "SearchStrategy[Recipe]":
    """Returns a strategy for the values of one argument."""
    st = import_hypothesis().strategies
    by_family = difficulty == (_FAMILY, path)
    names = _families_for(pairing, path, signatures, each=by_family)
    if not by_family:
        names = ["", *names]
    values = _values(pairing.leaves[path], parse_dtype(dict(dtypes)[path]), difficulty[0])
    positions = st.sampled_from([0, -1]) | st.integers(0, _MAX_INTEGER)
    changes = st.lists(
        st.tuples(positions, values), min_size=int(path == difficulty[1]) - by_family, max_size=_MAX_CHANGES
    )

    @st.composite  # type: ignore[untyped-decorator]
    def draw_recipe(draw: Draw) -> Recipe:
        name = draw(st.sampled_from(names))
        # Zeros need no seed, so Hypothesis takes them as simpler than any family.
        seed = draw(st.integers(0, _MAX_INTEGER)) if name else 0
        return Recipe(name, seed, by_family and draw(st.sampled_from([True, False])), draw(changes))

    recipe: SearchStrategy[Recipe] = draw_recipe()
    return recipe


def _values(leaf: ArrayArgument, dtype: DType, difficulty: str) -> Any:
    """Returns a strategy for single elements: difficult ones only, or ordinary ones and the ends of ranges."""
    st = import_hypothesis().strategies
    if not (leaf.kind.is_data or leaf.kind.is_mask):
        return st.sampled_from([0, -1]) | st.integers(0, _MAX_INTEGER)
    if leaf.kind.is_data and is_integer(dtype):
        info = ml_dtypes.iinfo(dtype)
        domain = leaf.interval(dtype.name)
        ends = [math.ceil(max(domain.low, int(info.min))), math.floor(min(domain.high, int(info.max)))]
        return st.integers(*ends) | st.sampled_from(ends)
    if not (leaf.kind.is_data and is_float(dtype)):
        return st.booleans()
    low, high = _float_range(leaf, dtype)
    whole = st.integers(max(-9, math.ceil(low)), min(9, math.floor(high))) if high - low > 1 else st.nothing()
    ordinary = whole | st.floats(low, high).map(lambda x: 0.0 if abs(x) < _TINY else x)
    if low <= 0 <= high:
        ordinary |= st.just(-0.0)
    domain = leaf.interval(dtype.name)
    specials = [np.nan] * domain.admits_nan + [sign * np.inf for sign in (1, -1) if domain.admits_infinity(sign)]
    if difficulty == _NON_FINITE and specials:
        return st.sampled_from(specials)
    if difficulty == _SUBNORMAL and low <= 0 <= high:
        tiny = float_format(dtype).smallest_subnormal
        return st.sampled_from([tiny, -tiny]) | st.floats(max(low, -_TINY), min(high, _TINY))
    return ordinary


def _families_for(pairing: Pairing, path: str, signatures: Sequence[Signature], *, each: bool) -> list[str]:
    """Returns the names of the families, plain ones first, that can fill an argument in at least one signature.

    These are either the families that fill one argument at a time or the others, according to `each`.
    """
    slots = [signature_slots(pairing, signature)[path] for signature in signatures]
    names = [f.name for f in FAMILIES.values() if f.each == each and any(map(f.applies, slots))]
    # Every family fills an argument to which no family applies, such as an index, with ordinary values.
    return names if names or each else ["small_integers"]


def _float_range(leaf: ArrayArgument, dtype: DType) -> tuple[float, float]:
    """Returns the range of ordinary numbers of an argument: its domain, with infinite ends replaced by finite ones.

    These are so small that sums of products of two numbers do not overflow the dtype, since the result of an overflow
    depends on the order of the sum.
    """
    limit = min(1024.0, 2.0 ** (float_format(dtype).max_exponent // 2 - 2))
    domain = leaf.interval(dtype.name)
    low, high = domain.low, domain.high
    return (
        low if np.isfinite(low) else min(-limit, high),
        high if np.isfinite(high) else max(limit, low),
    )


_MAX_SHRINKS = 400  # cases judged to shrink one; a count rather than a time, so that every machine finds the same case
_TRIES = 4  # draws for each case at most, since different draws may give equal values

JudgeCase = Callable[[AnyCase], Outcome]


@functools.lru_cache(maxsize=1)  # the backends of a pairing come one after another, with the same cases
def draw_cases(
    pairing: Pairing, pairing_id: str, dtype: str, depth: str, seed: int, count: int
) -> tuple[ExplicitCase, ...]:
    """Draws `count` cases for one dtype of a pairing, by the arguments only; raises a MissingHypothesisError.

    If there are fewer distinct cases, they repeat with other numbers.
    """
    distinct: dict[str, ExplicitCase] = {}

    def is_last(case: ExplicitCase) -> bool:
        if len(distinct) < count:
            distinct.setdefault(case.id, case)
        # Hypothesis calls this again for the case at which it stops, and needs the same answer.
        return len(distinct) == count and case.id == next(reversed(distinct))

    _find_example(pairing, pairing_id, dtype, depth, seed, count, is_last)
    cases = itertools.islice(itertools.cycle(distinct.values()), count)
    return tuple(replace(case, number=number) for number, case in enumerate(cases))


class FuzzGroup(ValueGroup):
    """The group of the cases that Hypothesis draws."""

    def __init__(self) -> None:
        super().__init__(GroupName.DRAWN)

    def cases(self, item: Item) -> Iterator[AnyCase]:
        return iter(draw_cases(item.pairing, item.pairing_id, item.dtype, item.depth, item.seed, item.settings.fuzz))

    def families(self, item: Item) -> Mapping[str, int]:
        return {DRAWN_FAMILY.name: item.settings.fuzz}

    def ids(self, item: Item) -> Mapping[str, Sequence[str]]:
        """Returns {}, since a failing case is replaced by a smaller one during the run."""
        return {}

    def outcomes(
        self, item: Item, planned: Sequence[AnyCase], cache: Cache, judge_case: JudgeCase
    ) -> Iterator[Outcome]:
        """Yields the outcome of each case. The first finding with each verdict is that of the smallest such case.

        Only these have their arguments, since later findings with the same verdict add little.
        """
        self.prepare(item, planned, cache)
        verdicts: dict[str, Verdict] = {}
        shrunk: set[Verdict] = set()
        for case in planned:
            assert isinstance(case, ExplicitCase)
            outcome = judge_case(case)
            verdict = outcome.record.verdict
            verdicts[_content_id(case)] = verdict
            if verdict in shrunk:
                outcome = replace(outcome, arguments=None)
            elif verdict.is_finding:
                shrunk.add(verdict)
                again = judge_case(_shrink(item, case, verdict, verdicts, cache, judge_case))
                outcome = again if again.record.verdict.is_finding else _nondeterministic(item, outcome, again)
            yield outcome


def _nondeterministic(item: Item, first: Outcome, second: Outcome) -> Outcome:
    """Returns the outcome of a case that is a finding, and is none when it is judged again."""
    words = "the same inputs ended as {first}, and then as {second}: {message}"
    values = {"first": str(first.record.verdict), "second": str(second.record.verdict), "message": first.record.message}
    record = replace(first.record, verdict=Verdict.NONDETERMINISTIC, detail=(detail := Stated(words, values)))
    return replace(first, record=replace(record, message=detail.text()))


def _shrink(
    item: Item, case: ExplicitCase, verdict: Verdict, verdicts: dict[str, Verdict], cache: Cache, judge_case: JudgeCase
) -> ExplicitCase:
    """Returns the smallest case found that has a verdict; the case itself if none has it twice, as with a flaky kernel.

    It is the first case with the verdict. `verdicts` has those of all cases so far, by content, and gets more.
    """
    attempts_left = [_MAX_SHRINKS]

    def has_verdict(smaller: ExplicitCase) -> bool:
        key = _content_id(smaller)
        if key not in verdicts:
            if not attempts_left[0]:
                return False
            attempts_left[0] -= 1
            verdicts[key] = judge_case(smaller).record.verdict
            cache.expectations.cases.pop(smaller.id, None)
        return verdicts[key] == verdict

    # The same seed draws the same cases again, up to this one, at which Hypothesis now stops and shrinks.
    smallest = _find_example(
        item.pairing, item.pairing_id, item.dtype, item.depth, item.seed, item.settings.fuzz, has_verdict
    )
    if smallest is None or judge_case(smallest).record.verdict != verdict:
        return case
    return replace(smallest, number=case.number)


def _content_id(case: ExplicitCase) -> str:
    """Returns an id that is equal for draws of equal values."""
    return replace(case, number=0).id


def _find_example(
    pairing: Pairing,
    pairing_id: str,
    dtype: str,
    depth: str,
    seed: int,
    count: int,
    condition: Callable[[ExplicitCase], bool],
) -> ExplicitCase | None:
    """Draws `count` cases, and shrinks the first that fulfils a condition; returns None if none does."""
    package = import_hypothesis()
    from hypothesis.internal.conjecture.providers import HypothesisProvider

    digest = hashlib.sha256(f"{seed}|{pairing.name}|{dtype}|{depth}".encode()).digest()
    settings = package.settings(
        max_examples=_TRIES * count,
        database=None,
        derandomize=False,  # the seed below decides
        deadline=None,
        phases=[package.Phase.generate, package.Phase.shrink],
        verbosity=package.Verbosity.quiet,
        suppress_health_check=list(package.HealthCheck),
        backend="hypothesis",
    )
    # Hypothesis also draws constants from the source of all loaded modules, and these differ between workers, and
    # between a whole run and one item of it.
    without_constants = mock.patch.object(HypothesisProvider, "_maybe_draw_constant", return_value=None, create=True)
    with without_constants:
        try:
            smallest: ExplicitCase = package.find(
                strategy_for(pairing, pairing_id, signature_pool(pairing, depth, dtype)),
                condition,
                settings=settings,
                random=random.Random(int.from_bytes(digest[:8], "big")),
            )
        except package.errors.NoSuchExample:
            return None
    return smallest
