"""Suspects as SARIF 2.1.0, the format of results that code scanning and editors read."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from kerneltest import __version__
from kerneltest.core.ids import Place
from kerneltest.core.media import for_terminal
from kerneltest.records.files import dumps
from kerneltest.records.run_plan import PairingSummary
from kerneltest.records.runs import RunRecords
from kerneltest.report.counts import gaps
from kerneltest.report.text.suspect_text import (
    MOST_SUSPECTS,
    describe_suspect,
    in_repository,
    kernel_definition,
    locate_suspect,
)
from kerneltest.triage.suspects import Suspect
from kerneltest.triage.symptoms import Effect

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_SITE: Final = "https://kerneltest.github.io/kerneltest"
_MOST_RESULTS = 5000  # of a run, which is what GitHub shows


def sarif(suspects: Sequence[Suspect], declared: Mapping[str, PairingSummary], complete: bool) -> str:
    """Returns suspects as a SARIF log with one run. The fingerprint of a result is the id of its suspect."""
    shown = suspects[:_MOST_RESULTS]
    rules = dict(map(_rule, shown))
    numbers = {name: number for number, name in enumerate(rules)}
    help_page = f"{_SITE}/suspects/"
    listed = [{"id": n, "shortDescription": {"text": text}, "helpUri": help_page} for n, text in rules.items()]
    driver = {"name": "kerneltest", "version": __version__, "informationUri": f"{_SITE}/", "rules": listed}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": complete}],
        "results": [_result(suspect, declared.get(suspect.pairing), numbers) for suspect in shown],
    }
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _rule(suspect: Suspect) -> tuple[str, str]:
    # The id of a rule, and its words.
    if suspect.effect is Effect.OTHER:
        return suspect.example.verdict.value, suspect.example.verdict.value
    return suspect.effect.name.lower(), suspect.effect.value


def _result(suspect: Suspect, declared: PairingSummary | None, numbers: Mapping[str, int]) -> dict[str, Any]:
    name, _ = _rule(suspect)
    text, fault = describe_suspect(suspect), suspect.fault
    lines = [f"{text.title} ({text.counts})", *text.details]
    others = [Place.parse(place) for place in (fault.alternatives if fault is not None else ())]
    location = _location(locate_suspect(suspect, declared))
    if (definition := kernel_definition(declared)) is not None:
        location["logicalLocations"] = [{"name": for_terminal(definition[0]), "kind": "function"}]
    result: dict[str, Any] = {
        "ruleId": name,
        "ruleIndex": numbers[name],
        "level": "warning" if suspect.known_bug else "error",
        "message": {"text": "\n".join(map(for_terminal, lines))},
        "locations": [location],
        "partialFingerprints": {"suspect/v1": suspect.id},
    }
    if related := [_location(in_repository(place)) for place in dict.fromkeys(others) if place is not None]:
        result["relatedLocations"] = related
    return result


def _location(place: Place) -> dict[str, Any]:
    if Path(place.file).is_absolute():  # outside of the repository
        artifact = {"uri": Path(place.file).as_uri()}
    else:
        artifact = {"uri": quote(place.file), "uriBaseId": "%SRCROOT%"}
    region = {"region": {"startLine": place.line}} if place.line else {}
    return {"physicalLocation": {"artifactLocation": artifact, **region}}


# Suspects as annotations of a GitHub job: workflow commands, which GitHub shows at the kernel's line.


def github_annotations(
    suspects: Sequence[Suspect], declared: Mapping[str, PairingSummary], runs: Sequence[RunRecords]
) -> Iterator[str]:
    """Yields a workflow command for each suspect, and one for each run that is incomplete."""
    for suspect in suspects[:MOST_SUSPECTS]:
        place, text = locate_suspect(suspect, declared.get(suspect.pairing)), describe_suspect(suspect)
        where = {} if Path(place.file).is_absolute() else {"file": place.file, "line": str(place.line or 1)}
        lines = [text.title, text.counts, *text.details]
        level = "warning" if suspect.known_bug else "error"
        yield _command(level, lines, {**where, "title": f"kerneltest {suspect.id}"})
    for run in runs:
        if missing := gaps(run):
            name = f"{run.name}: " if run.name else ""
            yield _command("error", [f"{name}incomplete", *missing[:MOST_SUSPECTS]], {"title": "kerneltest"})


def _command(level: str, lines: Sequence[str], properties: Mapping[str, str]) -> str:
    # All text is escaped, so that no record can end the command or begin another one.
    shown = ",".join(f"{name}={_escape(for_terminal(value), ':,')}" for name, value in properties.items())
    return f"::{level} {shown}::{_escape(chr(10).join(map(for_terminal, lines)))}"


def _escape(text: str, separators: str = "") -> str:
    for character in ("%", "\r", "\n", *separators):
        text = text.replace(character, f"%{ord(character):02X}")
    return text
