"""Whether one bug makes one suspect, and two make two: `python benchmarks/suspects.py [--processes N] [TABLE ...]`.

Two tables, both by default: `single`, the variants of the kernels by themselves, and `pairs`, two variants of
one kernel put together. reports/suspects/results.json, which git ignores, keeps both; reports/suspects/README.md shows
them.
"""

import argparse
import ast
import difflib
import hashlib
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import jax

import kerneltest as kt
from benchmarks.device_outputs import ROOT
from kerneltest.triage.suspects import Suspect
from tests.corpus import VARIANTS, Twin
from tests.corpus.twin import edited

FOLDER = ROOT / "reports" / "suspects"
BACKENDS, DEPTH, SECONDS = ("interpret", "simulate:sm_90"), "quick", 10.0
PAIRS = 64


def pairs() -> list[Twin]:
    """Two variants of one kernel whose edits do not touch each other, `PAIRS` of them in an order without pattern."""
    made = []
    by_kernel: dict[tuple[str, str], list[Twin]] = {}
    for variant in VARIANTS:
        by_kernel.setdefault((variant.edit.pairing, variant.edit.function), []).append(variant)
    for (pairing, function), variants in by_kernel.items():
        for one, other in itertools.combinations(variants, 2):
            bugs = " AND ".join(each.name.removeprefix(f"{pairing}: ") for each in (one, other))
            both = edited(bugs, pairing, function, one.edit.changes + other.edit.changes)
            try:
                both.broken()
            except ValueError:  # an edit took away what the other one is of
                continue
            made.append(both)
    return sorted(made, key=lambda each: hashlib.sha256(each.name.encode()).hexdigest())[:PAIRS]


def touched(variant: Twin) -> frozenset[int]:
    """The lines of the statements that an edit touched, as the edited source numbers them."""
    source, changed_source = variant.edit.sources()
    changed = {
        line
        for tag, _, _, start, end in difflib.SequenceMatcher(
            None, source.splitlines(), changed_source.splitlines(), autojunk=False
        ).get_opcodes()
        if tag != "equal"
        for line in range(start + 1, max(end, start + 1) + 1)
    }
    simple = [
        node
        for node in ast.walk(ast.parse(changed_source))
        if isinstance(node, (ast.Assign, ast.Expr, ast.Return, ast.AugAssign, ast.AnnAssign))
    ]
    around = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in simple]
    return frozenset(line for lines in around if changed & set(lines) for line in lines) | frozenset(changed)


def measure(variant: Twin, seconds: float) -> dict[str, Any]:
    """What is suspected of one variant, and the cases that each suspect explains."""
    started = time.perf_counter()
    result = kt.check(variant.broken(), backends=BACKENDS, depth=DEPTH, minimize=seconds)
    return {
        "name": variant.name,
        "seconds": time.perf_counter() - started,
        "findings": len(result.findings),
        "lines": sorted(touched(variant)),
        "suspects": [_suspect(each) for each in result.suspects],
    }


def _suspect(suspect: Suspect) -> dict[str, Any]:
    smallest, born = suspect.reproducer, suspect.fault
    return {
        "id": suspect.id,
        "title": suspect.title,
        "level": suspect.level,
        "exact": suspect.signatures.exact or suspect.inputs.exact,
        "cases": sorted(f"{record.backend} {record.case}" for record in suspect.findings),
        "lines": suspect.lines,
        "unusual": smallest.nontrivial if smallest is not None else None,
        "seconds": smallest.record.seconds if smallest is not None else None,
        "complete": smallest.complete if smallest is not None else None,
        "born": {"place": born.place, "words": born.words, "certain": born.confirmed} if born is not None else None,
    }


_ABOUT = """# Suspects, measured

How well kerneltest groups failing cases into [suspects](../../docs/suspects.md). `python benchmarks/suspects.py`
generates this page.

- **Right line**: the edit touched the line, or the line's operation produces the edit's NaN.
- **Separated**: each of the two bugs has a suspect whose cases are closest to those that the bug fails by itself
  (Jaccard index). If one bug fails all cases that the other does, two bugs count as separated if most cases of the
  smaller one are in one suspect and few are in another.
"""


def line_named(row: dict[str, Any]) -> str:
    """`right`, `wrong`, `wrong and certain` or `none`: what the suspects of a variant say of the line."""
    said = []
    for suspect in row["suspects"]:
        born = suspect["born"]
        place = born["place"] if born else suspect["lines"][0] if suspect["lines"] else ""
        if not place:
            continue
        right = int(place.rpartition(":")[2]) in row["lines"] or (born is not None and " is nan" in born["words"])
        said.append("right" if right else "wrong and certain" if born and born["certain"] else "wrong")
    return next((word for word in ("right", "wrong and certain", "wrong") if word in said), "none")


