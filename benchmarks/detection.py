"""Measures how many bugs kerneltest finds, and how many right kernels it accuses.

    python -m benchmarks.detection [--jobs N] [TABLE ...]

Four tables, all by default: `alarms` (right kernels over and over, `--cases` of them at least), `constants` (error
bounds a tenth and a hundred times as large), `detection` (broken variants of the kernels against the ways to check
them) and `by_hand` (what checks by hand say of right kernels). Each is kept in reports/detection/results.json, which
git ignores, and README.md beside it shows all that are kept: in a fresh clone, measure them all.
"""

import argparse
import functools
import hashlib
import json
import math
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import hypothesis
import jax
import numpy as np

from benchmarks import checkers
from benchmarks.detection_report import markdown
from benchmarks.device_outputs import ROOT, pairings
from benchmarks.side_by_side import run_side_by_side
from kerneltest.backends.base import Backend
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.dims import Dim
from kerneltest.declare.error_models import Exact, Measured, Tolerance
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.numerics.bounds import Limit
from kerneltest.plan.signatures import signature_dtypes
from tests.corpus import VARIANTS

FOLDER = ROOT / "reports" / "detection"
RIGHT_BACKENDS = ("interpret", "simulate:sm_90", "simulate:gfx942", "cuda")
DEPTH, SMALL, LARGE = "quick", 0.1, 100.0
Keep = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ScaledLimit:
    """A bound of one output, multiplied by a factor."""

    base: Limit
    factor: float

    def at(self, precision: Precision) -> Array:
        return self.base.at(precision) * self.factor


@dataclass(frozen=True, slots=True)
class Scaled:
    """An error model with every bound multiplied by a factor; the output's own rounding stays."""

    base: Tolerance
    factor: float

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        return self.base.misfit(leaves, dims)

    def bounds(self, measured: Measured) -> tuple[Limit, ...]:
        return tuple(ScaledLimit(limit, self.factor) for limit in self.base.bounds(measured))

    def __str__(self) -> str:
        return f"{self.factor:g} x {self.base}"


def right() -> dict[str, Pairing]:
    """The suites' pairings that some backend here can run, by `suite.name`."""
    return {name: pairing for name, pairing in pairings() if "pipeline" not in name}


def detection(pool: Executor, before: Sequence[dict[str, Any]], keep: Keep) -> dict[str, Any]:
    """Runs the checkers on every variant.

    Args:
      before: rows that were measured earlier and are not measured again.
      keep: called with what there is after each row.
    """
    rows = {row["name"]: row for row in before}
    numbers = [number for number, variant in enumerate(VARIANTS) if variant.name not in rows]
    for _, row in run_side_by_side(pool, _row, numbers):
        rows[row["name"]] = row
        keep({"variants": [rows[variant.name] for variant in VARIANTS if variant.name in rows]})
    return {"variants": [rows[variant.name] for variant in VARIANTS]}


def by_hand(pool: Executor, keep: Keep) -> dict[str, Any]:
    """Runs the two checks that people write on the right kernels; `keep` is called after each."""
    said: dict[str, Any] = {}
    for name, words in run_side_by_side(pool, _said_by_hand, right()):
        said[name] = words
        keep({"right": said})
        print(name, words, file=sys.stderr, flush=True)
    return {"right": {name: said[name] for name in right()}}


def _said_by_hand(name: str) -> dict[str, Any]:
    pairing = right()[name]
    return {"tutorial": asdict(checkers.tutorial(pairing)), "hypothesis": asdict(checkers.hypothesis(pairing))}


