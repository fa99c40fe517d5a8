"""pytest's hooks: options, collection, one item a (pairing, backend, dtype, family group), the run's folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.options import DEPTHS, backend_ids

if TYPE_CHECKING:
    from kerneltest.item import Item
    from kerneltest.record import Record
    from kerneltest.session import Summary

ALL_BACKENDS = "all"

_run_key = pytest.StashKey["Run"]()

_OPTIONS = {
    "kt_depth": ("standard", "how many lengths and combinations to try: quick, standard or deep"),
    "kt_seed": ("0", "seed of all random values"),
    "kt_backends": (
        ALL_BACKENDS,
        "comma-separated backend ids and patterns ('compile:*'); one named and absent fails, among 'all' it is skipped",
    ),
    "kt_orders": ("0", "on simulate:*, also run programs one after another in so many random orders"),
    "kt_fuzz": ("0", "also draw so many cases for each pairing and dtype, with Hypothesis, and shrink what fails"),
    "kt_report": ("", "folder for the plan, the records and report.html"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kerneltest", "conformance of Pallas kernels")
    for name, (default, what) in _OPTIONS.items():
        group.addoption(f"--{name.replace('_', '-')}", dest=name, help=f"{what} (default: {default or 'none'})")
        parser.addini(name, f"the same as --{name.replace('_', '-')}", default=default)
    kept = "keep lowered and compiled code (.ttir, .ptx, .amdgcn) in the report's folder"
    group.addoption("--kt-artifacts", dest="kt_artifacts", action="store_true", default=None, help=kept)
    parser.addini("kt_artifacts", "the same as --kt-artifacts", type="bool", default=False)


class Run:
    """One pytest run: its options, its folder, and what its items share. Imports kerneltest's core on first use."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.depth = self._option("kt_depth")
        self.backend_ids = [each.strip() for each in self._option("kt_backends").split(",") if each.strip()]
        self.report = self._option("kt_report")
        if self.depth not in DEPTHS:
            raise pytest.UsageError(f"--kt-depth: unknown depth {self.depth!r}; known are {', '.join(DEPTHS)}")
        self.seed, self.orders = self._number("kt_seed"), self._number("kt_orders")
        self.fuzz = self._number("kt_fuzz")
        if self.fuzz < 0:
            raise pytest.UsageError(f"--kt-fuzz: {self.fuzz} is no number of cases")
        if self.fuzz and not find_spec("hypothesis"):
            raise pytest.UsageError("--kt-fuzz needs Hypothesis: pip install 'kerneltest[fuzz]'")
        self.artifacts = bool(config.getoption("kt_artifacts") or config.getini("kt_artifacts"))
        if self.artifacts and not self.report:
            raise pytest.UsageError("--kt-artifacts needs --kt-report, the folder to keep them in")
        # A backend that was asked for by name and is absent fails; one among all is skipped with its reason.
        self.asked_by_name = self.backend_ids != [ALL_BACKENDS]
        try:
            if not backend_ids(self.backend_ids):
                raise ValueError("name at least one backend, or 'all'")
        except ValueError as error:
            raise pytest.UsageError(f"--kt-backends: {error}") from error
        self.worker = getattr(config, "workerinput", None)
        self.is_xdist_controller = self.worker is None and bool(config.getoption("numprocesses", None))
        self.folder = self._make_folder()
        self.summary: Summary | None = None
        self._backends: Any = None
        self._writer: Any = None
        self._memory: Any = None

    def _option(self, name: str) -> str:
        given = self.config.getoption(name)
        return str(self.config.getini(name) if given is None else given)

    def _number(self, name: str) -> int:
        try:
            return int(self._option(name))
        except ValueError as error:
            raise pytest.UsageError(f"--{name.replace('_', '-')}: {error}") from error

    def _make_folder(self) -> Path:
        """The run's folder, empty of an earlier run's records; said to be unwritable before anything is run."""
        if self.worker is not None:
            return Path(self.worker["kt_folder"])
        if not self.report or self.config.option.collectonly:
            return Path(tempfile.mkdtemp(prefix="kerneltest-"))
        folder = Path(self.config.invocation_params.dir, self.report)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / ".writable"
            probe.write_text("")
            probe.unlink()
            for old in [*folder.glob("records-*.jsonl"), folder / "plan.json", folder / "report.html"]:
                old.unlink(missing_ok=True)
            for name in ("cases", "artifacts"):
                shutil.rmtree(folder / name, ignore_errors=True)
        except OSError as error:
            raise pytest.UsageError(f"--kt-report: cannot write to {folder}: {error.strerror or error}") from error
        return folder

    @property
    def backends(self) -> Any:
        if self._backends is None:
            from kerneltest.backends import cache_on_disk, resolve

            cache = getattr(self.config, "cache", None)  # absent under -p no:cacheprovider
            if cache is not None:
                cache_on_disk(cache.mkdir("kerneltest"))
            self._backends = resolve(self.backend_ids, self.orders)
        return self._backends

    @property
    def memory(self) -> Any:
        if self._memory is None:
            from kerneltest.memory import Memory

            self._memory = Memory()
        return self._memory

    @property
    def writer(self) -> Any:
        if self._writer is None:
            from kerneltest.record import Writer

            shard = "controller" if self.is_xdist_controller else os.environ.get("PYTEST_XDIST_WORKER", "main")
            self._writer = Writer(self.folder, shard)
        return self._writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._memory is not None:
            self._memory.pool.shutdown(cancel_futures=True)
        if not self.report and self.worker is None:
            shutil.rmtree(self.folder, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        # JAX takes most of a GPU's memory when it starts, which leaves none for the workers beside this one.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    config.stash[_run_key] = Run(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _run_key in config.stash:
        config.stash[_run_key].close()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["kt_folder"] = str(node.config.stash[_run_key].folder)


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item | pytest.Collector] | None:
    # Told by the name of its class, so that a run without pairings loads nothing of the core.
    if type(obj).__name__ != "Pairing" or type(obj).__module__ != "kerneltest.pairing":
        return None
    if getattr(obj, "module", None) != getattr(collector.obj, "__name__", None):
        return None  # imported from the suite that declares it, and collected there
    from kerneltest.item import items_of
    from kerneltest.pairing import Pairing

    assert isinstance(obj, Pairing)
    run = collector.config.stash[_run_key]
    pairing_id = f"{collector.nodeid}::{name}"
    items = items_of(obj, pairing_id, run.backends, run.depth, run.seed, run.fuzz)
    return [
        KernelItem.from_parent(collector, name=item.name.removeprefix(f"{collector.nodeid}::"), item=item)
        for item in items
    ]


