"""Measures how many of the lines and mutants of kerneltest/ that `make test-all` reaches `make test` reaches too.

    python -m tools.reach --seconds 500 --mutants 150 --state reach.json.gz    # Python 3.12 or newer

Each test file runs in a process of its own, and the state keeps which lines it executes for the next call. Then each
mutant of a random executed line meets, in a copy of the tree, the test files that execute the line: fast tests first,
slow ones only if those pass. Tests that fail without a mutant are left out.
"""

import argparse
import ast
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
FAST, SLOW, UNFINISHED, SURVIVED = "not slow", "slow", "unfinished", "survived"
NONE_COLLECTED = 5
LOCK = threading.Lock()
_PAIRS = ((ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn))
NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {**dict(_PAIRS), **{after: before for before, after in _PAIRS}}


@dataclass(frozen=True)
class Run:
    """The fast or slow tests of a file without a mutant, with the lines they execute, such as `core/ids.py:12`."""

    file: str
    marked: str
    seconds: float
    failed: list[str]
    lines: list[str]


@dataclass
class Hunt:
    """A mutant, its source, and the runs that have not met it yet."""

    name: str
    path: Path
    source: bytes
    pending: list[Run]
    running: int = 0
    killer: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def outcome(self) -> str:
        return self.killer or (UNFINISHED if self.pending or self.running else SURVIVED)


def mutants(source: bytes) -> Iterator[tuple[int, str, bytes]]:
    """The line of each mutant of a module's functions, what is changed, and the source with it."""
    starts = [0, *(match.end() for match in re.finditer(b"\n", source))]
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    for node in {node: None for function in functions for body in function.body for node in ast.walk(body)}:
        text = _mutated(node)
        if text and isinstance(node, ast.expr | ast.stmt) and node.end_lineno and node.end_col_offset:
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            yield node.lineno, f"{ast.unparse(node)} -> {text}", source[:start] + text.encode() + source[end:]


def _mutated(node: ast.AST) -> str:
    match node:
        case ast.Compare(ops=[operator]):
            return f"({ast.unparse(ast.Compare(node.left, [NEGATED[type(operator)]()], node.comparators))})"
        case ast.BoolOp():
            return f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))})"
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return f"({value + 1})"
        case ast.Return(value=ast.AST()) if ast.unparse(node) != "return None":
            return "return None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return "pass"
    return ""


