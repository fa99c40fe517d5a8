"""What one process of a run suspects while it goes on, and the smallest cases that it looks for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.localize.reduction import ROUNDS, smallest_case
from kerneltest.pytest_plugin.crash_reports import ends_its_process
from kerneltest.records.files import opened
from kerneltest.records.io import Writer
from kerneltest.records.schema import Record, Smallest
from kerneltest.reproduce.script import saved
from kerneltest.triage.suspects import Suspect, suspects


class Suspicion:
    """The records of the pairing that a process has in hand, and what follows from them.

    Args:
      folder: of the run.
      seconds: for the smallest case of each suspect.
      kept: where the folder is read later on; None for where it is.
    """

    def __init__(self, folder: Path, seconds: float, kept: Path | None = None) -> None:
        self._folder, self._seconds, self._kept = folder, seconds, kept
        self._records: list[Record] = []
        self._smallest: list[Smallest] = []

    def add(self, record: Record) -> None:
        """Takes in one more record; those of another pairing are forgotten."""
        if self._records and self._records[0].pairing != record.pairing:
            self._records.clear()
            self._smallest.clear()
        if record.evidence is not None:
            record = replace(record, evidence=replace(record.evidence, window=None, inputs=()))
        self._records.append(record)

    def investigate(self, parts: Sequence[Item], cache: Cache, writer: Writer) -> tuple[Suspect, ...]:
        """The suspects that show in an item, each with its smallest case once some process has looked for it.

        Args:
          parts: of the item.
          cache: what its cases share.
          writer: of this process's records.
        """
        pairing = parts[0].pairing
        blocks = {parts[0].pairing_id: {name: dim.block for name, dim in pairing.dims.items() if dim.block}}
        for _ in range(ROUNDS if self._seconds else 0):
            for suspect in suspects(self._records, blocks, self._smallest):
                mine = [record for record in suspect.findings if record.item == parts[0].name]
                safe = not any(map(ends_its_process, mine))
                if mine and safe and suspect.smallest is None and self._claimed(suspect):
                    self._look(mine, parts, cache, writer)
        known = suspects(self._records, blocks, self._smallest)
        return tuple(each for each in known if any(record.item == parts[0].name for record in each.findings))

    def _claimed(self, suspect: Suspect) -> bool:
        """Whether this process, and no other, is to look for the smallest case."""
        try:
            opened(self._folder, f"suspect-{suspect.id}.claim", "xb").close()
        except FileExistsError:
            return False
        return True

    def _look(self, findings: Sequence[Record], parts: Sequence[Item], cache: Cache, writer: Writer) -> None:
        found = smallest_case(parts, findings, cache, self._seconds)
        if found is None:
            return
        smallest = found.smallest
        if found.outcome.arguments is not None:
            part = next(each for each in parts if each.group.name == smallest.record.group)
            record = saved(self._folder, smallest.record, part, found.outcome.arguments, self._kept)
            smallest = replace(smallest, record=record)
        if found.cut:
            backend = "".join(c if c.isalnum() else "_" for c in smallest.record.backend)
            smallest = replace(smallest, cut=f"cases/cut_{smallest.record.case}-{backend}.py")
            with opened(self._folder, smallest.cut, "wb") as script:
                script.write(found.cut.encode())
        writer.write_smallest(smallest)
        self._smallest.append(smallest)
