"""The built-in invariants: no `jit`, `vmap`, poisoned memory, grid order, batches, gradients.

A function's name is its family in ids and records, and its docstring is shown in reports. `kt.invariant` is imported
from here, so that users' invariants always come after the built-in ones.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from kerneltest.core.details import Stated
from kerneltest.core.dtypes import Array, DType, ShapeDtype, is_float, widen
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.dims import Axis, AxisExpression, dims_in, dims_in_axes, length_of, positions_along
from kerneltest.declare.pairing import BATCH, GRID, UNREAD, Pairing
from kerneltest.execute.applicability import trace_if_possible
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import CaseContext, OutputCheck, Variation
from kerneltest.execute.formula import Take
from kerneltest.execute.invariant_group import OtherCase
from kerneltest.execute.invariant_group import invariant as invariant
from kerneltest.oracle.evaluation import evaluator, tracking_evaluator
from kerneltest.oracle.expectation import Expectation, Outputs
from kerneltest.oracle.gradient import expect_gradients
from kerneltest.oracle.unread import poisoned_arguments
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature, first_alike
from kerneltest.records.journal import Phase
from kerneltest.trace.jax_compat.source_lines import describe_limitation, raised_in_jax, refuses_custom_vmap
from kerneltest.trace.rewrite import Fill, Rule, fill_outputs, fill_padding, reverse_grids, rewrite_jaxpr
from kerneltest.trace.tracing import Traced, analyze, trace_function
from kerneltest.trace.walk import iter_equations, primitive_name

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
    """Returns the cotangent of each float output, of the kind with a label in `COTANGENTS`, where it is defined."""
    return tuple(COTANGENTS[label](rng, where).astype(dtype) for where, dtype in zip(defined, dtypes, strict=True))


def _has_arrays(pairing: Pairing, signature: Signature) -> bool:
    return bool(pairing.leaves)


# Another case of the same signature.
def _other_case(pairing: Pairing, case: AnyCase, seed: int, cache: Cache) -> Case:
    return Case(case.pairing_id, pairing.name, case.signature, FAMILIES["small_integers"], "", seed)


# The arrays of another case, and the oracle's values for them.
def _values_of(context: CaseContext, other: OtherCase) -> tuple[tuple[Array, ...], Expectation]:
    pairing, cache = context.pairing, context.cache
    case = other(pairing, context.case, context.seed, cache)
    expectation, _ = cache.expectations.of(pairing, case, context.traced)
    return cache.expectations.inputs(pairing, case), expectation


@invariant(applies=_has_arrays, rewrites=True, once=True, other=_other_case, needs="an array argument")
def plain_call(context: CaseContext) -> Iterator[Variation]:
    """The kernel gives the right outputs when it is called on arrays, outside of `jax.jit`, twice on other values."""
    if context.traced.not_local:
        raise Failure(Verdict.UNAVAILABLE, "outside of jax.jit, kerneltest does not run the devices of a mesh together")
    traced = context.once("eager", lambda: replace(context.traced, eager=True))
    yield Variation(traced, context.leaves, (OutputCheck("called outside of jax.jit", context.by_oracle()),))
    leaves, expectation = _values_of(context, _other_case)
    label = "called outside of jax.jit for the second time, with other values"
    yield Variation(traced, leaves, (OutputCheck(label, context.by_oracle(expectation)),))


@invariant(applies=_has_arrays, follows=True, other=_other_case, needs="an array argument")
def vmapped(context: CaseContext) -> Iterator[Variation]:
    """Under `jax.vmap` over a new leading axis, each element of the batch gives the same outputs as by itself."""
    yield _batch(context, slice(None), _other_case)


def _has_several_arrays(pairing: Pairing, signature: Signature) -> bool:
    return len(signature.dtypes) > 1 and not any(leaf.derivation for leaf in pairing.leaves.values())


# Whether the kernel says itself how a batch of several arrays is computed. JAX makes the batch of others. The first
# signature with the same dtypes and static arguments decides: planning would take long if each one was traced.
def _has_own_batches(pairing: Pairing, signature: Signature) -> bool:
    return _has_several_arrays(pairing, signature) and _calls_custom_vmap(pairing, first_alike(pairing, signature))


@functools.lru_cache(maxsize=256)
def _calls_custom_vmap(pairing: Pairing, signature: Signature) -> bool:
    if (traced := trace_if_possible(pairing, signature)) is None:
        return False
    return any(primitive_name(equation) == "custom_vmap_call" for equation, _ in iter_equations(traced.jaxpr.jaxpr))


# The case with the other one's values in the place of some of its arrays.
def _mixed_case(places: slice) -> OtherCase:
    def mixed(pairing: Pairing, case: AnyCase, seed: int, cache: Cache) -> ExplicitCase:
        new = cache.expectations.arguments(pairing, _other_case(pairing, case, seed, cache))
        replaced = {path: new[path] for path, _ in case.signature.dtypes[places]}
        arguments = {**cache.expectations.arguments(pairing, case), **replaced}
        return ExplicitCase(case.pairing_id, case.signature, arguments, family=case.family)

    return mixed


_FIRST, _OTHERS = slice(0, 1), slice(1, None)
_FIRST_CHANGED, _OTHERS_CHANGED = _mixed_case(_FIRST), _mixed_case(_OTHERS)


@invariant(applies=_has_several_arrays, other=_FIRST_CHANGED, needs="two arrays, none of which is made of others")
def vmapped_first(context: CaseContext) -> Iterator[Variation]:
    """Under `jax.vmap` over a new leading axis of the first array alone, the outputs are those of each by itself."""
    yield _batch(context, _FIRST, _FIRST_CHANGED)


@invariant(
    applies=_has_own_batches, other=_OTHERS_CHANGED, needs="two arrays and a rule of the kernel's own for jax.vmap"
)
def vmapped_others(context: CaseContext) -> Iterator[Variation]:
    """Under `jax.vmap` over a new leading axis of all arrays but the first, they are those of each by itself."""
    yield _batch(context, _OTHERS, _OTHERS_CHANGED)


# The case and another one, as a batch under `jax.vmap` over the arrays at some places.
def _batch(context: CaseContext, places: slice, other: OtherCase) -> Variation:
    (leaves, expectation), numbers = _values_of(context, other), range(len(context.leaves))
    batched = [number in numbers[places] for number in numbers]
    axes = tuple(0 if each else None for each in batched)
    pairs = zip(context.traced.inputs, batched, strict=True)
    inputs = tuple(ShapeDtype((2, *i.shape), i.dtype) if each else i for i, each in pairs)
    how = f"under jax.vmap{'' if all(batched) else f' with in_axes={axes}'}"
    try:
        function = jax.vmap(context.traced.function, in_axes=axes)
        traced = context.once(how, lambda: trace_function(function, inputs, f"{how} over a new leading axis"))
    except Failure as failure:
        error = failure.__cause__
        if error is None or not raised_in_jax(error) or refuses_custom_vmap(error):
            raise
        raise Failure(Verdict.UNAVAILABLE, describe_limitation(error, f"cannot batch this {how}")) from failure
    _check_batched(traced.outputs, context.traced.outputs)
    first = OutputCheck(
        f"first in a batch of two {how}", context.by_oracle(), lambda outputs: tuple(o[0] for o in outputs)
    )
    second = OutputCheck(
        f"second in a batch of two {how}", context.by_oracle(expectation), lambda outputs: tuple(o[1] for o in outputs)
    )
    both = zip(context.leaves, leaves, batched, strict=True)
    stacked = tuple(np.stack((old, new)) if each else old for old, new, each in both)
    return Variation(traced, stacked, (first, second), transformation="jax.vmap")


# The kernel's own `custom_vmap` rule may give other outputs than those of one call with a new leading axis.
def _check_batched(outputs: Sequence[ShapeDtype], single: Sequence[ShapeDtype]) -> None:
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


@invariant(applies=_has_tail, rewrites=True, needs="a length that is not a multiple of the block, or of 16")
def poisoned_padding(context: CaseContext) -> Iterator[Variation]:
    """The values past an array's end in its last block, and in masked lanes of a load, do not matter."""
    yield _rewrite(context, fill_padding(Fill(nan=True)), "with NaN and the least integers as padding")
    yield _rewrite(context, fill_padding(Fill(nan=False)), "with the largest numbers as padding")


