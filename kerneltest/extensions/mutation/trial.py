"""The trial of one mutant by the cases of a pairing."""

from dataclasses import dataclass
from enum import StrEnum

from kerneltest.extensions.mutation.kernel_mutants import KernelMutant


class TrialEnd(StrEnum):
    """The end of a trial."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    """Not one bit of its results differs from the kernel's, with rounding and without, at this depth and the next."""
    UNDECIDED = "undecided"
    """No case finds it, and NumPy cannot evaluate the kernel, so that it may be equivalent."""
    INVALID = "invalid"
    """It cannot be made, or does not run."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The first finding of a mutant.

    Attributes:
      backend, dtype, group, family, signature, verdict: as the case was recorded.
    """

    backend: str
    dtype: str
    group: str
    family: str
    signature: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutant and its end.

    Attributes:
      mutant: the mutant.
      end: how it ended.
      kill: the first finding; None unless a case found it.
      cases: the number of cases that ran.
      seconds: the time that they took.
      note: why a mutant is invalid; where a survivor differs most; that a mutant ended its process.
      disregarded: the cases that have a finding in the unchanged kernel, and therefore judge no mutant.
    """

    mutant: KernelMutant
    end: TrialEnd
    kill: Kill | None = None
    cases: int = 0
    seconds: float = 0.0
    note: str = ""
    disregarded: tuple[str, ...] = ()