class FindingsError(Exception):
    """An item has findings; the message lists them."""


class KernelItem(pytest.Item):
    """One pairing on one backend, in one dtype, with one group of families."""

    def __init__(self, *, item: Item, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.item = item
        parts = {"backend": item.backend.id, "dtype": item.dtype, "group": item.group}
        self.user_properties += list(parts.items())

    def runtest(self) -> None:
        from dataclasses import replace

        from kerneltest.record import save_arguments, save_artifacts
        from kerneltest.runner import run as run_item
        from kerneltest.script import save_script
        from kerneltest.verdicts import NO_FINDING, worst

        run = self.config.stash[_run_key]
        found: list[Record] = []
        unavailable = ""
        for outcome in run_item(self.item, run.memory):
            record = outcome.record
            if record.evidence is not None and outcome.arguments is not None and len(found) < _SAVED:
                file = save_arguments(run.folder, f"{record.case}-{_slug(record.backend)}", outcome.arguments)
                evidence = replace(record.evidence, file=file)
                script = save_script(run.folder, replace(record, evidence=evidence), self.item)
                evidence = replace(evidence, script=script.relative_to(run.folder).as_posix())
                record = replace(record, evidence=evidence)
            if record.evidence is not None and any(
                (r.verdict, r.family) == (record.verdict, record.family) for r in found
            ):
                record = replace(
                    record, evidence=replace(record.evidence, window=None, inputs=())
                )  # one picture a kind
            if run.artifacts and (files := outcome.files()):
                name = f"{record.case}-{_slug(record.backend)}"
                record = replace(record, files=save_artifacts(run.folder, name, files))
            run.writer.write(record)
            if record.verdict == "unavailable":
                unavailable = record.message
            elif record.verdict not in NO_FINDING:
                found.append(record)
        verdict = worst({record.verdict for record in found}) if found else "unavailable" if unavailable else "pass"
        self.user_properties.append(("verdict", verdict))
        if found:
            raise FindingsError(_story(found, self.nodeid, run))
        if unavailable and run.asked_by_name and self.item.backend.unavailable():
            raise FindingsError(f"{self.item.backend.id} was asked for and is unavailable: {unavailable}")
        if unavailable:
            pytest.skip(f"{self.item.backend.id} unavailable: {unavailable}")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, FindingsError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        code = getattr(self.item.pairing.oracle, "__code__", None)
        return self.path, code.co_firstlineno - 1 if code else None, self.name


_SAVED = 20  # arguments saved per item: enough to study, small enough to keep
_SHOWN = 5  # findings told per item: the first of each verdict and, where values were compared, of each family


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)


