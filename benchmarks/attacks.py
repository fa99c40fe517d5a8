"""Attacks on what a run reports: `python -m benchmarks.attacks [--only CLASS] [--name TEXT] [--jobs N]`.

Each attack is a row of `benchmarks/attack_rows.py`. It tries to have a wrong or untested kernel end green, to have
kerneltest run what is data, wait without an end, blame itself for a user's mistake, or lose what was recorded.
Prints a table (class, tried, held) and the attacks that did not hold; the exit status is 1 if there are any. Needs a
checkout with the extra `test`, and no GPU.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.attack_rows import (
    ATTACKS,
    CLASSES,
    GREEN,
    LIVE,
    PYTEST,
    QUICK,
    RECORDS_FILE,
    RED,
    ROOT,
    Attack,
    Change,
    Command,
    Pairing,
    suite,
)
from tests import forked
from tests.plugins import PLUGINS


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Writes files, so that Python does not take their compiled code for that of an earlier text."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        moment = path.stat().st_mtime_ns + len(text) * 10**9
        os.utime(path, ns=(moment, moment))


def _execute_file(
    folder: Path, words: tuple[str, ...], limit: float, known: Mapping[str, str]
) -> tuple[int | None, str]:
    try:
        done = subprocess.run(words, cwd=folder, env=known, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def execute(folder: Path, words: tuple[str, ...], limit: float) -> tuple[int | None, str]:
    """Runs a command; returns its status, or None after its limit in seconds, and its output."""
    words = ("bash", "-eo", "pipefail", "-c", words[1]) if words[0] == "BASH" else words
    known = {**os.environ, "PYTHONPATH": str(ROOT)}
    if words[0] == "bash":
        return _execute_file(folder, words, limit, known)
    if words[0] == "SCRIPT":
        script = next((folder / "out").rglob("reproduce_*.py"))
        return _execute_file(folder, (sys.executable, str(script)), limit, known)
    if words[-1] == "CASE":
        found = [json.loads(line)["record"] for line in (folder / "out" / RECORDS_FILE).read_bytes().splitlines()]
        words = (*words[:-1], next(r["case"] for r in found if r["verdict"] == "mismatch"))
    if words[0] == "pytest":
        words = ("pytest", *PLUGINS, *QUICK, *words[1:])
    started = forked.start(folder, *words, environment=known)
    try:
        said = started.said(limit)
    except TimeoutError:
        os.kill(started.pid, signal.SIGKILL)
        return None, ""
    except UnicodeDecodeError:
        return started.returncode, "\x1b its output is not UTF-8"
    return started.returncode, said


Held = Iterator[tuple[Attack, str]]  # an attack, and why it did not hold, or ""


def _session(folder: Path, *options: str) -> str:
    words = (
        "pytest",
        "-v",
        "-rfE",
        "--continue-on-collection-errors",
        "--color=no",
        "--kt-report",
        "out",
        *options,
        ".",
    )
    status, said = execute(folder, words, 1200)
    (folder / "said.txt").write_text(said, encoding="utf-8")
    return said if status is not None else "the session did not end: INTERNALERROR"


def _is_red(file: str, said: str) -> bool:
    """Whether the output of pytest or kerneltest reports a file as failed."""
    name = re.escape(file)
    return bool(re.search(rf"^(FAILED|ERROR) {name}|^ .*\b{name}(::\w+|:\d+\)).*(nothing|never|no |only)", said, re.M))


def run_changes(folder: Path, rows: list[Change]) -> Held:
    """Two sessions of all rows: what is green in the first is to be red in the second."""
    named = {f"test_{number:02}.py": (row, f"helper_{number:02}") for number, row in enumerate(rows)}
    said = ""
    greens: set[str] = set()
    for later in (False, True):
        for file, (row, helper) in named.items():
            texts = {file: suite(**{**row.words, **(row.changed if later else {})}), **row.before}
            texts |= row.after if later else {}
            write(
                folder, {name.replace("HELPER", helper): text.replace("HELPER", helper) for name, text in texts.items()}
            )
        said = _session(folder)
        if not later:
            greens = {file for file in named if not _is_red(file, said)}
    for file, (row, _) in named.items():
        if file not in greens:
            yield row, f"{file} is red before the change"
        else:
            yield row, "" if _is_red(file, said) else f"{file} is green after the change"


def run_pairings(folder: Path, rows: list[Pairing]) -> Held:
    """One session of all rows."""
    named = {f"test_{number:02}.py": row for number, row in enumerate(rows)}
    for file, row in named.items():
        write(folder, {file: suite(**row.words)})
    said = _session(folder)
    lines = (folder / "out" / RECORDS_FILE).read_text(encoding="utf-8").splitlines()
    records = [json.loads(line)["record"] for line in lines]
    broken = "; ".join(line for line in said.splitlines() if re.search("INTERNALERROR|kerneltest raised", line))
    for file, row in named.items():
        found = {r["verdict"] for r in records if r["item"].startswith(f"{file}::")} - {"pass", "unavailable"}
        is_red = _is_red(file, said)
        if broken or "internal_error" in found:
            reason = f"{file} ended as an internal error: {broken}"
        elif row.ends == "pass":
            reason = f"{file} is red: {sorted(found)}" if found or is_red else ""
        elif row.ends in ("", "*"):
            reason = "" if is_red else f"{file} is green"
        else:
            reason = "" if is_red and row.ends in found else f"{file} has {sorted(found)}, not {row.ends}"
        yield row, reason


def run_command(folder: Path, row: Command, reports: Path) -> str:
    """Why a row did not hold, or ""."""
    if row.reuses:
        shutil.copytree(reports / row.reuses, folder, dirs_exist_ok=True)
    write(folder, row.files)
    for words in row.commands[:-1]:
        execute(folder, words, 300)
    row.damage(folder)
    status, said = execute(folder, row.commands[-1], row.limit)
    (folder / "said.txt").write_text(said, encoding="utf-8", errors="backslashreplace")
    if status is None:
        return f"no end within {row.limit:g} s"
    if status not in row.status:
        return f"status {status}, not {' or '.join(map(str, row.status))}"
    is_pytest = row.commands[-1][0] == "pytest"  # which shows tracebacks of its own
    if found := [words for words in row.never if words in said and not (is_pytest and "Traceback" in words)]:
        return f"{found} in its output"
    if row.makes and list(folder.rglob(row.makes)):
        return f"it made {row.makes}"
    if not re.search(row.says, said):
        return f"{row.says!r} is not in its output"
    return _unsafe(folder, row, said) if row.kind == "text" else ""


def _unsafe(folder: Path, row: Command, said: str) -> str:
    if controls := {c for c in said if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}:
        return f"control characters in its output: {sorted(controls)!r}"
    if commands := re.findall(r"^::(?:error ::taken|add-mask).*", said, re.M):
        return f"commands in its output: {commands}"
    for name in row.safe:
        if (path := folder / name).exists():
            text = re.sub(r"(?ms)^(`{3,})\w*$.*?^\1$", "", path.read_text(encoding="utf-8"))  # code is shown as it is
            if live := sorted(set(re.findall(LIVE[path.suffix], text))):
                return f"{name} has {live}"
    return ""


def run(rows: list[Attack], folder: Path, jobs: int) -> Held:
    """Runs attacks in a folder, and yields each once it is judged."""
    for kind in CLASSES:
        of_kind = [row for row in rows if row.kind == kind]
        if changes := [row for row in of_kind if isinstance(row, Change)]:
            yield from run_changes(_made(folder / kind), changes)
        if pairings := [row for row in of_kind if isinstance(row, Pairing)]:
            yield from run_pairings(_made(folder / kind), pairings)
    commands = [row for row in rows if isinstance(row, Command)]
    for name, files in {"red": RED, "green": GREEN}.items():
        write(_made(folder / name), files)
        if any(row.reuses == name for row in commands):
            execute(folder / name, (*PYTEST, "--kt-report", "out"), 300)
    with ThreadPoolExecutor(jobs) as pool:
        folders = (_made(folder / f"{row.kind}-{number:03}") for number, row in enumerate(commands))
        yield from zip(commands, pool.map(run_command, folders, commands, [folder] * len(commands)), strict=True)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def table(results: Mapping[Attack, str]) -> str:
    """The attacks of each class: how many were tried, and how many held."""
    lines = ["| class | tried | held |", "| --- | --- | --- |"]
    for kind in CLASSES:
        if reasons := [reason for attack, reason in results.items() if attack.kind == kind]:
            lines.append(f"| {kind} | {len(reasons)} | {reasons.count('')} |")
    lines.append(f"| all | {len(results)} | {list(results.values()).count('')} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CLASSES, help="one class")
    parser.add_argument("--name", default="", help="attacks whose name has this text")
    parser.add_argument("--jobs", type=int, default=1, help="commands at a time (default: 1)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to leave the files and outputs")
    chosen = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"  # here too, since the processes that are forked have imported JAX already
    rows = [row for row in ATTACKS if chosen.only in (None, row.kind) and chosen.name in row.name]
    results: dict[Attack, str] = {}
    with TemporaryDirectory() as folder:
        for row, reason in run(rows, (chosen.keep or Path(folder)).resolve(), chosen.jobs):
            results[row] = reason
            print(f"{row.kind}: {row.name}: {reason or 'held'}", flush=True)
    print(f"\n{table(results)}")
    for row, reason in results.items():
        if reason:
            print(f"did not hold: {row.kind}: {row.name}: {reason}")
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main())
