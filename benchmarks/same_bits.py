"""Compares a device's bits with certificates: `python -m benchmarks.same_bits FILE`, on a machine with a GPU.

For the suites' pairings with `invariant_to=` or `batch_dims=`, and those of tests/extensions/same_bits, of which many
break their claim, it runs what a certificate compares, batches of 1 to 64 among them, and compares the bits row by row.
Each pairing has a process of its own. Writes a table in Markdown.

Exits with 1 if a certified claim does not hold on the device, and 2 if there is no device.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import kerneltest as kt
from benchmarks.device_outputs import pairings as of_suites
from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.same_bits import certificate, group, ways
from tests.extensions.same_bits.test_certificate import TABLE

SECONDS = 60  # for a claim in a dtype
COLUMNS = ("pairing", "claim", "dtype", "certificate", "device", "rows", "differing")


def pairings() -> Iterator[tuple[str, kt.Pairing]]:
    for name, pairing in of_suites():
        if claims := {*pairing.invariant_to, *(["batch"] if pairing.batch_dims else [])}:
            yield name, replace(pairing, invariant_to=tuple(sorted(claims)))
    for name, (kernel, oracle, declared, _) in TABLE.items():
        longer = {name: replace(declared["dims"][name], maximum=64) for name in declared.get("batch_dims", "")}
        yield name, kt.oracle_for(kernel, **{**declared, "dims": {**declared["dims"], **longer}})(oracle)


def rows_of(name: str, options: argparse.Namespace) -> Iterator[tuple[object, ...]]:
    """A row for each claim and dtype of a pairing, at the first signature."""
    ways._LENGTHS, cache, seen = tuple(range(1, 65)), Cache(), set[tuple[str, str]]()
    for item in plan_pairing(dict(pairings())[name], name, resolve(["interpret"]), RunSettings(depth="quick")).items:
        for case in item.cases() if item.group.name == GroupName.BITS else ():
            if (key := (case.family.name, str(item.dtype))) in seen:
                continue
            seen.add(key)
            try:
                said = type(certificate.certify(item, case, group._call(item, case, cache))).__name__.lower()
            except Failure as failure:
                said = f"open: {failure}"
            try:
                found = on_device(replace(item, backend=resolve([options.backend])[0]), case, cache, options.rows)
            except Failure as failure:
                found = f"not run: {failure.verdict}: {failure}", 0, 0
            yield name, *key, said, *found


def on_device(item: Item, case: Any, cache: Cache, wanted: int) -> tuple[str, int, int]:
    call, prepared, deadline = group._call(item, case, cache), dict[Any, Any](), time.monotonic() + SECONDS
    rows, differing, said = 0, 0, dict[str, None]()

    def run(traced: Any, leaves: Any) -> Any:
        if reason := item.backend.unsupported_reason(traced):
            raise Failure(Verdict.UNAVAILABLE, reason)
        if traced not in prepared:
            prepared[traced] = item.backend.prepare(traced)
        return tuple(np.asarray(output)[None] for output in prepared[traced].run([leaf[0] for leaf in leaves]))

    for question in ways.CLAIMS[case.family.name].questions(call, case.signature):
        reference, several, least = call.trace(question.signature), list(question.ways), rows + wanted
        for values in certificate._cases(item, case, question, reference, 10**6):
            if rows >= least or time.monotonic() > deadline or not several:
                break
            leaves = tuple(leaf[None] for leaf in values)
            expected = run(reference, leaves)
            for way in list(several):
                try:
                    pairs = zip(way.expected(expected), way.outputs(run(way.traced, way.leaves(leaves))), strict=True)
                except Failure as failure:
                    several.remove(way)
                    said[f"{failure.verdict} with {way.words}"] = None
                    continue
                wrong = [certificate._bits(a[0]) != certificate._bits(b[0]) for a, b in pairs if a.size]
                by_row = [each.reshape(len(each) if each.ndim else 1, -1).any(1) for each in wrong]
                rows += max(map(len, by_row), default=0)
                differing += (count := max((int(each.sum()) for each in by_row), default=0))
                said |= {f"differs with {way.words}": None} if count else {}
    return "; ".join(list(said)[:4]) or "same bits", rows, differing


def child(name: str) -> tuple[list[str], int]:
    command = [sys.executable, "-m", "benchmarks.same_bits", *sys.argv[1:], "--pairing", name]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=500)
    except subprocess.TimeoutExpired:
        return [f"| {name} | | | | no answer within 500 s | 0 | 0 |"], 0
    last = (ended.stderr.strip().splitlines() or ["nothing to compare"])[-1]
    lines = [line for line in ended.stdout.splitlines() if line.startswith("| ")]
    return lines or [f"| {name} | | | | {last} | 0 | 0 |"], ended.returncode == 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the table to write")
    parser.add_argument("--backend", default="cuda", help="who computes (default cuda); interpret tries the script")
    parser.add_argument("--rows", type=int, default=10_000, help="the rows that are compared at least")
    parser.add_argument("--jobs", type=int, default=8, help="pairings side by side")
    parser.add_argument("--only", default="", help="part of the pairings' names")
    parser.add_argument("--pairing", default="", help=argparse.SUPPRESS)  # print the rows of one
    options = parser.parse_args()
    if options.pairing:
        rows = list(rows_of(options.pairing, options))
        for row in rows:
            print(f"| {' | '.join(str(cell).split(chr(10))[0][:160].replace('|', '/') for cell in row)} |")
        return 3 if any(row[3] == "certified" and row[-1] for row in rows) else 0
    if reason := resolve([options.backend])[0].unavailable():
        print(reason, file=sys.stderr)
        return 2
    page, refuted = [f"| {' | '.join(COLUMNS)} |", "|" + " --- |" * len(COLUMNS)], 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for lines, is_refuted in pool.map(child, [name for name, _ in pairings() if options.only in name]):
            page, refuted = [*page, *lines], refuted + is_refuted
            print(*lines, sep="\n", flush=True)
            options.file.write_text("\n".join(page) + "\n", encoding="utf-8")
    print(f"of {refuted} pairings a certified claim does not hold on {options.backend}")
    return int(refuted > 0)


if __name__ == "__main__":
    raise SystemExit(main())
