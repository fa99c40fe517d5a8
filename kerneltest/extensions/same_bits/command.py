"""`kerneltest certificate`: writes what runs certified about bits, and checks it against later ones."""

import argparse
import json
from pathlib import Path
from typing import Any

from kerneltest.cli.command_registry import command
from kerneltest.core.failures import UnusableInputError
from kerneltest.core.media import lines_for_terminal
from kerneltest.core.verdicts import GroupName, Verdict

_ASSUMES = (
    "lengths are those of the statements and signatures",
    "a sum or a product of matrices over a tile of one shape has one order, and compilers keep the order of operations",
    "data are finite, and the signs of zeros do not count",
)
_VERSIONS = ("jax", "jaxlib")
_ENTRY = ("pairing", "backend", "claim", "signature", "statement")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, help="folders that --kt-report wrote")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FILE", help="write the certificate here, as JSON")
    what.add_argument(
        "--verify", type=Path, metavar="FILE", help="check a certificate; 1 if these runs lack part of it"
    )


@command(
    95, "write what runs certified about bits, or check an earlier certificate; 1 if it is refused", _add_arguments
)
def _certificate(chosen: argparse.Namespace) -> int:
    from kerneltest.records.files import write_text
    from kerneltest.records.runs import read_all

    runs = read_all(chosen.runs)
    records = [record for run in runs for record in run.records if record.group == GroupName.BITS and record.case]
    places = {(r.pairing, r.backend, r.family, r.signature): r.message for r in records if r.verdict is Verdict.PASS}
    entries = [dict(zip(_ENTRY, (*place, said), strict=True)) for place, said in places.items()]
    refuted = sorted({f"{r.pairing}: {r.family}" for r in records if r.verdict is Verdict.NONDETERMINISTIC})
    environment = {
        name: ", ".join(sorted({run.plan.environment.get(name, "unknown") for run in runs})) for name in _VERSIONS
    }
    if chosen.write is not None:
        if refuted:
            raise UnusableInputError(f"a claim is refuted, so there is nothing to certify: {'; '.join(refuted)}")
        if not entries:
            raise UnusableInputError("no claim is certified: declare invariant_to=, and run the suites on interpret")
        certificate = {"schema": 1, "environment": environment, "assumes": _ASSUMES, "certified": entries}
        write_text(chosen.write, json.dumps(certificate, indent=1) + "\n")
        pairings = {entry["pairing"] for entry in entries}
        print(lines_for_terminal(f"{len(entries)} statements on {len(pairings)} pairings certified"))
        return 0
    known = _read(chosen.verify)
    problems = [
        f"{name} was {known['environment'].get(name)}, and is {version}"
        for name, version in environment.items()
        if known["environment"].get(name) != version
    ]
    for entry in known["certified"]:
        place = entry["pairing"], entry["backend"], entry["claim"], entry["signature"]
        if places.get(place) != entry["statement"]:
            why = "the kernel or its lengths have changed" if place in places else "these runs do not certify it"
            problems.append(f"{entry['pairing']} [{entry['signature']}], {entry['claim']}: {why}")
    print(lines_for_terminal("\n".join(problems or [f"{len(known['certified'])} statements hold"])))
    return int(bool(problems))


def _read(path: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        is_whole = known["schema"] == 1 and isinstance(known["environment"], dict) and known["certified"]
        if not (is_whole and all(isinstance(entry[name], str) for entry in known["certified"] for name in _ENTRY)):
            raise ValueError("it has other fields")
        return known
    except OSError as error:
        raise UnusableInputError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnusableInputError(f"{path} is not a certificate of kerneltest") from error
