"""pytest items: one pairing on one backend, in one dtype."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from kerneltest.core.details import Unavailable
from kerneltest.core.media import for_terminal, lines_for_terminal
from kerneltest.core.verdicts import Gap, Verdict
from kerneltest.pytest_plugin.collection import junit_properties, marks_of
from kerneltest.pytest_plugin.hook_guard import describe_os_error, guard_members
from kerneltest.pytest_plugin.pytest_run import RUN

if TYPE_CHECKING:
    from _pytest.nodes import Node

    from kerneltest.declare.pairing import Pairing
    from kerneltest.execute.item import Item
    from kerneltest.pytest_plugin.executor import ItemResult


_XFAIL_ADVICE = (
    "\n\npytest.mark.xfail does not apply to a pairing, since it would also hide findings that are new. Declare the "
    "known ones, as in kt.oracle_for(..., xfail=[kt.xfail(...)])"
)


class FindingsError(AssertionError):
    """An item has findings. As an assertion, it is a failed test to other tools, and not a broken one."""

    def __init__(self, headline: str, message: str) -> None:
        super().__init__(message)
        self.headline = headline  # the first finding in one line


class TimeIsUp(KeyboardInterrupt):
    """An item has used up pytest-timeout's time, whose own exception would be attributed to the kernel."""


class PairingItem(pytest.Item):
    """An item of a pairing. It has the pairing's marks, and no `xfail`."""

    items: Sequence[Item] = ()  # the groups of families that it is about; () if the pairing cannot be tested

    def __init__(self, *, pairing: Pairing, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pairing = pairing
        marks = marks_of(pairing)
        self.own_markers.extend(marks)
        self.keywords.update((mark.name, mark) for mark in marks)

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Node, pytest.Mark]]:
        """Returns the item's marks except `xfail`, which would turn any finding, known or new, into a success."""
        return iter([each for each in super().iter_markers_with_node(name) if each[1].name != "xfail"])

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


@guard_members("iter_markers_with_node", "reportinfo", "repr_failure")
class KernelItem(PairingItem):
    """One pairing on one backend, in one dtype: its groups of families run one after another."""

    def __init__(self, *, items: Sequence[Item], **kwargs: Any) -> None:
        super().__init__(pairing=items[0].pairing.origin, **kwargs)
        self.items = items
        self.item = items[0]
        self.user_properties += junit_properties(self.item.backend.id, self.item.dtype)
        self._was_begun = False
        self._result: ItemResult | None = None
        self._time_limit = 0.0  # seconds
        self._activity_at_alarm = ""  # what the item was doing when its time was up

    def runtest(self) -> None:
        """Runs the item once; a rerun reports the same, or continues one that ran out of time."""
        if self._result is None or (self._result.verdict == Gap.MISSING and not self._activity_at_alarm):
            self._result = self._run_once()
        if not (self._result.skipped or self._result.headline):
            return
        message = lines_for_terminal(self._result.message)
        if self._result.skipped:
            raise pytest.skip.Exception(message)
        advice = _XFAIL_ADVICE * any(pytest.Item.iter_markers_with_node(self, "xfail"))
        error = FindingsError(for_terminal(self._result.headline), message + advice)
        if self.config.option.usepdb:
            raise_at_pairing(error, self.item, case_arrays(self.config.stash[RUN].folder.path, self.item))
        raise error

    def _run_once(self) -> ItemResult:
        dispatcher = self.config.stash[RUN].dispatcher
        request = dispatcher.request(self.item, self.nodeid, is_retry=self._was_begun)
        self._was_begun = True
        try:
            result = dispatcher.executor_of(self.item).run(self.items, request, self._check_alarm)
        except TimeIsUp as time_is_up:
            advice = (
                f"It was {time_is_up}.",
                "The remaining cases have no verdict. Allow the item more time, for example with "
                "pytestmark = pytest.mark.timeout(600) in its module, or plan fewer cases.",
            )
            reason = f"pytest-timeout ended the item after {self._time_limit:g} s, with {{}}"
            result = dispatcher.worker.timed_out(self.items, request, reason, advice)
        known = [pair for pair in self.user_properties if pair[0] not in ("family", "verdict")]
        self.user_properties[:] = [*known, ("family", " ".join(result.families)), ("verdict", result.verdict)]
        return result

    def set_time_limit(self, seconds: float) -> None:
        """Ends the item after some seconds from now; pytest-timeout calls `cancel_timeout`."""
        self._time_limit, self._activity_at_alarm = seconds, ""
        self.cancel_timeout = _set_alarm(seconds, self._on_alarm)

    def _on_alarm(self) -> None:
        activity = self.config.stash[RUN].dispatcher.activity()
        if activity is not None:
            self._activity_at_alarm = str(activity)
            raise TimeIsUp(self._activity_at_alarm)

    def _check_alarm(self) -> None:
        if self._activity_at_alarm:  # the alarm's exception was taken for the kernel's
            raise TimeIsUp(self._activity_at_alarm)

    def record_skip(self, reason: str) -> None:
        """Records all cells of the item as unavailable if it was skipped before it began."""
        if self._was_begun:
            return
        writer = self.config.stash[RUN].dispatcher.worker.writer
        for part in self.items:
            for family in part.families():
                detail = Unavailable(f"skipped: {reason}", skipped=True)
                writer.write(part.record(Verdict.UNAVAILABLE, detail, family=family))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Returns pytest's representation of a failure, located at the pairing."""
        from kerneltest.pytest_plugin.crash_reports import UncollectedError

        if isinstance(excinfo.value, UncollectedError):
            return str(excinfo.value)
        if isinstance(excinfo.value, OSError):  # what tested code raises is in the records
            return describe_os_error(excinfo.value)
        if not isinstance(excinfo.value, FindingsError):
            return super().repr_failure(excinfo, style)
        # pytest's own form is what its summary line, JUnit XML and xdist expect.
        shown = excinfo.getrepr(style="value")
        path, line, _ = self.reportinfo()
        place = shown.reprcrash
        place.path, place.lineno, place.message = str(path), (line or 0) + 1, excinfo.value.headline
        (entry,) = shown.reprtraceback.reprentries
        entry.style, entry.reprfileloc = "long", place
        if self.config.option.tbstyle == "line":  # pytest then writes the location itself
            entry.lines, entry.reprfileloc = [], None
        return shown

    def reportinfo(self) -> tuple[Path, int | None, str]:
        code = getattr(self.item.pairing.oracle, "__code__", None)
        return self.path, code.co_firstlineno - 1 if code else None, self.name


