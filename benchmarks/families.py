"""Counts the bugs that each family and each class of lengths finds, and those that it alone finds.

    python -m benchmarks.families [SOURCE ...] --out FILE [--jobs N] [--seconds S] [--cases FOLDER] [--every N] ...
    python -m benchmarks.families --render FILE > reports/families/README.md

Each broken kernel runs all of its cases once, on Pallas' interpreters, and on `simulate:sm_90` if these find nothing.
The tables are made from the cases that failed. The sources are

- `corpus`: the variants of `tests/corpus`;
- `cases`: kernels by other hands in FOLDER: Python files with a function `declare(which)` that returns the pairing of a
  broken kernel, in folders called `styles` (`broken`) and `bugs` (`kernel`), and the pairings of test files in
  `reported`;
- `mutants`: of the kernels of `suites/`, in the first dtype of each pairing, as `kerneltest mutate` makes them;
- `generated`: mutants of the kernels of `tools.generate`.

The command ends after S seconds. Mutants come last, those of suites and of generated kernels in turn. FILE is
compressed JSON: each bug with its failing cases. A line for each bug counts the families and signatures that find it.
"""

import argparse
import gzip
import importlib.util
import json
import platform
import random
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise, zip_longest
from multiprocessing import TimeoutError as OutOfTimeError
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import jax

import kerneltest as kt
from benchmarks.device_outputs import ROOT
from kerneltest.backends.registry import resolve
from kerneltest.declare.dims import Dim
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.watchdog import limit_time
from kerneltest.extensions.mutation.judging import (
    KernelCases,
    MutationSession,
    RunningTrial,
    UnfitPairingError,
    plan_items,
)
from kerneltest.extensions.mutation.mutants import KernelMutant
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.extensions.mutation.run import find_pairings
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import boundary_lengths
from kerneltest.records.journal import Journal
from kerneltest.reproduce.rerun import SuiteImportError
from kerneltest.trace.tracing import without_debugging
from tests.corpus import VARIANTS
from tools.generate.productions import generate_kernel

HAND_WRITTEN = ("corpus", "cases")
SOURCES = (*HAND_WRITTEN, "mutants", "generated")
BROKEN = {"styles": "broken", "bugs": "kernel"}
WAYS = (("interpret", "interpret-tpu", "interpret-mosaic-gpu"), ("simulate:sm_90",))
_TOGETHER = 6  # mutants of a pairing that share a process, the kernel's traces and the oracle's results
_SEEDS_TOGETHER = 4  # generated kernels for a process
_STEP_SECONDS = 60  # that tracing, compiling or running one case may take
_BUGS_EACH = 20  # tasks after which a process ends: what it has compiled fills its memory


@dataclass(slots=True)
class Bug:
    """A bug, with all cases of its kernel and those that find it.

    Attributes:
      source: one of `SOURCES`.
      name: the variant, the file or the mutant.
      seconds: processor time of its cases.
      lengths: by signature, the classes of its lengths.
      failed: by signature, the families of its cases with a finding, as `group/family` and `group/family argument`.
      cases: the number of all cases by `group/family`.
    """

    source: str
    name: str
    seconds: float = 0.0
    lengths: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)
    cases: dict[str, int] = field(default_factory=dict)

    @property
    def failing(self) -> list[str]:
        """The cases with a finding, in words."""
        return [f"{family}, {signature}" for signature, families in self.failed.items() for family in families]

    @property
    def families(self) -> frozenset[str]:
        """The families of cases with a finding."""
        return frozenset(each.partition(" ")[0] for families in self.failed.values() for each in families)

    @property
    def only_family(self) -> frozenset[str]:
        """The family that alone finds it, if there is one."""
        return self.families if len(self.families) == 1 else frozenset()

    @property
    def length_classes(self) -> frozenset[str]:
        """The classes of the lengths of signatures with a finding."""
        return frozenset(each for signature in self.failed for each in self.lengths[signature])

    @property
    def needed_lengths(self) -> frozenset[str]:
        """The classes that all signatures with a finding have, and not all others."""
        others = [frozenset(classes) for signature, classes in self.lengths.items() if signature not in self.failed]
        if not self.failed or not others:
            return frozenset()
        common = frozenset.intersection(*(frozenset(self.lengths[signature]) for signature in self.failed))
        return common - frozenset.intersection(*others)

    def add(self, signature: str, lengths: Iterable[str], family: str, target: str, *, failed: bool) -> None:
        """Notes a case."""
        self.lengths.setdefault(signature, sorted(lengths))
        self.cases[family] = self.cases.get(family, 0) + 1
        if failed:
            self.failed.setdefault(signature, []).append(f"{family} {target}".rstrip())


# The classes of lengths.


