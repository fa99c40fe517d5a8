"""`python -m tools.generate SEED...`: prints generated kernels, each a file that runs by itself."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tools.generate.productions import PRODUCTIONS, generate_kernel


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("seeds", nargs="+", type=int, metavar="SEED", help="the same seed gives the same kernel")
    parser.add_argument(
        "--only",
        default="",
        choices=sorted(PRODUCTIONS),
        metavar="PRODUCTION",
        help="the shape of the kernels, as scan",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write generated_SEED.py there instead of printing it")
    chosen = parser.parse_args(arguments)
    for seed in chosen.seeds:
        kernel = generate_kernel(seed, chosen.only)
        if chosen.out is None:
            print(kernel.source)
            continue
        chosen.out.mkdir(parents=True, exist_ok=True)
        path = chosen.out / f"generated_{seed}.py"
        path.write_text(kernel.source, encoding="utf-8")
        print(f"{path}: {kernel.what}")


if __name__ == "__main__":
    main()
