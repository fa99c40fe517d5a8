"""Kernels that pick their form by platform, traced for a platform that is not there."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

from kerneltest.core.failures import Failure
from kerneltest.core.targets import TPUS
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.rewrite import inlined, rewritten
from kerneltest.trace.walk import equations

# Asked in turn for a form that holds a Pallas call.
PLATFORMS = ("cuda", "tpu-v5e", "rocm")


def of_jax(platform: str) -> str:
    """A platform as JAX calls it: that of a TPU generation is `tpu`."""
    return TPUS[platform].platform if platform in TPUS else platform


# What `jax.jit` knows its traces by, so that it takes none that was made for another platform or kernel.
_traced_for = jax.make_user_context(default_value=None)
_askers: set[int] = set()


@contextmanager
def answering(platform: str, kernel: object) -> Iterator[None]:
    """While a kernel is traced, `jax.default_backend()` says that this is a machine of some platform; of its own where
    that is ""."""
    real = jax.default_backend

    def default_backend() -> str:
        _askers.add(id(kernel))
        return "gpu" if platform in ("cuda", "rocm") else of_jax(platform) or real()

    jax.default_backend = default_backend
    try:
        with _traced_for((platform, id(kernel))):
            yield
    finally:
        jax.default_backend = real


def has_asked(kernel: object) -> bool:
    """Whether a kernel has asked for the platform, in this trace or in an earlier one, which JAX does not repeat."""
    return id(kernel) in _askers


def depends(jaxpr: Any) -> bool:
    """Whether `jax.lax.platform_dependent` is in it."""
    return any(_platforms(equation) is not None for equation, _ in equations(jaxpr))


def chosen(jaxpr: Any, platform: str) -> Any:
    """A jaxpr in which every `jax.lax.platform_dependent` is its form for a platform, or for this machine, else for the
    first of the others that it has one for, where that is "".

    Raises:
      Failure: there is none for the platform.
    """
    wanted = (of_jax(platform),) if platform else (jax.default_backend(), *map(of_jax, PLATFORMS))

    def rule(equation: Any) -> Sequence[Any] | None:
        platforms = _platforms(equation)
        if platforms is None:
            return None
        fitting = [i for each in wanted for i, names in enumerate(platforms) if names is None or each in names]
        if not fitting:
            known = ", ".join(name for names in platforms for name in names)
            raise Failure(
                Verdict.UNIMPLEMENTED, f"jax.lax.platform_dependent has a form for {known}, not {of_jax(platform)}"
            )
        branch = rewritten(equation.params["branches"][fitting[0]], rule)
        return inlined(jaxpr_as_fun(branch), equation.invars[1:], equation.outvars)

    return rewritten(jaxpr, rule)


def _platforms(equation: Any) -> Sequence[Any] | None:
    """Those of each branch, None for any; None where the branches are not by platform."""
    found: Sequence[Any] | None = equation.params.get("branches_platforms")
    return found