class Workshop:
    """Runs pytest in copies of the tree, in as many processes as there are jobs, until the deadline."""

    def __init__(self, folder: Path, deadline: float, jobs: int) -> None:
        self.folder, self.deadline, self.jobs, self.tree = folder, deadline, jobs, folder / "tree"
        ignored = shutil.ignore_patterns(".git", ".*venv*", ".*cache*", ".whl", ".cases", "__pycache__")
        shutil.copytree(ROOT, self.tree, ignore=ignored, symlinks=True)
        shutil.copy(ROOT / "tools/reach_monitor.py", self.tree / "sitecustomize.py")
        self.pool = ThreadPoolExecutor(jobs)

    def pytest(self, tree: Path, *words: str, limit: float = 1e9, lines: str = "") -> tuple[int | None, str]:
        """The exit code, or None if the time for all is up, and the output."""
        path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH", "")]))
        known = {**os.environ, "PYTHONPATH": path} | ({"REACH_LINES": lines} if lines else {})
        seconds = max(0.01, min(limit, self.deadline - time.monotonic()))
        command = ["timeout", "-s", "KILL", str(seconds), sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no"]
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run([*command, *words], cwd=tree, env=known, stdout=said, stderr=said, check=False)
            said.seek(0)
            return None if time.monotonic() >= self.deadline else done.returncode, said.read()

    def measure(self, file: str, marked: str) -> Run | None:
        started, lines = time.monotonic(), self.folder / f"{marked}-{file.replace('/', '-')}"
        code, said = self.pytest(self.tree, file, "-m", marked, lines=str(lines))
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
        if code not in (0, 1):
            return None
        return Run(file, marked, time.monotonic() - started, failed, sorted(set(lines.read_text().split())))

    def measure_all(self, known: list[Run], tests: str) -> Iterator[Run]:
        parts = {marked: self.pool.submit(self.pytest, self.tree, tests, "-m", marked, "--collect-only")
                 for marked in (FAST, SLOW)}  # fmt: skip
        files = {(file, marked) for marked, part in parts.items()
                 for file in re.findall(r"^(tests/\S+?\.py)::", part.result()[1], re.MULTILINE)}  # fmt: skip
        missing = sorted(files - {(run.file, run.marked) for run in known})
        for run in [self.pool.submit(self.measure, *each) for each in missing]:
            yield from filter(None, [run.result()])

    def hunts(self, runs: list[Run], many: int, seed: int) -> Iterator[Hunt]:
        met: dict[str, list[Run]] = defaultdict(list)
        for run in runs:
            for line in run.lines:
                met[line].append(run)
        changes: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
        for path in sorted((ROOT / "kerneltest").rglob("*.py")):
            for row, change, text in mutants(path.read_bytes()):
                changes[f"{path.relative_to(ROOT / 'kerneltest').as_posix()}:{row}"].append((change, text))
        chance = random.Random(seed)
        lines = sorted(changes.keys() & met.keys())
        for line in chance.sample(lines, min(many, len(lines))):
            change, text = chance.choice(changes[line])
            path = Path(line.rpartition(":")[0])
            far = {run.file: (path.stem not in run.file, path.parts[0] not in run.file) for run in met[line]}
            order = sorted(met[line], key=lambda run: (run.marked, far[run.file], run.seconds))
            yield Hunt(f"{line}: {change}", "kerneltest" / path, text, order)

    def work(self, hunts: list[Hunt]) -> None:
        """Starts a run of the mutant that has the fewest, of the first unfinished ones, again and again."""
        while unfinished := [hunt for hunt in hunts if hunt.outcome == UNFINISHED]:
            if time.monotonic() >= self.deadline:
                return
            with LOCK:
                first = [hunt for hunt in unfinished[: self.jobs] if hunt.pending]
                ready = (hunt for hunt in first if not hunt.running or hunt.pending[0].marked == FAST)
                hunt = min(ready, key=lambda hunt: hunt.running, default=None)
                if hunt:
                    hunt.running += 1
                    run = hunt.pending.pop(0)
            if hunt:
                self.meet(hunt, run)
            else:
                time.sleep(0.2)

    def meet(self, hunt: Hunt, run: Run) -> None:
        left_out = (word for test in run.failed for word in ("--deselect", test))
        limit = 3 * run.seconds + 60
        tree = self.folder / re.sub(r"\W", "-", hunt.name)[:100]
        with hunt.lock:
            if not tree.exists():
                shutil.copytree(self.tree, tree, copy_function=os.link, symlinks=True)
                (tree / hunt.path).unlink()
                (tree / hunt.path).write_bytes(hunt.source)
        code, _ = self.pytest(tree, run.file, "-m", run.marked, "-x", *left_out, limit=limit)
        with LOCK:
            hunt.running -= code is not None  # else it stays unfinished
            if code not in (0, NONE_COLLECTED, None) and hunt.killer != FAST:
                hunt.killer = run.marked
                print(f"killed by {run.marked} tests of {run.file}: {hunt.name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=500.0, help="when to stop and print what is known")
    parser.add_argument("--tests", default="tests", help="a folder or file of tests")
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--state", type=Path, required=True, help="where executed lines are kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder), time.monotonic() + args.seconds, args.jobs)
        known = gzip.decompress(args.state.read_bytes()) if args.state.exists() else b"[]"
        runs = [Run(**run) for run in json.loads(known)]
        runs += shop.measure_all(runs, args.tests)
        args.state.write_bytes(gzip.compress(json.dumps([asdict(run) for run in runs]).encode()))
        fast = {line for run in runs if run.marked == FAST for line in run.lines}
        every = fast.union(*(run.lines for run in runs))
        print(f"fast tests execute {len(fast)} of the {len(every)} lines that any test executes")
        print(*(f"fails without a mutant: {test}" for run in runs for test in run.failed), sep="\n")
        hunts = list(shop.hunts(runs, args.mutants, args.seed))
        for worker in [shop.pool.submit(shop.work, hunts) for _ in range(args.jobs)]:
            worker.result()
    print(*(f"{hunt.outcome}: {hunt.name}" for hunt in hunts if not hunt.killer), sep="\n")
    many = Counter(hunt.outcome for hunt in hunts)
    print(f"{len(hunts)} mutants: {many[FAST]} killed by fast tests, {many[SLOW]} by slow tests only, ", end="")
    print(f"{many[SURVIVED]} survived all, {many[UNFINISHED]} unfinished")


if __name__ == "__main__":
    main()