def _selects(pairing: Pairing, signature: Signature) -> bool:
    selecting = (
        leaf.kind.is_mask or leaf.kind.includes_end or leaf.globally_unique or leaf.sentinel is not None
        for leaf in signature.leaves(pairing).values()
    )
    return pairing.claims(UNREAD) or any(selecting)


@invariant(applies=_selects, least=3, other=_other_case, needs='a mask, lengths, a sentinel or invariant_to="unread"')
def unread_values(context: CaseContext) -> Iterator[Variation]:
    """The data that the oracle does not read do not matter, such as those under a mask or past a length."""
    pairing, cache, unread = context.pairing, context.cache, False
    cache.process.enter_phase(Phase.EXPECTING)
    for case in (context.case, _other_case(pairing, context.case, context.seed, cache)):
        expectation, _ = cache.expectations.of(pairing, case, context.traced)
        for words, changed in poisoned_arguments(pairing, case, context.traced.outputs).items():
            unread, label = True, f"with {words} in elements of {', '.join(changed)} that the oracle does not read"
            arguments = {**cache.expectations.arguments(pairing, case), **changed}
            leaves = tuple(arguments[path] for path, _ in case.signature.dtypes)
            yield Variation(context.traced, leaves, (OutputCheck(label, context.by_oracle(expectation)),))
    if not unread:
        why = "the oracle reads all of the data (let it select by np.where, not multiply), or they are declared finite"
        raise Failure(Verdict.UNAVAILABLE, why)


