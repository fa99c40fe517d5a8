"""The commands `kerneltest mutate FILE[::NAME]...` and `kerneltest coverage FILE[::NAME]...`."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from kerneltest.cli.command_registry import add_setting, command
from kerneltest.core.failures import UnusableInputError
from kerneltest.core.ids import PairingId
from kerneltest.core.media import for_terminal, lines_for_terminal


def _add_mutate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pairings", nargs="*", metavar="FILE[::NAME]", help="a test file, or one of its pairings")
    add_setting(parser, "depth", "--depth", default="quick")
    add_setting(parser, "backends", "--backends", default=(), help="by default, those that run without a device")
    parser.add_argument("--operators", default="", metavar="NAMES", help="only these operators, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="number of processes (default: 1)")
    add_setting(parser, "timeout", "--timeout", default=60)
    parser.add_argument("--all", action="store_true", help="list all mutants, not only those that survive")
    parser.add_argument("--no-advice", action="store_true", help="do not look for declarations that find survivors")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    add_setting(parser, "mutate_least", "--least", help="exit with 1 below this score")
    parser.add_argument("--list", action="store_true", help="list the operators, each with the bug that it plants")


@command(
    105, "judge pairings by the bugs that they find in mutants of their kernels; 1 below --least", _add_mutate_arguments
)
def _mutate(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.mutation.judging import BACKENDS
    from kerneltest.extensions.mutation.operators import OPERATORS
    from kerneltest.extensions.mutation.run import MutationPool, Task, find_pairings, judge_pairing
    from kerneltest.records.files import dumps

    if chosen.list:
        for operator in OPERATORS.entries():
            print(for_terminal(f"{operator.name:26} {operator.mistake}"))
        return 0
    if chosen.jobs < 1:
        raise UnusableInputError(f"--jobs must be at least 1, not {chosen.jobs}")
    if not chosen.pairings:
        raise UnusableInputError("name a test file, as in kerneltest mutate tests/test_softmax.py")
    pairings = [found for place in chosen.pairings for found in find_pairings(place).items()]
    names = {operator.name for operator in OPERATORS.entries()}  # a conftest may have added some
    operators = tuple(filter(None, chosen.operators.split(",")))
    if unknown := sorted(set(operators) - names):
        raise UnusableInputError(f"no operator is called {unknown[0]}; --list shows them")
    options = Task(",".join(chosen.backends) or BACKENDS, chosen.depth, operators=operators, timeout=chosen.timeout)
    results: list[dict[str, Any]] = []
    with MutationPool(chosen.jobs) as pool:
        for pairing_id, pairing in pairings:
            suite = PairingId.parse(pairing_id)
            task = replace(options, suite=Path(suite.file), name=suite.name)
            results.append(judge_pairing(task, pairing, pool, with_advice=not chosen.no_advice, lists_all=chosen.all))
            if chosen.json is not None:  # now, since a later pairing may end the run
                chosen.json.write_text(dumps(results) + "\n", encoding="utf-8")
    # Without a judged mutant, the score of a pairing is 0.
    return int(any((result["score"] or 0.0) < chosen.least for result in results))


# `kerneltest coverage FILE[::NAME]...`: lists the states of kernels that the planned cases never reach.


def _add_coverage_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pairings", nargs="+", metavar="FILE[::NAME]", help="a test file, or one of its pairings")
    add_setting(parser, "depth", "--depth")
    add_setting(parser, "timeout", "--timeout", default=60)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")


@command(106, "list the states of kernels that the planned cases never reach", _add_coverage_arguments)
def _coverage(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.mutation.coverage import PairingCoverage, measure_coverage
    from kerneltest.extensions.mutation.judging import UnfitPairingError
    from kerneltest.extensions.mutation.run import find_pairings
    from kerneltest.records.files import dumps

    results: list[PairingCoverage] = []
    for place in chosen.pairings:
        for name, pairing in find_pairings(place).items():
            try:
                results.append(measure_coverage(pairing, name, chosen.depth, chosen.timeout))
                lines = [*results[-1].lines()]
            except UnfitPairingError as error:
                results.append(PairingCoverage(name, problem=str(error)))
                lines = [f"{name}: not measured: {error}"]
            print(lines_for_terminal("\n".join(lines)), flush=True)
    if chosen.json is not None:
        chosen.json.write_text(dumps(results) + "\n", encoding="utf-8")
    return int(not all(each.cases for each in results))