def _row(number: int) -> dict[str, Any]:
    variant = VARIANTS[number]
    pairing = variant.broken()
    found = {"tutorial": checkers.tutorial(pairing), "hypothesis": checkers.hypothesis(pairing)}
    for depth in ("quick", "standard"):
        found |= {f"{depth}, {part}": each for part, each in checkers.kerneltest(pairing, depth).items()}
    words = ", ".join(f"{name} {each.seconds:.1f} s{'' if each.finding else ' -'}" for name, each in found.items())
    print(f"{variant.name}: {words}", file=sys.stderr, flush=True)
    return {
        "name": variant.name,
        "family": variant.edit.family,
        "numeric": variant.edit.numeric,
        "found": {name: asdict(each) for name, each in found.items()},
    }


@dataclass(slots=True)
class Alarms:
    """The results for right kernels: cases and seconds by backend and group, findings, number of distinct inputs."""

    cases: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, str]] = field(default_factory=list)
    distinct: int = 0


def alarms(pool: Executor, wanted: int) -> dict[str, Any]:
    """Right kernels, seed after seed on the same prepared code: cases, findings, seconds by backend and group."""
    a_seed = sum(
        sum(item.families().values())
        for name, pairing in right().items()
        for item in plan_pairing(pairing, name, _right_backends(), RunSettings(depth=DEPTH)).items
    )
    seeds, total = math.ceil(wanted / a_seed), Alarms()
    for name, each in run_side_by_side(pool, functools.partial(_alarms_of, seeds=seeds), right()):
        total.cases += each.cases
        total.seconds += each.seconds
        total.findings += each.findings
        total.distinct += each.distinct
        print(f"{name}: {each.cases.total()} cases, {len(each.findings)} findings", file=sys.stderr, flush=True)
    rows = [{"cell": key, "cases": total.cases[key], "seconds": total.seconds[key]} for key in sorted(total.cases)]
    return {"seeds": seeds, "distinct": total.distinct, "rows": rows, "findings": total.findings}


def _right_backends() -> list[Backend]:
    return [backend for backend in resolve(RIGHT_BACKENDS) if not backend.unavailable()]


def _alarms_of(name: str, seeds: int) -> Alarms:
    pairing, backends = right()[name], _right_backends()
    told, distinct = Alarms(), set[bytes]()
    for dtype in signature_dtypes(pairing, DEPTH):
        cache = Cache()
        for seed in range(seeds):
            for item in _items(pairing, name, dtype, seed, backends):
                key = f"{item.backend.id} {item.group.name}"
                started = time.perf_counter()
                for outcome in run_item(item, cache):
                    record = outcome.record
                    told.cases[key] += bool(record.case and record.verdict is not Verdict.UNAVAILABLE)
                    if record.verdict.is_finding:
                        said = f"{record.verdict}: {record.family}, {record.signature}: {record.message}"
                        told.findings.append({"cell": key, "pairing": name, "case": record.case, "seed": str(seed),
                                              "finding": said})  # fmt: skip
                told.seconds[key] += time.perf_counter() - started
            distinct |= {_digest(name, expected.arguments) for expected in cache.expectations.cases.values()}
            cache.expectations.cases.clear()  # another seed has other cases; what was compiled is kept
        cache.process.pool.close()
    told.distinct = len(distinct)
    return told


def _items(pairing: Pairing, name: str, dtype: str, seed: int, backends: Sequence[Backend]) -> list[Item]:
    """A pairing's items of one dtype."""
    return [
        item
        for item in plan_pairing(pairing, name, backends, RunSettings(depth=DEPTH, seed=seed)).items
        if item.dtype == dtype
    ]


def _digest(name: str, arguments: Mapping[str, Array]) -> bytes:
    """Of a pairing and its array arguments; cases that differ in static arguments alone count as one."""
    told = hashlib.blake2b(name.encode(), digest_size=12)
    for value in arguments.values():
        told.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    return told.digest()


