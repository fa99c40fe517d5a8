"""What JAX itself cannot do, told from what is wrong with a kernel."""

import re

import jax

from kerneltest.trace.jax_compat.names import line_in_hand, user_line

# What JAX says in a `ValueError` of its own limits.
_KNOWN = re.compile(r"Cannot lower jaxpr with effects")


def fails_by_itself(error: BaseException, *, checks: bool = False) -> bool:
    """Whether an interpreter of JAX's, or XLA's compiler for the CPU, failed at a kernel that has no fault.

    The kernel was traced before, so its shapes, dtypes and indices are right, and JAX runs it without calling it again.

    Args:
      error: what was raised.
      checks: the interpreter checks kernels, and says in a `ValueError` what is wrong with one.
    """
    if user_line(error):
        return False
    return not (checks and isinstance(error, ValueError)) or bool(_KNOWN.search(str(error)))


def limit(error: BaseException, what: str) -> str:
    """A limit of JAX's in words: `cannot interpret this`, with the version, what was raised and the user's line."""
    place = user_line(error) or line_in_hand(error)
    return f"JAX {jax.__version__} {what}, which is no fault of the kernel: {type(error).__name__}: {error}{place}"
