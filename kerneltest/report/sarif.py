"""Suspects as SARIF 2.1.0, the format of results that code scanning and editors read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from kerneltest import __version__
from kerneltest.records.run_plan import PairingSummary
from kerneltest.records.strict_json import dumps
from kerneltest.report.suspect_location import SuspectLocation, kernel_definition, locate_suspect, parse_place
from kerneltest.report.text.suspect_text import format_counts, format_suspect
from kerneltest.report.text.tables import for_terminal
from kerneltest.triage.suspect import Suspect
from kerneltest.triage.symptoms import Effect

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_SITE: Final = "https://kerneltest.github.io/kerneltest"
_MOST_RESULTS = 5000  # of a run, which is what GitHub shows


def sarif(suspects: Sequence[Suspect], declared: Mapping[str, PairingSummary], complete: bool) -> str:
    """Returns suspects as a SARIF log with one run.

    A suspect is one result. Its fingerprint is its id, so that a code-scanning service follows it from run to run.

    Args:
      suspects: the suspects of some runs.
      declared: the runs' pairings by name.
      complete: whether every planned cell has a verdict.
    """
    shown = suspects[:_MOST_RESULTS]
    rules = {_rule_id(suspect): suspect for suspect in shown}
    numbers = {name: number for number, name in enumerate(rules)}
    driver = {
        "name": "kerneltest",
        "version": __version__,
        "informationUri": f"{_SITE}/",
        "rules": [_rule(name, suspect) for name, suspect in rules.items()],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": complete}],
        "results": [_result(suspect, declared.get(suspect.pairing), numbers) for suspect in shown],
    }
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _rule_id(suspect: Suspect) -> str:
    return suspect.example.verdict.value if suspect.effect is Effect.OTHER else suspect.effect.name.lower()


def _rule(name: str, suspect: Suspect) -> dict[str, Any]:
    words = suspect.example.verdict.value if suspect.effect is Effect.OTHER else suspect.effect.value
    return {"id": name, "shortDescription": {"text": words}, "helpUri": f"{_SITE}/suspects/"}


def _result(suspect: Suspect, declared: PairingSummary | None, numbers: Mapping[str, int]) -> dict[str, Any]:
    name = _rule_id(suspect)
    lines = [f"{suspect.title} ({format_counts(suspect)})", *format_suspect(suspect)[1:]]
    fault = suspect.fault
    others = [parse_place(place) for place in (fault.alternatives if fault is not None else ())]
    location = _location(locate_suspect(suspect, declared))
    if declared is not None and (definition := kernel_definition(declared)) is not None:
        location["logicalLocations"] = [{"name": for_terminal(definition[0]), "kind": "function"}]
    result: dict[str, Any] = {
        "ruleId": name,
        "ruleIndex": numbers[name],
        "level": "warning" if suspect.known_bug else "error",
        "message": {"text": "\n".join(map(for_terminal, lines))},
        "locations": [location],
        "partialFingerprints": {"suspect/v1": suspect.id},
    }
    if related := [_location(place) for place in dict.fromkeys(others) if place is not None]:
        result["relatedLocations"] = related
    return result


def _location(place: SuspectLocation) -> dict[str, Any]:
    if place.is_inside:
        artifact = {"uri": quote(place.file), "uriBaseId": "%SRCROOT%"}
    else:
        artifact = {"uri": Path(place.file).as_uri()}
    region = {"region": {"startLine": place.line}} if place.line else {}
    return {"physicalLocation": {"artifactLocation": artifact, **region}}
