"""The mutation scores of a run as lines for a terminal: one for each pairing, and those of its survivors."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from kerneltest.records.mutation_scores import MutationScore

_MOST_LINES = 5  # for survivors of a pairing; the page shows more


def mutant_lines(scores: Sequence[MutationScore], *, with_survivors: bool = True) -> Iterator[str]:
    """Yields the lines that show mutation scores.

    Args:
      scores: of pairings.
      with_survivors: whether to list mutants that survived, a few of each pairing.
    """
    for score in scores:
        if score.problem:
            yield f"{score.pairing}: no mutants: {score.problem}"
            continue
        yield f"{score.pairing}: {score}"
        if not with_survivors:
            continue
        alike = Counter(f"{each.mutant.place}  survived: {each.mutant.phrase}" for each in score.survivors)
        for words, count in islice(alike.items(), _MOST_LINES):
            yield f"  {words}" + (f" ({count} times)" if count > 1 else "")
        if hidden := sum([*alike.values()][_MOST_LINES:]):
            yield f"  and {hidden} more: the report shows them"
