"""pytest's hooks: options, collection, the plan before the run, the reconciliation and the report after it."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import kerneltest
from kerneltest.core.details import InternalError
from kerneltest.core.exit_guard import ExitGuard, refuse_exit
from kerneltest.core.extension_registry import load_extensions
from kerneltest.core.failures import assign_blame, reraise_interrupt
from kerneltest.core.media import for_terminal
from kerneltest.core.processes import throttle_gc
from kerneltest.core.targets import skip_tpu_discovery
from kerneltest.declare.discovery import iter_pairings
from kerneltest.pytest_plugin.collection import (
    CollectedPairing,
    UntestedPairingWarning,
    collects_whole_folders,
    describe,
    pairings_of_process,
    problem_of,
    restore_root,
)
from kerneltest.pytest_plugin.hook_guard import guard_hooks
from kerneltest.pytest_plugin.incremental import IncrementalPlugin
from kerneltest.pytest_plugin.kernel_item import KernelItem, UntestableItem
from kerneltest.pytest_plugin.progress import PROGRESS, ProgressLine, open_terminal
from kerneltest.pytest_plugin.pytest_run import RUN, PytestRun, add_options
from kerneltest.pytest_plugin.sharding import ShardPlugin, earlier_seconds

if TYPE_CHECKING:
    from kerneltest.execute.item import Item

_GUARD, _SESSION = pytest.StashKey[ExitGuard](), pytest.StashKey[pytest.Session]()
_STATUS = pytest.StashKey[int | pytest.ExitCode]()  # of a session that is not green
_SHARDING, _INCREMENTAL = pytest.StashKey[ShardPlugin](), pytest.StashKey[IncrementalPlugin]()
_MAX_RESTARTS = "200"  # xdist's default of 4 restarts per worker can be used up by a single crashing item


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    restore_root(early_config)


@pytest.hookimpl(trylast=True)  # once there is a terminal reporter
def pytest_configure(config: pytest.Config) -> None:
    kerneltest._hidden = True
    # By default, JAX reserves most of a GPU's memory at its start, which leaves none for other processes.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if not hasattr(config, "workerinput") and getattr(config.option, "maxworkerrestart", "") is None:
        config.option.maxworkerrestart = _MAX_RESTARTS
    skip_tpu_discovery()
    config.stash[RUN] = run = PytestRun(config)
    plugins, collects_only = config.pluginmanager, config.option.collectonly
    if not run.role.is_worker:
        config.stash[_GUARD] = ExitGuard("the session")
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            with suppress(ValueError):  # Python handles signals in the main thread alone
                signal.signal(signal.SIGTERM, _on_terminate)
                config.add_cleanup(_restore_terminate)  # by the session that replaced it, not by one within it
        plugins.register(run.reporter, "kerneltest-reporter")
        if not collects_only and (terminal := open_terminal(config)) is not None:
            reporter = plugins.getplugin("terminalreporter")
            line = ProgressLine(reporter, run.plan.cases_by_item, run.dispatcher.progress, terminal)
            plugins.register(line, PROGRESS)
    for module in load_extensions("plugins"):
        plugins.register(module, module.__name__)
    # Their hooks run last, those of a plugin that is registered later after others.
    if run.settings.shard is not None:
        config.stash[_SHARDING] = ShardPlugin(run.settings.shard, earlier_seconds(config, run.settings.durations))
        plugins.register(config.stash[_SHARDING])
    if plugins.hasplugin("cacheprovider") and not collects_only:
        config.stash[_INCREMENTAL] = IncrementalPlugin(run)
        plugins.register(config.stash[_INCREMENTAL])


def _on_terminate(number: int, frame: object) -> NoReturn:
    # CI systems and `timeout` end a run so: the suspects found so far are shown. A second signal kills.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt("SIGTERM")


def _restore_terminate() -> None:
    if signal.getsignal(signal.SIGTERM) is _on_terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)  # once pytest has looked for fixtures in the plugins
def pytest_sessionstart(session: pytest.Session) -> None:
    kerneltest._hidden = False
    session.config.stash[_SESSION] = session


def pytest_unconfigure(config: pytest.Config) -> None:
    if RUN in config.stash:
        config.stash[RUN].close()
    if "triton" in sys.modules:
        gc.unfreeze()  # or its bindings complain, as the interpreter exits, that their objects are alive
    if _GUARD in config.stash:
        session = config.stash.get(_SESSION, None)  # none if its start failed
        status = config.stash.get(_STATUS, 0)
        if session is not None and status and not session.exitstatus:
            config.stash[_GUARD].say("another plugin set the exit status of a failed session to 0", status)
            session.exitstatus = status
        config.stash[_GUARD].end(int(session.exitstatus) if session is not None else 0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: Sequence[Any]) -> None:
    """Assigns GPUs to workers; the replacement of a crashed worker inherits its GPU."""
    from kerneltest.pytest_plugin.scheduler import assign_gpus

    local = [spec for spec in specs if spec.popen]
    for spec, variables in zip(local, assign_gpus(len(local)), strict=True):
        spec.env.update(variables)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps items that share work in one worker, unless the user chose another distribution."""
    if config.getoption("dist") != "load" or config.getoption("maxschedchunk") is not None:
        return None
    from kerneltest.pytest_plugin.scheduler import PartScheduling

    return PartScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    run = node.config.stash[RUN]
    node.workerinput["kt_folder"], node.workerinput["kt_run"] = str(run.folder.path), run.folder.run
    node.workerinput["kt_arguments"] = list(run.dispatcher.arguments.words)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    with throttle_gc():  # JAX's modules and the plan are permanent
        return (yield)


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item | pytest.Collector] | None:
    run = collector.config.stash[RUN]
    module = collector.getparent(pytest.Module)
    module_name = module.obj.__name__ if module else ""
    run.collection.modules.add(module_name)
    pairings = list(iter_pairings(name, obj))
    if not pairings:
        return None
    from kerneltest.execute.planning import PairingPlan, plan_pairing
    from kerneltest.execute.watchdog import limit_time
    from kerneltest.records.journal import Journal

    journal = Journal()
    if not run.collection.pairings:
        gc.freeze()  # imported modules are permanent; rescanning them costs about 10 % of a run
    run.dispatcher.prestart()
    others: list[pytest.Item | pytest.Collector] = []
    parts: dict[str, list[Item]] = {}
    for label, pairing in pairings:
        problem, plan = problem_of(pairing), PairingPlan((), ())
        failed = ""
        if not problem:
            try:
                with refuse_exit(), limit_time(journal, run.settings.timeout, run.reporter.console):
                    pairing_id = f"{collector.nodeid}::{label}"
                    plan = plan_pairing(pairing, pairing_id, run.dispatcher.backends, run.settings, journal)
                problem = f"{describe(pairing)}: {plan.problem}" if plan.problem else ""
            except BaseException as error:
                reraise_interrupt(error)
                failure = assign_blame(error, f"planning {label}", "its declaration")
                if not isinstance(failure.detail, InternalError):
                    if isinstance(error, Exception):
                        raise
                    raise pytest.Collector.CollectError(str(failure)) from error  # pytest ends at a SystemExit
                run.collection.internal_errors.append(failure.detail)
                failed = str(failure)
        run.collection.pairings.append(CollectedPairing(pairing, module_name, label, plan, problem))
        if failed or problem:
            others.append(UntestableItem.from_parent(collector, name=label, pairing=pairing, problem=failed or problem))
        for item in plan.items:
            parts.setdefault(item.name.removeprefix(f"{collector.nodeid}::"), []).append(item)
    # Since pytest 9.2, a node id derived from the name does not equal the one that --lf has read; text does.
    return [
        *others,
        *(
            KernelItem.from_parent(collector, name=name, nodeid=f"{collector.nodeid}::{name}", items=tuple(items))
            for name, items in parts.items()
        ),
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    run = config.stash[RUN]
    names = {item.name for pairing in run.collection.unique_pairings() for item in pairing.plan.items}
    items[:] = [item for item in items if not isinstance(item, KernelItem) or item.items[0].name in names]


@pytest.hookimpl(tryfirst=True)  # before an xdist worker reports that it has collected
def pytest_collection_finish(session: pytest.Session) -> None:
    run = session.config.stash[RUN]
    kernel_items = [item for item in session.items if isinstance(item, KernelItem)]
    sharding = session.config.stash.get(_SHARDING, None)
    incremental = session.config.stash.get(_INCREMENTAL, None)
    whole = sharding.whole if sharding is not None else kernel_items
    items = [(part, item.nodeid) for item in whole for part in item.items]
    if incremental is not None:
        incremental.send_to_controller()
    problems = tuple(run.collection.problems(whole_folders=collects_whole_folders(session.config)))
    has_idle_pairing = any(not pairing.plan.items for pairing in run.collection.pairings)
    if not (items or has_idle_pairing or problems) or session.config.option.collectonly:
        return
    from kerneltest.execute.planning import build_plan
    from kerneltest.execute.verdict_key import pairing_fingerprints
    from kerneltest.execute.watchdog import limit_time
    from kerneltest.pytest_plugin.project import identify_project
    from kerneltest.records.journal import Journal
    from kerneltest.records.record_files import write_plan
    from kerneltest.records.resume import part_of_plan

    run.collection.select(part for part, _ in items)
    run.dispatcher.begin_run()
    plan = build_plan(
        [pairing.plan for pairing in run.collection.unique_pairings()],
        [item for item, _ in items],
        [node_id for _, node_id in items],
        run.settings,
        run=run.folder.run,
        project=identify_project(session.config.rootpath),
        internal_errors=tuple(run.collection.internal_errors),
        problems=problems,
    )
    plan = replace(plan, environment={"kerneltest": kerneltest.__version__, **plan.environment})
    if sharding is not None:
        with limit_time(journal := Journal(), run.settings.timeout, run.reporter.console):
            fingerprints = pairing_fingerprints([item for item, _ in items], journal)
        pairings = {name: replace(each, digest=fingerprints[name]) for name, each in plan.pairings.items()}
        plan = replace(plan, pairings=pairings)
        plan = part_of_plan(plan, {item.nodeid for item in kernel_items}, str(sharding.shard))
    if not run.role.is_worker:
        run.plan.begin_run(plan)
    write_plan(run.folder.path, plan)
    gc.freeze()  # the plan is permanent, too


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    run = node.config.stash[RUN]
    if not run.plan.is_written and run.has_plan:
        run.plan.begin_run()  # no worker runs an item before all of them have collected


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    if isinstance(item, KernelItem) and settings.method == "signal":
        item.set_time_limit(settings.timeout)
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    made = len(pairings_of_process())
    result = yield
    if not isinstance(item, KernelItem):
        for pairing in pairings_of_process()[made:]:
            if not pairing.is_planned:
                warning = UntestedPairingWarning(
                    f"{describe(pairing)} was made in {item.name} and never tested. Make it at the top level of the "
                    "module, where pytest collects it, or give it to kt.check"
                )
                try:
                    item.warn(warning)
                except UntestedPairingWarning:  # filters make errors of warnings
                    pytest.fail(str(warning), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if isinstance(item, KernelItem) and report.skipped and call.when != "teardown":  # pytest-benchmark skips calls
        item.record_skip(str(getattr(call.excinfo.value, "msg", call.excinfo.value)))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    sched.config.stash[RUN].crashes.handle(crashitem, report, sched)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_logreport(report: Any) -> Generator[None, object, object]:
    result = yield
    worker: Any = getattr(report, "node", None)
    run = worker.config.stash[RUN] if worker is not None else None
    if run is not None and report.when == "???" and (known := run.crashes.take_properties(report.nodeid)):
        # JUnit XML takes an item's properties from the end of its teardown, which a crashed worker never reached.
        last = pytest.TestReport(report.nodeid, report.location, {}, "passed", None, "teardown", user_properties=known)
        last.node = worker  # type: ignore[attr-defined]
        worker.config.hook.pytest_runtest_logreport(report=last)
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    run = session.config.stash[RUN]
    if run.role.is_worker:
        return
    collected_none = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    incremental = session.config.stash.get(_INCREMENTAL, None)
    if incremental is not None and incremental.receive() and collected_none:
        session.exitstatus = pytest.ExitCode.OK
    if not run.has_plan:
        return
    summary = run.reporter.finish(session)
    if incremental is not None and summary.run is not None:
        incremental.store_green_items(summary.run)
    if run.settings.shard is not None and collected_none:
        session.exitstatus = exitstatus = pytest.ExitCode.OK  # an empty shard
    if summary.run is not None and summary.run.reconciled.internal_errors:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    elif not summary.green and session.exitstatus == pytest.ExitCode.OK:  # whatever marks and other plugins made of it
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if not summary.green:
        session.config.stash[_STATUS] = session.exitstatus


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    if run is not None:
        incremental = config.stash.get(_INCREMENTAL, None)
        if incremental is not None and (left_out := incremental.summary()):
            terminalreporter.write_line(for_terminal(left_out))
        run.reporter.write_summary(terminalreporter)


guard_hooks(globals())
