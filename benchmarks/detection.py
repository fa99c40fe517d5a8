"""What kerneltest finds and wrongly accuses, measured: `python benchmarks/detection.py [--cases N] [TABLE ...]`.

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import hypothesis
import jax
import numpy as np

from benchmarks import checkers
from benchmarks.detection_report import markdown
from benchmarks.device_outputs import ROOT, pairings
from benchmarks.variants import VARIANTS, Variant
from kerneltest.backends.base import Backend
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.built_in_models import Exact
from kerneltest.declare.dims import Dim
from kerneltest.declare.error_model import Measured, Tolerance
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.numerics.bounds import Limit
from kerneltest.plan.signatures import signature_dtypes

FOLDER = ROOT / "reports" / "detection"
RIGHT_BACKENDS = ("interpret", "simulate:sm_90", "simulate:gfx942", "cuda")
DEPTH, SMALL, LARGE = "quick", 0.1, 100.0


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


def detection(before: Sequence[dict[str, Any]], keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Every variant against the checkers.

    Args:
      before: rows that were measured earlier and are not measured again.
      keep: called with what there is after each row.
    """
    known = {row["name"]: row for row in before}
    rows: list[dict[str, Any]] = []
    for variant in VARIANTS:
        rows.append(known.get(variant.name) or _row(variant))
        keep({"variants": rows})
    return {"variants": rows}


def by_hand(keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """What the two checks that people write say of the right kernels; `keep` is called after each."""
    said: dict[str, Any] = {}
    for name, pairing in right().items():
        said[name] = {
            "tutorial": asdict(checkers.tutorial(pairing)),
            "hypothesis": asdict(checkers.hypothesis(pairing)),
        }
        keep({"right": said})
        print(name, said[name], file=sys.stderr, flush=True)
    return {"right": said}


def _row(variant: Variant) -> dict[str, Any]:
    pairing = variant.broken()
    found = {"tutorial": checkers.tutorial(pairing), "hypothesis": checkers.hypothesis(pairing)}
    for depth in ("quick", "standard"):
        found |= {f"{depth}, {part}": each for part, each in checkers.kerneltest(pairing, depth).items()}
    words = ", ".join(f"{name} {each.seconds:.1f} s{'' if each.finding else ' -'}" for name, each in found.items())
    print(f"{variant.name}: {words}", file=sys.stderr, flush=True)
    return {
        "name": variant.name,
        "family": variant.family,
        "numeric": variant.numeric,
        "found": {name: asdict(each) for name, each in found.items()},
    }


def alarms(wanted: int) -> dict[str, Any]:
    """Right kernels, seed after seed on the same prepared code: cases, findings, seconds by backend and group."""
    backends = [backend for backend in resolve(RIGHT_BACKENDS) if not backend.unavailable()]
    a_seed = sum(
        sum(item.families().values())
        for name, pairing in right().items()
        for item in plan_pairing(pairing, name, backends, RunSettings(depth=DEPTH)).items
    )
    seeds = math.ceil(wanted / a_seed)
    counts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    accused: list[dict[str, str]] = []
    distinct: set[bytes] = set()
    for name, pairing in right().items():
        for dtype in signature_dtypes(pairing, DEPTH):
            cache = Cache()
            for seed in range(seeds):
                for item in _items(pairing, name, dtype, seed, backends):
                    key = f"{item.backend.id} {item.group.name}"
                    started = time.perf_counter()
                    for outcome in run_item(item, cache):
                        record = outcome.record
                        counts[key] += bool(record.case and record.verdict is not Verdict.UNAVAILABLE)
                        if record.verdict.is_finding:
                            said = f"{record.verdict}: {record.family}, {record.signature}: {record.message}"
                            accused.append({"cell": key, "pairing": name, "case": record.case, "seed": str(seed),
                                            "finding": said})  # fmt: skip
                    seconds[key] += time.perf_counter() - started
                for expected in cache.expectations.values():
                    distinct.add(_digest(name, expected.arguments))
                cache.expectations.clear()  # another seed has other cases; what was compiled is kept
            cache.pool.close()
        print(f"{name}: {counts.total()} cases, {len(accused)} findings", file=sys.stderr, flush=True)
    rows = [{"cell": key, "cases": counts[key], "seconds": seconds[key]} for key in counts]
    return {"seeds": seeds, "distinct": len(distinct), "rows": rows, "findings": accused}


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


def constants() -> dict[str, Any]:
    """Numeric cases alone: right kernels with bounds a tenth as large, numeric variants with a hundredfold one."""
    rows = []
    for name, pairing in right().items():
        if isinstance(pairing.tolerance, Exact):
            continue
        row: dict[str, Any] = {"pairing": name, "model": str(pairing.tolerance)}
        for factor in (SMALL, 1.0):
            row[f"{factor:g}"] = _summary(list(_numeric(pairing, factor)))
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    variants = []
    for variant in VARIANTS:
        if not variant.numeric or isinstance(variant.twin().tolerance, Exact):
            continue
        pairing = variant.broken()
        seen = {f"{factor:g}": _summary(list(_numeric(pairing, factor))) for factor in (1.0, LARGE)}
        variants.append({"name": variant.name, **seen})
        print(variants[-1], file=sys.stderr, flush=True)
    return {"right": rows, "variants": variants}


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
    cache.pool.close()


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

    tables: dict[str, Callable[[], dict[str, Any]]] = {
        "alarms": lambda: alarms(options.cases),
        "constants": constants,
        "detection": lambda: detection(before.get("variants", []), functools.partial(keep, "detection")),
        "by_hand": lambda: by_hand(functools.partial(keep, "by_hand")),
    }
    if unknown := set(options.tables) - set(tables):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(tables)}")
    for name in options.tables or tables:
        started = time.perf_counter()
        keep(name, tables[name]())
    page = markdown(results)
    (options.folder / "README.md").write_text(page, encoding="utf-8")
    print(page)
    return 1 if results.get("alarms", {}).get("findings") else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
