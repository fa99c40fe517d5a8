"""The invariants that every pairing is held to: `vmap`, no `jit`, poison, grid order, batches, gradients.

`kt.invariant` is taken from here, so that a user's invariants come after them, wherever they are registered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import ShapeDtype, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.arguments import Static
from kerneltest.declare.pairing import Pairing
from kerneltest.jaxprs.compat.limits import limit
from kerneltest.jaxprs.compat.names import raised_in_jax
from kerneltest.jaxprs.rewrite import Fill, Rule, before, padding, reversing, rewritten
from kerneltest.jaxprs.trace import read, trace_function
from kerneltest.oracle.expectation import evaluator, watchable
from kerneltest.oracle.gradient import gradients
from kerneltest.plan.cases import Case
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature
from kerneltest.run.asked import Asked, Share, Take, Variation
from kerneltest.run.variations import invariant as invariant


def _has_arrays(pairing: Pairing, signature: Signature) -> bool:
    return bool(pairing.leaves)


@invariant(applies=_has_arrays, rewrites=True)
def plain_call(asked: Asked) -> Iterator[Variation]:
    """Called on arrays, outside of `jax.jit`, the kernel gives the same."""
    shares = (Share("called outside of jax.jit", asked.by_oracle()),)
    traced = asked.once("eager", lambda: replace(asked.traced, eager=True))
    yield Variation(traced, asked.leaves, shares)


@invariant(applies=_has_arrays)
def vmapped(asked: Asked) -> Iterator[Variation]:
    """Under `jax.vmap` over a new leading axis, each element of the batch comes out as by itself."""
    pairing, signature = asked.pairing, asked.case.signature
    other = Case(asked.case.pairing_id, pairing.name, signature, FAMILIES["small_integers"], "", asked.seed)
    expectation, _ = asked.cache.expected(pairing, other, asked.traced)
    arguments = asked.cache.arguments(pairing, other)
    inputs = tuple(ShapeDtype((2, *i.shape), i.dtype) for i in asked.traced.inputs)
    try:
        batched = jax.vmap(asked.traced.function)
        traced = asked.once(
            "vmapped", lambda: trace_function(batched, inputs, "under jax.vmap over a new leading axis")
        )
    except Failure as failure:
        error = failure.__cause__
        if error is None or not raised_in_jax(error):
            raise
        raise Failure(Verdict.UNAVAILABLE, limit(error, "cannot batch this under jax.vmap")) from failure
    yield Variation(
        traced,
        tuple(np.stack([one, arguments[path]]) for path, one in zip(asked.pairing.leaves, asked.leaves, strict=True)),
        (
            Share(
                "first in a batch of two under jax.vmap",
                asked.by_oracle(),
                lambda outputs: tuple(o[0] for o in outputs),
            ),
            Share(
                "second in a batch of two under jax.vmap",
                asked.by_oracle(expectation),
                lambda outputs: tuple(o[1] for o in outputs),
            ),
        ),
    )


def _has_tail(pairing: Pairing, signature: Signature) -> bool:
    return any(length % (pairing.dims[name].block or 16) for name, length in signature.dims)


@invariant(applies=_has_tail, rewrites=True)
def poisoned_padding(asked: Asked) -> Iterator[Variation]:
    """What lies past an array's end in its last block, or in a masked lane of a load, does not matter."""
    yield _changed(asked, padding(Fill(nan=True)), "with NaN and the least integers as padding")
    yield _changed(asked, padding(Fill(nan=False)), "with the largest numbers as padding")


@invariant(rewrites=True)
def old_output(asked: Asked) -> Iterator[Variation]:
    """What the memory of an output held before does not matter."""
    yield _changed(asked, before(Fill(nan=True)), "with NaN and the least integers in the output before")
    yield _changed(asked, before(Fill(nan=False)), "with the largest numbers in the output before")


def _changed(asked: Asked, rule: Rule, label: str) -> Variation:
    traced = asked.traced
    changed = asked.once(label, lambda: read(rewritten(traced.jaxpr, rule), traced.function, traced.inputs))
    return Variation(changed, asked.leaves, (Share(label, asked.by_oracle()),))


@invariant(applies=lambda pairing, signature: "grid" in pairing.invariant_to, rewrites=True)
def reversed_grid(asked: Asked) -> Iterator[Variation]:
    """The order of the programs does not matter: declared by `invariant_to="grid"`."""
    changed = _changed(asked, reversing(), "with the grid's programs in reverse order")
    yield replace(changed, shares=(Share(changed.shares[0].label, asked.as_plain_call()),))


