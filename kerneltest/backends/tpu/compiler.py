"""Lowered TPU kernels to machine code and what XLA's compiler tells of it, with no TPU.

Runs in a process of its own: a check that fails inside libtpu aborts it, and a block that is too large keeps it for a
minute. Reads a request a line from standard input and answers with a line.
"""

import base64
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

# What libtpu asks of a machine without a TPU; several processes may load it.
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
    """Compiles one module.

    Args:
      module: StableHLO as bytecode.
      topology: as `get_topology_desc` takes it: `v5e:2x2`.
      folder: where libtpu was told to write what it makes of kernels.

    Returns:
      Bytes of VMEM and SMEM that kernels have, scheduled bundles of instructions, and bytes that cross from and to main
      memory.
    """
    from kerneltest.trace.jax_compat.tpu import compiled

    try:
        costs = compiled(module, topology).cost_analysis() or {}
        used = {"vmem": 0, "smem": 0}
        bundles = 0
        for path in _of_kernels(folder):
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


def _of_kernels(folder: Path) -> Iterator[Path]:
    """Files about kernels, and not about the program around them."""
    for path in folder.iterdir():
        name = path.name.partition("-")[2]
        if path.suffix == ".txt" and not name.startswith(("TLP", "<")):
            yield path


def _answer(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    try:
        return {"facts": compile_module(base64.b64decode(request["module"]), request["topology"], folder)}
    except Exception as error:
        return {"verdict": "compile_error", "message": f"{type(error).__name__}: {error}"}


def main(requests: TextIO, answers: TextIO) -> None:
    """Answers requests until there are no more."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        dumped = f"--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true"
        only = "--xla_jf_dump_llo_pass_label_regex=original|final_bundles"
        given = os.environ.get("LIBTPU_INIT_ARGS", "")
        os.environ.update(_ENVIRONMENT, LIBTPU_INIT_ARGS=f"{given} {dumped} {only}".strip())
        for line in requests:
            print(json.dumps(_answer(json.loads(line), Path(folder))), file=answers, flush=True)


if __name__ == "__main__":
    # libtpu prints to standard output now and then; answers go where it does not.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    main(sys.stdin, channel)
