"""Hypothesis strategies drawn from a pairing. Values are drawn before the signature, so they also shrink first."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import float_format, is_float, is_integer, parse_dtype
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.domains import Interval
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.boundaries import DEPTHS
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.explicit import ExplicitCase, Recipe, explicit_case, signature_pool
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_MOST_CHANGES = 6  # elements of an argument that are drawn one by one; the others are a family's
_FAR = 2**16
_TINY = 2.0**-20  # numbers nearer to zero than this come with the subnormal ones, not among the ordinary

Dtypes = tuple[tuple[str, str], ...]  # of a signature: the dtype of each leaf, by path

# What makes a case hard, and the argument in which it is sure to occur.
Trouble = tuple[str, str]
_NO_TROUBLE: Trouble = ("", "")
_NON_FINITE, _SUBNORMAL, _FAMILY = "non-finite", "subnormal", "family"


class MissingHypothesisError(ImportError):
    """Hypothesis is not installed; the message says how to get it."""


def hypothesis() -> Any:
    """The Hypothesis package, loaded on first use.

    Raises:
      MissingHypothesisError: it is not installed.
    """
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
    """A Hypothesis strategy for cases of a pairing, to be judged by `assert_conforms`.

    Every argument is a family of the registry or zeros, with up to six elements drawn one by one. One kind of trouble
    comes at a time: non-finite numbers, subnormal ones, or one argument disturbed by a family such as `largest_finite`;
    two at once have no one right answer where a sum overflows or a subnormal number is flushed.

    At most sixteen signatures are drawn, so that no more are compiled. Examples shrink to zeros, few changed elements
    and small numbers, then to the shortest signature that still fails.

    Args:
      pairing: what to draw for.
      depth: of the plan whose signatures are drawn first.

    Raises:
      MissingHypothesisError: Hypothesis is not installed.
      ValueError: an unknown depth.
    """
    if depth not in DEPTHS:
        raise ValueError(f"unknown depth {depth!r}; known are {', '.join(DEPTHS)}")
    return from_pool(pairing, pairing.name, signature_pool(pairing, depth))


def from_pool(pairing: Pairing, pairing_id: str, signatures: Sequence[Signature]) -> "SearchStrategy[ExplicitCase]":
    """Cases with one of these signatures (at least one), simplest first."""
    st = hypothesis().strategies
    choices = list(dict.fromkeys(signature.dtypes for signature in signatures))
    fitting = {dtypes: [s for s in signatures if s.dtypes == dtypes] for dtypes in choices}
    made = {path for path, leaf in pairing.leaves.items() if leaf.derivation}

    @functools.cache
    def troubles(dtypes: Dtypes) -> list[Trouble]:
        possible = [_NO_TROUBLE]
        for path, dtype in dtypes:
            if _is_float_data(pairing.leaves[path], parse_dtype(dtype)):
                possible += [(_NON_FINITE, path), (_SUBNORMAL, path)]
            if _families_for(pairing, path, fitting[dtypes], each=True):
                possible.append((_FAMILY, path))
        return possible

    @functools.cache  # to make a strategy takes longer than to draw from it
    def recipe(path: str, dtypes: Dtypes, trouble: Trouble) -> "SearchStrategy[Recipe]":
        return _recipe(pairing, path, dtypes, fitting[dtypes], trouble)

    @st.composite  # type: ignore[untyped-decorator]
    def draw_case(draw: Callable[[Any], Any]) -> ExplicitCase:
        dtypes = draw(st.sampled_from(choices))
        trouble = draw(st.sampled_from(troubles(dtypes)))
        recipes = {path: draw(recipe(path, dtypes, trouble)) for path, _ in dtypes if path not in made}
        return explicit_case(pairing, pairing_id, draw(st.sampled_from(fitting[dtypes])), recipes)

    drawn: SearchStrategy[ExplicitCase] = draw_case()
    return drawn


def _recipe(
    pairing: Pairing, path: str, dtypes: Dtypes, signatures: Sequence[Signature], trouble: Trouble
) -> "SearchStrategy[Recipe]":
    st = hypothesis().strategies
    names = ["", *_families_for(pairing, path, signatures, each=False)]
    disturbed = trouble == (_FAMILY, path)
    if disturbed:
        names = _families_for(pairing, path, signatures, each=True)
    values = _values(pairing.leaves[path], parse_dtype(dict(dtypes)[path]), trouble[0])
    positions = st.sampled_from([0, -1]) | st.integers(0, _FAR)
    changes = st.lists(
        st.tuples(positions, values), min_size=int(path == trouble[1]) - disturbed, max_size=_MOST_CHANGES
    )

    @st.composite  # type: ignore[untyped-decorator]
    def draw_recipe(draw: Callable[[Any], Any]) -> Recipe:
        name = draw(st.sampled_from(names))
        # Zeros take no seed, which makes them simpler to Hypothesis than any family.
        seed = draw(st.integers(0, _FAR)) if name else 0
        return Recipe(name, seed, disturbed and draw(st.sampled_from([True, False])), draw(changes))

    recipe: SearchStrategy[Recipe] = draw_recipe()
    return recipe


def _values(leaf: ArrayArgument, dtype: np.dtype[Any], trouble: str) -> Any:
    """Single elements: the ends of every range are likely, and what makes the trouble comes alone."""
    st = hypothesis().strategies
    if not (leaf.kind.is_data or leaf.kind.is_mask):
        return st.sampled_from([0, -1]) | st.integers(0, _FAR)
    if _is_integer_data(leaf, dtype):
        info = ml_dtypes.iinfo(dtype)
        domain = leaf.interval(dtype.name)
        ends = [math.ceil(max(domain.low, int(info.min))), math.floor(min(domain.high, int(info.max)))]
        return st.integers(*ends) | st.sampled_from(ends)
    if not _is_float_data(leaf, dtype):
        return st.booleans()
    low, high = _float_range(leaf, dtype)
    whole = st.integers(max(-9, math.ceil(low)), min(9, math.floor(high))) if high - low > 1 else st.nothing()
    ordinary = whole | st.floats(low, high).map(lambda x: 0.0 if abs(x) < _TINY else x)
    if low <= 0 <= high:
        ordinary |= st.just(-0.0)
    if trouble == _NON_FINITE and (specials := list(_non_finite(leaf.interval(dtype.name)))):
        return st.sampled_from(specials)
    if trouble == _SUBNORMAL and low <= 0 <= high:
        tiny = float_format(dtype).smallest_subnormal
        return st.sampled_from([tiny, -tiny]) | st.floats(max(low, -_TINY), min(high, _TINY))
    return ordinary


def _families_for(pairing: Pairing, path: str, signature_pool: Sequence[Signature], *, each: bool) -> list[str]:
    """Names of the families, plain ones first, that fill an argument in at least one signature.

    Args:
      pairing, path: the argument.
      signature_pool: the signatures in question.
      each: those that disturb one argument at a time, or those that do not.
    """
    slots = [signature_slots(pairing, signature)[path] for signature in signature_pool]
    names = [f.name for f in FAMILIES.values() if f.each == each and any(map(f.applies, slots))]
    # An argument that no family is about, such as an index, is ordinary under every one.
    return names if names or each else ["small_integers"]


def _float_range(leaf: ArrayArgument, dtype: np.dtype[Any]) -> tuple[float, float]:
    """Returns the range of an argument's ordinary numbers: its domain if that is finite.

    Otherwise numbers are so small that products of two can be summed in the dtype without overflow, since the order of
    a sum decides whether it overflows.
    """
    limit = min(1024.0, 2.0 ** (float_format(dtype).max_exponent // 2 - 2))
    domain = leaf.interval(dtype.name)
    low, high = domain.low, domain.high
    return (
        low if np.isfinite(low) else min(-limit, high),
        high if np.isfinite(high) else max(limit, low),
    )


def _non_finite(domain: Interval) -> Iterator[float]:
    """NaN and the infinities, as far as a domain admits them."""
    if domain.admits_nan:
        yield np.nan
    yield from (sign * np.inf for sign in (1, -1) if domain.admits_infinity(sign))


def _is_float_data(leaf: ArrayArgument, dtype: np.dtype[Any]) -> bool:
    """Whether an argument holds data of a floating dtype."""
    return leaf.kind.is_data and is_float(dtype)


def _is_integer_data(leaf: ArrayArgument, dtype: np.dtype[Any]) -> bool:
    """Whether an argument holds data of an integer dtype."""
    return leaf.kind.is_data and is_integer(dtype)
