"""Measures suspects, one of which each bug should make: `python -m benchmarks.suspects [--processes N] [TABLE ...]`.

Two tables by default: `single`, the variants of the kernels by themselves, and `pairs`, two variants of one kernel put
together. reports/suspects/results.json, which git ignores, keeps both; reports/suspects/README.md shows them.

`mutants` is a third one, of kernels of suites/ and of `tools.generate`, each with one change of `kerneltest mutate`. It
is judged on interpret alone, and printed: the change, for a reader who judges the titles, and each suspect's title and
line.
"""

import argparse
import ast
import difflib
import hashlib
import itertools
import json
import linecache
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from importlib import import_module
from multiprocessing import active_children, get_context
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

import kerneltest as kt
from benchmarks.device_outputs import ROOT
from kerneltest.core.source_location import source_line
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.mutation.judging import MutationSession, UnfitPairingError, plan_items
from kerneltest.extensions.mutation.mutants import KernelMutant, apply_mutant
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.localize.sites import LocatedJaxpr, locate_equations, site_key
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.jax_compat.source_lines import propagate_call_lines
from kerneltest.trace.rewrite import rewrite_jaxpr
from kerneltest.triage.suspects import Suspect
from tests.corpus import VARIANTS, Twin
from tests.corpus.twin import edited
from tools.generate.productions import generate_kernel

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
    return _statements(changed_source, changed)


def _statements(source: str, lines: Collection[int]) -> frozenset[int]:
    # Some lines, and the others of the simple statements that they are in.
    simple = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Assign, ast.Expr, ast.Return, ast.AugAssign, ast.AnnAssign))
    ]
    around = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in simple]
    return frozenset(line for each in around if not {*each}.isdisjoint(lines) for line in each) | frozenset(lines)


def measure(variant: Twin, seconds: float) -> list[dict[str, Any]]:
    """What is suspected of one variant, and the cases that each suspect explains."""
    return [_row(variant.name, variant.broken(), BACKENDS, seconds, touched(variant))]


def _row(name: str, broken: Pairing, backends: Sequence[str], seconds: float, lines: Collection[int]) -> dict[str, Any]:
    started = time.perf_counter()
    result = kt.check(broken, backends=backends, depth=DEPTH, minimize=seconds)
    return {
        "name": name,
        "seconds": time.perf_counter() - started,
        "findings": len(result.findings),
        "lines": sorted(lines),
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


SUITES = (
    "attention.one_block attention.online batched_matmul.two_axes cross_entropy.tiled cumulative_sum.sums iota.blocked "
    "layer_norm.normalised matmul.tiled matmul.two_by_two rms_norm.normalised rotary.rotated softmax.fused "
    "softmax.tiled swiglu.fused swiglu.gate vector_add.blocked"
).split()
SEEDS = range(100, 140)
_ATTEMPTS = 3  # mutants that are tried for each one that is wanted, since the plan may miss some


def mutated(pairing: Pairing, mutant: KernelMutant) -> Pairing:
    """Returns a pairing whose kernel has the change of a mutant."""
    kernel = pairing.kernel

    def changed(*arguments: Any, **options: Any) -> Any:
        leaves, tree = jax.tree.flatten((arguments, options))
        arrays = [number for number, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]

        def call(*values: jax.Array) -> Any:
            filled = dict(enumerate(leaves)) | dict(zip(arrays, values, strict=True))
            own, named = jax.tree.unflatten(tree, filled.values())
            return kernel(*own, **named)

        jaxpr, result = jax.make_jaxpr(call, return_shape=True)(*(leaves[number] for number in arrays))
        located = locate_equations(jaxpr)
        if (made := apply_mutant(located, mutant)) is not None:
            sites = (site for site in LocatedJaxpr(located).sites() if site.frames[0] == (mutant.place, mutant.column))
            located = rewrite_jaxpr(made, partial(_with_line, next(sites).equation))
        outputs = jaxpr_as_fun(located)(*(leaves[number] for number in arrays))
        return jax.tree.unflatten(jax.tree.structure(result), outputs)

    return replace(pairing, kernel=changed)


def _with_line(edited: Equation, equation: Equation) -> list[Equation] | None:
    # The equations that an operator makes remember no line of the kernel.
    return None if site_key(equation)[0] else [propagate_call_lines(equation, edited)]


def measure_mutants(name: str, seconds: float, count: int = 2) -> list[dict[str, Any]]:
    """Checks mutants of one kernel, and returns rows of the first `count` that have a suspect.

    The name is that of a pairing, as `softmax.tiled` in suites/test_softmax.py, or a seed of `tools.generate`.
    """
    suite, _, own = name.partition(".")
    pairing = getattr(import_module(f"suites.test_{suite}"), own) if own else generate_kernel(int(name)).pairing()
    try:
        session = MutationSession(plan_items(pairing, name, "interpret"))
    except UnfitPairingError:
        return []
    mutants = session.mutants(OPERATORS.entries())
    random.Random(name).shuffle(mutants)
    rows: list[dict[str, Any]] = []
    for mutant in mutants[: count * _ATTEMPTS]:
        change = f"{mutant.place} {mutant.phrase}, {mutant.operator} of {mutant.primitive}: {source_line(mutant.place)}"
        source = "".join(linecache.getlines(mutant.file))
        lines = _statements(source, [mutant.line])
        row = _row(f"{name}: {change}", mutated(pairing, mutant), ["interpret"], seconds, lines)
        rows += [row] if row["suspects"] else []
        if len(rows) == count:
            break
    return rows


def describe(row: dict[str, Any]) -> str:
    """Returns the suspects of a row, for a reader who judges the titles."""
    lines = [f"{row['name']}", f"  line: {line_named(row)}; {row['seconds']:.0f} s"]
    for suspect in row["suspects"]:
        born = suspect["born"]
        lines.append(f"  - {suspect['title']} [{len(suspect['cases'])} cases]")
        lines += [f"    {'certainly ' * born['certain']}{born['place']} {born['words']}"] if born else []
    return "\n".join(lines)


_ABOUT = """# Suspects, measured

How well kerneltest groups failing cases into [suspects](../../docs/suspects.md). `python -m benchmarks.suspects`
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


def _alone(pair: dict[str, Any], single: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    # The rows of the two bugs of a pair; [] if either is missing.
    pairing, _, bugs = pair["name"].partition(": ")
    names = [f"{pairing}: {bug}" for bug in bugs.split(" AND ")]
    return [single[name] for name in names] if single.keys() >= {*names} else []


def told_apart(row: dict[str, Any], single: dict[str, dict[str, Any]]) -> bool | None:
    """Whether a suspect each is of either bug, judged by the cases that each bug fails alone.

    That is so where one suspect's cases are nearer (by Jaccard's index) to what the first bug fails than to what the
    second does, and another's the other way round. A bug that fails all that the other does is always the nearer one:
    there, most cases of one suspect must be failed by the lesser bug, and most of another one's not.

    None where one of the two is not found even alone.
    """
    one, other = ({case for suspect in bug["suspects"] for case in suspect["cases"]} for bug in _alone(row, single))
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


def totals(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields how many rows have one suspect, and how many name the right line."""
    counts, named = [len(row["suspects"]) for row in found], [line_named(row) for row in found]
    yield f"- one suspect: {counts.count(1)} ({counts.count(1) / len(found):.0%}); at most {max(counts)}"
    yield (
        f"- right line: {named.count('right')} ({named.count('right') / len(found):.0%}); "
        f"wrong line, reported as possible: {named.count('wrong')}; wrong line, reported as confirmed: "
        f"{named.count('wrong and certain')}; no line: {named.count('none')}"
    )


