"""The built-in invariants: no `jit`, `vmap`, poisoned memory, grid order, batches, gradients.

A function's name is its family in ids and records, and its docstring is shown in reports. `kt.invariant` is imported
from here, so that users' invariants always come after the built-in ones.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import jax
import numpy as np

from kerneltest.core.details import Stated
from kerneltest.core.dtypes import Array, DType, ShapeDtype, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.dims import AxisExpression, dims_in_axes
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.invariant_context import (
    BatchSlices,
    InvariantContext,
    OutputCheck,
    Variation,
    batch_slices,
    check_order,
    output_axes,
)
from kerneltest.execute.invariant_group import invariant as invariant
from kerneltest.oracle.evaluation import evaluator, tracking_evaluator
from kerneltest.oracle.expectation import Expectation
from kerneltest.oracle.gradient import expect_gradients
from kerneltest.plan.cases import Case
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature
from kerneltest.records.journal import Phase
from kerneltest.trace.grid_rewrites import reverse_grids
from kerneltest.trace.jax_compat.source_lines import describe_limitation, raised_in_jax, refuses_custom_vmap
from kerneltest.trace.rewrite import Fill, Rule, fill_outputs, fill_padding, rewrite_jaxpr
from kerneltest.trace.tracing import analyze, trace_function

# The cotangents with which gradients are asked: weights of a kernel's outputs, each kind for a fault of its own.

Rng = np.random.Generator
Weigh = Callable[[Rng, Array], Array]


def _signs(rng: Rng, where: Array) -> Array:
    return np.asarray(rng.choice((-1.0, -0.5, 0.5, 1.0), where.shape) * where)


def _magnitudes(rng: Rng, where: Array) -> Array:
    return _signs(rng, where) * 2.0 ** rng.integers(-8, 9, where.shape)


def _last(rng: Rng, where: Array) -> Array:
    weights = np.zeros(where.shape)
    weights.flat[np.flatnonzero(where)[-1:]] = 1.0
    return weights


COTANGENTS: dict[str, Weigh] = {
    "the gradient": _signs,
    "the gradient with weights from 1/512 to 256": _magnitudes,
    "the gradient of each output's last element": _last,
}
"""By the label of their check. Where all weights but one are zero, a division by the largest weight of a row fails."""


def cotangents(label: str, rng: Rng, defined: Sequence[Array], dtypes: Sequence[DType]) -> tuple[Array, ...]:
    """Returns the cotangent of each float output.

    Args:
      label: of the kind, in `COTANGENTS`.
      rng: chooses the weights.
      defined: bool, True for the elements that may have a weight.
      dtypes: of the outputs, and so of the cotangents.
    """
    return tuple(COTANGENTS[label](rng, where).astype(dtype) for where, dtype in zip(defined, dtypes, strict=True))


def _has_arrays(pairing: Pairing, signature: Signature) -> bool:
    return bool(pairing.leaves)


@invariant(applies=_has_arrays, rewrites=True, once=True)
def plain_call(asked: InvariantContext) -> Iterator[Variation]:
    """The kernel gives the right outputs when it is called on arrays, outside of `jax.jit`, twice on other values."""
    if asked.traced.not_local:
        raise Failure(Verdict.UNAVAILABLE, "outside of jax.jit, kerneltest does not run the devices of a mesh together")
    traced = asked.once("eager", lambda: replace(asked.traced, eager=True))
    yield Variation(traced, asked.leaves, (OutputCheck("called outside of jax.jit", asked.by_oracle()),))
    leaves, expectation = _other_values(asked)
    again = OutputCheck(
        "called outside of jax.jit for the second time, with other values", asked.by_oracle(expectation)
    )
    yield Variation(traced, leaves, (again,))


def _other_values(asked: InvariantContext) -> tuple[tuple[Array, ...], Expectation]:
    """Returns other values for the same signature, and the oracle's for them."""
    pairing, signature = asked.pairing, asked.case.signature
    other = Case(asked.case.pairing_id, pairing.name, signature, FAMILIES["small_integers"], "", asked.seed)
    expectation, _ = asked.cache.expect(pairing, other, asked.traced)
    arguments = asked.cache.arguments(pairing, other)
    return tuple(arguments[path] for path, _ in signature.dtypes), expectation