@invariant(rewrites=True)
def old_output(context: CaseContext) -> Iterator[Variation]:
    """The earlier contents of an output's memory do not matter."""
    for nan, contents in ((True, "NaN and the least integers"), (False, "the largest numbers")):
        yield _rewrite(context, fill_outputs(Fill(nan)), f"with {contents} in the output before the call")


def _rewrite(context: CaseContext, rule: Rule, label: str) -> Variation:
    traced = context.traced
    if traced.in_triton:
        raise Failure(Verdict.UNAVAILABLE, f"{traced.in_triton} is written in Triton, which kerneltest does not change")
    changed = context.once(label, lambda: analyze(rewrite_jaxpr(traced.jaxpr, rule), traced.function, traced.inputs))
    return Variation(changed, context.leaves, (OutputCheck(label, context.by_oracle()),))


@invariant(applies=lambda pairing, signature: pairing.claims(GRID), rewrites=True, needs='invariant_to="grid"')
def reversed_grid(context: CaseContext) -> Iterator[Variation]:
    """The order of the programs does not matter, as `invariant_to="grid"` declares."""
    changed = _rewrite(context, reverse_grids(), "with the grid's programs in reverse order")
    yield replace(changed, checks=(OutputCheck(changed.checks[0].label, context.as_plain_call()),))


@invariant(
    applies=lambda pairing, signature: any(_other_options(pairing, signature)),
    needs="a static argument in invariant_to= that has another option there",
)
def other_choices(context: CaseContext) -> Iterator[Variation]:
    """The value of a static argument in `invariant_to` does not matter."""
    for name, option in _other_options(context.pairing, context.case.signature):
        other = context.case.signature.with_option(name, option)
        check = OutputCheck(f"with {name}={option}", context.as_plain_call())
        yield Variation(context.at(other), context.leaves, (check,))


# The other admitted options of static arguments in `invariant_to`, with their names.
def _other_options(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, str]]:
    options = pairing.options()
    for name, chosen in signature.statics:
        if name in pairing.invariant_to:
            others = ({**dict(signature.statics), name: option} for option in options[name] if option != chosen)
            yield from ((name, other[name]) for other in others if pairing.admits(dict(signature.dims), other))


