"""The command line: `kerneltest report`."""

import argparse
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
    chosen = parser.parse_args(arguments)

    from kerneltest.record import RecordError
    from kerneltest.report.build import load, render

    try:
        runs = [load(folder) for folder in chosen.runs]
        chosen.output.write_text(render(runs), encoding="utf-8")
    except (RecordError, OSError) as error:
        print(f"kerneltest report: {error}", file=sys.stderr)
        return 2
    print(chosen.output)
    return 0 if all(run.reconciled.green for run in runs) else 1
