"""The suspects of a running process, and its searches for their smallest cases.

What searches is imported with the first finding: a green run needs none of it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kerneltest.core.files import open_inside
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.pytest_plugin.crash_reports import ends_its_process
from kerneltest.records.files import slug
from kerneltest.records.record_files import RecordWriter
from kerneltest.records.schema import Record, Reproducer
from kerneltest.reproduce.script_writer import save_reproduction
from kerneltest.triage.suspects import Suspect, find_suspects


class SuspectTracker:
    """The records of the current pairing, and the suspects that follow from them."""

    def __init__(self, folder: Path, seconds: float, published_folder: Path | None = None) -> None:
        self._folder, self._published_folder = folder, published_folder
        self._seconds = seconds  # to search for the smallest case of each suspect; 0 for no search
        self._records: list[Record] = []
        self._smallest: list[Reproducer] = []

    def add(self, record: Record) -> None:
        """Adds a record; drops those of another pairing."""
        if self._records and self._records[0].pairing != record.pairing:
            self._records.clear()
            self._smallest.clear()
        if record.evidence is not None:
            record = replace(record, evidence=record.evidence.without_pictures())
        self._records.append(record)

    def investigate(
        self, parts: Sequence[Item], cache: Cache, writer: RecordWriter, *, searches: bool = True
    ) -> tuple[Suspect, ...]:
        """Returns the suspects of an item, with their smallest cases once this process has searched for them."""
        pairing = parts[0].pairing
        blocks = {parts[0].pairing_id: {name: dim.block for name, dim in pairing.dims.items() if dim.block}}
        from kerneltest.localize.suspect_reduction import REDUCTION_ROUNDS

        for _ in range(REDUCTION_ROUNDS if searches and self._seconds else 0):
            for suspect in find_suspects(self._records, blocks, self._smallest):
                findings = [record for record in suspect.findings if record.item == parts[0].name]
                is_safe = not any(map(ends_its_process, findings))
                if findings and is_safe and suspect.reproducer is None and self._claim(suspect):
                    self._search(findings, parts, cache, writer)
        known = find_suspects(self._records, blocks, self._smallest)
        return tuple(each for each in known if any(record.item == parts[0].name for record in each.findings))

    # Returns whether this process, and no other one of the run, searches for the smallest case of a suspect.
    def _claim(self, suspect: Suspect) -> bool:
        try:
            open_inside(self._folder, f"suspect-{suspect.id}.claim", "xb").close()
        except FileExistsError:
            return False
        return True

    def _search(self, findings: Sequence[Record], parts: Sequence[Item], cache: Cache, writer: RecordWriter) -> None:
        from kerneltest.localize.suspect_reduction import reduce_suspect

        found = reduce_suspect(parts, findings, cache, self._seconds)
        if found is None:
            return
        smallest = found.reproducer
        if found.outcome.arguments is not None:
            part = next(each for each in parts if each.group.name == smallest.record.group)
            record = save_reproduction(
                self._folder, smallest.record, part, found.outcome.arguments, self._published_folder
            )
            smallest = replace(smallest, record=record)
        if found.reduced_script:
            name = f"cases/cut_{smallest.record.case}-{slug(smallest.record.backend)}.py"
            smallest = replace(smallest, reduced_script=name)
            with open_inside(self._folder, smallest.reduced_script, "wb") as script:
                script.write(found.reduced_script.encode())
        writer.write_reproducer(smallest)
        self._smallest.append(smallest)