@invariant(
    applies=lambda pairing, signature: any(batch_slices(pairing, signature)),
    needs="a dim in batch_dims= that is longer than it has to be",
)
def alone(context: CaseContext) -> Iterator[Variation]:
    """A slice along a dim in `batch_dims` does not depend on the rest of the batch.

    Compilers lay out the code for a single slice in another way, and so sum in another order. Slices are compared bit
    for bit only with those of a batch of the same length, in which one slice is repeated, unless `invariant_to=` has
    "batch".
    """
    pairing, signature = context.pairing, context.case.signature
    declared = list(signature.leaves(pairing).values())
    leaves = [leaf.shape for leaf in declared]
    for name, length, least in batch_slices(pairing, signature):
        shorter = signature.with_length(name, least)
        single = context.at(shorter)
        pairs = zip(context.traced.outputs, single.outputs, strict=True)
        outputs = [output_axes(pairing, signature, name, least, a.shape, b.shape) for a, b in pairs]
        slices = BatchSlices(dict(signature.dims), name)
        unique = any(leaf.globally_unique and name in dims_in_axes(leaf.shape) for leaf in declared)
        repeatable = length % least == 0 and not unique and not slices.overlap([*leaves, *outputs])
        for start in sorted({0, length - least}):
            place = f"{name}={start}" if least == 1 else f"{name}={start} to {start + least - 1}"
            once = np.arange(start, start + least)
            part, sliced = slices.taker(outputs, once), slices.taker(leaves, once)(context.leaves)
            differing = functools.partial(_differing, context, shorter, single, sliced, part)
            is_composed = any(isinstance(axis, AxisExpression) for axes in outputs for axis in axes)
            if is_composed and any(a.shape != b.shape or _are_among(a, every) for a, b, every in differing()):
                raise Failure(Verdict.UNAVAILABLE, _OTHER_ORDER)
            wanted = context.as_plain_call(part) if pairing.claims(BATCH) else context.by_oracle(part=part)
            words = f"the oracle's values differ for the slice alone, too: leave {name!r} out of batch_dims, or fix it"
            remark = functools.partial(lambda found, words: words if found() else "", differing, words)
            yield Variation(single, sliced, (OutputCheck(f"{place} alone, of {length}", wanted, remark=remark),))
            if repeatable:
                again = np.tile(once, length // least)
                wanted = context.as_plain_call(slices.taker(outputs, again))
                label = f"{place} in each of {length // least} places"
                inputs = slices.taker(leaves, again)(context.leaves)
                yield Variation(context.traced, inputs, (OutputCheck(label, wanted),))


def differentiated(pairing: Pairing, signature: Signature, traced: Traced) -> tuple[str, ...]:
    """The paths of the arrays by which a kernel is differentiated, in the order of its arguments."""
    paths = [path for path, _ in signature.dtypes]
    pairs = zip(paths, traced.inputs, strict=True)
    return tuple(path for path, given in pairs if is_float(given.dtype) and pairing.differentiates(path))


def trace_gradient(pairing: Pairing, signature: Signature, traced: Traced) -> Traced:
    """Traces the gradient of a kernel, from its arrays and a weight of each float output; Failure: there is none."""
    paths = [path for path, _ in signature.dtypes]
    places = [paths.index(path) for path in differentiated(pairing, signature, traced)]

    def pull_back(*values: jax.Array) -> list[jax.Array]:
        leaves, weights = values[: len(traced.inputs)], values[len(traced.inputs) :]

        def float_outputs(*chosen: jax.Array) -> list[jax.Array]:
            arguments = list(leaves)
            for i, value in zip(places, chosen, strict=True):
                arguments[i] = value
            return [o for o in traced.function(*arguments) if is_float(np.dtype(o.dtype))]

        return list(jax.vjp(float_outputs, *(leaves[i] for i in places))[1](list(weights)))

    weights = (ShapeDtype(output.shape, output.dtype) for output in traced.outputs if is_float(output.dtype))
    return trace_function(pull_back, (*traced.inputs, *weights), "by jax.vjp")


@invariant(applies=lambda pairing, signature: bool(pairing.grad), follows=True, every_order=True, needs="grad=")
def gradient(context: CaseContext) -> Iterator[Variation]:
    """The gradient is the oracle's, as `grad=` declares. Undefined elements of outputs have no weight in it."""
    traced = context.traced
    pairs = zip(traced.outputs, context.expectation.defined, strict=True)
    floats = [(output, where) for output, where in pairs if is_float(output.dtype)]
    vjp = context.once("gradient", lambda: trace_gradient(context.pairing, context.case.signature, traced))
    pairing, signature = context.pairing, context.case.signature
    gradient_of = differentiated(pairing, signature, traced)
    evaluate = evaluator(pairing, signature, traced.outputs)
    tracking = tracking_evaluator(pairing, signature, traced.outputs)
    dtypes = [o.dtype for o, _ in floats]
    for number, label in enumerate(COTANGENTS):
        rng = np.random.Generator(np.random.PCG64([int(context.case.entropy, 16), number]))
        weights = cotangents(label, rng, [where for _, where in floats], dtypes)

        def expect(weights: Sequence[Array] = weights, rng: np.random.Generator = rng) -> Expectation:
            functions = dict(getattr(pairing.tolerance, "functions", ()))
            return expect_gradients(evaluate, context.arguments, weights, rng, tracking, dtypes, gradient_of, functions)

        context.cache.process.enter_phase(Phase.EXPECTING)
        expectation = context.cache.expectations.gradients.compute_once((context.case.id, label), expect)
        # Slopes are estimates at some elements; no formula is as close to them as to a gradient.
        exact = expectation if expectation.formula is not None else None
        check = OutputCheck(label, context.by_oracle(expectation), gradient_of=gradient_of, formula=exact)
        yield Variation(vjp, (*context.leaves, *weights), (check,))


# Slices of arguments and outputs along a dim that `batch_dims` names, even if several dims make up an axis.

_OTHER_ORDER = (  # than that of the argument that declares a composed axis
    "an output orders the elements of an axis differently from the argument that has this axis, so its slices are "
    "unknown; leave the dim out of batch_dims, or give it an axis of its own"
)
_ROUNDING = 1e-9  # relative difference in float64 between two orders of summation


@dataclass(frozen=True, slots=True)
class BatchSlices:
    """Slices along the dim of a name, in arrays whose dims have these lengths."""

    lengths: dict[str, int]
    name: str

    def overlap(self, arrays: Sequence[Sequence[Axis]]) -> bool:
        """Returns whether neighbouring slices of an array share elements, as in an array of offsets of length n + 1."""
        return any(isinstance(a, AxisExpression) and a.extra and self.name in a.names for axes in arrays for a in axes)

    def taker(self, arrays: Sequence[Sequence[Axis]], positions: Array) -> Take:
        """Returns a function that takes the elements at some positions along the dim out of arrays with these axes."""
        return lambda values: tuple(self._take(x, axes, positions) for x, axes in zip(values, arrays, strict=True))

    def _take(self, array: Array, axes: Sequence[Axis], positions: Array) -> Array:
        for place, axis in enumerate(axes):
            if self.name in dims_in(axis):
                array = array.take(positions_along(axis, self.lengths, {self.name: positions}), place)
        return array


def batch_slices(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, int, int]]:
    """Yields the dims along which slices can run alone, each with its length and that of the shortest slice."""
    lengths, statics = dict(signature.dims), dict(signature.statics)
    for name in pairing.batch_dims:
        least = pairing.dims[name].shortest
        if lengths[name] > least > 0 and pairing.admits({**lengths, name: least}, statics):
            yield name, lengths[name], least


