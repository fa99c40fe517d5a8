"""Measurement of maps: runs the probe with this Python, or with one that uv provides with another version of JAX."""

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from kerneltest.core.children import run_tool
from kerneltest.core.targets import TARGETS, TPUS
from kerneltest.extensions.lowering_map.model import LoweringMap, MapError, parse_map

OLDEST = (0, 4, 35)
PYTHON = "3.12"  # JAX 0.4.35 to 0.12 all have wheels for it

_PROBE = Path(__file__).with_name("probe")
_FIELDS = ("id", "platform", "device_kind", "triton_backend", "arch", "warp", "topology")  # of GPUs and TPUs


def measure(
    targets: Sequence[str], primitives: Sequence[str], compiled: bool = False, *, jax: str = "", python: str = PYTHON
) -> LoweringMap:
    """Measures the map of the installed JAX, or of another version in an environment that uv creates.

    All targets and primitives are probed if none are given. Raises a MapError if one of them or a version is unknown,
    uv is missing, or the probe fails.
    """
    described = describe_targets(targets)
    compiled_for = (targets or [*TARGETS, *TPUS]) if compiled else ()
    interpreter = _python_command(jax, python, compiled_for) if jax else [sys.executable]
    command = [*interpreter, "-W", "ignore", str(_PROBE), "--targets", described, "--primitives", ",".join(primitives)]
    if compiled:
        command.append("--compile")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    if jax:
        environment.pop("PYTHONPATH", None)  # its packages would hide those of the other environment
    done = run_tool(command, environment=environment)
    source = f"JAX {jax} with Python {python}" if jax else "this environment"
    if done.returncode:
        raise MapError(f"{source}: {_reason(done.stderr)}")
    return parse_map(done.stdout, source)


def describe_targets(targets: Sequence[str]) -> str:
    """Returns targets as JSON for the probe, which does not import kerneltest; raises a MapError for an unknown one."""
    known = {**TARGETS, **TPUS}
    if unknown := [name for name in targets if name not in known]:
        raise MapError(f"unknown target {', '.join(unknown)}; known are {', '.join(known)}")
    described = [known[name] for name in targets or known]
    return json.dumps(
        [{field: getattr(each, field) for field in _FIELDS if hasattr(each, field)} for each in described]
    )


def _python_command(version: str, python: str, compiled_for: Sequence[str]) -> list[str]:
    if not re.fullmatch(r"\d+(\.\d+){2,3}", version):
        raise MapError(f"{version!r} is not a version of JAX, such as 0.10.2")
    if tuple(map(int, version.split("."))) < OLDEST:
        raise MapError(f"JAX {version} is older than {'.'.join(map(str, OLDEST))}, the oldest that the probe supports")
    uv = shutil.which("uv", path=os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)]))
    if uv is None:
        raise MapError(
            "--jax needs uv, which creates an environment for each version: pip install uv. "
            "Without --jax, the installed JAX is probed, or the given maps are read"
        )
    # Some versions of Pallas import absl without requiring it.
    packages = [f"jax=={version}", "absl-py"]
    if any(target in TPUS for target in compiled_for):
        packages[0] = f"jax[tpu]=={version}"  # with the libtpu that this version requires
    if any(target in TARGETS for target in compiled_for):
        packages.append("triton")
    wanted = [word for package in packages for word in ("--with", package)]
    return [uv, "run", "--quiet", "--no-project", "--isolated", "--python", python, *wanted, "python"]


def _reason(printed: str) -> str:
    """Returns the line that gives the cause: an explanation by uv, or the last line."""
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"Because|cause:|error: No interpreter", line)]
    reason = (causes or lines[-1:] or ["it ended without a message"])[0]
    return re.sub(r"^(?:cause|(?:probe: )?error): ", "", reason)
