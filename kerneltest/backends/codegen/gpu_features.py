"""The features of NVIDIA GPUs that a Mosaic GPU kernel needs and that not every generation has.

JAX checks few of them, so that a kernel lowers for targets whose assembler then refuses it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kerneltest.core.details import NotBuilt, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jaxprs import Equation, core_meshes
from kerneltest.trace.jax_compat.mosaic_gpu_lowering import is_chosen_while_traced
from kerneltest.trace.jax_compat.source_lines import line_of_nested
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.walk import equations_in, first_line, primitive_name

_PRIMITIVES: Mapping[str, tuple[str, ...]] = {
    "wgmma": ("wgmma", "wgmma_ref", "wgmma_wait"),
    "tcgen05": (
        "tcgen05_mma", "tcgen05_commit_arrive", "commit_tmem", "async_load", "wait_load_tmem", "async_store_tmem",
        "async_copy_scales_to_tmem", "async_copy_sparse_metadata_to_tmem", "async_copy_smem_to_tmem",
    ),
    "TMA": ("copy_smem_to_gmem", "wait_smem_to_gmem", "async_prefetch"),
    "cp.async": ("wait_gmem_to_smem",),
    "cluster launch control": ("try_cluster_cancel", "query_cluster_cancel"),
}  # fmt: skip
_NEEDED = {name: feature for feature, names in _PRIMITIVES.items() for name in names}
_CONVERTED = {"float4_e2m1fn", "float8_e8m0fnu"}  # dtypes that PTX converts since Blackwell


class _Use(NamedTuple):
    feature: str
    line: str  # FILE:LINE
    chosen: bool = False  # by JAX, for the GPU that the kernel was traced for


def _uses(call: Call) -> Iterator[_Use]:
    if any(getattr(mesh, "cluster", ()) for mesh in core_meshes(call.equation)):
        yield _Use("clusters", first_line(call.equation))
    for equation, around in equations_in(call.equation):
        if feature := _feature(equation):
            chosen = primitive_name(equation) == "copy_gmem_to_smem" and is_chosen_while_traced(equation)
            yield _Use(feature, line_of_nested([*around, equation]), chosen)


def _feature(equation: Equation) -> str:
    name = primitive_name(equation)
    if name == "copy_gmem_to_smem":
        return "TMA" if equation.params.get("has_barrier", True) else "cp.async"
    if name == "convert_element_type":
        dtypes = {equation.invars[0].aval.dtype.name, equation.params["new_dtype"].name}
        return "conversions of float4 and float8_e8m0fnu" if dtypes & _CONVERTED else ""
    return _NEEDED.get(name, "")


def _lacking(traced: Traced, target: Target) -> Iterator[tuple[Call, _Use, list[str]]]:
    # Yields the calls that need what the target lacks, and the targets that have it.
    for call in traced.calls:
        for use in _uses(call) if call.dialect == "mosaic_gpu" else ():
            if use.feature not in target.features:
                yield call, use, [other.id for other in TARGETS.values() if use.feature in other.features]


def other_generation(traced: Traced, target: Target) -> str:
    """Returns why a kernel is written for another generation of GPUs, the only one with something it uses, or ""."""
    for _, (feature, line, _), having in _lacking(traced, target):
        if len(having) == 1:
            return f"the kernel uses {feature}{f' at {line}' if line else ''}, which only {having[0]} has"
    return ""


def check_features(traced: Traced, target: Target) -> None:
    """Checks that a target has what the Mosaic GPU calls of a kernel use.

    Raises:
      Failure: `unimplemented`, with the line and the targets that have it; `unavailable` if JAX has chosen all that the
        target lacks for the GPU that the kernel was traced for, and may choose otherwise for the target.
    """
    lacking = sorted(_lacking(traced, target), key=lambda each: each[1].chosen)
    for call, (feature, line, chosen), having in lacking:
        words = f"{target} has no {feature}, which {', '.join(having[:-1])} and {having[-1]} have"
        if chosen:
            words += ": JAX's pipeline chose it because the kernel was traced for compute capability 9.0"
        verdict = Verdict.UNAVAILABLE if chosen else Verdict.UNIMPLEMENTED
        raise Failure(verdict, NotBuilt(Stage.LOWER, call.name, "", words, source=line))