@guard_members("iter_markers_with_node", "reportinfo")
class UntestableItem(PairingItem):
    """A pairing that cannot be tested: one failure in place of one for each case."""

    def __init__(self, *, problem: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.problem = problem

    def runtest(self) -> None:
        pytest.fail(self.problem, pytrace=False)


# Calls `on_alarm` in the main thread after some seconds, except while debugging. Returns what cancels that.
def _set_alarm(seconds: float, on_alarm: Callable[[], None]) -> Callable[[], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        timeout: Any = sys.modules["pytest_timeout"]
        if not timeout.is_debugging():
            on_alarm()

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return cancel


# `--pdb`: the debugger stops at the pairing, where the arrays of the smallest case are local variables.


def raise_at_pairing(error: Exception, item: Item, names: Mapping[str, object]) -> NoReturn:
    """Raises an error in a frame at the oracle's first line, among the names of its module."""
    oracle: Any = item.pairing.oracle
    code = getattr(oracle, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code is not None else ("<oracle>", 1)
    namespace = {**getattr(oracle, "__globals__", {}), "__error__": error}
    parameters = ", ".join(name for name in names if name.isidentifier())
    source = "\n" * (line - 1) + f"def case({parameters}): raise __error__"
    exec(compile(source, file, "exec"), namespace)
    namespace["case"](**{name: value for name, value in names.items() if name.isidentifier()})
    raise error


def case_arrays(folder: Path, item: Item) -> dict[str, object]:
    """Returns the inputs of an item's smallest failing case, run again, with `expected`, `got` and `wrong`."""
    from kerneltest.records.record_files import read_records, read_reproducers
    from kerneltest.reproduce.rerun import ReproductionError, run_saved_case

    recorded = [*(reproducer.record for reproducer in read_reproducers(folder)), *read_records(folder)]
    mine = [each for each in recorded if each.item == item.name and each.backend == item.backend.id]
    record = next((each for each in mine if each.evidence is not None and each.evidence.file), None)
    if record is None:
        return {}
    try:
        outcome = run_saved_case(folder, record, item.pairing, item.backend, item.settings)
    except ReproductionError:
        return {}
    arrays: dict[str, object] = {path.replace(".", "_"): value for path, value in (outcome.arguments or {}).items()}
    compared = outcome.comparison
    if compared is None:
        return arrays
    return {**arrays, "expected": compared.expected, "got": compared.actual, "wrong": compared.wrong}
