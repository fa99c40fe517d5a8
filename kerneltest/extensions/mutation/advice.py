"""Changes of a declaration that find more mutants, each tried on the mutants that survived."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kerneltest.declare.built_in_models import Rounding
from kerneltest.declare.dims import Dim
from kerneltest.declare.domains import parse_domain
from kerneltest.declare.kinds.base import ArrayArgument
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.mutation.judging import MutationSession, UnfitPairingError, plan_items
from kerneltest.extensions.mutation.kernel_mutants import KernelMutant
from kerneltest.extensions.mutation.score import count_disregarded
from kerneltest.extensions.mutation.trial import Trial, TrialEnd


@dataclass(frozen=True, slots=True)
class Advice:
    """A change of a declaration or of the depth that finds mutants which survived.

    Attributes:
      text: the change to make.
      found: the trials of the mutants that it finds.
      of: the number of mutants on which it was tried.
      alarms: the number of cases in which the kernel itself then has a finding: the kernel or the oracle may be wrong.
    """

    text: str
    found: tuple[Trial, ...]
    of: int
    alarms: int

    def __str__(self) -> str:
        example = self.found[0].kill
        assert example is not None
        text = f"{self.text}: finds {len(self.found)} of {self.of} remaining mutants"
        text += f", one by {example.family} at {example.signature}"
        if self.alarms:
            text += f"; the kernel itself then has {self.alarms} findings, which you should look at first"
        return text


@dataclass(frozen=True, slots=True)
class _Option:
    text: str
    pairing: Pairing
    depth: str


_DEEPER = {"quick": ("standard", "deep"), "standard": ("deep",), "deep": ()}


def advise(
    pairing: Pairing, pairing_id: str, depth: str, survivors: Sequence[KernelMutant], report: Callable[[str], None]
) -> list[Advice]:
    """Tries changes of a declaration on mutants that survived, in interpret mode.

    Args:
      pairing: the pairing whose declaration is changed.
      pairing_id: its node id.
      depth: the depth at which they survived.
      survivors: the mutants.
      report: called with the text of each change before it is tried.

    Returns:
      The changes that find some, in the order in which they were tried. Each is tried on the mutants that are left.
    """
    left, found = list(survivors), []
    for option in _options(pairing, depth):
        if not left:
            break
        report(f"trying {option.text} on {len(left)} mutants")
        try:
            session = MutationSession(plan_items(option.pairing, pairing_id, "interpret", option.depth))
        except UnfitPairingError:
            continue
        trials = [session.judge(mutant) for mutant in left]
        killed = tuple(trial for trial in trials if trial.end is TrialEnd.KILLED)
        if killed:
            found.append(Advice(option.text, killed, len(left), count_disregarded(trials)))
            left = [trial.mutant for trial in trials if trial.end is not TrialEnd.KILLED]
    return found


def _options(pairing: Pairing, depth: str) -> Iterator[_Option]:
    """Yields changes that make a pairing stricter, the cheapest first."""
    if not isinstance(pairing.tolerance, Rounding):
        yield _Option("leave out tolerance=", _changed(pairing, tolerance=Rounding()), depth)
    for name, dim in pairing.dims.items():
        if dim.values:
            freed = Dim(block=dim.block, multiple_of=dim.multiple_of, on=dim.on)
            text = f"declare dims=dict({name}=kt.dim(block=...)) without values={dim.values}"
            yield _Option(text, _changed(pairing, dims={**pairing.dims, name: freed}), depth)
    for name, argument in pairing.arguments.items():
        if isinstance(argument, ArrayArgument):
            freed_argument = replace(argument, domain=parse_domain(None, argument.dtypes))
            if freed_argument != argument:
                arguments = {**pairing.arguments, name: freed_argument}
                yield _Option(f"leave out domain= of {name}", _changed(pairing, arguments=arguments), depth)
    for deeper in _DEEPER[depth]:
        yield _Option(f"run --kt-depth {deeper}", pairing, deeper)


def _changed(pairing: Pairing, **changes: object) -> Pairing:
    return replace(pairing, **changes)  # type: ignore[arg-type]
