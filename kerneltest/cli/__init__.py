"""The command line, `kerneltest COMMAND`. A command imports its room when it runs, so that `--help` is fast."""

import argparse
import io
import os
import sys
from collections.abc import Sequence

import kerneltest
import kerneltest.cli.commands  # they register themselves
from kerneltest.cli.command_registry import COMMANDS, refuse
from kerneltest.core.exit_guard import ExitGuard
from kerneltest.core.failures import UnusableInputError

_INTERRUPTED = 130  # as shells report Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0 if it worked and is green, 1 if not green, 2 for unusable input, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="kerneltest", description="Conformance of Pallas kernels.")
    parser.add_argument("--version", action="version", version=f"kerneltest {kerneltest.__version__}")
    parsers = parser.add_subparsers(dest="command", required=True)
    commands = {command.name: command for command in COMMANDS.entries()}
    for command in commands.values():
        command.add_arguments(parsers.add_parser(command.name, help=command.help))
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser)
    chosen, rest = parser.parse_known_args(arguments)
    if hasattr(chosen, "rest"):
        chosen.rest = [*chosen.rest, *rest]
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the terminal may lack a character
    guard, status = ExitGuard("the command"), 1
    try:
        status = commands[chosen.command].run(chosen)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has ended, as `head` does; Python would report it when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except (UnusableInputError, OSError) as error:
        status = refuse(chosen.command, error)
    finally:
        guard.end(status)
    return status