def constants(pool: Executor) -> dict[str, Any]:
    """Numeric cases alone: right kernels with bounds a tenth as large, numeric variants with a hundredfold one."""
    names = [name for name, pairing in right().items() if not isinstance(pairing.tolerance, Exact)]
    numbers = [
        n for n, each in enumerate(VARIANTS) if each.edit.numeric and not isinstance(each.right().tolerance, Exact)
    ]
    rows: dict[str, dict[str, Any]] = {}
    for _, row in run_side_by_side(pool, _right_by_factor, names):
        print(row, file=sys.stderr, flush=True)
        rows[row["pairing"]] = row
    variants: dict[int, dict[str, Any]] = {}
    for number, row in run_side_by_side(pool, _variant_by_factor, numbers):
        print(row, file=sys.stderr, flush=True)
        variants[number] = row
    return {"right": [rows[name] for name in names], "variants": [variants[number] for number in numbers]}


def _right_by_factor(name: str) -> dict[str, Any]:
    pairing = right()[name]
    seen = {f"{factor:g}": _summary(list(_numeric(pairing, factor))) for factor in (SMALL, 1.0)}
    return {"pairing": name, "model": str(pairing.tolerance), **seen}


def _variant_by_factor(number: int) -> dict[str, Any]:
    variant = VARIANTS[number]
    pairing = variant.broken()
    return {"name": variant.name, **{f"{f:g}": _summary(list(_numeric(pairing, f))) for f in (1.0, LARGE)}}


def _summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Cases, findings by backend, and the largest error / bound in float32, where the output's rounding is least."""
    accused = Counter(outcome.record.backend for outcome in checkers.findings(iter(outcomes)))
    records = [outcome.record for outcome in outcomes]
    used = [r.bound_fraction for r in records if r.bound_fraction is not None and r.dtype == "float32"]
    return {"cases": len(records), "findings": dict(accused), "used": max(used, default=None)}


def _numeric(pairing: Pairing, factor: float) -> Iterator[Outcome]:
    scaled, cache = replace(pairing, tolerance=Scaled(pairing.tolerance, factor)), Cache()
    for item in plan_pairing(scaled, pairing.name, resolve(checkers.BACKENDS), RunSettings(depth=DEPTH)).items:
        if item.group.name == "numeric":
            yield from run_item(item, cache)
    cache.process.pool.close()


def facts() -> dict[str, str]:
    """Where and with what a table was measured."""
    return {
        "Python": platform.python_version(),
        "JAX": jax.__version__,
        "NumPy": np.__version__,
        "Hypothesis": hypothesis.__version__,
        "processors": str(os.cpu_count()),
        "machine": platform.machine(),
        "devices": ", ".join(sorted({device.device_kind for device in jax.devices()})),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help="alarms, constants, detection, by_hand; by default all"
    )
    parser.add_argument("--cases", type=int, default=100_000, help="of right kernels, at least (default 100000)")
    parser.add_argument("--jobs", type=int, default=1, help="kernels side by side, each in a process of its own")
    parser.add_argument("--resume", action="store_true", help="keep the variants that were measured before")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where README.md and results.json go")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "results.json"
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    before = results.get("detection", {}) if options.resume else {}

    def keep(name: str, table: dict[str, Any]) -> None:
        earlier = before.get("took", 0.0) if name == "detection" else 0.0
        took = earlier + time.perf_counter() - started
        results[name] = {**table, "took": took, "environment": facts()}
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    tables: dict[str, Callable[[Executor], dict[str, Any]]] = {
        "alarms": lambda pool: alarms(pool, options.cases),
        "constants": constants,
        "detection": lambda pool: detection(pool, before.get("variants", []), functools.partial(keep, "detection")),
        "by_hand": lambda pool: by_hand(pool, functools.partial(keep, "by_hand")),
    }
    if unknown := set(options.tables) - set(tables):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(tables)}")
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for name in options.tables or tables:
            started = time.perf_counter()
            keep(name, tables[name](pool))
    page = markdown(results)
    (options.folder / "README.md").write_text(page, encoding="utf-8")
    print(page)
    return 1 if results.get("alarms", {}).get("findings") else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
