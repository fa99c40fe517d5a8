"""Runs items in this process, one after another, and writes their records."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from kerneltest.backends.base import UnavailableBackend
from kerneltest.backends.compilation import disk_cache
from kerneltest.backends.device import device_responds
from kerneltest.core import exit_guard
from kerneltest.core.failures import Failure, Guard, escape_surrogates
from kerneltest.core.files import DiskStore, open_inside
from kerneltest.core.ids import ANY
from kerneltest.core.processes import show_warnings_once
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Gap, Verdict, worst
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.process_state import ProcessState
from kerneltest.execute.runner import PriorAttempts, run_item
from kerneltest.execute.time_budget import TimeBudget
from kerneltest.execute.verdict_key import find_key
from kerneltest.execute.watchdog import CrashLog, CrashReason, Watchdog
from kerneltest.pytest_plugin.crash_reports import FileCrashLog, device_is_lost, ends_its_process, prior_attempts
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult, WorkerSetup
from kerneltest.records.files import slug
from kerneltest.records.journal import Activity, Journal
from kerneltest.records.record_files import RecordWriter, save_artifacts
from kerneltest.records.result_cache import ResultCache, keys_before, write_key
from kerneltest.records.resume import resume_item
from kerneltest.records.schema import Record, Reproducer
from kerneltest.report.text.suspect_text import format_failure, headline
from kerneltest.reproduce.script_writer import save_reproduction
from kerneltest.trace.tracing import without_debugging
from kerneltest.triage.suspects import Suspect, find_suspects


class SuspectTracker:
    """The records of the current pairing, and the suspects that follow from them."""

    def __init__(self, folder: Path, seconds: float, published_folder: Path | None = None) -> None:
        self._folder, self._published_folder = folder, published_folder
        self._seconds = seconds  # to search for the smallest case of each suspect; 0 for no search
        self._records: list[Record] = []
        self._smallest: list[Reproducer] = []

    def add(self, record: Record) -> None:
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

        found = reduce_suspect(parts, findings, cache, self._seconds, self._smallest)
        if found is None:
            return
        smallest = found.reproducer
        if (inputs := found.outcome.arguments) is not None:
            part = next(each for each in parts if each.group.name == smallest.record.group)
            record = save_reproduction(self._folder, smallest.record, part, inputs, self._published_folder)
            smallest = replace(smallest, record=record)
        if found.reduced_script:
            name = f"cases/cut_{smallest.record.case}-{slug(smallest.record.backend)}.py"
            smallest = replace(smallest, reduced_script=name)
            with open_inside(self._folder, smallest.reduced_script, "wb") as script:
                script.write(found.reduced_script.encode())
        writer.write_reproducer(smallest)
        self._smallest.append(smallest)


_MAX_SAVED = 20  # findings of an item whose inputs are saved, in addition to the first of each kind


class ItemWorker:
    """Runs items in this process."""

    def __init__(
        self,
        setup: WorkerSetup,
        before_exit: Callable[[Activity, Failure], None],
        console: CrashLog | None = None,
        on_finding: Callable[[str, str], None] = lambda item, finding: None,
    ) -> None:
        self.setup = setup
        self._on_finding = on_finding  # called with an item and its first finding in a line, as soon as that is judged
        state = ProcessState(journal=Journal(setup.folder, setup.shard), planned=setup.planned)
        self.cache = Cache(process=state)
        self.judged_cases = 0  # of the running item
        self.is_shrinking = False  # whether it is searching for the smallest case of a finding
        self._suspects = SuspectTracker(setup.folder, setup.settings.minimize, setup.published_folder)
        self._kinds: set[tuple[Verdict, str]] = set()  # of the findings of the running item
        self._writer: RecordWriter | None = None
        self._before_exit = before_exit  # called before the watchdog ends this process
        self._console = console  # None if a supervisor reads a file instead, and starts a replacement
        self._log: CrashLog | None = None
        self._watchdog: Watchdog | None = None

    def plan_parts(self, planned: frozenset[tuple[str, str, str]]) -> None:
        """Sets everything that the run does: pairing, backend and dtype."""
        self.setup = replace(self.setup, planned=planned)
        self.cache.process.planned = planned

    @property
    def writer(self) -> RecordWriter:
        if self._writer is None:
            self._writer = RecordWriter(self.setup.folder, self.setup.shard)
        return self._writer

    def close(self) -> None:
        """Releases the worker's files and threads. The process continues."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._writer is not None:
            self._writer.close()
        self.cache.process.pool.close()
        self.cache.process.journal.close()
        if self._log is not None:
            exit_guard.remove_rule(self._report_exit)
        if (log := self._log or self._console) is not None:
            log.close()

    def _open_log(self) -> None:
        if self._console is None:
            self.cache.process.abort = self._abort
        self._log = self._console or FileCrashLog(self.setup.folder, self.setup.shard)
        exit_guard.add_rule(self._report_exit)
        if timeout := self.setup.settings.timeout:
            self._watchdog = Watchdog(self.cache.process.journal, timeout, self._log, self._before_exit)
            self._watchdog.start()

    # Reports the case that called `os._exit`, which never has the status of a success.
    def _report_exit(self, status: int, call: str) -> int:
        assert self._log is not None
        if (activity := self.cache.process.journal.activity) is None:
            return status
        self._log.write(CrashReason(f"{call} was called"), activity)
        return status or 1

    @contextmanager
    def jax_settings(self) -> Iterator[None]:
        """Applies the settings of JAX: the user's, but executables are cached, and neither NaNs nor warnings raise."""
        with ExitStack() as stack:
            if self.setup.store is not None:
                stack.enter_context(disk_cache(self.setup.store))
            stack.enter_context(without_debugging())
            stack.enter_context(show_warnings_once())
            yield

    def run(
        self, parts: Sequence[Item], request: ItemRequest, on_case: Callable[[], None] = lambda: None
    ) -> ItemResult:
        """Runs all groups of an item, under supervision, and records each case as it ends."""
        if self._log is None:
            self._open_log()
        if self._watchdog is not None:
            self._watchdog.arm()
        try:
            with self.jax_settings():
                result = self._run(parts, request, on_case)
        finally:
            self.judged_cases = 0
            if self._watchdog is not None:
                self._watchdog.disarm()
        self.cache.process.journal.write_timings()
        return result

    def _run(self, parts: Sequence[Item], request: ItemRequest, on_case: Callable[[], None]) -> ItemResult:
        self.judged_cases, process = 0, self.cache.process
        process.budget = TimeBudget.of_groups(request.budget, ((part.group.name, part.cases()) for part in parts))
        before, records = prior_attempts(self.setup.folder, request.name, self.setup.shard, is_retry=request.is_retry)
        is_new = before is None
        key = find_key(parts, self.cache) if is_new and self.setup.writes_keys else ""
        if self.setup.writes_keys:
            write_key(self.setup.folder, self.setup.shard, request.name, key)
        earlier, store, is_device = None, self.setup.store, parts[0].backend.tier is Tier.DEVICE
        if key and store is not None and self.setup.reuses_records and not is_device:  # the device may have changed
            earlier = ResultCache(DiskStore(store)).records(request.name, key)
        if earlier is not None:
            lines, families = earlier
            self.writer.copy(lines)
            return ItemResult(str(Verdict.PASS), families)
        if is_new and self.setup.settings.resume:
            is_same = bool(key) and self._keys_before.get(request.name) == key
            records = resume_item(self.setup.folder, request.name, is_same=is_same)
            before = PriorAttempts(records) if records else None
        findings: list[Record] = []
        self._kinds.clear()
        for record in records:
            self._add(record, findings)
        for part, outcome in ((own, each) for own in parts for each in run_item(own, self.cache, prior=before)):
            on_case()
            record = self._write(part, outcome, findings)
            records.append(record)
            self._add(record, findings)
            if findings == [record]:
                self._on_finding(request.name, headline(findings, ()))
            if device_is_lost(record):  # ends this process, or stops using the device
                process.device_lost = f"since case {record.case}: {record.message.partition(chr(10))[0]}"
                if process.abort is not None:
                    process.abort("a device error poisoned its context")
            if findings and request.stops_at_finding:
                break
        suspects: Sequence[Suspect] = ()
        if findings and not process.device_lost:
            guard = Guard(process.internal_failures)
            search = functools.partial(
                self._suspects.investigate, parts, self.cache, self.writer, searches=not request.stops_at_finding
            )
            self.is_shrinking = True
            suspects = guard.collect("searching for the smallest case", search, (), OSError)
            self.is_shrinking = False
            backend = parts[0].backend
            if backend.tier is Tier.DEVICE and not device_responds(backend.id):
                process.device_lost = "since the search for the smallest case of a finding"
        for failure in process.take_internal_failures():  # of kerneltest itself, since the last outcome
            record = parts[0].record(failure.verdict, failure.detail, family=ANY)
            self.writer.write(record)
            self._add(record, findings)
        result = self._result(parts[0], request, records, findings, suspects)
        return replace(result, device_lost=bool(process.device_lost))

    @functools.cached_property
    def _keys_before(self) -> Mapping[str, str]:
        return keys_before(self.setup.folder)

    def _result(
        self,
        item: Item,
        request: ItemRequest,
        records: Sequence[Record],
        findings: Sequence[Record],
        suspects: Sequence[Suspect],
    ) -> ItemResult:
        passed = any(record.verdict in (Verdict.PASS, Verdict.XFAIL) for record in records)
        result = ItemResult(
            str(Verdict.PASS if passed else Verdict.UNAVAILABLE),
            tuple(dict.fromkeys(record.family for record in records)),
        )
        if findings:
            verdict, message = worst(r.verdict for r in findings), self._describe(item, findings, suspects, request)
            return replace(result, verdict=str(verdict), headline=headline(findings, suspects), message=message)
        reason = next((record.message for record in reversed(records) if record.verdict is Verdict.UNAVAILABLE), "")
        if passed or not reason:
            return result
        backend = item.backend
        lacking = backend.unavailable() and not isinstance(backend, UnavailableBackend)
        if backend.id in self.setup.named_backends and lacking:
            message = escape_surrogates(f"{backend.id} was requested and is unavailable: {reason}")
            return replace(result, headline=message, message=message)
        return replace(result, skipped=True, message=escape_surrogates(f"{backend.id} unavailable: {reason}"))

    def _describe(
        self, item: Item, findings: Sequence[Record], suspects: Sequence[Suspect], request: ItemRequest
    ) -> str:
        root, report, cases = self.setup.root, self.setup.settings.report, self.setup.shows_cases
        return "\n".join(format_failure(item, findings, suspects, root, report, request.command, cases=cases))

    def timed_out(self, parts: Sequence[Item], request: ItemRequest, reason: str, advice: Sequence[str]) -> ItemResult:
        """Returns the result of an item that ran out of time; `reason` has `{}` for the number of judged cases."""
        _, records = prior_attempts(self.setup.folder, request.name, self.setup.shard, is_retry=True)
        findings = [record for record in records if not record.verdict.is_green]
        planned = sum(sum(part.families().values()) for part in parts)
        line = reason.format(f"{sum(bool(record.case) for record in records)} of {planned} cases judged")
        details = [self._describe(parts[0], findings, (), request)] if findings else []
        families = tuple(dict.fromkeys(record.family for record in findings))
        return ItemResult(str(Gap.MISSING), families, line, "\n".join([f"{line}.", *advice, *details]))

    # Writes the record of a case, with its inputs if it is the first finding of its kind or one of a few.
    def _write(self, part: Item, outcome: Outcome, findings: Sequence[Record]) -> Record:
        record = outcome.record
        guard = Guard(self.cache.process.internal_failures)
        is_known_kind = (record.verdict, record.family) in self._kinds
        if (inputs := outcome.arguments) is not None and (not is_known_kind or len(findings) < _MAX_SAVED):
            setup = self.setup
            save = functools.partial(save_reproduction, setup.folder, record, part, inputs, setup.published_folder)
            record = guard.collect("saving the inputs of a finding", save, record, OSError)
        if record.evidence is not None and is_known_kind:  # one window for each kind is enough
            record = replace(record, evidence=record.evidence.without_pictures())
        if self.setup.settings.artifacts and (texts := outcome.files()):
            name = f"{record.case}-{slug(record.backend)}"
            record = replace(record, files=save_artifacts(self.setup.folder, name, texts))
        self.writer.write(record)
        self.judged_cases += bool(record.case)
        return record

    def _add(self, record: Record, findings: list[Record]) -> None:
        self._suspects.add(record)
        if not record.verdict.is_green:
            findings.append(record)
            self._kinds.add((record.verdict, record.family))

    def _abort(self, cause: str) -> None:
        if self._log is not None:
            self._log.write(CrashReason(cause), self.cache.process.journal.activity)
            exit_guard.leave(1)
