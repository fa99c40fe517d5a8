"""Exceptions that end the tracing of a kernel."""

import re

import jax

from kerneltest.core.details import Raised, Stated
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.abstract_devices import hide_own_frame
from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr
from kerneltest.trace.jax_compat.source_lines import package_line, source_of, user_line


def tracing_failure(error: BaseException, purpose: str) -> Failure:
    """Returns the failure for an exception that was raised while a kernel was traced.

    Args:
      error: the exception.
      purpose: of the tracing, such as `for m=1,n=3`.
    """
    hide_own_frame(error)
    if reason := _mesh_limit(error):
        return Failure(Verdict.UNAVAILABLE, reason)
    line = (user_line(error) or package_line(error)).strip(" ()")  # the kernel may be an installed library's
    detail = Raised("the kernel", type(error).__name__, _error_text(error), f"while traced {purpose}", line)
    return Failure(Verdict.RUNTIME_ERROR, detail)


def check_leaks(closed: ClosedJaxpr, purpose: str) -> None:
    """Checks that a traced function uses no value of an earlier trace, as one that remembers results would.

    Args:
      closed: the function.
      purpose: of the tracing.

    Raises:
      Failure: it does.
    """
    if any(isinstance(const, jax.core.Tracer) for const in closed.consts):
        sentence = "the kernel used a value of an earlier trace while traced {purpose}: it keeps results between calls"
        raise Failure(Verdict.RUNTIME_ERROR, Stated(sentence, {"purpose": purpose}))


_TOO_LARGE = re.compile(r"-?\d{10,}")


def _error_text(error: BaseException) -> str:
    """The text of an error; for an integer that overflows, of which JAX only names its own argument, an explanation."""
    said = exception_text(error)
    number = _TOO_LARGE.search(said) if isinstance(error, OverflowError) else None
    if number is None:
        return said
    return (
        f"{int(number[0]):,} does not fit into 32 bits, the size of integers here: keep it between -2^31 and 2^31 - 1 "
        "(split a longer axis, for example by x.reshape(rows, columns), and index both parts), or compute in 64 bits "
        f"(jax_enable_x64, jnp.int64): {said}"
    )


def _mesh_limit(error: BaseException) -> str:
    """The reason why a function that makes a mesh cannot be traced here, or "".

    Either this machine has too few devices, or the function takes arrays that are on those devices already.
    """
    line, said = user_line(error), exception_text(error)
    if _PLACED.search(said):
        return (
            f"the function around the kernel takes arrays that are placed on its mesh{line}, and kerneltest passes "
            "plain ones: begin it with jax.reshard, or make the mesh with axis_types=(jax.sharding.AxisType.Auto,) for "
            "each axis"
        )
    found = _TOO_FEW.search(said)
    if not found and not (_NOT_THERE.search(said) and "devices" in source_of(line)):
        return ""
    count, kind = jax.device_count(), jax.default_backend()
    more = "; XLA_FLAGS=--xla_force_host_platform_device_count=N makes N" if kind == "cpu" else ""
    return (
        f"the function around the kernel makes a mesh of more devices than JAX finds here, {count} of {kind}{line}"
        f"{more}: {said}"
    )


_PLACED = re.compile(r"in_specs passed to shard_map: .* does not match the specs of the input")
# JAX's text, and the texts of NumPy and Python for a list of devices that is too short.
_TOO_FEW = re.compile(r"Number of devices \d+ must (?:be >=|equal) the product")
_NOT_THERE = re.compile(r"cannot reshape array of size \d+ into shape|list index out of range")
