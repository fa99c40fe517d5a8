"""The section of the report that shows lowering maps: `kerneltest report --lowering MAP`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerneltest.report.panels import Panel, Section, register_panel

if TYPE_CHECKING:
    from kerneltest.extensions.lowering_map.model import LoweringMap
    from kerneltest.records.runs import Overlay

_NAME = "lowering"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lowering", nargs="+", type=Path, default=[], metavar="MAP", help="lowering maps to add to the page"
    )


def _section(chosen: argparse.Namespace, merged: "Overlay") -> Section | None:
    if not chosen.lowering:
        return None
    from kerneltest.extensions.lowering_map.model import read_map

    return section_of([read_map(path) for path in chosen.lowering])


def section_of(maps: "Sequence[LoweringMap]") -> Section:
    """The section for some maps, at least one, by version of JAX."""
    from kerneltest.extensions.lowering_map import model
    from kerneltest.report.panels import render_text

    ordered = sorted(maps, key=lambda each: each.version)
    html = render_text(
        Path(__file__).with_name("panel.html").read_text(encoding="utf-8"),
        outcomes=list(model.LoweringOutcome),
        counts=[(each.title, model.format_counts(each)) for each in ordered],
        table=model.tabulate_maps(ordered),
        steps=[
            (old.jax, new.jax, [(change, model.format_change(change, new.targets)) for change in changes])
            for old, new, changes in model.successive_changes(ordered)
        ],
    )
    return Section(_NAME, "Lowering", html)


register_panel(Panel(_NAME, _add_arguments, _section))
