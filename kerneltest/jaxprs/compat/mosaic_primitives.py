"""The primitives of Mosaic GPU that copy from shared to global memory, and what their parameters say."""

from typing import Any

from jax._src.pallas.mosaic_gpu import primitives


def is_copy_out(equation: Any) -> bool:
    """Whether it starts a copy from shared to global memory."""
    return equation.primitive is primitives.copy_smem_to_gmem_p


def is_predicated_copy_out(equation: Any) -> bool:
    """Whether it starts such a copy where its last operand, the predicate, is true."""
    return is_copy_out(equation) and bool(equation.params["has_user_predicate"])


def is_wait_for_copies_out(equation: Any) -> bool:
    """Whether it waits until at most its parameter `n` of the groups of such copies are under way."""
    # In JAX 0.10.2 `n` is an operand, and the interpreter waits for nothing.
    return equation.primitive is primitives.wait_smem_to_gmem_p and "n" in equation.params


def ends_copy_group(equation: Any) -> bool:
    """Whether the copies started before it make up a group."""
    return equation.primitive is primitives.commit_group_p or bool(equation.params.get("commit_group"))
