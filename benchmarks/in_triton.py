"""Kernels in Triton itself on a GPU, by jax_triton: `python -m benchmarks.in_triton FOLDER`, at the repository's root.

Runs suites/test_in_triton.py and suites/triton_libraries on `cuda` and `simulate:sm_90`, and compares their verdicts
case by case. Then each broken twin of tests/corpus/in_triton.py and its right one run on `cuda`, in processes of their
own. Writes `in_triton.md` and the run's records there. Exits with 1 if verdicts differ, or a right kernel is accused.
"""

import argparse
import contextlib
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

SUITES = ("suites/test_in_triton.py", "suites/triton_libraries")
SIMULATOR = "simulate:sm_90"


def compared(folder: Path, backend: str) -> tuple[list[str], int]:
    """A line for each pairing of a run, and how many cases end in other verdicts on the two backends."""
    from kerneltest.records.runs import read_runs

    lines, differing = ["| pairing | cases | device | simulator | differ |", "| --- | --- | --- | --- | --- |"], 0
    cases: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    said: dict[str, str] = {}
    for record in (record for run in read_runs(folder) for record in run.records):
        if record.case and record.backend in (backend, SIMULATOR):
            cases[record.pairing][record.case][record.backend] = str(record.verdict)
            if record.backend == backend and str(record.verdict) != "pass":
                said.setdefault(f"{record.pairing}: {record.verdict}", record.message.split("\n")[0][:200])
    for pairing, verdicts in sorted(cases.items()):
        both = [each for each in verdicts.values() if len(each) == 2 and "unavailable" not in each.values()]
        wrong = sum(each[backend] != each[SIMULATOR] for each in both)
        counts = [Counter(each.get(name, "absent") for each in verdicts.values()) for name in (backend, SIMULATOR)]
        shown = (", ".join(f"{count} {word}" for word, count in each.most_common()) for each in counts)
        lines.append(f"| {pairing} | {len(verdicts)} | {' | '.join(shown)} | {wrong} |")
        differing += wrong
    return [*lines, "", *(f"- {place}: {message}" for place, message in said.items())], differing


def twin(number: int, broken: bool, backend: str) -> str:
    """The verdicts of a twin at quick."""
    from tests.corpus.in_triton import IN_TRITON
    from tests.found import records

    found = list(records(IN_TRITON[number].make(broken), (backend,)))
    counts = Counter(str(record.verdict) for record in found)
    wrong = next((record.message.split("\n")[0][:120] for record in found if record.verdict.is_finding), "")
    return ", ".join(f"{count} {word}" for word, count in counts.most_common()) + (f": {wrong}" if wrong else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument("--backend", default="cuda", help="the device (default cuda); simulate:gfx942 tries the script")
    parser.add_argument("--suites", nargs="+", default=SUITES, help="files of pairings (default all)")
    parser.add_argument("--jobs", type=int, default=8, help="twins side by side")
    parser.add_argument("--twin", type=int, help=argparse.SUPPRESS)  # prints the verdicts of one
    parser.add_argument("--right", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.twin is not None:
        print(twin(options.twin, not options.right, options.backend))
        return 0
    from tests.corpus.in_triton import IN_TRITON

    options.folder.mkdir(parents=True, exist_ok=True)
    page, records = options.folder / "in_triton.md", options.folder / "records"
    found = {name: _version(name) for name in ("jax", "jax-triton", "triton", "torch")}
    lines = ["# Kernels in Triton", "", ", ".join(f"{name} {version}" for name, version in found.items()), ""]
    command = [sys.executable, "-m", "pytest", "-p", "kerneltest", "-q", "--tb=line", *options.suites]
    command += ["--kt-depth", "quick", "--kt-backends", f"{options.backend},{SIMULATOR}", "--kt-report", str(records)]
    print(lines[2], flush=True)
    problems = 0
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):  # what it recorded is compared
            ended = subprocess.run(command, capture_output=True, text=True, timeout=400)
            print(ended.stdout[-2000:], ended.stderr[-1000:], flush=True)
        table, problems = compared(records, options.backend)
    except Exception as error:
        table, problems = [f"the suites did not run: {type(error).__name__}: {error}"], 1
    page.write_text("\n".join([*lines, *table]) + "\n", encoding="utf-8")
    print("\n".join(table), flush=True)

    def child(task: tuple[int, bool]) -> str:
        number, broken = task
        command = [sys.executable, "-m", "benchmarks.in_triton", str(options.folder), "--twin", str(number)]
        command += ["--backend", options.backend, *([] if broken else ["--right"])]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
        except subprocess.TimeoutExpired:
            return "no answer within 200 s"
        return ((ended.stdout if ended.returncode == 0 else ended.stderr).strip().splitlines() or ["no output"])[-1]

    lines += [*table, "", "| twin | simulator | device, broken | device, right |", "| --- | --- | --- | --- |"]
    tasks = [(number, broken) for number in range(len(IN_TRITON)) for broken in (True, False)]
    with ThreadPoolExecutor(options.jobs) as pool:
        answers = list(pool.map(child, tasks))
    for number, each in enumerate(IN_TRITON):
        broken, right = (answer.replace("|", "/") for answer in answers[2 * number : 2 * number + 2])
        lines.append(f"| {each.name} | {each.verdicts.get(SIMULATOR, '').replace('|', ' or ')} | {broken} | {right} |")
        problems += ":" in right
        print(lines[-1], flush=True)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(problems > 0)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    raise SystemExit(main())
