"""Evidence windows of findings, read from disk again when a page draws them; in memory they are left out."""

from collections.abc import Mapping, Sequence

from kerneltest.records.io import RecordError, read_some
from kerneltest.records.runs import Run
from kerneltest.records.schema import Evidence, Record


def pictures(runs: Sequence[Run], findings: Sequence[Record]) -> Mapping[int, Evidence]:
    """Reads the evidence of findings with its windows; returns it by the identity of the record.

    Args:
      runs: the runs that the findings come from.
      findings: records of `Run.records` or `Run.smallest`.

    Raises:
      RecordError: a run's records cannot be read again, or have changed.
    """
    found = {id(record): record.evidence for record in findings if record.evidence is not None}
    lacking = {name for name, evidence in found.items() if evidence.window is not None and not evidence.window.values}
    for run in runs if lacking else ():
        places = {number: record for number, record in enumerate(run.records) if id(record) in lacking}
        for number, again in read_some(run.folder, places):
            if again.case != places[number].case:
                raise RecordError(f"{run.folder}: its records changed while they were read")
            if again.evidence is not None:
                found[id(places[number])] = again.evidence
    return found
