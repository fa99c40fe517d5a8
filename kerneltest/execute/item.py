"""A pairing on a backend, in a dtype, with one group of families; and what comes out of a case."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerneltest.backends.base import Backend
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import Family
from kerneltest.records.schema import Evidence, Record


@dataclass(frozen=True, slots=True)
class Outcome:
    """A record, the case's array arguments if it is a finding, and the files of an artifact."""

    record: Record
    arguments: Mapping[str, Array] | None = None
    files: Callable[[], Mapping[str, str]] = dict


@dataclass(frozen=True, slots=True)
class Item:
    """A part of what one pytest item runs: a pairing, a backend, a dtype and a group of families.

    Attributes:
      name: the node id of the pytest item, which runs all groups.
      pairing, pairing_id: and the node id of the pairing.
      dtype: that its signatures stand for.
      depth, seed, fuzz: of the run; `fuzz` is how many cases are drawn for a pairing and dtype.
      prove: whether kernels are also proved over all sizes.
      sanitize: the tools under which device cases are also run.
    """

    name: str
    pairing: Pairing
    pairing_id: str
    backend: Backend
    dtype: str
    group: "Group"
    depth: str
    seed: int
    fuzz: int = 0
    prove: bool = False
    sanitize: tuple[str, ...] = ()

    def cases(self) -> Iterator[AnyCase]:
        """In the order in which they are run."""
        return self.group.cases(self)

    def families(self) -> Mapping[str, int]:
        """How many cases each family has."""
        return self.group.families(self)

    def record(
        self, verdict: Verdict, message: str = "", *, case: AnyCase | None = None, family: str = "", **more: Any
    ) -> Record:
        """A record of a case, or of a family as a whole; `more` are further fields of it."""
        return Record(
            item=self.name,
            pairing=self.pairing_id,
            backend=self.backend.id,
            tier=self.backend.tier,
            dtype=self.dtype,
            group=self.group.name,
            family=case.family.name if case else family,
            signature=str(case.signature) if case else "*",
            dims=dict(case.signature.dims) if case else {},
            dtypes=dict(case.signature.dtypes) if case else {},
            statics=dict(case.signature.statics) if case else {},
            target=case.target if case else "",
            case=case.id if case else "",
            verdict=verdict,
            message=message,
            evidence=Evidence() if case and verdict.is_finding else None,
            **more,
        )


class Group(ABC):
    """A group of families: it plans cases, and judges them.

    Attributes:
      name: in ids and reports.
    """

    name: str

    def find_family(self, name: str) -> Family | None:
        """The family by which the group itself fills a case's arguments; None if `plan.families` has it."""
        return None

    def problem(self, items: Sequence[Item]) -> str:
        """The reason why this run will not do what its options ask of this group, as the plan warns of it; or "".

        Args:
          items: all that the run has selected, of all groups.
        """
        return ""

    def is_asked_of(self, backend: Backend) -> bool:
        """Whether a backend gets cases of this group."""
        return backend.tier.gives_values

    @abstractmethod
    def cases(self, item: Item) -> Iterator[AnyCase]:
        """The cases of an item, in the order in which they are run."""

    def families(self, item: Item) -> Mapping[str, int]:
        """How many cases each family has."""
        return dict(Counter(case.family.name for case in self.cases(item)))

    def ids(self, item: Item) -> Mapping[str, Sequence[str]]:
        """The ids of each family's cases; none where they follow from the run itself."""
        ids: dict[str, list[str]] = {}
        for case in self.cases(item):
            ids.setdefault(case.family.name, []).append(case.id)
        return ids

    def arguments(self, item: Item, case: AnyCase, cache: Cache) -> Mapping[str, Array] | None:
        """The inputs that a finding is shown with; None where there are none."""
        return cache.arguments(item.pairing, case)

    def prepare(self, item: Item, planned: Sequence[AnyCase], cache: Cache) -> None:
        """Starts, ahead of the first case, what takes long."""
        return

    @abstractmethod
    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """Runs one case and compares.

        Raises:
          Failure: what kept the case from being compared.
        """

    def outcomes(
        self, item: Item, planned: Sequence[AnyCase], cache: Cache, judged: Callable[[AnyCase], Outcome]
    ) -> Iterator[Outcome]:
        """An outcome for each case; `judged` is `judge` with declared xfails and failures taken in."""
        self.prepare(item, planned, cache)
        yield from map(judged, planned)
