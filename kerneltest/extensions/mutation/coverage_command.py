"""`kerneltest coverage FILE[::NAME]...`: lists what the planned cases of pairings never exercise in their kernels."""

import argparse

from kerneltest.cli.command_registry import Command, refuse, register_command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pairings", nargs="+", metavar="FILE[::NAME]", help="a test file, or one of its pairings")
    parser.add_argument("--depth", default="standard", choices=("quick", "standard", "deep"), help="of the plan")


def _cover(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.mutation.judging import UnfitPairingError
    from kerneltest.extensions.mutation.mutation_workers import find_pairings
    from kerneltest.extensions.mutation.pairing_coverage import format_coverage, measure_coverage
    from kerneltest.reproduce.suite_import import SuiteImportError

    for place in chosen.pairings:
        try:
            found = find_pairings(place)
        except (SuiteImportError, ValueError) as error:
            return refuse("coverage", error)
        for name, pairing in found.items():
            try:
                lines = list(format_coverage(name, measure_coverage(pairing, name, chosen.depth)))
            except UnfitPairingError as error:
                lines = [f"{name}: not measured: {error}"]
            print("\n".join(lines), flush=True)
    return 0


register_command(
    Command("coverage", "list what the planned cases never exercise in kernels", _add_arguments, _cover),
    order=106,
)
