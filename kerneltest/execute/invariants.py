"""The invariants that every pairing is held to: `vmap`, no `jit`, poison, grid order, batches, gradients.

`kt.invariant` is taken from here, so that a user's invariants come after them, wherever they are registered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import Array, ShapeDtype, is_float, widen
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.axis_expressions import Axis, AxisExpression, dims_in, dims_in_axes, length_of
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.invariant_context import InvariantContext, OutputCheck, Outputs, Take, Variation
from kerneltest.execute.slices import Slices
from kerneltest.execute.variations import invariant as invariant
from kerneltest.oracle.evaluation import evaluator, tracking_evaluator
from kerneltest.oracle.gradient import expect_gradients
from kerneltest.plan.cases import Case
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature
from kerneltest.records.journal import Phase
from kerneltest.trace.grid_rewrites import reverse_grids
from kerneltest.trace.jax_compat.source_lines import describe_limitation, raised_in_jax
from kerneltest.trace.rewrite import Fill, Rule, fill_outputs, fill_padding, rewrite_jaxpr
from kerneltest.trace.tracing import Traced, analyze, trace_function

_ROUNDED = 1e-9  # relative: how far two orders of summation may be apart in float64


def _has_arrays(pairing: Pairing, signature: Signature) -> bool:
    return bool(pairing.leaves)


@invariant(applies=_has_arrays, rewrites=True, once=True)
def plain_call(asked: InvariantContext) -> Iterator[Variation]:
    """Called on arrays, outside of `jax.jit`, the kernel gives the same."""
    shares = (OutputCheck("called outside of jax.jit", asked.by_oracle()),)
    traced = asked.once("eager", lambda: replace(asked.traced, eager=True))
    yield Variation(traced, asked.leaves, shares)


@invariant(applies=_has_arrays)
def vmapped(asked: InvariantContext) -> Iterator[Variation]:
    """Under `jax.vmap` over a new leading axis, each element of the batch comes out as by itself."""
    pairing, signature = asked.pairing, asked.case.signature
    other = Case(asked.case.pairing_id, pairing.name, signature, FAMILIES["small_integers"], "", asked.seed)
    expectation, _ = asked.cache.expect(pairing, other, asked.traced)
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
        raise Failure(Verdict.UNAVAILABLE, describe_limitation(error, "cannot batch this under jax.vmap")) from failure
    yield Variation(
        traced,
        tuple(np.stack([one, arguments[path]]) for (path, _), one in zip(signature.dtypes, asked.leaves, strict=True)),
        (
            OutputCheck(
                "first in a batch of two under jax.vmap",
                asked.by_oracle(),
                lambda outputs: tuple(o[0] for o in outputs),
            ),
            OutputCheck(
                "second in a batch of two under jax.vmap",
                asked.by_oracle(expectation),
                lambda outputs: tuple(o[1] for o in outputs),
            ),
        ),
    )


def _has_tail(pairing: Pairing, signature: Signature) -> bool:
    return any(length % (pairing.dims[name].block or 16) for name, length in signature.dims)


@invariant(applies=_has_tail, rewrites=True)
def poisoned_padding(asked: InvariantContext) -> Iterator[Variation]:
    """What lies past an array's end in its last block, or in a masked lane of a load, does not matter."""
    yield _changed(asked, fill_padding(Fill(nan=True)), "with NaN and the least integers as padding")
    yield _changed(asked, fill_padding(Fill(nan=False)), "with the largest numbers as padding")


@invariant(rewrites=True)
def old_output(asked: InvariantContext) -> Iterator[Variation]:
    """What the memory of an output held before does not matter."""
    yield _changed(asked, fill_outputs(Fill(nan=True)), "with NaN and the least integers in the output before")
    yield _changed(asked, fill_outputs(Fill(nan=False)), "with the largest numbers in the output before")


def _changed(asked: InvariantContext, rule: Rule, label: str) -> Variation:
    traced = asked.traced
    changed = asked.once(label, lambda: analyze(rewrite_jaxpr(traced.jaxpr, rule), traced.function, traced.inputs))
    return Variation(changed, asked.leaves, (OutputCheck(label, asked.by_oracle()),))


