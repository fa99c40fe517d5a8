"""The result of a mutation test as text and as data."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from kerneltest.core.failures import UnusableInputError
from kerneltest.core.files import read_regular_file
from kerneltest.core.source_location import source_line
from kerneltest.declare.dims import Dim
from kerneltest.declare.domains import parse_domain
from kerneltest.declare.error_models import Rounding
from kerneltest.declare.kinds.base import ArrayArgument
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.mutation.judging import Kill, MutationSession, Trial, TrialEnd, UnfitPairingError, plan_items
from kerneltest.extensions.mutation.mutants import KernelMutant
from kerneltest.plan import DEPTHS
from kerneltest.records.files import first_problem
from kerneltest.records.journal import Journal
from kerneltest.records.schema import MutantCounts, MutantTrial, MutationAdvice, MutationScore, ScoredMutant

# The files that `kerneltest mutate --json` and `kerneltest coverage --json` write, read again.

_Result = TypeVar("_Result")


def read_results(path: Path, kind: type[_Result]) -> list[_Result]:
    """Reads the results in a file; raises an UnusableInputError if the file cannot be read, or has other contents."""
    try:
        found: list[_Result] = TypeAdapter(list[kind]).validate_json(read_regular_file(path))  # type: ignore[valid-type]
    except (OSError, ValidationError) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else error.strerror
        raise UnusableInputError(f"{path}: {reason}") from error
    return found


# The score of a pairing: how many mutants of its kernel its cases find.


def count_ends(trials: Sequence[Trial]) -> MutantCounts:
    """Returns the counts of some trials by their end."""
    ends = Counter(trial.end for trial in trials)
    return MutantCounts(**{end.value: ends[end] for end in TrialEnd})


def score_of(pairing: str, trials: Sequence[Trial]) -> MutationScore:
    """Returns the score of a pairing for the records of a run."""
    left = tuple(
        MutantTrial(ScoredMutant(each.mutant.file, each.mutant.line, each.mutant.phrase), str(each.end), each.note)
        for each in trials
        if each.end in (TrialEnd.SURVIVED, TrialEnd.UNDECIDED)
    )
    return MutationScore(pairing=pairing, mutants=left, **asdict(count_ends(trials)))


def count_disregarded(trials: Sequence[Trial]) -> int:
    """Returns the number of cases that were disregarded because the unchanged kernel has a finding there."""
    return len({case for trial in trials for case in trial.disregarded})


# Changes of a declaration that find more mutants, each tried on the mutants that survived.


@dataclass(frozen=True, slots=True)
class Advice(MutationAdvice):
    """A change of a declaration or of the depth that finds mutants which survived."""

    kill: Kill  # the first of them
    alarms: int  # the number of cases in which the kernel itself then has a finding: it or the oracle may be wrong

    def __str__(self) -> str:
        first = f"one by {self.kill.family} at {self.kill.signature}"
        alarm = f"; the kernel itself then has {self.alarms} findings, which you should look at first"
        return f"{self.text}: finds {self.found} of {self.of} remaining mutants, {first}{alarm if self.alarms else ''}"


def advise(
    pairing: Pairing,
    pairing_id: str,
    depth: str,
    survivors: Sequence[KernelMutant],
    report: Callable[[str], None],
    journal: Journal,
) -> list[Advice]:
    """Returns the changes of a declaration that find mutants which survived, each tried on those that were left."""
    left, found = list(survivors), []
    for text, other, its_depth in _options(pairing, depth):
        if not left:
            break
        report(f"trying {text} on {len(left)} mutants")
        try:
            items = plan_items(other, pairing_id, "interpret", its_depth, journal)
            session = MutationSession(items, journal=journal)
        except UnfitPairingError:
            continue
        trials = [session.judge(mutant) for mutant in left]
        if kills := [trial.kill for trial in trials if trial.kill is not None]:
            found.append(Advice(text, len(kills), len(left), kills[0], count_disregarded(trials)))
            left = [trial.mutant for trial in trials if trial.end is not TrialEnd.KILLED]
    return found


def _options(pairing: Pairing, depth: str) -> Iterator[tuple[str, Pairing, str]]:
    # Changes that make a pairing stricter, the cheapest first: the advice, the pairing, the depth.
    if not isinstance(pairing.tolerance, Rounding):
        yield "leave out tolerance=", replace(pairing, tolerance=Rounding()), depth
    for name, dim in pairing.dims.items():
        if dim.values:
            freed = Dim(block=dim.block, multiple_of=dim.multiple_of, on=dim.on)
            text = f"declare dims=dict({name}=kt.dim(block=...)) without values={dim.values}"
            yield text, replace(pairing, dims={**pairing.dims, name: freed}), depth
    for name, argument in pairing.arguments.items():
        if isinstance(argument, ArrayArgument):
            freed_argument = replace(argument, domain=parse_domain(None, argument.dtypes))
            if freed_argument != argument:
                arguments = {**pairing.arguments, name: freed_argument}
                yield f"leave out domain= of {name}", replace(pairing, arguments=arguments), depth
    for deeper in DEPTHS[DEPTHS.index(depth) + 1 :]:
        yield f"run --kt-depth {deeper}", pairing, deeper


_SHOWN = 6  # families that are named


def format_result(pairing: str, trials: Sequence[Trial], advice: Sequence[Advice], lists_all: bool) -> list[str]:
    """Returns the lines that show a pairing's score, its survivors or all mutants, and what would find them."""
    seconds = sum(trial.seconds for trial in trials)
    lines = [f"{pairing}: {count_ends(trials)} ({seconds:.1f} s)"]
    by_family = Counter(trial.kill.family for trial in trials if trial.kill is not None).most_common()
    if by_family:
        rest = sum(count for _, count in by_family[_SHOWN:])
        named = [f"{name} {count}" for name, count in by_family[:_SHOWN]] + [f"others {rest}"] * bool(rest)
        lines.append(f"  found first by: {', '.join(named)}")
    left = (TrialEnd.SURVIVED, TrialEnd.UNDECIDED)
    listed = [trial for trial in trials if lists_all or trial.end in left]
    for place, group in groupby(listed, key=lambda trial: trial.mutant.place):
        lines.append(f"  {place}  {source_line(place)}".rstrip())
        for trial in group:
            mutant, kill = trial.mutant, trial.kill
            lines.append(f"    {trial.end}: {mutant.phrase} ({mutant.operator}, column {mutant.column})")
            if kill is not None:
                lines.append(f"      by {kill.family} on {kill.backend}: {kill.verdict} at {kill.signature}")
            lines += [f"      {trial.note}"] * bool(trial.note)
    return [*lines, *(f"  To find more: {each}" for each in advice)]


def result_as_data(pairing: str, trials: Sequence[Trial], advice: Sequence[Advice]) -> dict[str, Any]:
    """Returns a result in a form that JSON can hold."""
    score = count_ends(trials)
    return {
        "pairing": pairing,
        "score": score.share,
        **asdict(score),
        "mutants": [asdict(trial) for trial in trials],
        "advice": [asdict(each) for each in advice],
    }
