"""Counts the bugs that each family and each class of lengths finds, and those that it alone finds.

    python -m benchmarks.families [--jobs N] [--cases FOLDER] [--depth quick] [--seeds 0] [--only TEXT] [--every N]

Every variant of `tests/corpus` runs on `interpret`, and on `simulate:sm_90` if that finds nothing. FOLDER
adds kernels by other hands: Python files with a function `declare(which)` that returns the pairing of a broken kernel,
in folders called `styles` (`broken`) and `bugs` (`kernel`), and the pairings of test files in `reported`. A line for
each bug says by how many families and signatures it is found, with the seed that finds it by the fewest. A family that
never finds a bug alone can be merged. A class of lengths finds a bug alone if each signature that finds it has a dim of
that class.
"""

import argparse
import importlib.util
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import kerneltest as kt
from kerneltest.declare.dims import Dim
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import boundary_lengths
from tests.corpus import VARIANTS

BROKEN = {"styles": "broken", "bugs": "kernel"}
WAYS = (["interpret"], ["simulate:sm_90"])


def load_module(path: Path) -> ModuleType:
    """Returns the module in a file, which may import others beside it."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, slots=True)
class Bug:
    """A broken kernel.

    Attributes:
      name: in words.
      variant: its index among the variants; -1 for none.
      path: the file that declares it otherwise.
      member: the pairing in that file; "" if its `declare` returns it.
    """

    name: str
    variant: int = -1
    path: str = ""
    member: str = ""

    def pairing(self) -> kt.Pairing:
        """Returns the kernel's pairing."""
        if self.variant >= 0:
            return VARIANTS[self.variant].broken()
        path = Path(self.path)
        module = load_module(path)
        pairing = getattr(module, self.member) if self.member else module.declare(BROKEN[path.parent.name])
        assert isinstance(pairing, kt.Pairing)
        return pairing


@dataclass(frozen=True, slots=True)
class Finders:
    """The families, as `group/family`, and the signatures with findings of one bug in one run, with their lengths."""

    families: frozenset[str] = frozenset()
    signatures: frozenset[str] = frozenset()
    lengths: frozenset[frozenset[str]] = frozenset()  # the classes of each signature's dims


def bugs(folder: Path | None) -> Iterator[Bug]:
    """Yields the variants, and the kernels in a folder."""
    for number, variant in enumerate(VARIANTS):
        yield Bug(variant.name, number)
    if folder is None:
        return
    for name in BROKEN:
        for path in sorted(folder.glob(f"{name}/[0-9]*.py")):
            yield Bug(f"{name}/{path.stem}", path=str(path))
    for path in sorted(folder.glob("reported/test_*.py")):
        members = [member for member, each in vars(load_module(path)).items() if isinstance(each, kt.Pairing)]
        yield from (Bug(f"reported/{path.stem}::{member}", path=str(path), member=member) for member in members)


def find(bug: Bug, depth: str, seed: int) -> Finders:
    """Runs a bug's pairing, and returns what finds it."""
    warnings.filterwarnings("ignore")
    pairing = bug.pairing()
    for backends in WAYS:
        records = [
            each.record for each in kt.check(pairing, backends=backends, depth=depth, seed=seed, minimize=0).findings
        ]
        if records:
            families = frozenset(f"{each.group}/{each.family}" for each in records)
            lengths = (
                frozenset(length_class(dim, each.dims[name]) for name, dim in pairing.dims.items() if not dim.values)
                for each in records
            )
            return Finders(families, frozenset(each.signature for each in records), frozenset(lengths))
    return Finders()


def length_class(dim: Dim, length: int) -> str:
    """Returns the class of a length by the dim's blocks, or by those of 16 that a plan assumes."""
    block = dim.block or max(16, dim.multiple_of)
    if length > max(boundary_lengths(dim, "deep")):
        return "past the limit of a format"
    blocks, rest = divmod(length, block)
    part = {0: "whole", 1: "one past", block - 1: "one short of"}.get(rest, "odd, past" if rest % 2 else "even, past")
    return "least" if length <= dim.shortest else f"{part} {min(blocks + (rest == block - 1), 3)} blocks"


def table_of_lengths(found: dict[str, list[Finders]]) -> Iterator[str]:
    """Yields the lines of a table in Markdown of what each class of lengths finds with the first seed."""
    first = {name: finders[0].lengths for name, finders in found.items() if finders[0].lengths}
    total = Counter(kind for lengths in first.values() for kind in frozenset[str]().union(*lengths))
    alone = {kind: [bug for bug, lengths in first.items() if all(kind in one for one in lengths)] for kind in total}
    yield "| lengths | bugs | alone |"
    yield "| --- | --- | --- |"
    for kind in sorted(total, key=lambda name: (-len(alone[name]), -total[name], name)):
        yield f"| {kind} | {total[kind]} | {'; '.join(alone[kind]) or '-'} |"


def table(found: dict[str, list[Finders]]) -> Iterator[str]:
    """Yields the lines of a table in Markdown, for the first seed."""
    first = {name: finders[0].families for name, finders in found.items()}
    total = Counter(family for families in first.values() for family in families)
    alone = {family: [bug for bug, families in first.items() if families == {family}] for family in total}
    yield f"{sum(map(bool, first.values()))} of {len(first)} bugs found"
    yield ""
    yield "| family | bugs | alone |"
    yield "| --- | --- | --- |"
    known = {f"{each.group}/{name}" for name, each in FAMILIES.items()}
    for family in sorted({*total, *known}, key=lambda name: (-len(alone.get(name, ())), -total[name], name)):
        yield f"| {family} | {total[family]} | {'; '.join(alone.get(family, ())) or '-'} |"


def main() -> None:
    """Prints a line for each bug, then the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--depth", default="quick")
    parser.add_argument("--seeds", default="0", help="separated by commas")
    parser.add_argument("--only", default="", help="bugs whose name contains one of these texts, separated by commas")
    parser.add_argument("--every", type=int, default=1, help="one bug in so many")
    options = parser.parse_args()
    words, seeds = options.only.split(","), list(map(int, options.seeds.split(",")))
    chosen = [bug for bug in bugs(options.cases) if any(word in bug.name for word in words)][:: options.every]
    found: dict[str, list[Finders]] = {}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        futures = {bug.name: [pool.submit(find, bug, options.depth, seed) for seed in seeds] for bug in chosen}
        for name, each in futures.items():
            found[name] = [future.result() for future in each]
            families, signatures = min((len(f.families), len(f.signatures)) for f in found[name])
            print(f"{families:3} families {signatures:3} signatures  {name}", file=sys.stderr, flush=True)
    print("\n".join([*table(found), "", *table_of_lengths(found)]))


if __name__ == "__main__":
    main()