@invariant(applies=lambda pairing, signature: "grid" in pairing.invariant_to, rewrites=True)
def reversed_grid(asked: InvariantContext) -> Iterator[Variation]:
    """The order of the programs does not matter: declared by `invariant_to="grid"`."""
    changed = _changed(asked, reverse_grids(), "with the grid's programs in reverse order")
    yield replace(changed, shares=(OutputCheck(changed.shares[0].label, asked.as_plain_call()),))


@invariant(applies=lambda pairing, signature: any(_others(pairing, signature)))
def other_choices(asked: InvariantContext) -> Iterator[Variation]:
    """A static argument that `invariant_to` names does not matter."""
    for name, option in _others(asked.pairing, asked.case.signature):
        statics = {**dict(asked.case.signature.statics), name: option}
        other = replace(asked.case.signature, statics=tuple(statics.items()))
        yield Variation(asked.at(other), asked.leaves, (OutputCheck(f"with {name}={option}", asked.as_plain_call()),))


def _others(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, str]]:
    options = pairing.options()
    for name, chosen in signature.statics:
        if name in pairing.invariant_to:
            others = ({**dict(signature.statics), name: option} for option in options[name] if option != chosen)
            yield from ((name, each[name]) for each in others if pairing.admits(dict(signature.dims), each))


@invariant(applies=lambda pairing, signature: any(_batches(pairing, signature)))
def alone(asked: InvariantContext) -> Iterator[Variation]:
    """A slice along a dim that `batch_dims` names does not depend on what else is in the batch.

    Compilers lay out the code for one slice in their own way, and so sum in another order: bit for bit, slices are
    compared with those of a batch of the same length.
    """
    pairing, signature = asked.pairing, asked.case.signature
    for name, length, least in _batches(pairing, signature):
        shorter = replace(signature, dims=tuple({**dict(signature.dims), name: least}.items()))
        single = asked.at(shorter)
        leaves = [leaf.shape for leaf in signature.leaves(pairing).values()]
        pairs = zip(asked.traced.outputs, single.outputs, strict=True)
        outputs = [_axes_of(pairing, signature, name, least, a.shape, b.shape) for a, b in pairs]
        slices = Slices(dict(signature.dims), name)
        apart = any(leaf.globally_unique and name in dims_in_axes(leaf.shape)
                    for leaf in signature.leaves(pairing).values())  # fmt: skip
        for at in sorted({0, length - least}):
            place = f"{name}={at}" if least == 1 else f"{name}={at} to {at + least - 1}"
            once = slices.copies(at, least, 1)
            part, sliced = slices.taken(outputs, once), slices.taken(leaves, once)(asked.leaves)
            if any(isinstance(axis, AxisExpression) for axes in outputs for axis in axes):
                _check_slice(asked, shorter, single, sliced, part)
            yield Variation(
                single,
                sliced,
                (OutputCheck(f"{place} alone, of {length}", asked.by_oracle(part=part)),),
            )
            if length % least == 0 and not apart and not slices.overlap([*leaves, *outputs]):
                again = slices.copies(at, least, length // least)
                yield Variation(
                    asked.traced,
                    slices.taken(leaves, again)(asked.leaves),
                    (
                        OutputCheck(
                            f"{place} in each of {length // least} places",
                            asked.as_plain_call(slices.taken(outputs, again)),
                        ),
                    ),
                )


def _check_slice(asked: InvariantContext, shorter: Signature, single: Traced, sliced: Outputs, part: Take) -> None:
    """That no output orders the elements of an axis otherwise than the argument by which its slices are told.

    An output does where what the oracle says of a slice by itself is among its outputs for the whole, elsewhere.

    Raises:
      Failure: one does.
    """
    wide = {path: widen(leaf) for (path, _), leaf in zip(shorter.dtypes, sliced, strict=True)}
    asked.cache.enter_phase(Phase.EXPECTING)
    alone = evaluator(asked.pairing, shorter, single.outputs)(wide)
    for one, there, whole in zip(alone, part(asked.expectation.values), asked.expectation.values, strict=True):
        if one.shape != there.shape or (not _are_alike(one, there) and _are_among(one, whole)):
            raise Failure(
                Verdict.UNAVAILABLE,
                "an output orders the elements of an axis otherwise than the argument that has it, so that its slices "
                "are not known; leave the dim out of batch_dims, or give it an axis of its own",
            )


def _are_alike(one: Array, other: Array) -> bool:
    return bool(np.allclose(one, other, rtol=_ROUNDED, atol=0, equal_nan=True))


def _are_among(some: Array, all_: Array) -> bool:
    """Whether each finite number is, but for rounding, one of others."""
    known = np.concatenate([[-np.inf], np.sort(all_[np.isfinite(all_)].astype(np.float64), axis=None), [np.inf]])
    wanted = some[np.isfinite(some)].astype(np.float64)
    at = np.clip(np.searchsorted(known, wanted), 1, known.size - 1)
    off = np.minimum(wanted - known[at - 1], known[at] - wanted)
    return bool((off <= _ROUNDED * np.abs(wanted)).all())


def _batches(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, int, int]]:
    """The dims along which slices are run alone: their lengths, and those of the shortest slices that are admitted."""
    lengths, statics = dict(signature.dims), dict(signature.statics)
    for name in pairing.batch_dims:
        least = pairing.dims[name].shortest
        if lengths[name] > least > 0 and pairing.admits({**lengths, name: least}, statics):
            yield name, lengths[name], least


