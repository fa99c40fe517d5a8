"""What `--kt-sanitize` finds on a GPU, and whom it accuses wrongly: `python benchmarks/sanitized.py FOLDER`.

Runs the kernels of `sanitizer_kernels`, each with its fault or none, and suites of right kernels, under every tool.
Writes `README.md` to the folder, and `findings.json`. Exits with 1 if a fault is missed or a right kernel accused, and
with 2 if there is no GPU or no compute-sanitizer.
"""

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.sanitizer_kernels import SUITE
from kerneltest.backends.base import Backend
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.sanitizer.tools import GUARDS, MISSING, TOOLS, find_compute_sanitizer
from kerneltest.records.schema import Record
from kerneltest.trace.jax_environment import jax_environment

RIGHT = ("test_matmul", "test_softmax")


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a pairing under one tool.

    Attributes:
      name, tool: which.
      wanted: whether the tool must find something.
      records: of all dtypes.
      seconds: for all of them.
    """

    name: str
    tool: str
    wanted: bool
    records: tuple[Record, ...]
    seconds: float

    @property
    def findings(self) -> list[Record]:
        return [record for record in self.records if record.verdict.is_finding]

    @property
    def wrong(self) -> bool:
        """Whether a fault was missed in some case, or a right one accused."""
        return len(self.findings) != (len(self.records) if self.wanted else 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to write the summary")
    parser.add_argument("--only", default="", help="part of the names of those to run")
    options = parser.parse_args()
    (backend,) = resolve(["cuda"])
    if reason := backend.unavailable() or ("" if find_compute_sanitizer() else MISSING):
        print(reason, file=sys.stderr)
        return 2
    started = time.perf_counter()
    with ProcessPoolExecutor(len(TOOLS), mp_context=get_context("spawn")) as pool:
        told = [each for tool in pool.map(watched, TOOLS, repeat(options.only)) for each in tool]
    seconds = f"{time.perf_counter() - started:.0f}, the tools side by side"
    facts = {**jax_environment(), **backend.environment(), "compute-sanitizer": version(), "seconds": seconds}
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "README.md").write_text(markdown(facts, told), encoding="utf-8")
    found = [
        {"kernel": each.name, "tool": each.tool, "verdict": record.verdict, "signature": record.signature}
        | {"message": record.message, "evidence": record.evidence.stderr if record.evidence else ""}
        for each in told
        for record in each.records
        if record.message
    ]
    (options.folder / "findings.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(markdown(facts, told))
    return int(any(each.wrong for each in told))


def kernels(only: str) -> Iterator[tuple[str, Pairing, frozenset[str]]]:
    for name, (pairing, found) in SUITE.items():
        if only in name:
            yield name, pairing, found
    for suite in RIGHT:
        for name, value in vars(importlib.import_module(f"suites.{suite}")).items():
            if isinstance(value, Pairing) and only in f"{suite}.{name}":
                yield f"{suite}.{name}", value, frozenset()


def watched(tool: str, only: str) -> list[Told]:
    """Every kernel under one tool."""
    (backend,) = resolve(["cuda"])
    return [_watched(tool, backend, *each) for each in kernels(only)]


def _watched(tool: str, backend: Backend, name: str, pairing: Pairing, found: frozenset[str]) -> Told:
    cache, started = Cache(), time.perf_counter()
    items = plan_pairing(pairing, name, [backend], RunSettings.of(depth="quick", sanitize=(tool,))).items
    mine = [item for item in items if item.group.name == GroupName.SANITIZED]
    records = tuple(outcome.record for item in mine for outcome in run_item(item, cache))
    cache.process.pool.close()
    told = Told(name, tool, tool in found, records, time.perf_counter() - started)
    said = next((record.message for record in told.findings), "")
    print(f"{name} {tool}: {len(told.findings)} of {len(records)} in {told.seconds:.1f} s {said}", flush=True)
    return told


def version() -> str:
    said = subprocess.run([find_compute_sanitizer(), "--version"], capture_output=True, text=True, check=True).stdout
    return next((line.removeprefix("Version ") for line in said.splitlines() if line.startswith("Version")), "unknown")


def markdown(facts: dict[str, Any], told: list[Told]) -> str:
    lines = [
        "# Kernels under compute-sanitizer and between guard zones",
        "",
        "`python benchmarks/sanitized.py FOLDER`: " + ", ".join(f"{key} {value}" for key, value in facts.items()) + ".",
        "",
        "Cases with a finding, of all that ran; **bold** where the kernel has a fault that the tool is to find, and ✗ "
        "where a fault was missed or a right kernel accused.",
        "",
        f"| kernel | {' | '.join(TOOLS)} | seconds |",
        f"| --- | {'---: | ' * len(TOOLS)}---: |",
    ]
    names = dict.fromkeys(each.name for each in told)
    for name in names:
        mine = {each.tool: each for each in told if each.name == name}
        cells = [_cell(mine[tool]) for tool in TOOLS]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {sum(each.seconds for each in mine.values()):.0f} |")
    lines += ["", "What is said of each fault, and what else is noted:", ""]
    for each in told:
        if record := next((record for record in each.records if record.message), None):
            lines.append(f"- `{each.name}`, {record.verdict}: {record.message}")
    lines += ["", f"`{GUARDS}` sees writes alone."]
    return "\n".join(lines) + "\n"


def _cell(told: Told) -> str:
    ended = f"{len(told.findings)}/{len(told.records)}"
    unavailable = sum(record.verdict == "unavailable" for record in told.records)
    ended += f" ({unavailable} unavailable)" if unavailable else ""
    ended = f"**{ended}**" if told.wanted else ended
    return f"{ended} ✗" if told.wrong else ended


if __name__ == "__main__":
    sys.exit(main())
