"""What could be wrong in a kernel, one thing at a time, each with its line and what the kernel is without it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kerneltest.backends.simulate.changes import Change, changes
from kerneltest.backends.simulate.experiment import Changed, Experiment, Specimen
from kerneltest.core.places import line_of_argument, source_line
from kerneltest.jaxprs.compat.names import line_of
from kerneltest.jaxprs.evaluate import variables
from kerneltest.jaxprs.rewrite import remapped
from kerneltest.jaxprs.walk import name_of


@dataclass(frozen=True, slots=True)
class Idea:
    """One thing that could be wrong.

    Attributes:
      place: its line, as FILE:LINE.
      operation: what stands there, in the words of the source.
      words: `with < in place of <=`.
      reach: how much the change takes; see `Change`.
      make: the change of an experiment with the kernel, perhaps for other lengths; None where it does not fit.
    """

    place: str
    operation: str
    words: str
    reach: int
    make: Callable[[Experiment], Changed | None]


def ideas(experiment: Experiment) -> Iterator[Idea]:
    """All there are, those that take least first."""
    found = [*_around(experiment)]
    for number, specimen in enumerate(experiment.specimens):
        found += [*_grids(number, specimen), *_bodies(number, specimen), *_index_maps(number, specimen)]
    yield from sorted((idea for idea in found if idea.place), key=lambda idea: idea.reach)


def _bodies(number: int, specimen: Specimen) -> Iterator[Idea]:
    for change in changes(specimen.listing, specimen.listing.lengths):
        place, text = _source(specimen, change)

        def make(experiment: Experiment, change: Change = change) -> Changed | None:
            mine = _counterpart(experiment, number, specimen)
            return mine and Changed({number: mine.simulation(mine.listing.changed(change.edits(mine.listing)))})

        yield Idea(place, text, change.words, change.reach, make)


def _counterpart(experiment: Experiment, number: int, specimen: Specimen) -> Specimen | None:
    """The same call in an experiment for other lengths, if it has the same operations."""
    if number >= len(experiment.specimens):
        return None
    mine = experiment.specimens[number]
    return mine if mine.listing.structure == specimen.listing.structure else None


def _source(specimen: Specimen, change: Change) -> tuple[str, str]:
    listing = specimen.listing
    if listing.operations[change.operation].name == "tt.get_program_id":
        lines = specimen.id_lines
        return (lines[0], source_line(lines[0])) if len(lines) == 1 else ("", "")
    source = listing.sources[change.operation]
    called = f", called at {source.callers[0]}" if source.callers else ""
    return source.place, f"{source.text}{called}"


def _grids(number: int, specimen: Specimen) -> Iterator[Idea]:
    place = line_of_argument(specimen.place, "grid")
    for axis, length in enumerate(specimen.grid):

        def make(experiment: Experiment, axis: int = axis) -> Changed | None:
            mine = _counterpart(experiment, number, specimen)
            if mine is None:
                return None
            x, y, z = (n + (a == axis) for a, n in enumerate(mine.grid))
            return Changed({number: mine.simulation(grid=(x, y, z))})

        words = f"with {length + 1} programs in place of {length} along one axis of the grid"
        yield Idea(place, source_line(place), words, 0, make)


def _index_maps(number: int, specimen: Specimen) -> Iterator[Idea]:
    for turn, (place, words, _) in enumerate(remapped(specimen.call.equation)):

        def make(experiment: Experiment, turn: int = turn) -> Changed | None:
            if number >= len(experiment.specimens):
                return None
            mine = experiment.specimens[number]
            maps = list(remapped(mine.call.equation))
            call = replace(mine.call, equation=maps[turn][2])
            return Changed({number: Specimen(call, experiment.target, experiment.lengths).simulation()})

        yield Idea(place, source_line(place), words, 1, make)


def _around(experiment: Experiment) -> Iterator[Idea]:
    """Values of the function around the Pallas calls, with another one of the same shape in their place."""
    known = variables(experiment.traced)
    names = [name_of(equation) for _, equation, _ in known]
    for turn, (_, equation, others) in enumerate(known):
        place = line_of(equation.source_info)
        for choice in range(len(others)):

            def make(experiment: Experiment, turn: int = turn, choice: int = choice) -> Changed | None:
                mine = variables(experiment.traced)
                if [name_of(equation) for _, equation, _ in mine] != names or choice >= len(mine[turn][2]):
                    return None
                variable, _, others = mine[turn]
                return Changed(instead={variable: others[choice]})

            yield Idea(place, source_line(place), f"without {name_of(equation)}", 2, make)