def _axes_of(
    pairing: Pairing, signature: Signature, name: str, least: int, whole: Sequence[int], single: Sequence[int]
) -> list[Axis]:
    """The axes of an output, as far as a dim is in them: told by their lengths with all of it and with a slice."""
    lengths = dict(signature.dims)
    short = {**lengths, name: least}
    declared = [axis for leaf in pairing.leaves.values() for axis in leaf.shape if name in dims_in(axis)]
    axes: list[Axis] = []
    for length, less in zip(whole, single, strict=True):
        fitting = [
            axis for axis in [name, *declared] if (length_of(axis, lengths), length_of(axis, short)) == (length, less)
        ]
        if length != less and not fitting:
            raise Failure(
                Verdict.UNAVAILABLE,
                f"the output has an axis of {length} elements, and of {less} with a slice of {least} along {name!r}; "
                "no declared shape tells which elements belong to the slice",
            )
        axes.append(fitting[0] if length != less else length)
    return axes


@invariant(applies=lambda pairing, signature: pairing.grad)
def gradient(asked: InvariantContext) -> Iterator[Variation]:
    """The gradient is the oracle's: declared by `grad=True`. That of elements of which nothing is asked counts as 0."""
    traced = asked.traced
    kept = [(o, where) for o, where in zip(traced.outputs, asked.expectation.defined, strict=True) if is_float(o.dtype)]
    paths = [path for path, _ in asked.case.signature.dtypes]
    moving = [i for i, path in enumerate(paths) if is_float(traced.inputs[i].dtype) and _moves(asked.pairing, path)]
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
    pairing, signature = asked.pairing, asked.case.signature
    asked.cache.enter_phase(Phase.EXPECTING)
    expectation = expect_gradients(
        evaluator(pairing, signature, traced.outputs),
        asked.arguments,
        cotangents,
        rng,
        tracking_evaluator(pairing, signature, traced.outputs),
        [o.dtype for o, _ in kept],
        [paths[i] for i in moving],
    )
    share = OutputCheck("the gradient", asked.by_oracle(expectation), gradient_of=tuple(paths[i] for i in moving))
    pulled = asked.once("gradient", lambda: trace_function(pulled_back, inputs, "by jax.vjp"))
    yield Variation(pulled, (*asked.leaves, *cotangents), (share,))


def _moves(pairing: Pairing, path: str) -> bool:
    """Whether an array of floats is what a gradient is by, and no mask or choice in numbers."""
    return pairing.leaves[path].kind.differentiable
