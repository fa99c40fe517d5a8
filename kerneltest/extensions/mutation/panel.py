"""The section of the report on mutants and on coverage.

Scores come from runs with `--kt-mutate`, and from the files of `kerneltest report --mutants FILE --coverage FILE`.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kerneltest.report.panels import LineNote, MatrixColumn, Panel, Section, register_panel

if TYPE_CHECKING:
    from kerneltest.records.runs import Overlay

_NAME = "mutants"
_MOST_SURVIVORS = 200  # of a pairing


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    for option, command in (("--mutants", "mutate"), ("--coverage", "coverage")):
        about = f"results of kerneltest {command} --json to add to the page"
        parser.add_argument(option, nargs="+", type=Path, default=[], metavar="FILE", help=about)


def _section(chosen: argparse.Namespace, merged: "Overlay") -> Section | None:
    if not (chosen.mutants or chosen.coverage or merged.mutants):
        return None
    from kerneltest.extensions.mutation.coverage import PairingCoverage
    from kerneltest.extensions.mutation.results import read_results
    from kerneltest.records.schema import MutationScore
    from kerneltest.report.panels import render_text

    given = [result for path in chosen.mutants for result in read_results(path, MutationScore)]
    coverages = [result for path in chosen.coverage for result in read_results(path, PairingCoverage)]
    scores = [*{each.pairing: each for each in (*merged.mutants, *given)}.values()]
    html = render_text(
        Path(__file__).with_name("panel.html").read_text(encoding="utf-8"),
        scores=scores,
        coverages=coverages,
        most=_MOST_SURVIVORS,
    )
    columns = []
    if shares := {(score.pairing, ""): f"{score.share:.0%}" for score in scores if score.share is not None}:
        columns.append(MatrixColumn("mutants", "the share of the kernel's mutants that the cases find", shares))
    if states := {
        (coverage.pairing, ""): f"{coverage.exercised} of {coverage.states}"
        for coverage in coverages
        if coverage.states
    }:
        meaning = "the states of masks, branches, loops and grids that the cases exercise"
        columns.append(MatrixColumn("coverage", meaning, states))
    notes = [
        LineNote(score.pairing, trial.mutant.place, f"no case finds {trial.mutant.phrase}", good=False)
        for score in scores
        for trial in score.survivors
    ]
    for coverage in coverages:
        for site in coverage.sites:
            reached = f"never {' or '.join(site.missing)}" if site.missing else " and ".join(site.seen)
            notes.append(LineNote(coverage.pairing, site.place, f"{site.what} is {reached}", good=not site.missing))
    return Section(_NAME, "Mutants" if scores else "Coverage", html, tuple(columns), tuple(notes))


register_panel(Panel(_NAME, _add_arguments, _section))