def output_axes(
    pairing: Pairing, signature: Signature, name: str, least: int, whole: Sequence[int], single: Sequence[int]
) -> list[Axis]:
    """The axes of an output: an expression where a dim is part of the axis, else the length.

    `whole` is the output's shape for all of the dim, and `single` for a slice, in which the dim has the length `least`.
    """
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


# The oracle's outputs that differ for a slice (the arguments `sliced`): the values for it, the part of those for the
# whole, and all of these.
def _differing(
    context: CaseContext, shorter: Signature, single: Traced, sliced: Outputs, part: Take
) -> list[tuple[Array, Array, Array]]:
    wide = {path: widen(leaf) for (path, _), leaf in zip(shorter.dtypes, sliced, strict=True)}
    context.cache.process.enter_phase(Phase.EXPECTING)
    alone, whole = evaluator(context.pairing, shorter, single.outputs)(wide), context.expectation.values
    return [
        (one, there, every)
        for one, there, every in zip(alone, part(whole), whole, strict=True)
        if one.shape != there.shape or not np.allclose(one, there, rtol=_ROUNDING, atol=0, equal_nan=True)
    ]


# Whether each finite value is close to one of the others.
def _are_among(values: Array, others: Array) -> bool:
    known = np.concatenate([[-np.inf], np.sort(others[np.isfinite(others)].astype(np.float64), axis=None), [np.inf]])
    wanted = values[np.isfinite(values)].astype(np.float64)
    at = np.clip(np.searchsorted(known, wanted), 1, known.size - 1)
    off = np.minimum(wanted - known[at - 1], known[at] - wanted)
    return bool((off <= _ROUNDING * np.abs(wanted)).all())
