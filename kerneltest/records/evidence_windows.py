"""The pictures of findings: a run in memory does without their elements, and a page reads those that it draws."""

from collections.abc import Mapping, Sequence

from kerneltest.records.io import RecordError, read_some
from kerneltest.records.runs import Run
from kerneltest.records.schema import Evidence, Record


def pictures(runs: Sequence[Run], findings: Sequence[Record]) -> Mapping[int, Evidence]:
    """The evidence of some findings, with its pictures, by the identity of the record.

    Args:
      runs: that the findings are from.
      findings: of `Run.records` or `Run.smallest`.

    Raises:
      RecordError: a run's records cannot be read again, or are others now.
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
