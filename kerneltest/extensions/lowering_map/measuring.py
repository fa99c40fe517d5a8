"""Measurement of maps: each probe is lowered, or compiled, by kerneltest's own tier for the target.

The map has no cell for a dtype that lax itself refuses outside of Pallas. The map of another version of JAX is measured
by the same command in an environment that uv creates.
"""

import os
import platform
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plt

from kerneltest.backends.registry import resolve
from kerneltest.core.children import run_tool
from kerneltest.core.details import NotBuilt
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.extension_registry import suggest
from kerneltest.core.failures import Failure, exception_text, iter_causes
from kerneltest.core.targets import TPUS, Tier
from kerneltest.extensions.lowering_map.model import (
    LoweringMap,
    LoweringOutcome,
    LoweringResult,
    MapError,
    merge,
    read_map,
)
from kerneltest.extensions.lowering_map.probes import BLOCK, MATRIX, VECTOR, LoweringProbe, probes
from kerneltest.trace.tracing import trace_function


class ProbedCell(NamedTuple):
    """A probe for one dtype and one target."""

    probe: LoweringProbe
    dtype: str
    target: str


def select_cells(targets: Sequence[str], primitives: Sequence[str] = ()) -> tuple[ProbedCell, ...]:
    """Returns the cells of primitives, named with or without a variant (() for all); MapError for an unknown one."""
    names = {probe: {probe.name, probe.name.split("[")[0]} for probe in probes()}
    every = set().union(*names.values())
    if unknown := [name for name in primitives if name not in every]:
        raise MapError(f"unknown primitive {', '.join(unknown)}{suggest(unknown[0], sorted(every))}")
    chosen = [probe for probe in names if not primitives or names[probe] & set(primitives)]
    return tuple(
        ProbedCell(probe, dtype, target)
        for probe in chosen
        for dtype in probe.dtypes
        for target in targets
        if probe.only in ("", "tpu" if target in TPUS else "gpu")
    )


def measure(targets: Sequence[str], primitives: Sequence[str] = (), compiled: bool = False) -> LoweringMap:
    """Measures the map of the installed JAX; MapError: a primitive is unknown, or a compiler unavailable."""
    cells = select_cells(targets, primitives)
    versions = {"triton": "", "libtpu": ""}
    for backend in resolve([f"{Tier.COMPILE}:{target}" for target in targets]) if compiled else ():
        if problem := backend.unavailable():
            raise MapError(f"--compile: {problem}")
        versions |= backend.environment()
    return LoweringMap(
        2, jax.__version__, metadata.version("jaxlib"), platform.python_version(), **versions,
        targets=tuple(targets), results=merge_cells(cells, [probe_cell(cell, compiled=compiled) for cell in cells]),
    )  # fmt: skip


def probe_cell(cell: ProbedCell, *, compiled: bool) -> tuple[LoweringOutcome, str] | None:
    """Lowers a cell, and compiles it if `compiled`; returns its outcome and message, None if lax refuses the dtype."""
    (backend,) = resolve([f"{Tier.COMPILE if compiled else Tier.LOWER}:{cell.target}"])
    try:
        with jax.enable_x64("64" in cell.probe.name or "64" in cell.dtype), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if (kernel := _kernel_of(*cell)) is None:
                return None
            call, inputs = kernel
            backend.prepare(trace_function(lambda *leaves: call(*leaves), inputs, "", backend.platform))
    except Exception as error:
        return _outcome_of(error)
    return LoweringOutcome.COMPILES if compiled else LoweringOutcome.LOWERS, ""


def merge_cells(
    cells: Sequence[ProbedCell], outcomes: Sequence[tuple[LoweringOutcome, str] | None]
) -> tuple[LoweringResult, ...]:
    """Returns the results of a map: dtypes and targets with the same primitive, outcome and message share one."""
    accepted = {cell.probe.name for cell, outcome in zip(cells, outcomes, strict=True) if outcome}
    refused = LoweringOutcome.ABSENT, "lax refuses it for every dtype"
    results = [
        LoweringResult(probe.name, probe.group, *(outcome or refused), (dtype,), (target,))
        for (probe, dtype, target), outcome in zip(cells, outcomes, strict=True)
        if outcome or probe.name not in accepted
    ]
    return tuple(merge(merge(results, "dtypes"), "targets"))