def report(results: dict[str, Any]) -> str:
    """All that is kept, as Markdown."""
    single = {row["name"]: row for row in results.get("single", ())}
    lines = [_ABOUT, results["environment"], ""]
    if single:
        found = [row for row in single.values() if row["suspects"]]
        unusual = [s["unusual"] for row in found for s in row["suspects"] if s["unusual"] is not None]
        lines += [
            f"One bug each, {len(found)} variants found of {len(single)}, depth {DEPTH}, {' and '.join(BACKENDS)}:",
            "",
            *totals(found),
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
        told = {row["name"]: told_apart(row, single) for row in results["pairs"] if _alone(row, single)}
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
                if row["name"] in told
            ),
            "",
        ]
    return "\n".join(lines)


_TABLES: dict[str, tuple[Callable[[], Sequence[Any]], Callable[[Any, float], list[dict[str, Any]]]]] = {
    "single": (lambda: VARIANTS, measure),
    "pairs": (pairs, measure),
    "mutants": (lambda: [*SUITES, *map(str, SEEDS)], measure_mutants),
}


def _bug(name: str) -> str:
    return name.partition(": ")[2]


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="by default single and pairs")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the smallest case of each suspect")
    parser.add_argument("--only", nargs="+", metavar="PART", help="rows whose names have one of these, only printed")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="end then; the next call adds missing rows")
    chosen = parser.parse_args(words)
    if unknown := set(chosen.tables) - _TABLES.keys():
        parser.error(f"no table {', '.join(sorted(unknown))}: there are {', '.join(_TABLES)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    results["environment"] = f"JAX {jax.__version__}, Python {platform.python_version()}, {platform.machine()}, no GPU."
    tables = chosen.tables or ["single", "pairs"]
    subjects = {table: {getattr(each, "name", each): each for each in _TABLES[table][0]()} for table in tables}
    kept_rows = {} if chosen.limit is None else results
    rows = {table: [row for row in kept_rows.get(table, []) if row["name"] in subjects[table]] for table in tables}
    paired = {bug for pair in pairs() for bug in _bug(pair.name).split(" AND ")}  # these first
    with ProcessPoolExecutor(chosen.processes, mp_context=get_context("spawn")) as pool:
        pending = {
            pool.submit(_TABLES[table][1], subject, chosen.seconds): table
            for table in tables
            for name, subject in sorted(subjects[table].items(), key=lambda each: _bug(each[0]) not in paired)
            if not any(row["name"] == name for row in rows[table])
            and (not chosen.only or any(part in name for part in chosen.only))
        }
        try:
            for done in as_completed(pending, chosen.limit):
                made = done.result() if done.exception() is None else []
                rows[pending[done]] += made
                print(*map(describe, made), done.exception() or "", sep="\n", flush=True)
        except TimeoutError:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.kill()
    for table, found in rows.items():
        order = [*subjects[table]]
        results[table] = found if table == "mutants" else sorted(found, key=lambda row: order.index(row["name"]))
        if with_suspects := [row for row in found if row["suspects"]]:
            print(f"{table}: {len(found)} rows", *totals(with_suspects), sep="\n")
        if not chosen.only and table != "mutants":
            kept.write_text(json.dumps(results))
            (FOLDER / "README.md").write_text(report(results), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
