"""What could be wrong in a kernel, one thing at a time, each with its line and what the kernel is without it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kerneltest.backends.simulate.listing import Change
from kerneltest.core.source_location import source_line
from kerneltest.localize.frame_mutations import slips
from kerneltest.localize.mutation_operators import changes
from kerneltest.localize.mutation_test import Changed, Experiment, Specimen
from kerneltest.trace.evaluator import Variable, variables
from kerneltest.trace.jax_compat.names import line_of
from kerneltest.trace.walk import ENTRIES, name_of


@dataclass(frozen=True, slots=True)
class Idea:
    """One thing that could be wrong.

    Attributes:
      place: its line, as FILE:LINE.
      operation: what stands there, in the words of the source.
      words: `with < in place of <=`.
      reach: how much the change takes; see `Change`.
      said: what is changed stands there, and does not come from elsewhere by name.
      make: the change of an experiment with the kernel, perhaps for other lengths, in all ways there are; none where
        it does not fit.
    """

    place: str
    operation: str
    words: str
    reach: int
    said: bool
    make: Callable[[Experiment], Iterator[Changed]]


def ideas(experiment: Experiment) -> Iterator[Idea]:
    """All there are, those that take least first."""
    found = [*_around(experiment)]
    for number, specimen in enumerate(experiment.specimens):
        found += [*_frames(number, specimen), *_bodies(number, specimen)]
    yield from sorted((idea for idea in found if idea.place), key=lambda idea: idea.reach)


def _bodies(number: int, specimen: Specimen) -> Iterator[Idea]:
    for change in changes(specimen.listing):
        source = specimen.listing.sources[change.operation]
        called = f", called at {source.callers[0]}" if source.callers else ""

        def make(experiment: Experiment, change: Change = change) -> Iterator[Changed]:
            mine = _counterpart(experiment, number, specimen)
            if mine is not None:
                yield Changed({number: mine.prepare(mine.listing.changed(change.edits(mine.listing)))})

        yield Idea(source.place, f"{source.text}{called}", change.words, change.reach, change.said, make)


def _counterpart(experiment: Experiment, number: int, specimen: Specimen) -> Specimen | None:
    """The same call in an experiment for other lengths, if it has the same operations."""
    if number >= len(experiment.specimens):
        return None
    mine = experiment.specimens[number]
    return mine if mine.listing.structure == specimen.listing.structure else None


def _frames(number: int, specimen: Specimen) -> Iterator[Idea]:
    for turn, slip in enumerate(slips(specimen.call.equation)):

        def make(experiment: Experiment, turn: int = turn) -> Iterator[Changed]:
            if number >= len(experiment.specimens):
                return
            mine = experiment.specimens[number]
            for equation in list(slips(mine.call.equation))[turn].equations:
                other = Specimen(replace(mine.call, equation=equation), experiment.target, experiment.lengths)
                yield Changed({number: other.prepare()})

        yield Idea(slip.place, source_line(slip.place), slip.words, 0, True, make)


def _around(experiment: Experiment) -> Iterator[Idea]:
    """Values of the function around the Pallas calls, with another one of the same shape in their place."""
    known = variables(experiment.traced)
    names = _names(known)
    for turn, variable in enumerate(known):
        if variable.equation is None or name_of(variable.equation) in ENTRIES:
            continue
        place = line_of(variable.equation.source_info)
        for choice in variable.known:

            def make(experiment: Experiment, turn: int = turn, choice: int = choice) -> Iterator[Changed]:
                mine = variables(experiment.traced)
                if _names(mine) == names and choice in mine[turn].known:
                    yield Changed(instead={mine[turn].variable: mine[choice].variable})

            yield Idea(place, source_line(place), f"without {_called(variable.equation)}", 1, True, make)


def _names(known: Sequence[Variable]) -> list[str]:
    return [name_of(each.equation) if each.equation is not None else "" for each in known]


def _called(equation: Any) -> str:
    return f"`{equation.params['name']}`" if "name" in equation.params else name_of(equation)
