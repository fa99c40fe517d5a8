"""Mosaic GPU kernels rewritten so that JAX's interpreter of them runs all of `emit_pipeline`.

The interpreter refuses a predicated copy from shared to global memory, and it waits for so many copies where the device
waits for so many groups of copies. Both are mended in the jaxpr. A predicated copy becomes a conditional one, which copies
nothing where the predicate does not hold, so that its group keeps its copy. A wait for `n` groups becomes one for as many
copies as `n` groups have at least: where groups differ in size, the interpreter then waits for more than the device does,
and may miss a race, but never sees one that is none.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax._src.pallas.mosaic_gpu import primitives as mosaic
from jax._src.state.indexing import NDIndexer, Slice
from jax.extend.core import ClosedJaxpr, Literal

from kerneltest.trace import Call, nested, rewritten


def interpreted(call: Call, interpret: Any) -> tuple[Callable[..., Any], list[Any]]:
    """One Mosaic GPU call as a function that `interpret` (the interpreter's parameters) runs, and what it takes."""
    bodies = [body for value in call.equation.params.values() for body in nested(value)]
    smallest = min((size for body in bodies for size in _groups(body)), default=1)

    def change(equation: Any) -> list[Any]:
        if equation.primitive is mosaic.copy_smem_to_gmem_p and equation.params["has_user_predicate"]:
            return _conditional(equation)
        if equation.primitive is mosaic.wait_smem_to_gmem_p and "n" in equation.params:  # 0.10.2 waits for nothing
            return [equation.replace(params={**equation.params, "n": equation.params["n"] * smallest})]
        return [equation]

    # A jaxpr of the call alone, so that its bodies are rewritten wherever this version of JAX keeps them.
    (equation,) = rewritten(_jaxpr(call.equation.invars, [call.equation]), change).eqns
    params = {**equation.params, "interpret": interpret}
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    return lambda *operands: equation.primitive.bind(*operands, **params), shapes


def _groups(jaxpr: Any) -> Iterator[int]:
    """How many copies each group of copies to global memory has at least."""
    copies = 0
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for inner in nested(value):
                yield from _groups(inner)
        if equation.primitive is mosaic.copy_smem_to_gmem_p:
            copies += not equation.params["has_user_predicate"] or bool(_of_nothing(equation))
        if equation.primitive is mosaic.commit_group_p or equation.params.get("commit_group"):
            yield copies
            copies = 0


def _conditional(equation: Any) -> list[Any]:
    """`copy(..., predicate=p)` as `cond(p, copy, a copy of nothing)`."""
    *operands, predicate = equation.invars
    copy = equation.replace(invars=operands, params={**equation.params, "has_user_predicate": False})
    template = jax.make_jaxpr(lambda p: jax.lax.cond(p, lambda: 1, lambda: 2))(True).jaxpr
    to_index, choose = template.eqns
    branches = tuple(ClosedJaxpr(_jaxpr(operands, copies), ()) for copies in (_of_nothing(copy), [copy]))
    operands = [*to_index.outvars, *operands]
    chosen = choose.replace(invars=operands, outvars=[], params={**choose.params, "branches": branches})
    return [to_index.replace(invars=[predicate]), chosen.replace(effects=equation.effects)]


def _jaxpr(invars: list[Any], equations: list[Any]) -> Any:
    return jax.make_jaxpr(lambda: None)().jaxpr.replace(invars=invars, eqns=equations)


def _of_nothing(copy: Any) -> list[Any]:
    """The copy with both its windows empty, past the end of their arrays; none where their axes cannot be told."""
    source, target = copy.invars[:2]
    trees = [copy.params["src_transforms_treedef"], copy.params["dst_transforms_treedef"]]
    shapes = [_indexed(ref, tree) for ref, tree in zip((source, target), trees, strict=True)]
    if any(shape is None for shape in shapes):
        return []
    rank = min(len(shape) for shape in shapes if shape is not None)
    leaves: list[Any] = []
    for key, shape in zip(("src_transforms_treedef", "dst_transforms_treedef"), shapes, strict=True):
        extra = len(shape) - rank
        indices = (*([0] * extra), *(Slice(length, 0) for length in shape[extra:]))
        flat, tree = jax.tree.flatten((NDIndexer(indices, tuple(shape), ()),))
        leaves += [Literal(np.int32(i), jax.core.ShapedArray((), np.int32)) for i in flat]
        copy = copy.replace(params={**copy.params, key: tree})
    return [copy.replace(invars=[source, target, *leaves])]


def _indexed(ref: Any, tree: Any) -> tuple[int, ...] | None:
    """The shape that a reference's first index sees, or None where a transform of another kind hides it."""
    transforms = jax.tree.unflatten(tree, list(range(tree.num_leaves)))
    for transform in transforms:
        if isinstance(transform, NDIndexer):
            return tuple(transform.shape)
    return None if transforms else tuple(ref.aval.shape)
