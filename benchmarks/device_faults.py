"""Three faults among five hundred cases on a GPU: `python benchmarks/device_faults.py FOLDER`.

One kernel, of which one case reads at an illegal address, one never ends, and one asks for more memory than the device
has. FOLDER gets `device_faults.md` and the run's page. Exits with 1 unless every other case passes and these three are
what they should be.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from kerneltest.records.runs import RunRecords, read_runs

ROOT = Path(__file__).parent.parent
TIMEOUT = 20  # seconds that a step of a case may last
SUITE = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
import kerneltest as kt

ILLEGAL, ENDLESS = 1003, 1005  # lengths; of each, the case whose elements are all ones
GREEDY = 7  # a length that has one case
BLOCK = 1024

def body(x_ref, o_ref, *, length):
    at = jnp.arange(BLOCK)
    x = plgpu.load(x_ref.at[pl.ds(0, BLOCK)], mask=at < length, other=0)
    hit = jnp.sum(x) == length  # nothing that a compiler could know
    hit &= (jnp.max(x) == 1) & (jnp.sum(x * x) == length)
    if length == ILLEGAL:
        far = jnp.where(hit, jnp.int32(2**31 - 8), jnp.int32(0))
        x = jnp.where(hit, x + plgpu.load(x_ref.at[pl.ds(far, 4)]).sum(), x)
    if length == ENDLESS:
        x = lax.while_loop(lambda v: hit & (jnp.sum(v) < 2000.0), jnp.sin, x)  # no sine is so large
    plgpu.store(o_ref.at[pl.ds(0, BLOCK)], x + x, mask=at < length)

def double(x):
    (length,) = x.shape
    return pl.pallas_call(
        lambda *refs: body(*refs, length=length),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=plgpu.CompilerParams(),
    )(x)

def zeros(n):
    def fill(o_ref):
        o_ref[:] = jnp.zeros(8)

    made = pl.pallas_call(
        fill, out_shape=jax.ShapeDtypeStruct((8,), jnp.float32), compiler_params=plgpu.CompilerParams()
    )()[:n]
    if n == GREEDY:
        terabyte = jax.ShapeDtypeStruct((2**19, 2**19), jnp.float32)
        made += pl.pallas_call(lambda o_ref: None, out_shape=terabyte, compiler_params=plgpu.CompilerParams())()[0, :n]
    return made

@kt.oracle_for(zeros, n=kt.dim_size("n"), dims=dict(n=kt.dim(values=(2, 4, GREEDY))))
def nothing(n):
    return np.zeros(n)

DIMS = dict(n=kt.dim(values=tuple(range(1000, 1016))))

@kt.oracle_for(double, x=kt.array("n", "float32"), dims=DIMS)
def doubled(x):
    return x + x
"""
WANTED = {
    "n=1003,float32": r"out_of_bounds.*CUDA_ERROR_(ILLEGAL_ADDRESS|INVALID_ADDRESS_SPACE)",
    "n=1005,float32": rf"hang: no answer within {TIMEOUT} s while running the kernel",
    "n=7,static": "resource_exceeded.*RESOURCE_EXHAUSTED",
}


def table(run: RunRecords, seconds: float, device: str) -> list[str]:
    """The page, in lines."""
    findings = [record for record in run.records if record.verdict.is_finding]
    passed = sum(record.verdict == "pass" for record in run.records)
    missing = len(run.reconciled.missing)
    lines = [
        "# Three faults on a device\n",
        f"`python benchmarks/device_faults.py`, {device}, JAX {version('jax')}, Python {platform.python_version()}. "
        f"A step of a case may last {TIMEOUT} s. {len(run.records)} cases ran in {seconds:.0f} s: {passed} pass, "
        f"{len(findings)} are findings, {missing} cells lack a verdict.\n",
        "| case | verdict | message |",
        "| --- | --- | --- |",
    ]
    for record in sorted(findings, key=lambda each: each.signature):
        message = record.message.splitlines()[0][:200].replace("|", "\\|")
        lines.append(f"| {record.family}, {record.signature} | {record.verdict} | {message} |")
    return lines


def right(run: RunRecords) -> bool:
    """Whether the three are what they should be, and all others pass."""
    findings = {record.signature: record for record in run.records if record.verdict.is_finding}
    told = {name: f"{record.verdict}: {record.message}" for name, record in findings.items()}
    return (
        run.reconciled.complete
        and told.keys() == WANTED.keys()
        and all(re.match(words, told[name], re.S) for name, words in WANTED.items())
        and sum(record.verdict == "pass" for record in run.records) == len(run.records) - len(WANTED)
    )


def main(output: Path) -> int:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "-p", "kerneltest", "-p", "no:cacheprovider", "-q", "--tb=short"]
    command += ["--kt-backends", "cuda", "--kt-depth", "quick", "--kt-timeout", str(TIMEOUT), "--kt-report", "out"]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
        started = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        ended = subprocess.run(command, cwd=folder, env=environment, timeout=500, check=False)
        seconds = time.monotonic() - started
        (run,) = read_runs(folder / "out")
        output.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "out" / "report.html", output / "device_faults.html")
    device = next((text for name, text in run.plan.environment.items() if name == "cuda: device"), "no GPU")
    lines = table(run, seconds, device)
    (output / "device_faults.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return int(not right(run) or ended.returncode != 1)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
