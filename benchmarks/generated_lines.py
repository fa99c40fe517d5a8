"""Counts the lines of kerneltest that generated kernels reach: `python -m benchmarks.generated_lines [--seeds 0:300]`.

It needs the package `coverage`. The table has a row for each room of the package; lines that run at import count only
where the run itself imports them. `--missed ROOM` lists the lines of a room that no kernel reaches.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import coverage

ROOT = Path(__file__).parent.parent
# Rooms that no run of `kt.check` enters.
LEFT_OUT = ("cli", "extensions", "pytest_plugin", "report", "reproduce", "start", "watch")


def measure(seeds: range) -> Mapping[str, Any]:
    """Returns coverage.py's report on each module of the package, by path."""
    watch = coverage.Coverage(data_file=None, source=["kerneltest"], messages=False)
    watch.start()
    from benchmarks.generated import BACKENDS, run_seed

    for seed in seeds:
        for line in run_seed(seed, "", BACKENDS.split(",")).findings:
            print(f"{seed}: {line}", file=sys.stderr)
    watch.stop()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.json"
        watch.json_report(outfile=str(path))
        files: Mapping[str, Any] = json.loads(path.read_text("utf-8"))["files"]
    return files


def rooms(files: Mapping[str, Any]) -> Mapping[str, list[tuple[str, Any]]]:
    """Returns the modules by room, each with its report."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for path, report in sorted(files.items()):
        inside = Path(path).parts[Path(path).parts.index("kerneltest") + 1 :]
        if len(inside) > 1 and inside[0] not in LEFT_OUT:
            found.setdefault(inside[0], []).append(("/".join(inside), report))
    return found


def table(by_room: Mapping[str, list[tuple[str, Any]]]) -> Iterator[str]:
    """Yields the rows of a Markdown table."""
    yield "| room | lines | reached | least in |"
    yield "| --- | ---: | ---: | --- |"
    for room, modules in by_room.items():
        lines = sum(report["summary"]["num_statements"] for _, report in modules)
        reached = sum(report["summary"]["covered_lines"] for _, report in modules)
        name, least = min(modules, key=lambda each: each[1]["summary"]["percent_covered"])
        share = least["summary"]["percent_covered"]
        yield f"| `{room}` | {lines} | {reached / max(lines, 1):.0%} | `{name}`, {share:.0f}% |"


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:300", help="FIRST:LAST, without the last")
    parser.add_argument("--missed", default="", metavar="ROOM")
    options = parser.parse_args()
    by_room = rooms(measure(range(*map(int, options.seeds.split(":")))))
    print("\n".join(table(by_room)))
    for name, report in by_room.get(options.missed, ()):
        print(f"{name}: {', '.join(map(str, report['missing_lines']))}")


if __name__ == "__main__":
    main()
