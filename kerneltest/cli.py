"""The command line: `kerneltest report`, `kerneltest lowering`."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 if it worked and what it shows is green, 1 if not green, 2 for unusable input."""
    parser = argparse.ArgumentParser(prog="kerneltest", description="Conformance of Pallas kernels.")
    commands = parser.add_subparsers(dest="command", required=True)
    report = commands.add_parser("report", help="one HTML page from the folders of one or more runs")
    report.add_argument("runs", nargs="+", type=Path, help="folders that --kt-report wrote")
    report.add_argument("-o", "--output", type=Path, default=Path("report.html"))
    report.add_argument("--lowering", nargs="+", type=Path, default=[], metavar="MAP", help="maps to add to the page")
    lowering = commands.add_parser("lowering", help="which primitive lowers, for which dtype, on which target")
    lowering.add_argument(
        "maps", nargs="*", type=Path, help="maps to read (JSON); none: probe the JAX of this environment"
    )
    lowering.add_argument(
        "--jax", action="append", default=[], metavar="VERSION", help="probe this version, by uv; repeat"
    )
    lowering.add_argument("--python", default="", help="for --jax: which Python, as uv takes it (default 3.12)")
    lowering.add_argument("--targets", default="", help="such as sm_90,gfx942; all if left out")
    lowering.add_argument("--primitives", default="", help="such as exp,sort; all if left out")
    lowering.add_argument("--compile", action="store_true", help="compile what lowers, with the triton package")
    lowering.add_argument("--diff", type=Path, metavar="OLD", help="compare an older map with the last one")
    lowering.add_argument("--json", type=Path, metavar="FILE", help="where to write the map; for several maps a folder")
    lowering.add_argument("--markdown", type=Path, metavar="FILE")
    given = sys.argv[1:] if arguments is None else arguments
    chosen = parser.parse_args(given)
    if chosen.command == "lowering":
        return _lowering(chosen, shlex.join(["kerneltest", *given]))
    return _report(chosen)


def _report(chosen: argparse.Namespace) -> int:
    from kerneltest.lowering_map import MapError, read
    from kerneltest.record import RecordError
    from kerneltest.report.build import load, render

    try:
        runs = [load(folder) for folder in chosen.runs]
        chosen.output.write_text(render(runs, [read(path) for path in chosen.lowering]), encoding="utf-8")
    except (RecordError, MapError, OSError) as error:
        print(f"kerneltest report: {error}", file=sys.stderr)
        return 2
    print(chosen.output)
    return 0 if all(run.reconciled.green for run in runs) else 1


def _lowering(chosen: argparse.Namespace, command: str) -> int:
    from kerneltest.lowering_map import PYTHON, MapError, compare, dumps, measure, read
    from kerneltest.lowering_text import change_line, markdown, steps, terminal

    failed = False

    def complain(error: Exception) -> None:
        nonlocal failed
        failed = True
        print(f"kerneltest lowering: {error}", file=sys.stderr)

    maps = []
    asked = {name: [n for n in getattr(chosen, name).split(",") if n] for name in ("targets", "primitives")}
    for source in [*chosen.maps, *chosen.jax] or [""]:
        try:
            if isinstance(source, Path):
                maps.append(read(source))
            else:
                python = chosen.python or PYTHON
                maps.append(measure(**asked, compiled=chosen.compile, jax=source, python=python))
        except MapError as error:
            complain(error)  # the others are still measured and written
    if not maps:
        return 2
    try:
        print(terminal(maps))
        if chosen.json:
            several = len(maps) > 1 or chosen.json.is_dir()
            if several:
                chosen.json.mkdir(parents=True, exist_ok=True)
            for found in maps:
                path = chosen.json / f"{'compiled' if found.triton else 'jax'}-{found.jax}.json" if several else chosen.json
                path.write_text(dumps(found), encoding="utf-8")
        pairs = steps(maps)
        if chosen.diff:
            old = read(chosen.diff)
            pairs = [(old, maps[-1], compare(old, maps[-1]))]
        for old, new, changes in pairs:
            print(f"\nJAX {old.jax} -> {new.jax}: " + ("" if changes else "no primitive started or stopped lowering"))
            print("\n".join(f"  {'-' if c.stopped else '+'} {change_line(c, new.targets)}" for c in changes))
        if chosen.markdown:
            chosen.markdown.write_text(markdown(maps, command), encoding="utf-8")
    except (MapError, OSError) as error:
        complain(error)
    if failed:
        return 2
    return int(bool(chosen.diff) and any(change.stopped for change in pairs[0][2]))
