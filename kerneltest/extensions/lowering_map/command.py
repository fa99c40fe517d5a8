"""`kerneltest lowering`: measures, reads, compares and writes lowering maps."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerneltest.cli.command_registry import UNUSABLE_INPUT, command, refuse
from kerneltest.core.media import for_terminal, lines_for_terminal

if TYPE_CHECKING:
    from kerneltest.extensions.lowering_map.model import LoweringMap


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "maps",
        nargs="*",
        type=Path,
        help="maps to read (JSON), or primitives to probe, such as is_finite; by default, probe the installed JAX",
    )
    parser.add_argument(
        "--jax", action="append", default=[], metavar="VERSION", help="probe this version, installed by uv; repeat"
    )
    parser.add_argument("--python", default="", help="for --jax: the Python that uv uses (default: 3.12)")
    parser.add_argument("--targets", default="", help="such as sm_90,tpu-v6e (default: all)")
    parser.add_argument("--primitives", default="", help="such as exp,sort (default: all)")
    parser.add_argument("--compile", action="store_true", help="compile what lowers, with triton and libtpu")
    parser.add_argument(
        "--diff", type=Path, metavar="OLD", help="compare an older map with the newest; 1 if something stopped lowering"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the map here; for several maps, a folder")
    parser.add_argument("--markdown", type=Path, metavar="FILE")


@command(100, "list which primitive lowers, for which dtype, on which target", _add_arguments)
def _lowering(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.lowering_map.model import MapError, read_map

    maps: list[LoweringMap] = []
    problems: list[Exception] = []
    stopped = False
    named = [path for path in chosen.maps if path.name == str(path) and not (path.suffix or path.exists())]
    chosen.maps = [path for path in chosen.maps if path not in named]
    chosen.primitives = ",".join(filter(None, [chosen.primitives, *map(str, named)]))
    try:
        old = read_map(chosen.diff) if chosen.diff else None  # before minutes are spent on measuring
        if chosen.maps and not chosen.jax and any((chosen.targets, chosen.primitives, chosen.compile, chosen.python)):
            raise MapError(
                "--targets, --primitives, --compile and --python apply to measuring only; maps are read in full"
            )
        maps += _maps(chosen, problems)
        stopped = bool(maps) and _show(chosen, sorted(maps, key=lambda each: each.version), old)
    except BrokenPipeError:
        raise
    except (MapError, OSError) as error:
        problems.append(error)
    for problem in problems:
        refuse("lowering", problem)
    return UNUSABLE_INPUT if problems else int(stopped)


def _maps(chosen: argparse.Namespace, problems: "list[Exception]") -> "Iterator[LoweringMap]":
    """Yields the maps to read, then those to measure. `problems` takes in what kept one from that."""
    from kerneltest.core.targets import TARGETS, TPUS
    from kerneltest.extensions.lowering_map.model import MapError, format_counts, read_map

    targets, primitives = ([n for n in names.split(",") if n] for names in (chosen.targets, chosen.primitives))
    known = [*TARGETS, *TPUS]
    if unknown := [name for name in targets if name not in known]:
        raise MapError(f"unknown target {', '.join(unknown)}; known are {', '.join(known)}")
    for source in [*chosen.maps, *chosen.jax] or [""]:
        try:
            if isinstance(source, Path):
                found = read_map(source)
            else:
                subject = f"JAX {source}" if source else "the installed JAX"
                duration = "" if primitives else "; all primitives take minutes"
                print(for_terminal(f"measuring {subject}{duration}"), flush=True)
                from kerneltest.extensions.lowering_map.measuring import PYTHON, measure, measure_version

                if source:
                    python = chosen.python or PYTHON
                    found = measure_version(source, python, targets or known, primitives, chosen.compile)
                else:
                    found = measure(targets or known, primitives, chosen.compile)
        except MapError as error:
            problems.append(error)
            continue
        print(for_terminal(f"{found.title}: {format_counts(found)}"), flush=True)
        yield found


def _show(chosen: argparse.Namespace, maps: "Sequence[LoweringMap]", old: "LoweringMap | None") -> bool:
    """Writes and prints maps, by version; returns whether something stopped lowering since an `old` map."""
    from kerneltest.extensions.lowering_map import model
    from kerneltest.records.files import write_text

    if chosen.json:
        model.save_maps(chosen.json, maps)
    print()
    model.print_table(maps)
    steps = [(old, maps[-1], model.compare_maps(old, maps[-1]))] if old else model.successive_changes(maps)
    for before, after, changes in steps:
        count = f"{len(changes) or 'no'} change{'s' * (len(changes) != 1)}"
        print(lines_for_terminal(f"\nJAX {before.jax} to {after.jax}: {count}"))
        for change in changes:
            verb = "- stopped" if change.stopped else "+ started"
            print(for_terminal(f"  {verb} {model.format_change(change, after.targets)}"))
    if chosen.markdown:
        write_text(chosen.markdown, model.format_markdown(maps))
    return old is not None and any(change.stopped for change in steps[0][2])
