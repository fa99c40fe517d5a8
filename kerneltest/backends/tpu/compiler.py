"""XLA's TPU compiler as a child process without a TPU: lowered kernels to machine code and facts about it.

A failed check inside libtpu aborts the process, and a block that is too large takes it a minute. Reads one request per
line from standard input and answers each with one line.
"""

import base64
import functools
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from kerneltest.core.children import answer_requests

# Lets libtpu run on a machine without a TPU, in several processes.
_ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}
_ALLOCATION = re.compile(r"#allocation\d+ \[shape = '[^']*', space=(\w+), size = (0x[0-9a-f]+)")
_BUNDLES = re.compile(r"total scheduled bundles:\s+(\d+)")


def compile_module(module: bytes, topology: str, folder: Path) -> dict[str, int]:
    """Compiles StableHLO for a topology (`v5e:2x2`); returns VMEM, SMEM, bundles and bytes moved, by libtpu's dumps."""
    from kerneltest.trace.jax_compat.abstract_devices import compile_for_devices, device_of

    try:
        costs = compile_for_devices(module, [device_of(topology)]).cost_analysis() or {}
        used = {"vmem": 0, "smem": 0}
        bundles = 0
        for path in folder.iterdir():
            name = path.name.partition("-")[2]
            if path.suffix != ".txt" or name.startswith(("TLP", "<")):  # the program around the kernels
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            if path.stem.endswith("-original"):
                for space, size in _ALLOCATION.findall(text):
                    used[space] = used.get(space, 0) + int(size, 16)
            elif found := _BUNDLES.search(text):
                bundles += int(found.group(1))
    finally:
        for path in folder.iterdir():
            path.unlink()
    by_operand = sum(value for name, value in costs.items() if name.startswith("bytes accessed"))
    moved = int(costs.get("bytes accessed", by_operand))
    return {"VMEM": used["vmem"], "SMEM": used["smem"], "bundles": bundles, "bytes accessed": moved}


def _answer(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    try:
        return {"facts": compile_module(base64.b64decode(request["module"]), request["topology"], folder)}
    except Exception as error:
        return {"verdict": "compile_error", "message": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answers requests until the input ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        dump = f"--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true"
        only = "--xla_jf_dump_llo_pass_label_regex=original|final_bundles"
        user_args = os.environ.get("LIBTPU_INIT_ARGS", "")
        os.environ.update(_ENVIRONMENT, LIBTPU_INIT_ARGS=f"{user_args} {dump} {only}".strip())
        answer_requests(functools.partial(_answer, folder=Path(folder)))


if __name__ == "__main__":
    main()
