"""`kerneltest audit PATH`: lists the functions that reach a Pallas call, and which of them have no pairing."""

import argparse
from pathlib import Path

from kerneltest.cli.command_registry import add_limit, command
from kerneltest.core.failures import UnusableInputError
from kerneltest.core.media import lines_for_terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help="the folder of the kernels")
    parser.add_argument(
        "--suites", nargs="+", type=Path, default=[], metavar="PATH", help="folders of pairings that are not below PATH"
    )
    add_limit(parser, "list the functions found so far")


@command(30, "list the functions that reach a Pallas call; 1 if any of them has no pairing", _add_arguments)
def _audit(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.audit.audited_functions import audit_functions, format_audit, gather
    from kerneltest.extensions.audit.call_graph import read_program
    from kerneltest.start.command_progress import CommandProgress

    suites = chosen.suites or [chosen.path]
    if missing := [path for path in (chosen.path, *suites) if not path.exists()]:
        raise UnusableInputError(f"{missing[0]} does not exist")
    progress = CommandProgress(chosen.limit)
    program = read_program([chosen.path, *suites], progress)
    tests = set(filter(program.imports_kerneltest, program.modules))
    pairings, broken = gather(suites, tests, progress) if tests else ([], [])
    progress.show("following the names in the files")
    found = audit_functions(program, pairings, chosen.path)
    progress.clear()
    print(lines_for_terminal("\n".join(format_audit(found, broken, program.unread, program.files_left))))
    return int(bool(broken or program.unread or program.files_left) or any(each.is_unpaired for each in found))