@invariant(applies=_has_arrays, follows=True)
def vmapped(asked: InvariantContext) -> Iterator[Variation]:
    """Under `jax.vmap` over a new leading axis, each element of the batch gives the same outputs as by itself."""
    leaves, expectation = _other_values(asked)
    inputs = tuple(ShapeDtype((2, *i.shape), i.dtype) for i in asked.traced.inputs)
    try:
        batched = jax.vmap(asked.traced.function)
        traced = asked.once(
            "vmapped", lambda: trace_function(batched, inputs, "under jax.vmap over a new leading axis")
        )
    except Failure as failure:
        error = failure.__cause__
        if error is None or not raised_in_jax(error) or refuses_custom_vmap(error):
            raise
        raise Failure(Verdict.UNAVAILABLE, describe_limitation(error, "cannot batch this under jax.vmap")) from failure
    _check_batched(traced.outputs, asked.traced.outputs)
    yield Variation(
        traced,
        tuple(np.stack(pair) for pair in zip(asked.leaves, leaves, strict=True)),
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
        transformation="jax.vmap",
    )


def _check_batched(outputs: Sequence[ShapeDtype], single: Sequence[ShapeDtype]) -> None:
    """Checks that the outputs of a batch of two are those of one call with a new leading axis.

    Raises:
      Failure: they are not, as the kernel's own `custom_vmap` rule makes them.
    """
    for number, (batched, one) in enumerate(zip(outputs, single, strict=True)):
        wanted = ShapeDtype((2, *one.shape), one.dtype)
        if batched != wanted:
            sentence = "output {number} has type {found} under jax.vmap over a new leading axis, expected {wanted}"
            values: dict[str, int | str] = {"number": number, "found": _type(batched), "wanted": _type(wanted)}
            raise Failure(Verdict.RUNTIME_ERROR, Stated(sentence, values))


def _type(array: ShapeDtype) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _has_tail(pairing: Pairing, signature: Signature) -> bool:
    return any(length % (pairing.dims[name].block or 16) for name, length in signature.dims)


@invariant(applies=_has_tail, rewrites=True)
def poisoned_padding(asked: InvariantContext) -> Iterator[Variation]:
    """The values past an array's end in its last block, and in masked lanes of a load, do not matter."""
    yield _rewrite(asked, fill_padding(Fill(nan=True)), "with NaN and the least integers as padding")
    yield _rewrite(asked, fill_padding(Fill(nan=False)), "with the largest numbers as padding")


@invariant(rewrites=True)
def old_output(asked: InvariantContext) -> Iterator[Variation]:
    """The earlier contents of an output's memory do not matter."""
    yield _rewrite(asked, fill_outputs(Fill(nan=True)), "with NaN and the least integers in the output before the call")
    yield _rewrite(asked, fill_outputs(Fill(nan=False)), "with the largest numbers in the output before the call")


def _rewrite(asked: InvariantContext, rule: Rule, label: str) -> Variation:
    """Returns the call with its jaxpr rewritten, which must give the oracle's values."""
    traced = asked.traced
    changed = asked.once(label, lambda: analyze(rewrite_jaxpr(traced.jaxpr, rule), traced.function, traced.inputs))
    return Variation(changed, asked.leaves, (OutputCheck(label, asked.by_oracle()),))


@invariant(applies=lambda pairing, signature: "grid" in pairing.invariant_to, rewrites=True)
def reversed_grid(asked: InvariantContext) -> Iterator[Variation]:
    """The order of the programs does not matter, as `invariant_to="grid"` declares."""
    changed = _rewrite(asked, reverse_grids(), "with the grid's programs in reverse order")
    yield replace(changed, shares=(OutputCheck(changed.shares[0].label, asked.as_plain_call()),))


@invariant(applies=lambda pairing, signature: any(_other_options(pairing, signature)))
def other_choices(asked: InvariantContext) -> Iterator[Variation]:
    """The value of a static argument in `invariant_to` does not matter."""
    for name, option in _other_options(asked.pairing, asked.case.signature):
        statics = {**dict(asked.case.signature.statics), name: option}
        other = replace(asked.case.signature, statics=tuple(statics.items()))
        yield Variation(asked.at(other), asked.leaves, (OutputCheck(f"with {name}={option}", asked.as_plain_call()),))


def _other_options(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, str]]:
    """Yields the other admitted options of static arguments in `invariant_to`, with their names."""
    options = pairing.options()
    for name, chosen in signature.statics:
        if name in pairing.invariant_to:
            others = ({**dict(signature.statics), name: option} for option in options[name] if option != chosen)
            yield from ((name, each[name]) for each in others if pairing.admits(dict(signature.dims), each))


