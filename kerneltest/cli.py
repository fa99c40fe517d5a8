"""The command line: `kerneltest init`, `doctor`, `audit`, `run`, and what reads the folders of runs."""

import argparse
import functools
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kerneltest.extensions.lowering_map.map import LoweringMap


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 if it worked and what it shows is green, 1 if not green, 2 for unusable input."""
    chosen, rest = _parser().parse_known_args(arguments)
    if chosen.command == "run":
        chosen.rest = rest  # pytest's own
    elif rest:
        _parser().error(f"unrecognized arguments: {' '.join(rest)}")
    run = {
        "init": _init, "doctor": _doctor, "audit": _audit, "report": _report, "summary": _summary, "merge": _merge,
        "run": _run, "diff": _diff, "repro": _repro, "lowering": _lowering,
    }[chosen.command]  # fmt: skip
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a sign that the terminal lacks is no reason to stop
    try:
        code = run(chosen)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # who reads has seen enough, as `head` does; Python would complain of it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


@functools.cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kerneltest", description="Conformance of Pallas kernels.")
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init", help="write the pairing of a kernel, with the oracle to fill in")
    init.add_argument("kernel", metavar="MODULE:FUNCTION", help="what to pair, as in kernels.softmax:softmax")
    example = init.add_mutually_exclusive_group(required=True)
    example.add_argument("--shapes", metavar="x=8x128,y=128", help="arrays to trace it with; () for a scalar")
    example.add_argument("--call", metavar="TEXT", help="a call of it, as in 'f(jnp.ones((8, 128)), axis=1)'")
    example.add_argument("--watch", metavar="SCRIPT", help="a script, a test file or a pytest node that calls it")
    init.add_argument("--dtypes", default="", metavar="x=bfloat16,y=int32", help="for --shapes; float32 if left out")
    init.add_argument("-o", "--output", type=Path, default=Path(), metavar="FOLDER", help="where test_FUNCTION.py goes")
    commands.add_parser("doctor", help="which backends this machine can serve, and what to install for the others")
    audit = commands.add_parser("audit", help="what reaches a Pallas call and has no pairing; 1 if anything has none")
    audit.add_argument("path", type=Path, metavar="PATH", help="the folder of the kernels")
    audit.add_argument(
        "--suites", nargs="+", type=Path, default=[], metavar="PATH", help="where the pairings are, if not below PATH"
    )
    run = commands.add_parser(
        "run",
        help="run suites by pytest, on one machine or on a Ray cluster; further arguments are pytest's",
        usage="kerneltest run [--ray ADDRESS] [pytest arguments]",
        allow_abbrev=False,
    )
    run.add_argument("--ray", default="", metavar="ADDRESS", help="of the cluster: local, auto or host:port")
    report = commands.add_parser("report", help="one HTML page from the folders of one or more runs")
    report.add_argument("runs", nargs="+", type=Path, help="folders that --kt-report wrote")
    report.add_argument("-o", "--output", type=Path, default=Path("report.html"))
    report.add_argument("--lowering", nargs="+", type=Path, default=[], metavar="MAP", help="maps to add to the page")
    summary = commands.add_parser("summary", help="what some runs come to: in a terminal, as Markdown, as a badge")
    summary.add_argument("runs", nargs="+", type=Path, help="folders that --kt-report wrote, or that hold such folders")
    summary.add_argument(
        "--leg", action="append", default=[], metavar="NAME", help="a run that there should be, by its folder; repeat"
    )
    summary.add_argument("--markdown", type=Path, metavar="FILE")
    summary.add_argument(
        "--badge", action="append", type=Path, default=[], metavar="FILE", help=".svg or .json; repeat"
    )
    merge = commands.add_parser("merge", help="one run from all shards of a run that --kt-shard cut into parts")
    merge.add_argument("runs", nargs="+", type=Path, help="folders that --kt-report wrote, or that hold such folders")
    merge.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the run goes")
    diff = commands.add_parser("diff", help="what changed between two runs, or two sets of runs; 1 for a regression")
    diff.add_argument(
        "old", nargs="?", type=Path, metavar="OLD", help="by default what pyproject.toml pins as baseline"
    )
    diff.add_argument("new", type=Path, metavar="NEW", help="folder that --kt-report wrote, or one that holds such")
    diff.add_argument("--allow-unlike", action="store_true", help="also compare other versions, devices, seeds, depths")
    diff.add_argument(
        "--factor", type=float, default=2.0, help="tell of a bound that is used up this much more (default 2)"
    )
    diff.add_argument("--markdown", type=Path, metavar="FILE")
    diff.add_argument("--html", type=Path, metavar="FILE")
    repro = commands.add_parser("repro", help="judge a finding's saved inputs again; in the folder that pytest ran in")
    repro.add_argument("folder", type=Path, metavar="REPORT_FOLDER", help="folder that --kt-report wrote")
    repro.add_argument("case", metavar="CASE_ID", help="as the finding, and the names of files in cases/, show it")
    repro.add_argument("--backend", default="", metavar="ID", help="by default where it was found")
    lowering = commands.add_parser("lowering", help="which primitive lowers, for which dtype, on which target")
    lowering.add_argument(
        "maps", nargs="*", type=Path, help="maps to read (JSON); none: probe the JAX of this environment"
    )
    lowering.add_argument(
        "--jax", action="append", default=[], metavar="VERSION", help="probe this version, by uv; repeat"
    )
    lowering.add_argument("--python", default="", help="for --jax: which Python, as uv takes it (default 3.12)")
    lowering.add_argument("--targets", default="", help="such as sm_90,tpu-v6e; all if left out")
    lowering.add_argument("--primitives", default="", help="such as exp,sort; all if left out")
    lowering.add_argument("--compile", action="store_true", help="compile what lowers, by triton and libtpu")
    lowering.add_argument(
        "--diff", type=Path, metavar="OLD", help="compare an older map with the newest; 1 if something stopped lowering"
    )
    lowering.add_argument("--json", type=Path, metavar="FILE", help="where to write the map; for several maps a folder")
    lowering.add_argument("--markdown", type=Path, metavar="FILE")
    return parser


def _refused(command: str, error: Exception) -> int:
    """Says why a command cannot do its work."""
    from kerneltest.report.text.tables import for_terminal

    print("\n".join(map(for_terminal, f"kerneltest {command}: {error}".split("\n"))), file=sys.stderr)
    return 2


def _init(chosen: argparse.Namespace) -> int:
    from kerneltest.report.text.tables import for_terminal
    from kerneltest.start.call_recorder import watched
    from kerneltest.start.calls import StartError, example_of_shapes, example_of_text, kernel_named
    from kerneltest.start.init import written

    try:
        if chosen.dtypes and not chosen.shapes:
            raise StartError("--dtypes is for --shapes; a call has its own dtypes")
        kernel = kernel_named(chosen.kernel)
        if chosen.shapes is not None:
            examples = [example_of_shapes(kernel, chosen.shapes, chosen.dtypes)]
        elif chosen.call is not None:
            examples = [example_of_text(kernel, chosen.call)]
        else:
            examples = watched(kernel, chosen.watch)
        path, declaration = written(kernel, examples, chosen.output)
    except (StartError, OSError) as error:
        return _refused("init", error)
    print(for_terminal(f"{path}: write {declaration.oracle}, then run: pytest -p kerneltest {path}"))
    for note in declaration.notes:
        print(for_terminal(f"  check {note}"))
    return 0


def _doctor(chosen: argparse.Namespace) -> int:
    from kerneltest.start.doctor import lines, served

    backends = served()
    print("\n".join(lines(backends)))
    return int(all(each.reason for each in backends))


def _audit(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.audit.audit import audited, lines
    from kerneltest.extensions.audit.sources import program
    from kerneltest.pytest_plugin.gather import gather

    suites = chosen.suites or [chosen.path]
    if missing := [path for path in (chosen.path, *suites) if not path.exists()]:
        return _refused("audit", FileNotFoundError(f"there is no {missing[0]}"))
    pairings, broken = gather(suites)
    found = audited(program([chosen.path, *suites]), pairings, chosen.path)
    print("\n".join(lines(found, broken)))
    return int(bool(broken) or any(each.is_unpaired for each in found))


def _run(chosen: argparse.Namespace) -> int:
    import pytest

    cluster = ["--kt-ray", chosen.ray] if chosen.ray else []
    loaded = ["-W", "ignore:Module already imported so cannot be rewritten; kerneltest"]  # by this command
    return int(pytest.main(["-p", "kerneltest", *loaded, *cluster, *chosen.rest]))


def _report(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.lowering_map.map import MapError, read
    from kerneltest.records.files import write_text
    from kerneltest.records.io import RecordError
    from kerneltest.records.overlay import merge
    from kerneltest.records.runs import read_all
    from kerneltest.report.html.build import render
    from kerneltest.report.text.tables import for_terminal

    try:
        merged = merge(read_all(chosen.runs))
        write_text(chosen.output, render(merged, [read(path) for path in chosen.lowering]))
    except (RecordError, MapError, OSError) as error:
        return _refused("report", error)
    print(for_terminal(str(chosen.output)))
    return 0 if merged.green else 1


def _summary(chosen: argparse.Namespace) -> int:
    from kerneltest.records.files import write_text
    from kerneltest.records.io import RecordError
    from kerneltest.records.overlay import merge, suspects_shown
    from kerneltest.records.runs import read_all
    from kerneltest.report.counts import count
    from kerneltest.report.text.markdown import markdown, write_badge
    from kerneltest.report.text.suspects import all_suspects
    from kerneltest.report.text.tables import for_terminal
    from kerneltest.report.text.terminal import table

    try:
        runs = read_all(chosen.runs)
        merged = merge(runs)
        suspects = suspects_shown(merged)
        counts = count(runs, len(suspects), chosen.leg)
        if chosen.markdown:
            write_text(chosen.markdown, markdown(runs, counts, suspects))
        for path in chosen.badge:
            write_badge(path, counts)
    except (RecordError, ValueError, OSError) as error:
        return _refused("summary", error)
    shown = [*all_suspects(suspects, merged.pairings)]
    for run in runs:
        shown += [(run.name, ""), *table(run)]
    for line, _ in shown:
        print(for_terminal(line))
    print(for_terminal(str(counts)))
    return int(bool(counts.failed) or not counts.complete)


def _merge(chosen: argparse.Namespace) -> int:
    from kerneltest.pytest_plugin.run_folder import FolderError, RunFolder
    from kerneltest.pytest_plugin.summary import finish
    from kerneltest.records.io import RecordError, write_plan
    from kerneltest.records.merge_shards import JoinError, copy_files, joined
    from kerneltest.records.runs import read_all
    from kerneltest.report.text.tables import for_terminal

    try:
        runs = read_all(chosen.runs)
        plan = joined(runs)
        home = RunFolder.claim(chosen.output)
        try:
            home.clear()
            for run in runs:
                copy_files(run, home.path)
            write_plan(home.path, replace(plan, run=home.run))
            del runs, run  # they are read again, as one
            ended = finish(home.path, report=str(chosen.output))
        finally:
            home.release()
    except (RecordError, JoinError, FolderError, OSError) as error:
        return _refused("merge", error)
    for line, _ in ended.lines:
        print(for_terminal(line))
    return 0 if ended.green else 1


def _diff(chosen: argparse.Namespace) -> int:
    from kerneltest.records.files import write_text
    from kerneltest.records.io import RecordError
    from kerneltest.records.runs import read_runs
    from kerneltest.report.html.build import diff_page
    from kerneltest.report.text.diff import markdown, terminal
    from kerneltest.triage.diff import DiffError, compare, pinned_baseline

    try:
        if not chosen.factor >= 1:
            raise DiffError(f"--factor: {chosen.factor} is no growth; give 1 or more")
        old, new = read_runs(chosen.old or pinned_baseline(Path.cwd())), read_runs(chosen.new)
        comparison = compare(old, new, allow_unlike=chosen.allow_unlike, factor=chosen.factor)
        if chosen.markdown:
            write_text(chosen.markdown, markdown(comparison, old, new))
        if chosen.html:
            write_text(chosen.html, diff_page(comparison, old, new))
    except (DiffError, RecordError, OSError) as error:
        return _refused("diff", error)
    print(terminal(comparison, old, new))
    return int(comparison.regressed)


def _repro(chosen: argparse.Namespace) -> int:
    from kerneltest.report.text.tables import for_terminal
    from kerneltest.reproduce.rerun import ReproductionError, again

    try:
        record = again(chosen.folder, chosen.case, chosen.backend)
    except ReproductionError as error:
        return _refused("repro", error)
    told = f"{record.verdict} on {record.backend}: {record.family}, {record.signature}\n{record.message}".strip()
    print("\n".join(map(for_terminal, told.split("\n"))))
    return int(record.verdict.is_finding)


def _lowering(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.lowering_map.map import MapError, read
    from kerneltest.extensions.lowering_map.measure import PYTHON, measure
    from kerneltest.extensions.lowering_map.table import count_line

    maps: list[LoweringMap] = []
    problems: list[Exception] = []
    stopped = False
    targets, primitives = ([n for n in names.split(",") if n] for names in (chosen.targets, chosen.primitives))
    try:
        old = read(chosen.diff) if chosen.diff else None  # before minutes are spent on measuring
        if chosen.maps and not chosen.jax and (targets or primitives or chosen.compile or chosen.python):
            raise MapError("--targets, --primitives, --compile and --python are for measuring; maps are read whole")
        for source in [*chosen.maps, *chosen.jax] or [""]:
            try:
                if isinstance(source, Path):
                    lowering_map = read(source)
                else:
                    subject = f"JAX {source}" if source else "the JAX of this environment"
                    print(f"measuring {subject}; all primitives take minutes", flush=True)
                    lowering_map = measure(
                        targets=targets,
                        primitives=primitives,
                        compiled=chosen.compile,
                        jax=source,
                        python=chosen.python or PYTHON,
                    )
                print(f"{lowering_map.title}: {count_line(lowering_map)}", flush=True)
                maps.append(lowering_map)
            except MapError as error:
                problems.append(error)  # the other versions are still measured and written
        stopped = bool(maps) and _show(chosen, sorted(maps, key=lambda each: each.version), old)
    except BrokenPipeError:
        raise
    except (MapError, OSError) as error:
        problems.append(error)
    for problem in problems:
        _refused("lowering", problem)
    return 2 if problems else int(stopped)


def _show(chosen: argparse.Namespace, maps: "Sequence[LoweringMap]", old: "LoweringMap | None") -> bool:
    """Writes and prints what was asked for; whether something stopped lowering since the old map."""
    from kerneltest.extensions.lowering_map.compare import compare, successive_changes
    from kerneltest.extensions.lowering_map.map import save
    from kerneltest.extensions.lowering_map.table import change_line, markdown, print_table
    from kerneltest.records.files import write_text

    if chosen.json:
        save(chosen.json, maps)
    print()
    print_table(maps)
    steps = [(old, maps[-1], compare(old, maps[-1]))] if old else successive_changes(maps)
    for before, after, changes in steps:
        print(f"\nJAX {before.jax} to {after.jax}: {len(changes) or 'no'} change{'s' * (len(changes) != 1)}")
        for change in changes:
            print(f"  {'- stopped' if change.stopped else '+ started'} {change_line(change, after.targets)}")
    if chosen.markdown:
        write_text(chosen.markdown, markdown(maps))
    return old is not None and any(change.stopped for change in steps[0][2])