def length_classes(dims: Mapping[str, Dim], lengths: Mapping[str, int]) -> set[str]:
    """Returns the classes of each length of a signature, and how lengths are to each other."""
    free = {name: length for name, length in lengths.items() if not dims[name].values}
    classes = {length_class(dims[name], length) for name, length in free.items()}
    for length in free.values():
        classes.add("odd" if length % 2 else "even")
        if length > 2 and all(length % divisor for divisor in range(2, int(length**0.5) + 1)):
            classes.add("a prime")
        if length > 1 and length & (length - 1) == 0:
            classes.add("a power of two")
    for one, other in pairwise(free.values()):
        classes.add("equal dims" if one == other else "a dim < the next" if one < other else "a dim > the next")
        if 1 < min(one, other) < max(one, other) and max(one, other) % min(one, other) == 0:
            classes.add("a dim divides the next, or the reverse")
    return classes


def length_class(dim: Dim, length: int) -> str:
    """Returns the class of a length by the dim's blocks, or by those of 16 that a plan assumes."""
    block = dim.block or max(16, dim.multiple_of)
    if length > max(boundary_lengths(dim, "deep")):
        return "past the limit of a format"
    blocks, rest = divmod(length, block)
    part = {0: "whole", 1: "one past", block - 1: "one short of"}.get(rest, "odd, past" if rest % 2 else "even, past")
    least = "none" if length == 0 else "least"
    return least if length <= dim.shortest else f"{part} {min(blocks + (rest == block - 1), 3)} blocks"


# Bugs written by hand.


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


def declared_pairing(path: Path, member: str) -> kt.Pairing:
    """Returns the pairing that a file has as a member, or that its `declare` returns."""
    module = load_module(path)
    pairing = getattr(module, member) if member else module.declare(BROKEN[path.parent.name])
    assert isinstance(pairing, kt.Pairing)
    return pairing


def find(bug: Bug, pairing: kt.Pairing, options: "Options") -> Bug:
    """Runs the pairing of a broken kernel, and returns the bug with its cases."""
    for backends in WAYS:
        cache = Cache()
        cache.evidence.work = 0.0
        settings = RunSettings(depth=options.depth, seed=options.seed)
        with limit_time(cache.process.journal, _STEP_SECONDS):
            items = plan_pairing(pairing, bug.name, resolve(backends), settings, cache.process.journal).items
            outcomes = [(item, outcome.record) for item in items for outcome in run_item(item, cache)]
        for item, record in outcomes:
            if record.case:
                classes = length_classes(item.pairing.dims, record.dims)
                family = f"{record.group}/{record.family}"
                bug.add(record.signature, classes, family, record.target, failed=record.verdict.is_finding)
        if bug.failed:
            break
    return bug


# Mutants.


@dataclass(slots=True)
class WholeTrial(RunningTrial):
    """A trial that goes on after a finding.

    Attributes:
      found: by group and id, the cases that found the mutant.
    """

    found: set[tuple[str, str]] = field(default_factory=set)

    def run(self, item: Item, case: AnyCase, part: KernelCases, cache: Cache) -> bool:
        over = RunningTrial.run(self, item, case, part, cache)
        if self.kill is None:
            return over
        self.found.add((item.group.name, case.id))
        self.kill = None
        return False


def try_mutants(
    source: str, name: str, items: Sequence[Item], choose: Callable[[list[KernelMutant]], Iterable[KernelMutant]]
) -> Iterator[Bug]:
    """Yields the chosen mutants of a pairing with these items, each as a bug with its cases."""
    session = MutationSession(items, journal=(journal := Journal()))
    planned = [(item, case) for item in items for case in item.cases()]
    for mutant in choose(session.mutants(OPERATORS.entries())):
        started, trial = time.process_time(), WholeTrial(mutant, Counter())
        with without_debugging(), limit_time(journal, _STEP_SECONDS):
            session.run_cases(trial)
        journal.stop()
        if trial.problem:
            continue
        bug = Bug(source, f"{name}: {mutant.place} {mutant.phrase}")
        for item, case in planned:
            classes = length_classes(item.pairing.dims, dict(case.signature.dims))
            family, key = f"{item.group.name}/{case.family.name}", (item.group.name, case.id)
            bug.add(str(case.signature), classes, family, case.target, failed=key in trial.found)
        bug.seconds = time.process_time() - started
        yield bug


