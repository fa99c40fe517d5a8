"""The probe's command line."""

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import jax

from .cells import merge_outcomes, select_cells
from .children import print_outcomes, probe_in_children
from .target import Target, TpuTarget, read_targets

SCHEMA = 2
_COMPILES_FOR = {"triton": "GPUs", "libtpu": "TPUs (pip install 'jax[tpu]')"}


def main() -> int:
    """Prints the map of the installed JAX; returns the exit status."""
    parser = argparse.ArgumentParser(prog="probe", description="Probe what the installed JAX lowers.")
    parser.add_argument("--targets", required=True, type=read_targets, metavar="JSON")
    parser.add_argument("--primitives", default="", help="such as exp,sort (default: all)")
    parser.add_argument("--compile", action="store_true", help="also compile what lowers, with triton and libtpu")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    try:
        cells = select_cells(chosen.targets, [name for name in chosen.primitives.split(",") if name])
        compilers = _compilers(chosen.targets) if chosen.compile else {"triton": "", "libtpu": ""}
    except ValueError as error:
        parser.error(str(error))
    except metadata.PackageNotFoundError as error:
        parser.error(f"--compile needs {error.name} for {_COMPILES_FOR[error.name]}")
    if chosen.child is not None:
        print_outcomes(cells[chosen.child :], compiled=chosen.compile)
        return 0
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent), *sys.argv[1:], "--child"]
    header = {
        "schema": SCHEMA,
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "python": platform.python_version(),
        **compilers,
        "targets": [target.id for target in chosen.targets],
    }
    print(json.dumps({**header, "results": merge_outcomes(cells, probe_in_children(len(cells), command))}))
    return 0


def _compilers(targets: Sequence[Target]) -> dict[str, str]:
    """Returns the version of each compiler; "" if no target needs it."""
    needed = {"libtpu" if isinstance(target, TpuTarget) else "triton" for target in targets}
    return {name: metadata.version(name) if name in needed else "" for name in ("triton", "libtpu")}
