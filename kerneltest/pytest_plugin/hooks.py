"""pytest's hooks: options, collection, the plan before, the reconciliation and the report after."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

import kerneltest
from kerneltest.core.run_options import registered_options
from kerneltest.core.tpus import expect_no_tpu
from kerneltest.declare.discovery import held
from kerneltest.pytest_plugin.collect import Holder, chosen, is_unwritten, problems_of
from kerneltest.pytest_plugin.incremental import Changed
from kerneltest.pytest_plugin.item import KernelItem, UnwrittenItem, properties
from kerneltest.pytest_plugin.progress import Live, watched
from kerneltest.pytest_plugin.run import OPTIONS, RUN, Run
from kerneltest.pytest_plugin.sharding import Sharding

if TYPE_CHECKING:
    from kerneltest.execute.item import Item

_SHARDING, _CHANGED = "kerneltest-sharding", "kerneltest-changed"
_MOST_RESTARTS = "200"  # of xdist's workers, whose own limit of four a worker one item may reach


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kerneltest", "conformance of Pallas kernels")
    for name, (default, what) in OPTIONS.items():
        group.addoption(f"--{name.replace('_', '-')}", dest=name, help=f"{what} (default: {default or 'none'})")
        parser.addini(name, f"the same as --{name.replace('_', '-')}", default=default)
    for option in registered_options():
        if option.parse is None:
            group.addoption(option.flag, dest=option.name, action="store_true", default=None, help=option.help)
            parser.addini(option.name, f"the same as {option.flag}", type="bool", default=False)
        else:
            words = f"{option.help} (default: {option.default or 'none'})"
            group.addoption(option.flag, dest=option.name, help=words)
            parser.addini(option.name, f"the same as {option.flag}", default=option.default)
    resumed = "go on with the run in the report's folder, which was cut off: only what it had not finished is run"
    group.addoption("--kt-resume", dest="kt_resume", action="store_true", default=False, help=resumed)
    changed = "leave out items that were green and of which no code, setting or version has changed since"
    group.addoption("--kt-changed", dest="kt_changed", action="store_true", default=False, help=changed)
    kept = "keep lowered and compiled code (.ttir, .ptx, .amdgcn) in the report's folder"
    group.addoption("--kt-artifacts", dest="kt_artifacts", action="store_true", default=None, help=kept)
    parser.addini("kt_artifacts", "the same as --kt-artifacts", type="bool", default=False)


@pytest.hookimpl(trylast=True)  # once there is a terminal reporter
def pytest_configure(config: pytest.Config) -> None:
    kerneltest._hidden = True
    # JAX takes most of a GPU's memory when it starts, which leaves none for the processes beside this one.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if not hasattr(config, "workerinput") and getattr(config.option, "maxworkerrestart", "") is None:
        config.option.maxworkerrestart = _MOST_RESTARTS
    expect_no_tpu()
    config.stash[RUN] = run = Run(config)
    if run.part is not None:
        config.pluginmanager.register(Sharding(*run.part), _SHARDING)
    if config.pluginmanager.hasplugin("cacheprovider") and not config.option.collectonly:
        config.pluginmanager.register(Changed(run), _CHANGED)
    elif run.only_changed and not config.option.collectonly:
        raise pytest.UsageError("--kt-changed needs pytest's cache, which -p no:cacheprovider switches off")
    if run.worker is None and not config.option.collectonly and (output := watched(config)) is not None:
        reporter = config.pluginmanager.getplugin("terminalreporter")
        config.pluginmanager.register(Live(reporter, run.planned, run.doing, output), "kerneltest-live")
    if run.ray:
        from kerneltest.extensions.ray.loop import Loop

        run.cluster = loop = Loop(run, config.pluginmanager.getplugin("kerneltest-live"))
        config.pluginmanager.register(loop, "kerneltest-cluster")


@pytest.hookimpl(trylast=True)  # once pytest has looked for fixtures in the plugins
def pytest_sessionstart() -> None:
    kerneltest._hidden = False


def pytest_unconfigure(config: pytest.Config) -> None:
    if RUN in config.stash:
        config.stash[RUN].close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: Sequence[Any]) -> None:
    """Gives each worker its GPU; one that takes the place of a dead worker is started as that was."""
    from kerneltest.pytest_plugin.gpu_assignment import leases

    local = [spec for spec in specs if spec.popen]
    for spec, lease in zip(local, leases(len(local)), strict=True):
        spec.env.update(lease.environment)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps together what shares work, where nobody has asked xdist for another way to hand out items."""
    if config.getoption("dist") != "load" or config.getoption("maxschedchunk") is not None:
        return None
    from kerneltest.pytest_plugin.scheduler import Together

    return Together(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    run = node.config.stash[RUN]
    node.workerinput["kt_folder"], node.workerinput["kt_run"] = str(run.home.path), run.home.run
    node.workerinput["kt_arguments"] = list(run.arguments.words)


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item | pytest.Collector] | None:
    pairings = list(held(name, obj))
    if not pairings:
        return None
    from kerneltest.execute.planning import PairingPlan, plan_pairing

    run = collector.config.stash[RUN]
    if not run.holders:
        gc.freeze()  # JAX and kerneltest stay: to look them over for garbage, again and again, takes a tenth of a run
    run.collects()
    module = collector.getparent(pytest.Module)
    home = module.obj.__name__ if module else ""
    unwritten: list[pytest.Item | pytest.Collector] = []
    parts: dict[str, list[Item]] = {}
    for label, pairing in pairings:
        if is_unwritten(pairing):
            run.holders.append(Holder(pairing, home, label, PairingPlan((), ())))
            unwritten.append(UnwrittenItem.from_parent(collector, name=label, pairing=pairing))
            continue
        place = f"{collector.nodeid}::{label}"
        planned = plan_pairing(pairing, place, run.backends, run.depth, run.seed, run.fuzz, run.prove, run.sanitize)
        run.holders.append(Holder(pairing, home, label, planned))
        for item in planned.items:
            parts.setdefault(item.name.removeprefix(f"{collector.nodeid}::"), []).append(item)
    # The id is given as text: since pytest 9.2, one made of the name does not equal the one that --lf has read.
    return [
        *unwritten,
        *(
            KernelItem.from_parent(collector, name=name, nodeid=f"{collector.nodeid}::{name}", items=tuple(items))
            for name, items in parts.items()
        ),
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    run = config.stash[RUN]
    names = {item.name for holder in chosen(run.holders) for item in holder.plan.items}
    items[:] = [item for item in items if not isinstance(item, KernelItem) or item.items[0].name in names]


@pytest.hookimpl(tryfirst=True)  # before xdist's worker says that it has collected
def pytest_collection_finish(session: pytest.Session) -> None:
    run = session.config.stash[RUN]
    mine = [item for item in session.items if isinstance(item, KernelItem)]
    sharding = session.config.pluginmanager.getplugin(_SHARDING)
    items = [(part, item.nodeid) for item in (sharding.whole if sharding else mine) for part in item.items]
    if (changed := session.config.pluginmanager.getplugin(_CHANGED)) is not None:
        changed.write()
    idle = any(not holder.plan.items for holder in run.holders)  # a kernel for which there is nothing to run
    if not (items or idle) or session.config.option.collectonly:
        return
    from kerneltest.execute.planning import plan_of
    from kerneltest.records.io import write_plan
    from kerneltest.records.merge_shards import part_of_plan

    run.expect(part for part, _ in items)
    plans = [holder.plan for holder in chosen(run.holders)]
    problems = tuple(problems_of(run.holders, run.made(), run.collects_folders))
    plan = plan_of(
        plans,
        [item for item, _ in items],
        [node_id for _, node_id in items],
        depth=run.depth,
        seed=run.seed,
        fuzz=run.fuzz,
        prove=run.prove,
        sanitize=run.sanitize,
        orders=run.orders,
        budget=run.budget,
        run=run.home.run,
        problems=problems,
    )
    if sharding is not None:
        plan = part_of_plan(plan, {item.nodeid for item in mine}, str(sharding.shard))
    if run.worker is None:
        run.make_room(plan)
    write_plan(run.folder, plan)
    gc.freeze()  # as does what was planned


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    run = node.config.stash[RUN]
    if not run.has_plan and run.planned_elsewhere():
        run.make_room()  # no worker has begun: all of them collect first


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    if isinstance(item, KernelItem) and settings.method == "signal":
        item.limit(settings.timeout)
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if isinstance(item, KernelItem) and report.skipped and call.when == "setup":
        item.record_skip(str(getattr(call.excinfo.value, "msg", call.excinfo.value)))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    run = sched.config.stash[RUN]
    from kerneltest.pytest_plugin import crash_reports
    from kerneltest.records.journal import Doing, left_running

    items = crash_reports.planned(run.folder, crashitem)
    if not items:
        return
    shard = report.node.gateway.id
    doing = next((each for each in left_running(run.folder) if each.shard == shard and each.item == crashitem), None)
    doing = doing or Doing(crashitem, shard=shard)
    failure = crash_reports.of(run.folder, doing)
    run.deaths[crashitem] += 1
    resumed = bool(doing.case) and run.deaths[crashitem] <= crash_reports.MOST and _again(sched, crashitem)
    families = " ".join(family for item in items for family in item.families)
    known = properties(items[0].backend, items[0].dtype)
    run.crashed[crashitem] = [*known, ("family", families), ("verdict", str(failure.verdict))]
    if resumed:
        report.outcome = "rerun"  # the process that goes on with the item tells it
    else:
        report.longrepr = f"{failure}\n{shard} was {doing}; the rest of the item is not run"
        crash_reports.record(run.process.writer, items, doing, failure)


def _again(sched: Any, item: str) -> bool:
    """Has xdist run an item again; False where its way of distributing them knows no such thing."""
    try:
        sched.mark_test_pending(item)
    except NotImplementedError:
        return False
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_logreport(report: Any) -> Generator[None, object, object]:
    result = yield
    worker: Any = getattr(report, "node", None)
    run = worker.config.stash[RUN] if worker is not None else None
    if run is not None and report.when == "???" and (known := run.crashed.pop(report.nodeid, None)):
        # JUnit XML takes an item's properties from the end of its teardown, which a dead worker never reached.
        last = pytest.TestReport(report.nodeid, report.location, {}, "passed", None, "teardown", user_properties=known)
        last.node = worker  # type: ignore[attr-defined]
        worker.config.hook.pytest_runtest_logreport(report=last)
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    run = session.config.stash[RUN]
    if run.worker is not None:
        return
    changed: Changed | None = session.config.pluginmanager.getplugin(_CHANGED)
    if changed is not None and changed.read() and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
    if not (run.has_plan or run.planned_elsewhere()):
        return
    from kerneltest.pytest_plugin.session import finish

    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    width = session.config.get_terminal_writer().fullwidth if reporter is not None and reporter.isatty else None
    run.summary = finish(run.folder, report=run.report, width=width)
    if changed is not None and run.summary.run is not None:
        changed.remember(run.summary.run)
    if run.part is not None and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = exitstatus = pytest.ExitCode.OK  # a shard for which nothing is left
    if not run.summary.complete and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    changed: Changed | None = config.pluginmanager.getplugin(_CHANGED)
    if changed is not None and (left_out := changed.words()):
        terminalreporter.write_line(left_out)
    if run is None or run.summary is None:
        return
    if config.option.verbose < 0 and run.summary.complete:
        from kerneltest.report.counts import kept

        for line in kept(run.summary.run) if run.summary.run is not None else ():
            terminalreporter.write_line(line)
        return
    terminalreporter.section("kerneltest")
    for line, colour in run.summary.lines:
        terminalreporter.write_line(line, **({colour: True} if colour else {}))