# Tasks, and the processes that run them.


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command that decide which cases and mutants there are."""

    depth: str
    seed: int
    most: int  # mutants of a kernel
    seconds: float  # after which nothing starts, on the clock of the machine


@dataclass(frozen=True, slots=True)
class Task:
    """Bugs that are tried in one process.

    Attributes:
      source: of the bugs.
      name: of the bug, of the pairing (`FILE::NAME`), or of the first seed.
      part: which of the pairing's mutants are tried.
    """

    source: str
    name: str
    part: int = 0


def hand_written(folder: Path | None) -> dict[str, list[Task]]:
    """Returns the variants, and the kernels in a folder, by source."""
    found = {"corpus": [Task("corpus", variant.name) for variant in VARIANTS], "cases": list[Task]()}
    if folder is None:
        return found
    names = [str(path) for name in BROKEN for path in sorted(folder.glob(f"{name}/[0-9]*.py"))]
    for path in sorted(folder.glob("reported/test_*.py")):
        members = [member for member, each in vars(load_module(path)).items() if isinstance(each, kt.Pairing)]
        names += [f"{path}::{member}" for member in members]
    found["cases"] = [Task("cases", name) for name in names]
    return found


def mutant_tasks(most: int) -> dict[str, list[Task]]:
    """Returns the mutants of pairings and of generated kernels, by source: first some of each, then more of each."""
    names: list[str] = []
    for path in sorted((ROOT / "suites").glob("test_*.py")):
        with suppress(SuiteImportError):  # whose library is not installed
            names += find_pairings(str(path.relative_to(ROOT)))
    parts = [Task("mutants", name, part) for part in range(-(-most // _TOGETHER)) for name in names]
    return {"mutants": parts, "generated": [Task("generated", str(_SEEDS_TOGETHER * n)) for n in range(len(parts))]}


def run_task(task: Task, options: Options) -> list[Bug]:
    """Returns the bugs of a task with their cases; [] for kernels without cases or mutants here."""
    warnings.filterwarnings("ignore")
    if time.time() > options.seconds:
        return []
    started = time.process_time()
    if task.source in ("corpus", "cases"):
        path, _, member = task.name.partition("::")
        if task.source == "corpus":
            pairing, name = next(each for each in VARIANTS if each.name == task.name).broken(), task.name
        else:
            pairing, name = declared_pairing(Path(path), member), "/".join(Path(task.name).parts[-2:])
        bug = find(Bug(task.source, name), pairing, options)
        bug.seconds = time.process_time() - started
        return [bug]
    rows: list[Bug] = []
    if task.source == "mutants":
        ((_, pairing),) = find_pairings(task.name).items()

        def spread(mutants: list[KernelMutant]) -> list[KernelMutant]:
            step = max(1, len(mutants) // options.most)
            return mutants[::step][: options.most][task.part :: -(-options.most // _TOGETHER)]

        kernels = [(task.name, pairing, spread)]
    else:

        def some(mutants: list[KernelMutant]) -> list[KernelMutant]:
            return random.Random(task.name).sample(mutants, min(2, len(mutants)))

        seeds = range(int(task.name), int(task.name) + _SEEDS_TOGETHER)
        kernels = [(str(seed), generate_kernel(seed).pairing(), some) for seed in seeds]
    for name, pairing, choose in kernels:
        try:
            planned = plan_items(pairing, name, "interpret", options.depth)
        except UnfitPairingError:
            continue
        items = [item for item in planned if item.dtype == planned[0].dtype]
        for row in try_mutants(task.source, name, items, choose):
            rows.append(row)
            if time.time() > options.seconds:
                break
    return rows


def run_safely(pair: tuple[Task, Options]) -> tuple[Task, list[Bug], str]:
    """Returns the task, its bugs, and the text of the error that ended it, or ""."""
    try:
        return pair[0], run_task(*pair), ""
    except Exception as error:  # of one kernel: the others go on
        return pair[0], [], f"{type(error).__name__}: {error}"


def run_all(tasks: Sequence[Task], options: Options, jobs: int) -> Iterator[Bug]:
    """Yields the bugs of all tasks until the time is over."""
    with get_context("spawn").Pool(jobs, maxtasksperchild=_BUGS_EACH) as pool:
        results = pool.imap_unordered(run_safely, [(task, options) for task in tasks])
        for _ in tasks:
            try:
                task, rows, problem = results.next(timeout=max(options.seconds + 10 - time.time(), 1))
            except OutOfTimeError:
                return
            yield from rows
            for row in rows:
                print(f"{row.seconds:6.1f} s {len(row.families):3} families {len(row.failed):3} signatures  {row.name}",
                      file=sys.stderr, flush=True)  # fmt: skip
            if problem:
                print(f"{task.source} {task.name}: {problem}", file=sys.stderr, flush=True)


# The page.

_ABOUT = """# What each family and each class of lengths finds alone

