"""The evidence of a mismatch: its location, its size, its diagnosis, and the arrays around the worst element."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from kerneltest.core.details import Mismatch, MismatchCause
from kerneltest.core.dtypes import Array, is_float, widen
from kerneltest.core.failures import Failure, Guard
from kerneltest.declare.dims import AxisExpression
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.compare import (
    Comparison,
    MismatchLocation,
    OutputAxis,
    describe_element,
    locate_mismatch,
    map_errors,
    match_axes,
)
from kerneltest.judge.diagnose import describe_special_inputs, diagnose
from kerneltest.judge.relations import MismatchContext
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.evidence import EXTREMES, Element, Evidence, Window
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules, NanDroppingRules
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import trace
from kerneltest.trace.walk import lowering_differences

_MAX_OUTPUT = 1024  # elements of a window: 32 x 32 if the output is large along both axes
_MAX_INPUT = 128


def output_window(comparison: Comparison, index: tuple[int, ...], axes: Sequence[OutputAxis]) -> Window:
    """Returns the part of an output around an index: actual and expected values, bounds, and wrong elements."""
    actual = comparison.actual
    lengths, at = _part(actual.shape, index, _MAX_OUTPUT)
    wrong = comparison.wrong[at].ravel()
    for digits in (7, 9, 17):  # as many as show how wrong elements differ
        values, expected = _to_elements(actual[at], digits), _to_elements(comparison.expected[at], digits)
        if not any(each and one == other for each, one, other in zip(wrong, values, expected, strict=True)):
            break
    return Window(
        name="",
        dtype=actual.dtype.name,
        shape=actual.shape,
        origin=_origin(at),
        extent=lengths,
        blocks=_last_two([axis.block or 0 for axis in axes], 0),
        values=values,
        expected=expected,
        bound=_to_elements(comparison.bound[at]),
        wrong="".join("1" if each else "0" for each in wrong),
    )


def input_windows(pairing: Pairing, arguments: Mapping[str, Array], place: Mapping[str, int]) -> tuple[Window, ...]:
    """Returns the part of each argument around an output's element, whose index by dim is `place`.

    Along other dims, windows start at the first NaN or infinity, else at 0.
    """
    windows = []
    for path, value in arguments.items():
        dims = pairing.leaves[path].shape
        special = np.argwhere(~np.isfinite(value.astype(np.float64))) if is_float(value.dtype) else np.empty((0, 0))
        first = special[0].tolist() if len(special) else [0] * value.ndim
        index = tuple(
            min(place.get(name, start) if isinstance(name, str) else start, max(length - 1, 0))
            for name, start, length in zip(dims, first, value.shape, strict=True)
        )
        lengths, at = _part(value.shape, index, _MAX_INPUT)
        blocks = [(pairing.dims[name].block or 0) if isinstance(name, str) else 0 for name in dims]
        place_of = _origin(at), lengths, _last_two(blocks, 0)
        windows.append(Window(path, value.dtype.name, value.shape, *place_of, _to_elements(value[at])))
    return tuple(windows)


# The rows and columns of a part of at most `most` elements around an index, and its index expression.
def _part(shape: tuple[int, ...], index: tuple[int, ...], most: int) -> tuple[tuple[int, int], tuple[int | slice, ...]]:
    rows, columns = _last_two(shape, 1)
    side = int(np.sqrt(most))
    shown_rows = min(rows, max(side, most // max(columns, 1)))
    shown_columns = min(columns, most // max(shown_rows, 1))
    if not shape:
        return (1, 1), ()
    last = _around(index[-1], columns, shown_columns)
    if len(shape) == 1:
        return (1, shown_columns), (last,)
    return (shown_rows, shown_columns), (*index[:-2], _around(index[-2], rows, shown_rows), last)


def _around(index: int, length: int, shown: int) -> slice:
    start = max(0, min(index - shown // 2, length - shown))
    return slice(start, start + shown)


def _origin(at: Iterable[int | slice]) -> tuple[int, ...]:
    return tuple(part.start if isinstance(part, slice) else int(part) for part in at)


def _last_two(values: Sequence[int], missing: int) -> tuple[int, int]:
    filled = (missing, missing, *values)
    return int(filled[-2]), int(filled[-1])


def _to_elements(values: Array, digits: int = 7) -> tuple[Element, ...]:
    if is_float(values.dtype):
        with np.errstate(all="ignore"):  # for signalling NaNs
            wide = values.astype(np.float64)
        return tuple(float(f"{value:.{digits}g}") for value in wide.ravel().tolist())
    return tuple(values.astype(bool if values.dtype == bool else np.int64).ravel().tolist())


def mismatch_evidence(
    mismatch: MismatchContext,
    *,
    depth: str,
    structural: bool,
    models_operands: bool,
    guard: Guard,
    call: str,
    gradient_of: str,
    cause: MismatchCause | None,
) -> tuple[Mismatch, Evidence]:
    """Returns the detail of a wrong output and its evidence.

    Args:
      mismatch: the wrong output with its case, without the names of its axes.
      depth: the run's depth; its signatures determine the dims of the output.
      structural: whether the values keep the kernel's arithmetic exact. If so, special values cannot be the cause.
      models_operands: whether the bound accounts for how a backend rounds the operands of products.
      guard: collects everything but the verdict, the number of wrong elements and the worst one.
      gradient_of: the leaf with respect to which the output is a gradient; "" for other outputs.
    """
    pairing, arguments, comparison = mismatch.pairing, mismatch.arguments, mismatch.comparison
    output, shape, index = mismatch.output, comparison.actual.shape, comparison.worst_index
    unnamed = tuple(OutputAxis(f"axis {i}", length, None) for i, length in enumerate(shape))
    find_axes = functools.partial(output_axes, pairing, output, gradient_of, shape, depth)
    axes = guard.collect("naming the axes of the output", find_axes, unnamed)
    diagnose_it = functools.partial(diagnose, replace(mismatch, axes=axes), is_gradient=bool(gradient_of))
    unknown = MismatchLocation(index, "", (1, 1), None)
    place = guard.collect("locating the wrong elements", lambda: locate_mismatch(comparison, axes), unknown)
    diagnosis = guard.collect("diagnosing the wrong elements", diagnose_it, "")
    special = "" if structural else guard.collect("listing inputs", lambda: describe_special_inputs(arguments), "")
    by_dim = dict(zip([axis.name for axis in axes], place.index, strict=True))
    detail = Mismatch(
        call=call,
        output=output,
        gradient_of=gradient_of,
        wrong=int(comparison.wrong.sum()),
        total=comparison.wrong.size,
        pattern=place.pattern.text() if place.pattern else "",
        index=place.index,
        block=place.block,
        comparison=describe_element(comparison, place.index),
        remarks=tuple(filter(None, (diagnosis, special))),
        cause=cause,
    )
    evidence = Evidence(
        output=output,
        index=place.index,
        block=place.block,
        wrong_blocks=place.wrong_blocks,
        pattern=place.pattern,
        footprint=place.footprint,
        diagnosis=diagnosis,
        actual=_to_element(comparison.actual[place.index]),
        expected=_to_element(comparison.expected[place.index]),
        bound=float(comparison.bound[place.index]),
        arguments={path: format_array(value) for path, value in arguments.items()},
        window=guard.collect("copying the output", lambda: output_window(comparison, place.index, axes), None),
        errors=guard.collect("mapping the errors", lambda: map_errors(comparison), None),
        inputs=guard.collect("copying the inputs", lambda: input_windows(pairing, arguments, by_dim), ()),
        otherwise=guard.collect(
            "comparing the lowerings",
            lambda: (
                *_lowering_differences(pairing, mismatch.signature, models_operands=models_operands),
                *(() if call else _find_nan_dropping(mismatch)),
            ),
            (),
        ),
    )
    return detail, evidence


def output_axes(
    pairing: Pairing, output: int, gradient_of: str, shape: tuple[int, ...], depth: str
) -> tuple[OutputAxis, ...]:
    """Returns the axes of an output, or of a gradient with respect to a leaf."""
    named = map(
        str, pairing.leaves[gradient_of].shape if gradient_of else output_dims(pairing, output, len(shape), depth)
    )
    return tuple(
        OutputAxis(name or f"axis {i}", length, pairing.dims[name].block if name in pairing.dims else None)
        for i, (name, length) in enumerate(zip(named, shape, strict=True))
    )


@functools.lru_cache(maxsize=64)
def output_dims(pairing: Pairing, output: int, rank: int, depth: str) -> tuple[str, ...]:
    """Returns the dims of an output's axes, derived from its shapes in several signatures.

    Signatures without this output, or with another rank, are left out: options may decide which outputs there are. All
    are "" if none is left. The kernel is traced again, since only findings and production sizes need this.
    """
    shapes, lengths = [], []
    extents = [axis for leaf in pairing.leaves.values() for axis in leaf.shape if isinstance(axis, AxisExpression)]
    for signature in signatures(pairing, depth):
        with suppress(Failure):
            for found in trace(pairing, signature).outputs[output : output + 1]:
                if len(found.shape) == rank:
                    shapes.append(found.shape)
                    lengths.append(dict(signature.dims))
        if len(shapes) > 1 and all(match_axes(shapes, lengths, extents)):
            break
    return match_axes(shapes, lengths, extents) if shapes else ("",) * rank


@functools.lru_cache(maxsize=64)
def _lowering_differences(pairing: Pairing, signature: Signature, *, models_operands: bool) -> tuple[str, ...]:
    try:
        found = lowering_differences(trace(pairing, signature).jaxpr.jaxpr)
    except Failure:
        return ()
    return tuple(each for each in found if not (models_operands and each == "TF32"))


# The operations for which lowered code has numbers in place of NaN in the wrong elements of an output, if any. NumPy's
# evaluation of the kernel is NaN in each of them, and a number once one operation drops NaN, or both do, as in hypot.
def _find_nan_dropping(mismatch: MismatchContext) -> tuple[str, ...]:
    actual, wrong = mismatch.comparison.actual, mismatch.comparison.wrong
    if not is_float(actual.dtype) or not (~np.isnan(actual) & np.isnan(mismatch.comparison.expected))[wrong].all():
        return ()
    leaves = [mismatch.arguments[path][None] for path, _ in mismatch.signature.dtypes]
    with suppress(Failure, UnknownError):
        traced = trace(mismatch.pairing, mismatch.signature)

        def is_nan(rules: KernelRules) -> Array:
            return np.asarray(np.isnan(BatchedKernel(traced, rules)(leaves)[mismatch.output][0][wrong]))

        if is_nan(KernelRules()).all():
            candidates = [*((name,) for name in EXTREMES), EXTREMES]
            return next((names for names in candidates if not is_nan(NanDroppingRules(*names)).any()), ())
    return ()


def _to_element(value: np.generic) -> Element:
    number = value.item()
    return number if isinstance(number, (bool, int)) else float(number)


_LISTED = 8  # elements of an array that are listed one by one
_MOST_UNLIKE = 3  # elements that are named where all others are equal


def format_array(value: Array) -> str:
    """Returns an array as text of one or a few lines: dtype, shape and values, abbreviated if there are many."""
    wide = value if value.dtype == bool else widen(value)
    with np.printoptions(threshold=40, edgeitems=3, precision=6, linewidth=100):
        return f"{value.dtype.name}{list(value.shape)} {_format_nearly_equal(wide) or wide}"


# `all 0 but 1 at [0, 32]` for an array of which all but a few elements are equal; "" for any other.
def _format_nearly_equal(values: Array) -> str:
    if values.size <= _LISTED:
        return ""
    _, first, counts = np.unique(values, return_index=True, return_counts=True)
    common = values.flat[first[np.argmax(counts)]]
    unlike = ~((values == common) & (np.signbit(values) == np.signbit(common)))
    if np.isnan(common):
        unlike = ~np.isnan(values)
    places = np.argwhere(unlike)
    if len(places) > _MOST_UNLIKE:
        return ""
    others = [f"{format_number(values[tuple(place)])} at {place.tolist()}" for place in places]
    return f"all {format_number(common)}{' but ' if others else ''}{', '.join(others)}"


def format_number(number: np.generic) -> str:
    """Returns a number as text, with six digits of a float."""
    return f"{float(number):.6g}" if is_float(number.dtype) else str(number)
