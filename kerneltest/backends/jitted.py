"""Compiles a traced kernel through `jax.jit` for one device: what interpret mode and real devices share."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_packed
from kerneltest.core.failures import Failure
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.names import fails_by_itself, limit, user_line
from kerneltest.trace.jax_compat.patches import whole_tracebacks
from kerneltest.trace.runnable import eagerly, runnable
from kerneltest.trace.tracing import Traced

# Words by which JAX, XLA and the drivers tell these causes.
_CAUSES = (
    (
        Verdict.UNIMPLEMENTED,
        re.compile(r"unimplemented primitive|no lowering|not implemented in pallas|rule for primitive"),
    ),
    (Verdict.RESOURCE_EXCEEDED, re.compile(r"shared memory|resource_exhausted|out of resource|exceeds the limit")),
)

_ENDINGS = (
    (
        Verdict.OUT_OF_BOUNDS,
        re.compile(r"illegal_?\s?address|invalid_address_space|illegal memory access|memory access fault"),
    ),
    (Verdict.RESOURCE_EXCEEDED, re.compile(r"resource_exhausted|out of memory")),
)


@dataclass(frozen=True, slots=True)
class Jitted:
    """A compiled function of the leaves.

    Attributes:
      compiled: the function.
      device: where it runs.
      precision: what that does to numbers.
      eager: it is the kernel itself, called outside of `jax.jit`, to which it may donate its arguments.
    """

    compiled: Callable[..., Any]
    device: Any
    precision: Precision
    eager: bool = False

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        (outputs,) = self.run_all([leaves])
        return outputs

    def run_all(self, cases: Sequence[Sequence[Array]]) -> Sequence[tuple[Array, ...]]:
        """The outputs of several cases, of which the device has all before the first is awaited.

        Raises:
          Failure: as `run` does, for any of them.
        """
        try:
            given = [[leaf.astype(_carrier(leaf.dtype), copy=False) for leaf in leaves] for leaves in cases]
            before = [[leaf.tobytes() for leaf in leaves] for leaves in given]  # a CPU's arrays may share their memory
            copied = [[leaf.copy() for leaf in leaves] for leaves in given] if self.eager else given
            placed = jax.device_put(copied, self.device)
            with jax.default_device(self.device):
                outputs = jax.block_until_ready([self.compiled(*leaves) for leaves in placed])
            left = [[None if each.is_deleted() else each for each in leaves] for leaves in placed]
            results, after = jax.device_get((outputs, left))
        except Exception as error:
            text = str(error).lower()
            verdict = next((v for v, words in _ENDINGS if words.search(text)), Verdict.RUNTIME_ERROR)
            raise Failure(verdict, f"the kernel raised {type(error).__name__}: {error}") from error
        for was, became in zip(before, after, strict=True):
            for number, (one, other) in enumerate(zip(was, became, strict=True)):
                if other is not None and one != other.tobytes():
                    raise Failure(Verdict.INPUT_MODIFIED, f"the kernel wrote to its array argument {number}")
        return [tuple(each) for each in results]


def compile_for(
    traced: Traced,
    device: Any,
    precision: Precision,
    *,
    interpret: bool,
    options: Mapping[str, Any] | None = None,
) -> Jitted:
    """Compiles `traced` for `device`, unless it is to be called eagerly.

    Raises:
      Failure: naming the exception and the user's line.
    """
    if traced.eager:
        return Jitted(_carried(eagerly(traced.function, interpret=interpret), traced), device, precision, eager=True)
    place = jax.sharding.SingleDeviceSharding(device)
    arguments = [jax.ShapeDtypeStruct(i.shape, _carrier(i.dtype), sharding=place) for i in traced.inputs]
    try:
        function = _carried(runnable(traced, interpret=interpret), traced)
        with whole_tracebacks():
            lowered = jax.jit(function, out_shardings=place).lower(*arguments)
        return Jitted(lowered.compile(compiler_options=dict(options) if options else None), device, precision)
    except Exception as error:
        raise (interpreting_failure(error) if interpret else failure(error)) from error


def _carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What a leaf is placed as: JAX before 0.12 gives packed arrays another layout than it compiles for."""
    if not is_packed(dtype):
        return dtype
    return np.dtype(np.float32 if is_float(dtype) else np.int8)


def _carried(function: Callable[..., Any], traced: Traced) -> Callable[..., Any]:
    """A function of the leaves as one of what carries them."""
    if not any(is_packed(each.dtype) for each in traced.inputs):
        return function
    return lambda *leaves: function(*(x.astype(i.dtype) for x, i in zip(leaves, traced.inputs, strict=True)))


def failure(error: Exception) -> Failure:
    """What a compilation raised, with its verdict and the user's line."""
    text = str(error)
    verdict = next((v for v, words in _CAUSES if words.search(text.lower())), Verdict.COMPILE_ERROR)
    return Failure(verdict, f"{type(error).__name__}: {text}{user_line(error)}")


def interpreting_failure(error: Exception, *, checks: bool = False) -> Failure:
    """What an interpreter raised before it ran a traced kernel: `unavailable` where that is no fault of the kernel.

    Args:
      error: what it raised.
      checks: it checks kernels, and says in a `ValueError` what is wrong with one.
    """
    if not fails_by_itself(error, checks=checks):
        return failure(error)
    return Failure(Verdict.UNAVAILABLE, limit(error, "cannot interpret this"))