`python -m benchmarks.families` generates this page; its docstring lists the sources of the bugs. A family finds a bug
**alone** if every case that fails is of that family. A class of lengths finds it alone if every signature that fails
has a length of that class, and some other signature has none; since a signature has several classes, a bug may count
for several. **Cases** are all cases of the broken kernels.
"""
_RARELY, _NAMED = 3, 6  # cases by which a bug is found, bugs of which a list gives the names


def render(rows: Sequence[Bug], about: str) -> Iterator[str]:
    """Yields the lines of the page."""
    sources = [source for source in SOURCES if any(row.source == source for row in rows)]
    of_source = {source: [row for row in rows if row.source == source] for source in sources}
    counts = (f"{sum(bool(row.failed) for row in own)} of {len(own)} ({name})" for name, own in of_source.items())
    yield from (_ABOUT, f"{about} Bugs found: {', '.join(counts)}.", "")
    cases: Counter[str] = Counter()
    for row in rows:
        cases.update(row.cases)
    yield from table("family", sources, rows, lambda row: row.families, lambda row: row.only_family, cases)
    yield from table(
        "lengths", sources, rows, lambda row: row.length_classes, lambda row: row.needed_lengths, Counter()
    )
    yield f"Found by at most {_RARELY} cases, of the bugs that were written by hand:"
    yield ""
    for row in rows:
        if row.source in HAND_WRITTEN and 0 < len(failed := row.failing) <= _RARELY:
            yield f"- {row.name}: {'; '.join(failed)}"


def table(
    title: str,
    sources: Sequence[str],
    rows: Sequence[Bug],
    finders: Callable[[Bug], Iterable[str]],
    alone: Callable[[Bug], Iterable[str]],
    cases: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """Yields the lines of a table: how many bugs of each source something finds, and how many it alone finds."""
    total = Counter((row.source, name) for row in rows for name in finders(row))
    only = Counter((row.source, name) for row in rows for name in alone(row))
    by_hand: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for name in alone(row) if row.source in HAND_WRITTEN else ():
            by_hand[name].append(row.name)

    def most_needed(name: str) -> tuple[int, int, str]:
        return -sum(only[s, name] for s in sources), -sum(total[s, name] for s in sources), name

    yield f"| {title} | {'cases | ' if cases else ''}{' | '.join(f'{source} | alone' for source in sources)} |"
    yield f"| --- |{' ---: |' * (bool(cases) + 2 * len(sources))}"
    for name in sorted({*(cases or ()), *(name for _, name in total)}, key=most_needed):
        figures = [figure for source in sources for figure in (total[source, name], only[source, name])]
        yield f"| {name} | {' | '.join(map(str, [*([cases[name]] if cases else ()), *figures]))} |"
    yield ""
    for name, names in sorted(by_hand.items()):
        more = f"; and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"- {name} alone: {'; '.join(names[:_NAMED])}{more}"
    yield ""


def main() -> None:
    """Tries the bugs and writes the file, or prints the page of one that was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="by default all")
    parser.add_argument("--out", type=Path, help="the file to write")
    parser.add_argument("--render", type=Path, metavar="FILE", help="print the page of a file that was written earlier")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--cases", type=Path, metavar="FOLDER")
    parser.add_argument("--depth", default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="bugs whose name contains one of these texts, separated by commas")
    parser.add_argument("--every", type=int, default=1, help="one bug or pairing in so many")
    parser.add_argument("--most", type=int, default=18, help="mutants of a pairing, spread over its kernel")
    chosen = parser.parse_args()
    if unknown := set(chosen.sources) - set(SOURCES):
        parser.error(f"no source {', '.join(sorted(unknown))}: there are {', '.join(SOURCES)}")
    if chosen.render:
        kept = json.loads(gzip.decompress(chosen.render.read_bytes()))
        print("\n".join(render([Bug(**row) for row in kept["bugs"]], kept["about"])))
        return
    started = time.time()
    options = Options(chosen.depth, chosen.seed, chosen.most, started + chosen.seconds)
    by_source = {**hand_written(chosen.cases), **mutant_tasks(chosen.most)}

    def tasks_of(source: str) -> list[Task]:
        if chosen.sources and source not in chosen.sources:
            return []
        fitting = [task for task in by_source[source] if any(word in task.name for word in chosen.only.split(","))]
        return fitting[:: chosen.every]

    mutants = zip_longest(tasks_of("mutants"), tasks_of("generated"))
    tasks = [*tasks_of("corpus"), *tasks_of("cases"), *(task for pair in mutants for task in pair if task)]
    rows = sorted(run_all(tasks, options, chosen.jobs), key=lambda row: (SOURCES.index(row.source), row.name))
    about = (
        f"JAX {jax.__version__}, Python {platform.python_version()}, depth {chosen.depth}, seed {chosen.seed}; "
        f"{sum(row.seconds for row in rows):.0f} s of processor time in {time.time() - started:.0f} s."
    )
    if chosen.out:
        text = json.dumps({"about": about, "bugs": [asdict(row) for row in rows]})
        chosen.out.write_bytes(gzip.compress(text.encode()))
    print("\n".join(render(rows, about)))


if __name__ == "__main__":
    main()