@invariant(applies=lambda pairing, signature: any(_others(pairing, signature)))
def other_choices(asked: Asked) -> Iterator[Variation]:
    """A static argument that `invariant_to` names does not matter."""
    for name, option in _others(asked.pairing, asked.case.signature):
        statics = {**dict(asked.case.signature.statics), name: option}
        other = replace(asked.case.signature, statics=tuple(statics.items()))
        yield Variation(asked.at(other), asked.leaves, (Share(f"with {name}={option}", asked.as_plain_call()),))


def _others(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, str]]:
    for name, chosen in signature.statics:
        argument = pairing.arguments[name]
        if name in pairing.invariant_to and isinstance(argument, Static):
            yield from ((name, option) for option, _ in argument.options if option != chosen)


@invariant(applies=lambda pairing, signature: any(_batches(pairing, signature)))
def alone(asked: Asked) -> Iterator[Variation]:
    """A slice along a dim that `batch_dims` names does not depend on what else is in the batch.

    Compilers lay out the code for one slice in their own way, and so sum in another order: bit for bit, slices are
    compared with those of a batch of the same length.
    """
    for name, length in _batches(asked.pairing, asked.case.signature):
        dims = {**dict(asked.case.signature.dims), name: 1}
        single = asked.at(replace(asked.case.signature, dims=tuple(dims.items())))
        axes = [leaf.shape.index(name) if name in leaf.shape else None for leaf in asked.pairing.leaves.values()]
        out_axes = [_shrunk_axis(a, b) for a, b in zip(asked.traced.outputs, single.outputs, strict=True)]
        for at in sorted({0, length - 1}):
            part, copies = _copies(out_axes, at, 1), _copies(out_axes, at, length)
            yield Variation(
                single,
                _copies(axes, at, 1)(asked.leaves),
                (Share(f"{name}={at} alone, of {length}", asked.by_oracle(part=part)),),
            )
            yield Variation(
                asked.traced,
                _copies(axes, at, length)(asked.leaves),
                (Share(f"{name}={at} in each of {length} places", asked.as_plain_call(copies)),),
            )


def _batches(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, int]]:
    yield from ((name, length) for name, length in signature.dims if name in pairing.batch_dims and length > 1)


def _shrunk_axis(whole: ShapeDtype, single: ShapeDtype) -> int | None:
    changed = [i for i, (a, b) in enumerate(zip(whole.shape, single.shape, strict=True)) if a != b]
    return changed[0] if changed else None


def _copies(axes: Sequence[int | None], at: int, count: int) -> Take:
    """Takes the slice at a position along an axis of each array, `count` times; an array without that axis as it is."""
    return lambda arrays: tuple(
        x if axis is None else np.take(x, [at] * count, axis) for x, axis in zip(arrays, axes, strict=True)
    )


@invariant(applies=lambda pairing, signature: pairing.grad)
def gradient(asked: Asked) -> Iterator[Variation]:
    """The gradient is the oracle's: declared by `grad=True`. That of elements of which nothing is asked counts as 0."""
    traced = asked.traced
    kept = [(o, where) for o, where in zip(traced.outputs, asked.expectation.asked, strict=True) if is_float(o.dtype)]
    moving = [i for i, x in enumerate(traced.inputs) if is_float(x.dtype)]
    rng = np.random.Generator(np.random.PCG64(int(asked.case.entropy, 16)))
    cotangents = tuple((rng.choice((-1.0, -0.5, 0.5, 1.0), o.shape) * where).astype(o.dtype) for o, where in kept)

    def pulled_back(*values: Any) -> list[Any]:
        leaves, weights = values[: len(traced.inputs)], values[len(traced.inputs) :]

        def floats(*chosen: Any) -> list[Any]:
            whole = list(leaves)
            for i, value in zip(moving, chosen, strict=True):
                whole[i] = value
            return [o for o in traced.function(*whole) if is_float(np.dtype(o.dtype))]

        return list(jax.vjp(floats, *(leaves[i] for i in moving))[1](list(weights)))

    inputs = (*traced.inputs, *(ShapeDtype(w.shape, w.dtype) for w in cotangents))
    paths = list(asked.pairing.leaves)
    pairing, signature = asked.pairing, asked.case.signature
    expectation = gradients(
        evaluator(pairing, signature),
        asked.arguments,
        cotangents,
        rng,
        watchable(pairing, signature),
        [o.dtype for o, _ in kept],
    )
    share = Share("the gradient", asked.by_oracle(expectation), gradient_of=tuple(paths[i] for i in moving))
    pulled = asked.once("gradient", lambda: trace_function(pulled_back, inputs, "by jax.vjp"))
    yield Variation(pulled, (*asked.leaves, *cotangents), (share,))