def told_apart(row: dict[str, Any], single: dict[str, dict[str, Any]]) -> bool | None:
    """Whether a suspect each is of either bug, judged by the cases that each bug fails alone.

    That is so where one suspect's cases are nearer (by Jaccard's index) to what the first bug fails than to what the
    second does, and another's the other way round. A bug that fails all that the other does is always the nearer one:
    there, most cases of one suspect must be failed by the lesser bug, and most of another one's not.

    None where one of the two is not found even alone.
    """
    pairing, _, bugs = row["name"].partition(": ")
    one, other = (
        {case for suspect in single[f"{pairing}: {bug}"]["suspects"] for case in suspect["cases"]}
        for bug in bugs.split(" AND ")
    )
    if not one or not other:
        return None
    mine = [set(suspect["cases"]) for suspect in row["suspects"]]
    nearer = [_jaccard(cases, one) - _jaccard(cases, other) for cases in mine]
    if any(each > 0 for each in nearer) and any(each < 0 for each in nearer):
        return True
    lesser = min(one, other, key=len)
    if len(lesser - max(one, other, key=len)) > _NESTED * len(lesser):
        return False
    shares = [len(lesser & cases) / len(cases) for cases in mine]
    return any(share < 0.5 for share in shares) and any(share > 0.5 for share in shares)


def by_rounding(told: dict[str, bool | None], single: dict[str, dict[str, Any]]) -> list[str]:
    """Returns how many pairs are separated if none, one or both of their bugs are of rounding: `none 20 of 30`.

    A bug is of rounding if the title of its first suspect says so.
    """
    counts: dict[int, list[bool]] = {0: [], 1: [], 2: []}
    for name, separated in told.items():
        pairing, _, bugs = name.partition(": ")
        first = [single[f"{pairing}: {bug}"]["suspects"][:1] for bug in bugs.split(" AND ")]
        if separated is not None:
            counts[sum(suspect["title"].startswith(_OF_ROUNDING) for (suspect,) in first)].append(separated)
    return [f"{('none', 'one', 'both')[number]} {sum(each)} of {len(each)}" for number, each in counts.items()]


_OF_ROUNDING = ("insufficient precision", "an unstable formula", "a formula that is slightly off")
_NESTED = 0.02  # of the cases of the lesser bug may be its own


def _jaccard(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other)


def report(results: dict[str, Any]) -> str:
    """All that is kept, as Markdown."""
    single = {row["name"]: row for row in results.get("single", ())}
    lines = [_ABOUT, results["environment"], ""]
    if single:
        found = [row for row in single.values() if row["suspects"]]
        counts = [len(row["suspects"]) for row in found]
        named = [line_named(row) for row in found]
        unusual = [s["unusual"] for row in found for s in row["suspects"] if s["unusual"] is not None]
        lines += [
            f"One bug each, {len(found)} variants found of {len(single)}, depth {DEPTH}, {' and '.join(BACKENDS)}:",
            "",
            f"- one suspect: {counts.count(1)} ({counts.count(1) / len(found):.0%}); at most {max(counts)}",
            f"- right line: {named.count('right')} ({named.count('right') / len(found):.0%}); "
            f"wrong line, reported as possible: {named.count('wrong')}; wrong line, reported as confirmed: "
            f"{named.count('wrong and certain')}; no line: {named.count('none')}",
            f"- elements of the smallest case that are neither 0 nor 1: median {statistics.median(unusual):g}, "
            f"maximum {max(unusual)}, of {len(unusual)} smallest cases",
            "",
            "| variant | findings | suspects | first suspect | line named | elements not 0 or 1 |",
            "| --- | --- | --- | --- | --- | --- |",
            *(
                f"| {row['name']} | {row['findings']} | {len(row['suspects'])} | "
                f"{row['suspects'][0]['title'] if row['suspects'] else 'not found'} | {line_named(row)} | "
                f"{row['suspects'][0]['unusual'] if row['suspects'] else ''} |"
                for row in single.values()
            ),
            "",
        ]
    if single and results.get("pairs"):
        told = {row["name"]: told_apart(row, single) for row in results["pairs"]}
        counted = [each for each in told.values() if each is not None]
        lines += [
            f"Two bugs in one kernel, {len(counted)} pairs: separated in {sum(counted)} "
            f"({sum(counted) / len(counted):.0%}).",
            f"By how many of the two are of rounding, which many cases show: {', '.join(by_rounding(told, single))}.",
            "",
            "| pair | suspects | separated |",
            "| --- | --- | --- |",
            *(
                f"| {row['name']} | {len(row['suspects'])} | "
                f"{'one is not found' if told[row['name']] is None else 'yes' if told[row['name']] else 'no'} |"
                for row in results["pairs"]
            ),
            "",
        ]
    return "\n".join(lines)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="single or pairs; both if left out")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the smallest case of each suspect")
    chosen = parser.parse_args(words)
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    results["environment"] = f"JAX {jax.__version__}, Python {platform.python_version()}, {platform.machine()}, no GPU."
    if unknown := set(chosen.tables) - {"single", "pairs"}:
        parser.error(f"no table {', '.join(sorted(unknown))}: there are single and pairs")
    for table in chosen.tables or ["single", "pairs"]:
        todo = list(VARIANTS) if table == "single" else pairs()
        with ProcessPoolExecutor(chosen.processes, mp_context=get_context("spawn")) as pool:
            results[table] = []
            for row in pool.map(measure, todo, [chosen.seconds] * len(todo)):
                results[table].append(row)
                titles = "; ".join(each["title"] for each in row["suspects"])
                print(f"{row['name']}: {len(row['suspects'])}, {row['seconds']:.0f} s: {titles}", file=sys.stderr)
        kept.write_text(json.dumps(results))
        (FOLDER / "README.md").write_text(report(results), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