# A kernel around a probe, and its inputs. A TPU works on tiles of 8 by 128: it refuses other shapes, whatever the
# primitive.

_SHAPES = {
    VECTOR: (16, 128),
    MATRIX: (8, 128),
    BLOCK: (128, 128),
    (8,): (8, 128),
    (32,): (128,),
    (1, 16): (1, 128),
    (4, 16): (4, 16, 128),
}


def tpu_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape that replaces a GPU probe's shape on TPUs."""
    return _SHAPES.get(shape) or (*shape[:-2], *_SHAPES.get(shape[-2:], shape[-2:]))


def _kernel_of(probe: LoweringProbe, dtype: str, target: str) -> tuple[Any, tuple[ShapeDtype, ...]] | None:
    is_tpu = target in TPUS
    operands = [_shape(operand, dtype, is_tpu) for operand in probe.operands]
    if probe.output is not None:
        outputs = [_shape(probe.output, dtype, is_tpu)]
    else:
        try:
            outputs = jax.tree_util.tree_leaves(jax.eval_shape(probe.body, *operands))
        except (TypeError, ValueError, NotImplementedError):
            return None
    arrays, count = (*operands, *outputs), len(operands)
    shapes = [jax.ShapeDtypeStruct(each.shape or ((1,) if is_tpu else ()), each.dtype) for each in arrays]

    def kernel(*refs: Any) -> None:
        refs = tuple(r if each.shape or not is_tpu else r.at[0] for r, each in zip(refs, arrays, strict=True))
        if probe.output is not None:
            probe.body(*refs)
            return
        values = jax.tree_util.tree_leaves(probe.body(*(ref[...] for ref in refs[:count])))
        for ref, value in zip(refs[count:], values, strict=True):
            ref[...] = value

    options: dict[str, Any] = {"compiler_params": plt.CompilerParams()}  # selects lowering to Triton
    if is_tpu:
        specs = [_block_spec(array.shape, probe.block) for array in arrays]
        options = {"in_specs": specs[:count], "out_specs": specs[count:]}
    call = pl.pallas_call(kernel, out_shape=shapes[count:], grid=probe.grid, **options)
    return call, tuple(ShapeDtype(shape.shape, shape.dtype) for shape in shapes[:count])


