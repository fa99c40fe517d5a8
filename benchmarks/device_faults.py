"""What becomes of kernels that crash, hang or fill a GPU: `python benchmarks/device_faults.py OUTPUT.md`, on a GPU.

Each fault is a pairing of its own, in a run of its own, beside a right one. The table says how the faulty case ended,
how many others were recorded, and whether pytest failed.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from kerneltest.records.io import RecordError
from kerneltest.records.runs import Run, read_runs

ROOT = Path(__file__).parent.parent
TIMEOUT = 30
SUITE = """
import os, signal
import jax, jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
import kerneltest as kt
from kernels.vector_add import vector_add

FAULT = os.environ["FAULT"]

def right(x):
    return vector_add(x, x)

def body(x_ref, o_ref):
    x = plgpu.load(x_ref.at[pl.ds(0, 4)])
    hit = jnp.sum(x) == 4  # all ones: one case, and nothing that a compiler could know
    if FAULT == "illegal address":
        x = plgpu.load(x_ref.at[pl.ds(jnp.where(hit, jnp.int32(2**31 - 8), jnp.int32(0)), 4)])
    if FAULT == "endless kernel":
        x = lax.while_loop(lambda v: hit & (jnp.sum(v) < 8.0), jnp.sin, x)  # no sine is so large
    plgpu.store(o_ref.at[pl.ds(0, 4)], x + x)

def launch(x):
    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=plgpu.CompilerParams()
    )(x)

def faulty(x):
    if FAULT == "out of memory":
        return launch(x) + pl.pallas_call(
            lambda o_ref: None,
            out_shape=jax.ShapeDtypeStruct((2**19, 2**19), x.dtype),
            compiler_params=plgpu.CompilerParams(),
        )()[0, :4]
    return launch(x)

DIMS = dict(n=kt.dim(values=(4,)))

@kt.oracle_for(right, x=kt.array("n", "float32"), dims=DIMS)
def doubled(x):
    return x + x

@kt.oracle_for(faulty, x=kt.array("n", "float32"), dims=DIMS)
def faulted(x):
    if FAULT == "killed by the system" and (x == 1).all():
        os.kill(os.getpid(), signal.SIGKILL)
    return x + x
"""
FAULTS = ("none", "illegal address", "endless kernel", "out of memory", "killed by the system")


def tried(fault: str, folder: Path) -> str:
    """One line of the table."""
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "kerneltest", "-p", "no:cacheprovider", "-q", "-n", "1"]
    command += ["-k", "structural"]  # seven cases of a pairing
    command += ["--kt-backends", "cuda", "--kt-depth", "quick", "--kt-timeout", str(TIMEOUT), "--kt-report", "out"]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "FAULT": fault}
    started = time.monotonic()
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    seconds = time.monotonic() - started
    try:
        (run,) = read_runs(folder / "out")
    except RecordError as error:
        return f"| {fault} | no run: {error} | | {ended.returncode} | {seconds:.0f} |"
    return f"| {fault} | {_ended(run)} | {_others(run)} | {ended.returncode} | {seconds:.0f} |"


def _ended(run: Run) -> str:
    findings = [record for record in run.records if record.verdict.is_finding]
    kinds = Counter((record.verdict, record.family if record.family == "ones" else "others") for record in findings)
    counts = ", ".join(f"{count} {verdict} ({family})" for (verdict, family), count in kinds.items()) or "pass"
    first = next((record.message.splitlines()[0] for record in findings if record.family == "ones"), "")
    return f"{counts}: {first[:160]}".rstrip(": ").replace("|", "\\|")


def _others(run: Run) -> str:
    passed = sum(record.verdict == "pass" for record in run.records)
    return f"{passed} pass, {len(run.reconciled.missing)} cells missing"


def main(output: Path) -> int:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the runs need the memory
    import jax

    lines = [
        f"# Faults on a device\n\n`python benchmarks/device_faults.py`, {jax.devices()[0].device_kind}, JAX "
        f"{version('jax')}, Python {platform.python_version()}. In one of two pairings, one case has the fault, or all "
        "have where memory runs out; "
        f"a step of a case may last {TIMEOUT} s.\n",
        "| fault | the faulty case | the others | pytest's exit code | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    for fault in FAULTS:
        with tempfile.TemporaryDirectory() as made:
            lines.append(tried(fault, Path(made)))
        print(lines[-1], flush=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
