"""Measures suspects on labelled kernels: `python benchmarks/labelled_suspects.py FOLDER [--which broken]`.

A folder holds modules named by a number (`48_saturates.py`) with `declare(WHICH)`, which returns a pairing with one
bug. A comment `# BUG` marks the lines at fault. `--labels` names a file that gives by module

- `lines`: further lines at fault, by a part of their text, in the module or in one that it imports;
- `titles`: regular expressions, one of which the first suspect's title should match. A module without any is not
  judged by its title.

Printed are a line for each module and the totals: one suspect, at most two, accepted titles, and lines named.
"""

import argparse
import collections
import concurrent.futures
import json
import linecache
import multiprocessing
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kerneltest as kt
from benchmarks.module_files import load_module


def measure(path: Path, which: str, backends: Sequence[str], seconds: float, lines: Sequence[str]) -> dict[str, Any]:
    """Returns the titles of the suspects of one module, and whether the line named is the right one.

    Args:
      path: the module's.
      which: the argument of `declare`.
      backends: the backends to run.
      seconds: for the smallest case of each suspect.
      lines: lines at fault, by a part of their text.
    """
    warnings.filterwarnings("ignore")
    suspects = kt.check(load_module(path).declare(which), backends=backends, depth="quick", minimize=seconds).suspects
    marked = {number for number, line in enumerate(path.read_text("utf-8").splitlines(), 1) if "# BUG" in line}
    fault = suspects[0].fault if suspects else None
    named = "none"
    if fault is not None:
        file, _, line = fault.place.rpartition(":")
        is_marked = Path(file).name == path.name and int(line) in marked
        is_right = is_marked or any(text in linecache.getline(file, int(line)) for text in lines)
        named = "right" if is_right else "wrong and certain" if fault.confirmed else "wrong"
    return {
        "name": path.stem,
        "titles": [suspect.title for suspect in suspects],
        "named": named if marked or lines else "not labelled",
        "place": f"{fault.place} ({fault.words})" if fault is not None else "",
    }


def is_accepted(title: str, accepted: Sequence[str]) -> bool | None:
    """Returns whether a title matches one of the accepted ones; None if there are none."""
    return any(re.search(each, title) for each in accepted) if accepted else None


def report(rows: Sequence[dict[str, Any]], labels: dict[str, dict[str, list[str]]]) -> str:
    """Returns the totals in words."""
    found = [row for row in rows if row["titles"]]
    counts = [len(row["titles"]) for row in found]
    told = [is_accepted(row["titles"][0], labels.get(row["name"], {}).get("titles", [])) for row in found]
    named = collections.Counter(row["named"] for row in found)
    judged = [each for each in told if each is not None]
    return "\n".join(
        [
            f"found: {len(found)} of {len(rows)}",
            f"one suspect: {counts.count(1)}; at most {max(counts, default=0)}",
            f"title accepted: {sum(judged)} of {len(judged)}",
            f"line named: {', '.join(f'{word} {count}' for word, count in named.most_common())}",
        ]
    )


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--which", default="broken", help="the argument of `declare`")
    parser.add_argument("--backends", default="interpret")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10, help="for the smallest case of each suspect")
    parser.add_argument("--labels", type=Path, help="a file of lines and titles, such as benchmarks/labels/bugs.json")
    parser.add_argument("--only", default="", help="numbers of modules, separated by commas")
    chosen = parser.parse_args(words)
    labels: dict[str, dict[str, list[str]]] = json.loads(chosen.labels.read_text("utf-8")) if chosen.labels else {}
    paths = sorted(chosen.folder.glob("[0-9]*.py"))
    if chosen.only:
        paths = [path for path in paths if path.name.partition("_")[0] in chosen.only.split(",")]
    backends = chosen.backends.split(",")
    rows = []
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(chosen.processes, mp_context=spawn, max_tasks_per_child=1) as pool:
        jobs = []
        for path in paths:
            lines = labels.get(path.stem, {}).get("lines", [])
            jobs.append(pool.submit(measure, path, chosen.which, backends, chosen.seconds, lines))
        for job in jobs:
            rows.append(row := job.result())
            known = labels.get(row["name"], {}).get("titles", [])
            accepted = is_accepted(row["titles"][0], known) if row["titles"] else None
            sign = {True: "accepted", False: "NOT ACCEPTED", None: "not judged"}[accepted]
            line = f"line {row['named']} {row['place']}"
            print(f"{row['name']}: {len(row['titles'])}, {sign}, {line}: {'; '.join(row['titles'])}", flush=True)
    print(report(rows, labels))


if __name__ == "__main__":
    main(sys.argv[1:])
