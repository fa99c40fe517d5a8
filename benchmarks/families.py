"""Counts the bugs that each family finds, and those that it alone finds.

    python -m benchmarks.families [--jobs N] [--cases FOLDER] [--depth quick] [--seed 0] [--constants]

Every broken variant of `benchmarks/variants` runs on `interpret`, and on `simulate:sm_90` if that finds nothing. FOLDER
adds kernels by other hands: Python files with a function `declare(which)` that returns the pairing of a broken kernel,
in folders called `styles` (`broken`) and `bugs` (`kernel`). A family that never finds a bug alone can be merged.
`--constants` adds the family of `constants_family`.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import kerneltest as kt
from benchmarks import constants_family
from benchmarks.module_files import load_module
from benchmarks.variants import VARIANTS
from kerneltest.plan.families import FAMILIES

BROKEN = {"styles": "broken", "bugs": "kernel"}
WAYS = (["interpret"], ["simulate:sm_90"])


@dataclass(frozen=True, slots=True)
class Bug:
    """A broken kernel.

    Attributes:
      name: in words.
      variant: its index among the variants; -1 for none.
      path: the file that declares it otherwise.
    """

    name: str
    variant: int = -1
    path: str = ""

    def pairing(self) -> kt.Pairing:
        """Returns the kernel's pairing."""
        if self.variant >= 0:
            return VARIANTS[self.variant].broken()
        path = Path(self.path)
        pairing = load_module(path).declare(BROKEN[path.parent.name])
        assert isinstance(pairing, kt.Pairing)
        return pairing


def bugs(folder: Path | None) -> Iterator[Bug]:
    """Yields the variants, and the kernels in a folder."""
    for number, variant in enumerate(VARIANTS):
        yield Bug(variant.name, number)
    for name in BROKEN if folder else ():
        for path in sorted((folder or Path()).glob(f"{name}/[0-9]*.py")):
            yield Bug(f"{name}/{path.stem}", path=str(path))


def found_by(bug: Bug, depth: str, seed: int, with_constants: bool) -> frozenset[str]:
    """Returns the families with a finding, as `group/family`."""
    warnings.filterwarnings("ignore")
    pairing = bug.pairing()
    if with_constants:
        constants_family.use_constants_of(pairing)
    for backends in WAYS:
        findings = kt.check(pairing, backends=backends, depth=depth, seed=seed, minimize=0).findings
        if findings:
            return frozenset(f"{each.record.group}/{each.family}" for each in findings)
    return frozenset()


def table(found: dict[str, frozenset[str]]) -> Iterator[str]:
    """Yields the lines of a table in Markdown."""
    total = Counter(family for families in found.values() for family in families)
    alone = {family: [bug for bug, families in found.items() if families == {family}] for family in total}
    yield f"{sum(map(bool, found.values()))} of {len(found)} bugs found"
    yield ""
    yield "| family | bugs | alone |"
    yield "| --- | --- | --- |"
    every = {*total, *(f"{each.group}/{name}" for name, each in FAMILIES.items() if name != constants_family.NAME)}
    for family in sorted(every, key=lambda name: (-len(alone.get(name, ())), -total[name], name)):
        yield f"| {family} | {total[family]} | {'; '.join(alone.get(family, ())) or '-'} |"


def main() -> None:
    """Prints a line for each bug, then the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--depth", default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--only", default="", help="bugs whose name contains this text")
    options = parser.parse_args()
    chosen = [bug for bug in bugs(options.cases) if options.only in bug.name]
    found: dict[str, frozenset[str]] = {}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        futures = {
            bug.name: pool.submit(found_by, bug, options.depth, options.seed, options.constants) for bug in chosen
        }
        for name, future in futures.items():
            found[name] = future.result()
            print(f"{len(found[name]):3} families  {name}", file=sys.stderr, flush=True)
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
