"""`kerneltest coverage FILE[::NAME]...`: lists the states of kernels that the planned cases never reach."""

import argparse
from pathlib import Path
from typing import Any

from kerneltest.cli.command_registry import Command, add_setting, refuse, register_command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pairings", nargs="+", metavar="FILE[::NAME]", help="a test file, or one of its pairings")
    add_setting(parser, "depth", "--depth")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")


def _cover(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.mutation.coverage import coverage_as_data, format_coverage, measure_coverage
    from kerneltest.extensions.mutation.judging import UnfitPairingError
    from kerneltest.extensions.mutation.mutation_run import find_pairings
    from kerneltest.records.files import dumps
    from kerneltest.reproduce.rerun import SuiteImportError

    results: list[dict[str, Any]] = []
    for place in chosen.pairings:
        try:
            found = find_pairings(place)
        except (SuiteImportError, ValueError) as error:
            return refuse("coverage", error)
        for name, pairing in found.items():
            try:
                coverage = measure_coverage(pairing, name, chosen.depth)
                lines = list(format_coverage(name, coverage))
                results.append(coverage_as_data(name, coverage))
            except UnfitPairingError as error:
                lines = [f"{name}: not measured: {error}"]
                results.append({"pairing": name, "problem": str(error)})
            print("\n".join(lines), flush=True)
    if chosen.json is not None:
        chosen.json.write_text(dumps(results) + "\n", encoding="utf-8")
    return 0


register_command(
    Command("coverage", "list the states of kernels that the planned cases never reach", _add_arguments, _cover),
    order=106,
)
