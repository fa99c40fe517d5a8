"""The commands that make runs and read their folders: `run`, `report`, `summary`, `merge`, `diff` and `repro`."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

from kerneltest.cli.command_registry import add_limit, add_setting, command, pass_to_pytest
from kerneltest.core.media import for_terminal, lines_for_terminal

_FOLDERS = "folders that --kt-report wrote, or folders that contain them"


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "kerneltest run [--ray ADDRESS] [pytest arguments]"
    pass_to_pytest(parser, ray="--ray")


@command(
    40,
    "run suites with pytest, on one machine or on a Ray cluster; further arguments are passed to pytest",
    _add_run_arguments,
)
def _run(chosen: argparse.Namespace) -> int:
    import pytest

    loaded = ["-W", "ignore:Module already imported so cannot be rewritten; kerneltest"]  # by this command
    return int(pytest.main(["-p", "kerneltest", *loaded, *chosen.rest]))


def _add_report_arguments(parser: argparse.ArgumentParser) -> None:
    from kerneltest.report.panels import PANELS

    parser.add_argument("runs", nargs="+", type=Path, help="folders that --kt-report wrote")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"))
    for panel in PANELS.entries():
        panel.add_arguments(parser)


@command(50, "write one HTML page from the folders of one or more runs", _add_report_arguments)
def _report(chosen: argparse.Namespace) -> int:
    from kerneltest.records.files import write_text
    from kerneltest.records.runs import overlay_runs, read_all
    from kerneltest.report.html.page import render
    from kerneltest.report.panels import make_sections

    merged = overlay_runs(read_all(chosen.runs))
    write_text(chosen.output, render(merged, make_sections(merged, chosen)))
    print(for_terminal(str(chosen.output)))
    return 0 if merged.green else 1


def _add_summary_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, help=_FOLDERS)
    among = "a run that must be among them; repeat"
    parser.add_argument("--leg", action="append", default=[], metavar="NAME", help=among)
    annotated = "github: annotations of a GitHub job, at the kernels' lines"
    parser.add_argument("--format", choices=("text", "github"), default="text", help=annotated)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="the suspects, for code scanning and editors")
    badges = (("--badge", "the conformance"), ("--mutants-badge", "the mutation score of runs with --kt-mutate"))
    for option, what in badges:
        about = f"{what} as a badge, .svg or .json; repeat"
        parser.add_argument(option, action="append", type=Path, default=[], metavar="FILE", help=about)


@command(60, "summarise runs in the terminal, as Markdown or as a badge", _add_summary_arguments)
def _summary(chosen: argparse.Namespace) -> int:
    from kerneltest.records.files import write_text
    from kerneltest.records.runs import overlay_runs, read_all
    from kerneltest.report.counts import count_cells
    from kerneltest.report.sarif import github_annotations, sarif
    from kerneltest.report.text.markdown_summary import conformance_badge, markdown_summary, mutation_badge, write_badge
    from kerneltest.report.text.suspect_text import format_suspects
    from kerneltest.report.text.terminal_summary import matrix_lines
    from kerneltest.triage.suspects import suspects_in_overlay

    runs = read_all(chosen.runs)
    merged = overlay_runs(runs)
    suspects = suspects_in_overlay(merged)
    counts = count_cells(runs, len(suspects), chosen.leg)
    if chosen.markdown:
        write_text(chosen.markdown, "\n".join([*markdown_summary(runs, counts, suspects), ""]))
    if chosen.sarif:
        write_text(chosen.sarif, sarif(suspects, merged.pairings, counts.complete))
    for path in chosen.badge:
        write_badge(path, conformance_badge(counts))
    for path in chosen.mutants_badge:
        write_badge(path, mutation_badge(merged.mutants))
    if chosen.format == "github":
        print(*github_annotations(suspects, merged.pairings, runs), for_terminal(str(counts)), sep="\n")
        return counts.exit_code
    shown = [line.text for line in format_suspects(suspects, merged.pairings)]
    for run in runs:
        shown += [run.name, *(line.text for line in matrix_lines(run))]
    for line in shown:
        print(for_terminal(line))
    print(for_terminal(str(counts)))
    return counts.exit_code


def _add_merge_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, help=_FOLDERS)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where to write the merged run"
    )


@command(70, "merge all shards of a run that --kt-shard split into one run", _add_merge_arguments)
def _merge(chosen: argparse.Namespace) -> int:
    from kerneltest.pytest_plugin.run_folder import RunFolder
    from kerneltest.pytest_plugin.summary import finish
    from kerneltest.records.record_files import write_plan
    from kerneltest.records.resume import JoinError, copy_files, failed_tests, merge_plans
    from kerneltest.records.runs import read_all

    runs = read_all(chosen.runs)
    plan, failed = merge_plans(runs), failed_tests(runs)
    if any(run.folder.resolve() == chosen.output.resolve() for run in runs):
        raise JoinError(f"-o names the shard {chosen.output}: name another folder for the merged run")
    home = RunFolder.claim(chosen.output)
    try:
        with home.folder_beside() as beside:
            for run in runs:
                copy_files(run, beside)
            write_plan(beside, replace(plan, run=home.run))
            del runs, run  # `finish` reads them again as one run
            ended = finish(beside, report=str(chosen.output), failed_tests=failed)
            home.take_files(beside)
    finally:
        home.release()
    for line in ended.lines:
        print(for_terminal(line.text.replace(str(beside), str(home.path))))
    for name in failed:
        print(for_terminal(f"failed, and is not a pairing: {name}"))
    return 0 if ended.green and not failed else 1


def _add_diff_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "old", nargs="?", type=Path, metavar="OLD", help="by default the baseline that pyproject.toml pins"
    )
    parser.add_argument("new", type=Path, metavar="NEW", help="a folder that --kt-report wrote, or one of such folders")
    parser.add_argument(
        "--allow-unlike", action="store_true", help="compare runs of different versions, devices, seeds or depths"
    )
    parser.add_argument(
        "--factor", type=float, default=2.0, help="report bounds whose use grew by this factor (default: 2)"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--html", type=Path, metavar="FILE")


@command(80, "list what changed between two runs, or two sets of runs; 1 for a regression", _add_diff_arguments)
def _diff(chosen: argparse.Namespace) -> int:
    from kerneltest.records.files import write_text
    from kerneltest.records.runs import read_runs
    from kerneltest.report.html.page import render_diff
    from kerneltest.report.text.diff_text import markdown_diff, terminal_diff
    from kerneltest.triage.run_comparison import DiffError, compare_runs, find_baseline

    if not 1 <= chosen.factor < math.inf:
        raise DiffError(f"--factor must be a number of at least 1, not {chosen.factor}")
    old, new = read_runs(chosen.old or find_baseline(Path.cwd())), read_runs(chosen.new)
    comparison = compare_runs(old, new, allow_unlike=chosen.allow_unlike, factor=chosen.factor)
    if chosen.markdown:
        write_text(chosen.markdown, "\n".join([*markdown_diff(comparison, old, new), ""]))
    if chosen.html:
        write_text(chosen.html, render_diff(comparison, old, new))
    print(lines_for_terminal(terminal_diff(comparison, old, new)))
    return int(comparison.regressed)


def _add_repro_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="REPORT_FOLDER", help="the folder that --kt-report wrote")
    parser.add_argument("case", metavar="CASE_ID", help="as the finding and the names of the files in cases/ show it")
    parser.add_argument("--backend", default="", metavar="ID", help="by default the one that found it")
    add_setting(parser, "timeout", "--timeout")


@command(90, "judge a finding's saved inputs again; in the folder that pytest ran in", _add_repro_arguments)
def _repro(chosen: argparse.Namespace) -> int:
    from kerneltest.core.verdicts import Verdict
    from kerneltest.report.counts import INTERNAL_ERROR_CODE
    from kerneltest.reproduce.rerun import judge_again

    record = judge_again(chosen.folder, chosen.case, chosen.backend, chosen.timeout)
    text = f"{record.verdict} on {record.backend}: {record.family}, {record.signature}\n{record.message}".strip()
    print(lines_for_terminal(text))
    return INTERNAL_ERROR_CODE if record.verdict is Verdict.INTERNAL_ERROR else int(record.verdict.is_finding)


# The commands with which a project starts: `init` and `doctor`.


def _add_init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="MODULE:FUNCTION", help="the kernel, such as kernels.softmax:softmax")
    example = parser.add_mutually_exclusive_group(required=True)
    example.add_argument("--shapes", metavar="x=8x128,y=128", help="arrays to trace it with; () for a scalar")
    example.add_argument("--call", metavar="TEXT", help="a call of it, such as 'f(jnp.ones((8, 128)), axis=1)'")
    example.add_argument("--watch", metavar="SCRIPT", help="a script, a test file or a pytest node that calls it")
    parser.add_argument("--dtypes", default="", metavar="x=bfloat16,y=int32", help="for --shapes (default: float32)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(), metavar="FOLDER", help="where to write test_FUNCTION.py"
    )
    add_limit(parser, "write the pairing as far as it is known")


@command(10, "write the pairing of a kernel, with the oracle to fill in", _add_init_arguments)
def _init(chosen: argparse.Namespace) -> int:
    from kerneltest.start import example_calls
    from kerneltest.start.command_progress import CommandProgress
    from kerneltest.start.declaration import write_pairing

    progress = CommandProgress(chosen.limit)
    try:
        if chosen.dtypes and not chosen.shapes:
            raise example_calls.StartError("--dtypes is for --shapes; a call has its own dtypes")
        with progress.interrupt():  # they run the user's code
            kernel = example_calls.import_kernel(chosen.kernel)
            if chosen.shapes is not None:
                examples = [example_calls.example_from_shapes(kernel, chosen.shapes, chosen.dtypes)]
            elif chosen.call is not None:
                examples = [example_calls.example_from_text(kernel, chosen.call)]
            else:
                examples = example_calls.record_calls(kernel, chosen.watch, progress.end_if_over)
        path, declaration = write_pairing(kernel, examples, chosen.output, progress)
    finally:
        progress.clear()
    print(for_terminal(f"{path}: write {declaration.oracle}, then run: pytest -p kerneltest {path}"))
    for note in declaration.notes:
        print(for_terminal(f"  check {note}"))
    return 0


@command(20, "list the backends that this machine can serve, and what to install for the others")
def _doctor(chosen: argparse.Namespace) -> int:
    from kerneltest.start.doctor import doctor_lines, list_backends

    backends = list_backends()
    print("\n".join(map(for_terminal, doctor_lines(backends))))
    return int(all(backend.reason for backend in backends))
