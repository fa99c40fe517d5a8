"""Whether a device's bits agree with certificates: `python -m benchmarks.same_bits FILE`, on a machine with a GPU.

For the suites' pairings with `invariant_to=` or `batch_dims=`, and those of tests/extensions/same_bits, of which many
break their claim, it runs what a certificate compares, batches of 1 to 64 among them, and compares the bits row by row.
Each pairing has a process of its own. Writes a table in Markdown.

Exits with 1 if a certified claim does not hold on the device, and 2 if there is no device.
"""

import argparse
import json
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


def rows_of(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each claim and dtype of a pairing, at the first signature."""
    ways._LENGTHS, cache = tuple(range(1, 65)), Cache()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for item in plan_pairing(dict(pairings())[name], name, resolve(["interpret"]), RunSettings(depth="quick")).items:
        for case in item.cases() if item.group.name == GroupName.BITS else ():
            if (key := (case.family.name, str(item.dtype))) in found:
                continue
            row = found[key] = dict.fromkeys(COLUMNS, 0) | {"pairing": name, "claim": key[0], "dtype": key[1]}
            try:
                certified = certificate.certify(item, case, group._call(item, case, cache))
                row["certificate"] = type(certified).__name__.lower()
            except Failure as failure:
                row["certificate"] = f"open: {failure}"
            try:
                row |= on_device(replace(item, backend=resolve([options.backend])[0]), case, cache, options)
            except Failure as failure:
                row["device"] = f"not run: {failure.verdict}: {failure}"
    return list(found.values())


def on_device(item: Item, case: Any, cache: Cache, options: argparse.Namespace) -> dict[str, Any]:
    call, prepared, deadline = group._call(item, case, cache), dict[Any, Any](), time.monotonic() + SECONDS
    rows, differing, said, failed = 0, 0, list[str](), dict[str, str]()

    def run(traced: Any, leaves: Any) -> Any:
        if traced not in prepared:
            if reason := item.backend.unsupported_reason(traced):
                raise Failure(Verdict.UNAVAILABLE, reason)
            prepared[traced] = item.backend.prepare(traced)
        return tuple(np.asarray(output)[None] for output in prepared[traced].run([leaf[0] for leaf in leaves]))

    for question in ways.CLAIMS[case.family.name].questions(call, case.signature):
        reference, several, least = call.trace(question.signature), list(question.ways), rows + options.rows
        for values in certificate._cases(item, case, question, reference, 10**6):
            if rows >= least or time.monotonic() > deadline or len(failed) == len(several):
                break
            leaves = tuple(leaf[None] for leaf in values)
            expected = run(reference, leaves)
            for way in [way for way in several if way.words not in failed]:
                try:
                    pairs = zip(way.expected(expected), way.outputs(run(way.traced, way.leaves(leaves))), strict=True)
                except Failure as failure:
                    failed[way.words] = f"; {failure.verdict} with {way.words}"
                    continue
                wrong = [certificate._bits(a[0]) != certificate._bits(b[0]) for a, b in pairs if a.size]
                by_row = [each.reshape(len(each) if each.ndim else 1, -1).any(1) for each in wrong]
                rows += max(map(len, by_row), default=0)
                differing += (count := max((int(each.sum()) for each in by_row), default=0))
                said += [way.words] if count and way.words not in said else []
    device = f"differs with {', '.join(said[:4])}" if said else "same bits"
    return {"device": device + "".join(list(failed.values())[:2]), "rows": rows, "differing": differing}


def child(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.same_bits", str(options.file), "--pairing", name]
    command += ["--backend", options.backend, "--rows", str(options.rows)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
        return list(json.loads(ended.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        last = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
        return [dict.fromkeys(COLUMNS, 0) | {"pairing": name, "device": f"the process ended: {last}"}]


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
        print(json.dumps(rows_of(options.pairing, options)))
        return 0
    if reason := resolve([options.backend])[0].unavailable():
        print(reason, file=sys.stderr)
        return 2
    names = [name for name, _ in pairings() if options.only in name]
    lines, refuted = [f"| {' | '.join(COLUMNS)} |", "|" + " --- |" * len(COLUMNS)], 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in (row for rows in pool.map(lambda name: child(name, options), names) for row in rows):
            cells = (str(row[column]).split("\n")[0][:160].replace("|", "/") for column in COLUMNS)
            lines.append(f"| {' | '.join(cells)} |")
            refuted += row["certificate"] == "certified" and row["differing"] > 0
            print(lines[-1], flush=True)
            options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{refuted} certified claims do not hold on {options.backend}")
    return int(refuted > 0)


if __name__ == "__main__":
    raise SystemExit(main())
