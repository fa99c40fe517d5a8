"""Export of a traced kernel and a case's inputs to a folder, for a process that does not import the user's code."""

import dataclasses
import pickle
from collections.abc import Sequence
from pathlib import Path

import jax
from jax import export

from kerneltest.core.dtypes import Array, is_packed
from kerneltest.core.failures import Failure, format_exception
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.platform_dispatch import abstract_platform
from kerneltest.trace.runnable import runnable
from kerneltest.trace.tracing import Traced

# The custom calls of Pallas have no compatibility guarantee across versions of JAX; both processes use the same one.
_CALLS = ("__gpu$xla.gpu.triton", "triton_kernel_call", "mosaic_gpu_v2", "mosaic_gpu")
_CHECKS = [export.DisabledSafetyCheck.custom_call(name) for name in _CALLS]


def write_kernel(traced: Traced, leaves: Sequence[Array], platform: str, folder: Path) -> None:
    """Lowers a traced kernel for `cuda` or `rocm` and writes it to `folder`, with its inputs.

    Raises:
      Failure: `unavailable`, if the kernel cannot be exported.
    """
    if traced.eager:
        raise Failure(
            Verdict.UNAVAILABLE, "a kernel that is called outside jax.jit cannot be exported to another process"
        )
    packed = next((each for each in (*traced.inputs, *traced.outputs) if is_packed(each.dtype)), None)
    if packed is not None:
        raise Failure(Verdict.UNAVAILABLE, f"elements of {packed.dtype} have no addresses of their own")
    shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype) for i in traced.inputs]
    function = jax.jit(runnable(traced, interpret=False))
    try:
        with abstract_platform("" if _has_device(platform) else platform):
            exported = export.export(function, platforms=[platform], disabled_checks=_CHECKS)(*shapes)
    except Exception as error:  # other groups report kernels that do not lower
        line = format_exception(error).splitlines()[0]
        raise Failure(Verdict.UNAVAILABLE, f"JAX cannot export the kernel: {line}") from error
    with (folder / "exported.pickle").open("wb") as file:
        pickle.dump(dataclasses.replace(exported, _get_vjp=None), file)
    for number, leaf in enumerate(leaves):
        leaf.tofile(folder / f"{number}.bin")


def _has_device(platform: str) -> bool:
    try:
        return bool(jax.devices(platform))
    except RuntimeError:
        return False
