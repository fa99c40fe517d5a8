"""The result of an item, from its records, its findings and their suspects."""

from collections.abc import Sequence
from dataclasses import replace

from kerneltest.backends.delegating import UnavailableBackend
from kerneltest.core.failures import escape_surrogates
from kerneltest.core.verdicts import Verdict, worst
from kerneltest.execute.item import Item
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult, WorkerSetup
from kerneltest.records.schema import Record
from kerneltest.report.text.item_failure import format_failure, headline
from kerneltest.triage.suspect import Suspect


def item_result(
    setup: WorkerSetup,
    item: Item,
    request: ItemRequest,
    records: Sequence[Record],
    findings: Sequence[Record],
    suspects: Sequence[Suspect],
) -> ItemResult:
    """Returns the result of an item.

    Args:
      setup: of the worker that ran it.
      item: one of its groups.
      request: of the item.
      records: of all its cases.
      findings: those of them that are not green.
      suspects: of the findings.
    """
    verdicts = [record.verdict for record in records]
    passed = any(verdict in (Verdict.PASS, Verdict.XFAIL) for verdict in verdicts)
    result = ItemResult(
        str(Verdict.PASS if passed else Verdict.UNAVAILABLE), tuple(dict.fromkeys(record.family for record in records))
    )
    if findings:
        line, message = describe_findings(setup, item, findings, suspects, request)
        return replace(
            result, verdict=str(worst(record.verdict for record in findings)), headline=line, message=message
        )
    reason = next((record.message for record in reversed(records) if record.verdict is Verdict.UNAVAILABLE), "")
    if passed or not reason:
        return result
    backend = item.backend
    lacking = backend.unavailable() and not isinstance(backend, UnavailableBackend)
    if backend.id in setup.named_backends and lacking:
        message = escape_surrogates(f"{backend.id} was requested and is unavailable: {reason}")
        return replace(result, headline=message, message=message)
    return replace(result, skipped=True, message=escape_surrogates(f"{backend.id} unavailable: {reason}"))


def describe_findings(
    setup: WorkerSetup, item: Item, findings: Sequence[Record], suspects: Sequence[Suspect], request: ItemRequest
) -> tuple[str, str]:
    """Returns the findings of an item in one line, and in full. Arguments are those of `item_result`."""
    report, shows_cases = setup.settings.report, setup.shows_cases
    lines = format_failure(item, findings, suspects, setup.root, report, request.command, cases=shows_cases)
    return headline(findings, suspects), "\n".join(lines)
