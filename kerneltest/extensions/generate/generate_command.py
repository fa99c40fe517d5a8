"""`kerneltest generate SEED...`: prints generated kernels, each a file that runs by itself."""

import argparse
from pathlib import Path

from kerneltest.cli.command_registry import Command, refuse, register_command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("seeds", nargs="+", type=int, metavar="SEED", help="the same seed gives the same kernel")
    parser.add_argument("--only", default="", metavar="PRODUCTION", help="the shape of the kernels, such as scan")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write generated_SEED.py there instead of printing it")


def _generate(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.generate.productions import PRODUCTIONS, generate_kernel

    if chosen.only and chosen.only not in PRODUCTIONS:
        return refuse("generate", ValueError(f"--only={chosen.only}: there are {', '.join(sorted(PRODUCTIONS))}"))
    for seed in chosen.seeds:
        kernel = generate_kernel(seed, chosen.only)
        if chosen.out is None:
            print(kernel.source)
            continue
        chosen.out.mkdir(parents=True, exist_ok=True)
        path = chosen.out / f"generated_{seed}.py"
        path.write_text(kernel.source, encoding="utf-8")
        print(f"{path}: {kernel.what}")
    return 0


register_command(
    Command("generate", "generate kernels at random, each with its oracle", _add_arguments, _generate),
    order=110,
)