def _shape(described: Any, dtype: str, is_tpu: bool) -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of an operand or output; it has the probed dtype unless it names its own."""
    own = len(described) == 2 and isinstance(described[1], str)
    shape, dtype = described if own else (described, dtype)
    return jax.ShapeDtypeStruct(tpu_shape(shape) if is_tpu else shape, jnp.dtype(dtype))


def _block_spec(shape: tuple[int, ...], block: tuple[int, ...]) -> Any:
    """Returns the spec that passes an array in blocks, or whole in VMEM; a scalar is an array of one in SMEM."""
    if block:
        return pl.BlockSpec(block, lambda *position: position)
    return pl.BlockSpec(memory_space=pltpu.VMEM if shape else pltpu.SMEM)


# Messages of JAX and compilers, shortened to one line that is the same for the same failure.

MAX_LENGTH = 300
# The text that MLIR and XLA put around a cause: the place in the probe, the instruction, the pass that failed.
_AROUND = re.compile(
    r"""(?<=error:\ )"[^\n]{0,999}?\):\ | (?<!\s)\s+(?:note:\ "|see\ current\ operation:|at\ location:\ loc\().*
    | :\ %\S+\ =\ .* | (?<=VerificationError:\ )Pallas\ encountered[^\n]{0,999}?Error\ details:\ \s*
    | \b\w+:\ Mosaic\ failed\ to\ compile\ TPU\ kernel[^:]*:\s+""",
    re.VERBOSE | re.DOTALL,
)
_NO_FUNCTION = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")


def _outcome_of(error: Exception) -> tuple[LoweringOutcome, str]:
    message = first_cause(error)
    if found := _NO_FUNCTION.search(message):
        return LoweringOutcome.ABSENT, f"this JAX has no {found[1]}.{found[2]}"
    is_unknown = "unimplemented primitive" in message.lower()
    return LoweringOutcome.UNIMPLEMENTED if is_unknown else LoweringOutcome.ERROR, message


def first_cause(error: BaseException) -> str:
    """Returns the type and text of the innermost cause, without the exceptions that JAX wraps around it."""
    *_, cause = takewhile(lambda each: type(each).__name__ != "JaxStackTraceBeforeTransformation", iter_causes(error))
    if isinstance(cause, Failure):  # a compiler's, or kerneltest's own
        words = cause.detail.said if isinstance(cause.detail, NotBuilt) else str(cause)
    else:
        frames = traceback.extract_tb(cause.__traceback__)
        words = f"{type(cause).__name__}: {exception_text(cause) or f'in {frames[-1].name}'}"
    return one_line(_AROUND.sub("", words))


def one_line(text: str) -> str:
    """Returns the text on one line, truncated, without folders and the random names of temporary files."""
    without_folders = re.sub(r"(?<![\w:/])/(?:[^/\s:\"']+/)+", "", " ".join(text.split()))
    return re.sub(r"\btmp\w{8}\b", "tmp", without_folders)[:MAX_LENGTH]


# Other versions of JAX.

PYTHON = "3.12"  # JAX 0.10.2 to 0.12 all have wheels for it
_OLDEST = (0, 10, 2)  # as the package requires


def measure_version(
    version: str, python: str, targets: Sequence[str], primitives: Sequence[str], compiled: bool
) -> LoweringMap:
    """Measures the map of a version of JAX in an environment that uv creates; raises a MapError."""
    source = f"JAX {version} with Python {python}"
    packages = _packages(version, targets, compiled)
    uv = shutil.which("uv", path=os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)]))
    if uv is None:
        raise MapError(
            "--jax needs uv, which creates an environment for each version: pip install uv. "
            "Without --jax, the installed JAX is probed, or the given maps are read"
        )
    with tempfile.TemporaryDirectory() as folder:
        # The folder holds kerneltest alone, since packages next to it would hide those of the environment.
        Path(folder, "kerneltest").symlink_to(Path(__file__).parents[2])
        file = Path(folder, "map.json")
        command = [uv, "run", "--quiet", "--no-project", "--isolated", "--python", python]
        command += [word for package in packages for word in ("--with", package)]
        command += ["python", "-W", "ignore", "-m", "kerneltest", "lowering", "--json", str(file)]
        command += ["--targets", ",".join(targets), "--primitives", ",".join(primitives)]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": folder}
        done = run_tool(command + ["--compile"] * compiled, environment=environment)
        if done.returncode:
            raise MapError(f"{source}: {_reason(done.stderr)}")
        return read_map(file)


def _packages(version: str, targets: Sequence[str], compiled: bool) -> list[str]:
    """Returns the requirements of kerneltest with a version of JAX, and with the compilers for some targets."""
    if not re.fullmatch(r"\d+(\.\d+){2,3}", version):
        raise MapError(f"{version!r} is not a version of JAX, such as 0.10.2")
    if tuple(map(int, version.split("."))) < _OLDEST:
        raise MapError(
            f"JAX {version} is older than {'.'.join(map(str, _OLDEST))}, the oldest that kerneltest supports"
        )
    required = [each for each in metadata.requires("kerneltest") or () if "extra ==" not in each]
    tpu = "[tpu]" if compiled and any(target in TPUS for target in targets) else ""  # with the libtpu that it requires
    triton = ["triton"] if compiled and any(target not in TPUS for target in targets) else []
    return [f"jax{tpu}=={version}", *triton, *required]


def _reason(printed: str) -> str:
    """Returns the line that gives the cause: an explanation by uv, or the last line."""
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"Because|cause:|error: No interpreter", line)]
    reason = (causes or lines[-1:] or ["it ended without a message"])[0]
    return re.sub(r"^(?:cause|error|kerneltest lowering): ", "", reason)