def _story(found: list[Record], nodeid: str, run: Run) -> str:
    from kerneltest.record import repro_command

    lines = [f"{len(found)} finding{'s' * (len(found) > 1)}"]
    kinds: dict[tuple[str, str], Record] = {}
    for record in found:
        # What has no values says the same of every family.
        kinds.setdefault((record.verdict, record.family if record.wrong else ""), record)
    shown = list(kinds.values())[:_SHOWN]
    for record in shown:
        target = f" in {record.target}" if record.target else ""
        lines += ["", f"{record.verdict}: {record.family}{target}, {record.signature}"]
        lines += [f"  {line}" for line in record.message.splitlines()]
        if record.evidence is not None:
            lines += [f"  {path} = {text}" for path, text in (record.evidence.arguments or {}).items()]
            if run.report and record.evidence.file:
                lines.append(f"  {repro_command(run.report, record.case, record.backend)}")
    if len(found) > len(shown):
        lines += ["", f"... and {len(found) - len(shown)} more"]
    options = f"--kt-depth {run.depth} --kt-seed {run.seed}" + f" --kt-fuzz {run.fuzz}" * bool(run.fuzz)
    return "\n".join([*lines, "", f'reproduce: pytest -p kerneltest {options} "{nodeid}"'])


def pytest_collection_finish(session: pytest.Session) -> None:
    run = session.config.stash[_run_key]
    items = [item for item in session.items if isinstance(item, KernelItem)]
    if not items or session.config.option.collectonly:
        return
    from kerneltest.record import write_plan
    from kerneltest.session import plan_of

    write_plan(run.folder, plan_of([item.item for item in items], [i.nodeid for i in items], run.depth, run.seed))


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    run = sched.config.stash[_run_key]
    from kerneltest.session import record_crash

    record_crash(run.folder, run.writer, crashitem)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    run = session.config.stash[_run_key]
    if run.worker is not None or not (run.folder / "plan.json").exists():
        return
    from kerneltest.session import finish

    run.summary = finish(run.folder, write_report=bool(run.report))
    if not run.summary.complete and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    run = config.stash.get(_run_key, None)
    if run is None or run.summary is None:
        return
    if config.option.verbose < 0 and run.summary.complete:
        return
    terminalreporter.section("kerneltest")
    for line in run.summary.lines:
        terminalreporter.write_line(line)