@invariant(applies=lambda pairing, signature: any(batch_slices(pairing, signature)))
def alone(asked: InvariantContext) -> Iterator[Variation]:
    """A slice along a dim in `batch_dims` does not depend on the rest of the batch.

    Compilers lay out the code for a single slice in another way, and so sum in another order. Slices are compared bit
    for bit only with those of a batch of the same length, in which one slice is repeated.
    """
    pairing, signature = asked.pairing, asked.case.signature
    declared = list(signature.leaves(pairing).values())
    leaves = [leaf.shape for leaf in declared]
    for name, length, least in batch_slices(pairing, signature):
        shorter = replace(signature, dims=tuple({**dict(signature.dims), name: least}.items()))
        single = asked.at(shorter)
        pairs = zip(asked.traced.outputs, single.outputs, strict=True)
        outputs = [output_axes(pairing, signature, name, least, a.shape, b.shape) for a, b in pairs]
        slices = BatchSlices(dict(signature.dims), name)
        unique = any(leaf.globally_unique and name in dims_in_axes(leaf.shape) for leaf in declared)
        repeatable = length % least == 0 and not unique and not slices.overlap([*leaves, *outputs])
        for start in sorted({0, length - least}):
            place = f"{name}={start}" if least == 1 else f"{name}={start} to {start + least - 1}"
            once = slices.repeated_positions(start, least, 1)
            part, sliced = slices.taker(outputs, once), slices.taker(leaves, once)(asked.leaves)
            if any(isinstance(axis, AxisExpression) for axes in outputs for axis in axes):
                check_order(asked, shorter, single, sliced, part)
            yield Variation(single, sliced, (OutputCheck(f"{place} alone, of {length}", asked.by_oracle(part=part)),))
            if repeatable:
                again = slices.repeated_positions(start, least, length // least)
                wanted = asked.as_plain_call(slices.taker(outputs, again))
                label = f"{place} in each of {length // least} places"
                inputs = slices.taker(leaves, again)(asked.leaves)
                yield Variation(asked.traced, inputs, (OutputCheck(label, wanted),))


@invariant(applies=lambda pairing, signature: bool(pairing.grad), follows=True, every_order=True)
def gradient(asked: InvariantContext) -> Iterator[Variation]:
    """The gradient is the oracle's, as `grad=` declares. Undefined elements of outputs have no weight in it."""
    traced = asked.traced
    floats = [
        (o, where) for o, where in zip(traced.outputs, asked.expectation.defined, strict=True) if is_float(o.dtype)
    ]
    paths = [path for path, _ in asked.case.signature.dtypes]
    differentiable = [
        i for i, path in enumerate(paths) if is_float(traced.inputs[i].dtype) and asked.pairing.differentiates(path)
    ]
    gradient_of = tuple(paths[i] for i in differentiable)

    def pull_back(*values: jax.Array) -> list[jax.Array]:
        leaves, weights = values[: len(traced.inputs)], values[len(traced.inputs) :]

        def float_outputs(*chosen: jax.Array) -> list[jax.Array]:
            arguments = list(leaves)
            for i, value in zip(differentiable, chosen, strict=True):
                arguments[i] = value
            return [o for o in traced.function(*arguments) if is_float(np.dtype(o.dtype))]

        return list(jax.vjp(float_outputs, *(leaves[i] for i in differentiable))[1](list(weights)))

    inputs = (*traced.inputs, *(ShapeDtype(o.shape, o.dtype) for o, _ in floats))
    vjp = asked.once("gradient", lambda: trace_function(pull_back, inputs, "by jax.vjp"))
    pairing, signature = asked.pairing, asked.case.signature
    evaluate = evaluator(pairing, signature, traced.outputs)
    tracking = tracking_evaluator(pairing, signature, traced.outputs)
    dtypes = [o.dtype for o, _ in floats]
    for number, label in enumerate(COTANGENTS):
        rng = np.random.Generator(np.random.PCG64([int(asked.case.entropy, 16), number]))
        weights = cotangents(label, rng, [where for _, where in floats], dtypes)

        def expect(weights: Sequence[Array] = weights, rng: np.random.Generator = rng) -> Expectation:
            return expect_gradients(evaluate, asked.arguments, weights, rng, tracking, dtypes, gradient_of)

        asked.cache.enter_phase(Phase.EXPECTING)
        expectation = asked.cache.gradients.compute_once((asked.case.id, label), expect)
        # Slopes are estimates at some elements; no formula is as close to them as to a gradient.
        exact = expectation if expectation.formula is not None else None
        share = OutputCheck(label, asked.by_oracle(expectation), gradient_of=gradient_of, formula=exact)
        yield Variation(vjp, (*asked.leaves, *weights), (share,))
