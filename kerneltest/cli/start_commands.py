"""The commands with which a project starts: `init` and `doctor`."""

import argparse
from pathlib import Path

from kerneltest.cli.command_registry import Command, add_limit, refuse, register_command


def _add_init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="MODULE:FUNCTION", help="the kernel, such as kernels.softmax:softmax")
    example = parser.add_mutually_exclusive_group(required=True)
    example.add_argument("--shapes", metavar="x=8x128,y=128", help="arrays to trace it with; () for a scalar")
    example.add_argument("--call", metavar="TEXT", help="a call of it, such as 'f(jnp.ones((8, 128)), axis=1)'")
    example.add_argument("--watch", metavar="SCRIPT", help="a script, a test file or a pytest node that calls it")
    parser.add_argument("--dtypes", default="", metavar="x=bfloat16,y=int32", help="for --shapes (default: float32)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(), metavar="FOLDER", help="where to write test_FUNCTION.py"
    )
    add_limit(parser, "write the pairing as far as it is known")


def _init(chosen: argparse.Namespace) -> int:
    from kerneltest.report.text.tables import for_terminal
    from kerneltest.start.call_recorder import record_calls
    from kerneltest.start.command_progress import CommandProgress
    from kerneltest.start.example_calls import StartError, example_from_shapes, example_from_text, import_kernel
    from kerneltest.start.init import write_pairing

    progress = CommandProgress(chosen.limit)
    try:
        if chosen.dtypes and not chosen.shapes:
            raise StartError("--dtypes is for --shapes; a call has its own dtypes")
        kernel = import_kernel(chosen.kernel)
        if chosen.shapes is not None:
            examples = [example_from_shapes(kernel, chosen.shapes, chosen.dtypes)]
        elif chosen.call is not None:
            examples = [example_from_text(kernel, chosen.call)]
        else:
            examples = record_calls(kernel, chosen.watch)
        path, declaration = write_pairing(kernel, examples, chosen.output, progress)
    except (StartError, OSError) as error:
        progress.clear()
        return refuse("init", error)
    progress.clear()
    print(for_terminal(f"{path}: write {declaration.oracle}, then run: pytest -p kerneltest {path}"))
    for note in declaration.notes:
        print(for_terminal(f"  check {note}"))
    return 0


def _doctor(chosen: argparse.Namespace) -> int:
    from kerneltest.report.text.tables import for_terminal
    from kerneltest.start.doctor import doctor_lines, list_backends

    backends = list_backends()
    print("\n".join(map(for_terminal, doctor_lines(backends))))
    return int(all(each.reason for each in backends))


register_command(
    Command("init", "write the pairing of a kernel, with the oracle to fill in", _add_init_arguments, _init), order=10
)
register_command(
    Command(
        "doctor",
        "list the backends that this machine can serve, and what to install for the others",
        lambda parser: None,
        _doctor,
    ),
    order=20,
)
