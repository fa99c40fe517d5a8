"""Evaluation of an oracle in float64 and int64 on the arguments of a case."""

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import jax
import numpy as np
from jax.tree_util import tree_leaves

from kerneltest.core.details import Raised, Stated
from kerneltest.core.dtypes import Array, ShapeDtype, float_format, flush_subnormals, is_float, is_integer, widen
from kerneltest.core.failures import Failure, convert_exceptions, exception_text, reraise_interrupt
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.error_models import Exact, Measured, Rounding
from kerneltest.declare.outcomes import Defined, Ignored, split_defined, undefined_output
from kerneltest.declare.pairing import Pairing
from kerneltest.numerics.bounds import Evaluate, OracleCase, distance, limits, magnitude
from kerneltest.numerics.closed_forms import perturb_randomly
from kerneltest.numerics.rounding_bounds import FLOOR_FORMAT, formula_bounds
from kerneltest.numerics.samples import Operand, raise_own_mistake
from kerneltest.numerics.tracked import calls_linear_algebra, instrument, mentions, uses_complex_numbers
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.signatures import Signature
from kerneltest.trace.tracing import named_outputs

TrackedEvaluate = Callable[[Mapping[str, Operand]], tuple[Operand, ...]]


def _oracle_error(sentence: str, **values: int | str) -> Failure:
    return Failure(Verdict.ORACLE_ERROR, Stated(sentence, values))


# NumPy warns about special values, which oracles may compute, and pytest may make errors of warnings.
@contextmanager
def _silence_warnings() -> Iterator[None]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice|All-NaN|Degrees of freedom", RuntimeWarning)
        yield


def evaluator(pairing: Pairing, signature: Signature, outputs: Sequence[ShapeDtype]) -> Evaluate:
    """Returns the oracle as a function from leaves in float64, complex128 or int64 to its outputs.

    Outputs are zero where they are undefined; one that the oracle ignores gets the shape of the kernel's. Calling the
    function raises a `Failure` if the oracle writes to one of its arguments.
    """
    return lambda wide: evaluate_oracle(pairing, signature, wide, outputs)[0]


def evaluate_oracle(
    pairing: Pairing,
    signature: Signature,
    wide: Mapping[str, Array],
    like: Sequence[ShapeDtype],
    names: Sequence[tuple[str, ...]] = (),
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Returns the oracle's outputs, and for each where it is defined.

    They are compared with the kernel's by position, so their `names` must be the kernel's if both have any.
    """
    copies = {path: value.copy() for path, value in wide.items()}
    values = pairing.assemble(copies, dict(signature.dims), dict(signature.statics), oracle=True)
    with _silence_warnings():
        with convert_exceptions(f"oracle {pairing.name}", Verdict.ORACLE_ERROR, with_source=True):
            try:
                result = pairing.call_oracle(values, like)
            except np.linalg.LinAlgError as error:
                if not any(words in str(error) for words in _SINGULAR):
                    raise
                return split_defined([undefined_output(each) for each in like], like)
            own_names, returned = named_outputs(result)
        _check_structure(pairing.name, result, own_names, like, names)
        for output in returned:
            value = output.values if isinstance(output, Defined) else output
            # It was computed in float32, and neither its rounding nor that of its operations is known.
            if isinstance(value, jax.Array):
                raise _oracle_error(
                    "oracle {oracle} returned a jax.Array of {dtype}. An oracle is the reference in float64, and JAX "
                    "has another precision: write it in NumPy, with np.exp for jnp.exp, and np.asarray on what only "
                    "JAX can do",
                    oracle=pairing.name,
                    dtype=str(value.dtype),
                )
        outputs = split_defined(returned, like)
    for path, value in copies.items():
        if value.tobytes() != wide[path].tobytes():
            raise _oracle_error(
                "oracle {oracle} wrote to its argument {argument!r}; copy the argument first",
                oracle=pairing.name,
                argument=path,
            )
    return outputs


# What NumPy says of matrices for which there is no result; what else it raises is a mistake of the oracle.
_SINGULAR = ("Singular matrix", "positive definite", "did not converge")


def tracking_evaluator(pairing: Pairing, signature: Signature, like: Sequence[ShapeDtype]) -> TrackedEvaluate:
    """Returns the oracle as a function from tracked leaves, to which it may write, to its outputs.

    Outputs are zero where they are undefined; one that the oracle ignores gets the shape of the kernel's, `like`.
    """
    oracle = instrument(pairing.oracle)

    def evaluate(leaves: Mapping[str, Operand]) -> tuple[Operand, ...]:
        values = pairing.assemble(leaves, dict(signature.dims), dict(signature.statics), oracle=True)
        with _silence_warnings():
            outputs = tree_leaves(pairing.call_as_oracle(oracle, values, like))
            outputs = [undefined_output(x) if isinstance(o, Ignored) else o for o, x in zip(outputs, like, strict=True)]
            return tuple(np.where(o.where, o.values, 0) if isinstance(o, Defined) else o for o in outputs)

    return evaluate


def expect(
    pairing: Pairing,
    signature: Signature,
    leaves: Mapping[str, Array],
    outputs: tuple[ShapeDtype, ...],
    *,
    bitwise: bool,
    repeat: bool = False,
    known: tuple[tuple[Array, ...], tuple[Array, ...]] | None = None,
    names: Sequence[tuple[str, ...]] = (),
) -> Expectation:
    """Evaluates the oracle on a case's array arguments, and again as often as the error model requires.

    Args:
      leaves: the array arguments in the kernel's dtypes, by path.
      outputs: shapes and dtypes of the kernel's outputs.
      bitwise: whether the outputs must be equal bit for bit.
      repeat: whether to evaluate the oracle twice and compare the results.
      known: what `evaluate_oracle` returned for these arguments, if it has been called already.
      names: of the kernel's outputs, as in `Traced.output_names`.

    Raises:
      Failure: the oracle or its error model raised, or the oracle does not fit the kernel.
    """
    evaluate = evaluator(pairing, signature, outputs)
    wide = {path: widen(value) for path, value in leaves.items()}
    with convert_exceptions(f"oracle {pairing.name}", Verdict.ORACLE_ERROR, with_source=True):
        values, defined = known or evaluate_oracle(pairing, signature, wide, outputs, names)
        again = evaluate(wide) if repeat else values
        sampled = isinstance(pairing.tolerance, Rounding) and not bitwise  # its samples flush themselves
        flat = leaves if sampled else {path: flush_subnormals(value) for path, value in leaves.items()}
        has_subnormals = any(flat[path] is not value for path, value in leaves.items())
        flushed = evaluate({path: widen(value) for path, value in flat.items()}) if has_subnormals else None
    _check_outputs(pairing.name, values, outputs)
    _check_repeated(pairing.name, values, again)

    @functools.cache
    def change() -> Failure | None:
        try:
            _check_repeated(pairing.name, values, evaluate(wide))
        except Failure as failure:
            return failure
        return None

    def check_again() -> None:
        if (failure := change()) is not None:
            raise failure.with_traceback(None)

    # Evaluates the oracle on other inputs, to see how far it moves; one that was wrong once would seem to move far.
    def evaluate_near(near: Mapping[str, Array]) -> tuple[Array, ...]:
        check_again()
        return evaluate(near)

    @functools.cache
    def own_error() -> tuple[Array, ...]:
        check_again()
        is_complex = uses_complex_numbers(pairing.oracle)  # its sums cancel
        most = _own_error(evaluate, wide, values, ties=not (is_complex or calls_linear_algebra(pairing.oracle)))
        with suppress(Failure):  # of an oracle that checks its inputs
            if is_complex:
                most = _convention(evaluate, wide, values, most)
            if any(not np.isfinite(value).all() for value in values) and not mentions(pairing.oracle, (), _TESTS):
                near = limits(functools.partial(map, evaluate), wide)
                for i, (value, limit) in enumerate(zip(values, near, strict=True)):
                    is_dust = is_complex & np.isinf(value) & (np.abs(limit) < np.finfo(np.float64).max)
                    other = np.where(np.isfinite(limit) & is_complex, np.inf, limit)  # which has no sign
                    most[i] = np.where(np.isnan(value) | is_dust, other, most[i])
        return tuple(most)

    if bitwise or isinstance(pairing.tolerance, Exact):
        return Expectation(values, flushed, None, defined, own_error=own_error)
    formats = {path: float_format(value.dtype) for path, value in leaves.items() if is_float(value.dtype)}

    def in_kernel_dtypes(reference: Callable[..., object]) -> tuple[Array, ...]:
        copies = {path: value.copy() for path, value in leaves.items()}
        arguments = pairing.assemble(copies, dict(signature.dims), dict(signature.statics), oracle=True)
        with _silence_warnings():
            results, _ = split_defined(tree_leaves(pairing.call_as_oracle(reference, arguments, outputs)), outputs)
        return tuple(result.astype(np.float64) for result in results)

    def form(function: Callable[..., object]) -> OracleCase:
        other = replace(pairing, oracle=function, name=getattr(function, "__name__", pairing.name))
        of_form = evaluator(other, signature, outputs)
        tracked = tracking_evaluator(other, signature, outputs)
        return replace(measured, evaluate=of_form, values=of_form(wide), watched=tracked, oracle=function)

    measured = Measured(
        evaluate=evaluate_near,
        leaves=wide,
        values=values,
        declared=signature.leaves(pairing),
        dims=dict(signature.dims),
        formats=formats,
        watched=tracking_evaluator(pairing, signature, outputs),
        oracle=pairing.oracle,
        in_kernel_dtypes=in_kernel_dtypes,
        form=form,
        statics=dict(signature.statics),
        jax_in_float64=bool(jax.config.jax_enable_x64),  # type: ignore[attr-defined]
    )
    try:
        bounds = pairing.tolerance.bounds(measured)
        functions = dict(getattr(pairing.tolerance, "functions", ()))
        in_float64 = np.float64 in [*(each.dtype for each in leaves.values()), *(each.dtype for each in outputs)]
        floor = None if in_float64 else formula_bounds(measured, functions, FLOOR_FORMAT)
        formula = formula_bounds(measured, functions)
        return Expectation(values, flushed, bounds, defined, formula=formula, floor=floor, own_error=own_error)
    except Failure:
        raise
    except BaseException as error:
        reraise_interrupt(error)
        who = f"error model {pairing.tolerance} of oracle {pairing.name}"
        raise Failure(Verdict.ORACLE_ERROR, Raised(who, type(error).__name__, exception_text(error))) from error


# Random numbers in an oracle would widen its spread, and so every bound.
def _check_repeated(oracle: str, values: tuple[Array, ...], again: tuple[Array, ...]) -> None:
    for one, other in zip(values, again, strict=True):
        if one is not other and not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            at = tuple(np.argwhere(np.asarray(one != other))[0])
            raise _oracle_error(
                "oracle {oracle} returned {first} and then {second} for the same inputs: it must compute the same each "
                "time",
                oracle=oracle,
                first=str(one[at]),
                second=str(other[at]),
            )


_TESTS = {"isnan", "isinf", "isfinite", "isposinf", "isneginf"}  # by which an oracle decides itself what is expected
_SHORT = 12  # significant bits of numbers that stay: results of the others are hardly ever ties
_ULP = 2.0**-52
_HASHES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


# How far the outputs move, at most, when the inputs do by a rounding of float64; 0 if the oracle then raises. With
# `ties` equal magnitudes move alike, and those of few digits stay, so that results that decide ties stay as well. In
# place of infinities and NaN: the largest numbers, and NaN.
def _own_error(evaluate: Evaluate, wide: Mapping[str, Array], values: tuple[Array, ...], *, ties: bool) -> list[Array]:
    most, rng = [np.zeros(value.shape) for value in values], np.random.default_rng(0)
    for number in _HASHES:
        try:
            near = evaluate(
                {
                    path: _nudged(value, number) if ties else perturb_randomly(value, _ULP, rng)
                    for path, value in wide.items()
                }
            )
        except Exception as error:  # such as one that checks its inputs
            raise_own_mistake(error)
            continue
        for i, (one, value) in enumerate(zip(near, values, strict=True)):
            if is_float(value.dtype):
                most[i] = np.maximum(most[i], distance(one, value))
    return [np.where(np.isfinite(v), e, np.nan_to_num(v, nan=np.nan)) for e, v in zip(most, values, strict=True)]


# The error of an oracle in complex numbers where zeros, infinities and NaN decide its result, which is a convention:
# NumPy has NaN + inf j for 1j * inf, 0 for the sign of -0, and few of C's rules of infinities (annex G). It is infinite
# where the other part of a number, in an output of the same shape, is not finite, and NaN, which admits NaN, where it
# is infinite itself. The parts are equally off, as a table of exp(1j * angle) has cos(pi / 2) = 6e-17, which stays
# where inputs move.
def _convention(
    evaluate: Evaluate, wide: Mapping[str, Array], values: tuple[Array, ...], most: list[Array]
) -> list[Array]:
    def with_numbers(*numbers: float) -> tuple[Array, ...]:  # for zeros and infinities
        near = dict(wide)
        for path, value in wide.items():
            if is_float(value.dtype):
                near[path] = np.select([value == 0, np.isinf(value)], [np.copysign(n, value) for n in numbers], value)
        return evaluate(near)

    errors = []
    for value, near, bounded in zip(values, with_numbers(1e-300, np.inf), with_numbers(0, 1), strict=True):
        parts = [(each, own) for each, own in zip(values, most, strict=True) if each.shape == value.shape]
        whole = np.all([np.isfinite(each) for each, _ in parts], axis=0)
        own = np.max([np.maximum(error, _ULP * magnitude(each)) for each, error in parts], axis=0)
        moved = np.where(whole, np.maximum(own, distance(near, value) + distance(bounded, value)), np.inf)
        errors.append(np.where(np.isfinite(value), moved, np.nan))
    return errors


def _nudged(values: Array, number: int) -> Array:
    if values.dtype != np.float64:
        return values
    bits = np.abs(values).view(np.uint64)
    long = np.isfinite(values) & ((bits & np.uint64(2 ** (53 - _SHORT) - 1)) != 0)
    with np.errstate(over="ignore"):  # which NumPy says of scalars
        up = (bits * np.uint64(number)) >> np.uint64(63)
    return np.where(long, values * (1 + _ULP * np.where(up, 1, -1)), values)


def check_all_masked(pairing: Pairing, target: str, expectation: Expectation) -> None:
    """Raises a `Failure` if the oracle's values differ from what the pairing declares where `target` is all masked.

    In a pairing with masks, only these count as masking: for scores that are all -inf, NaN may be correct although
    masked rows are zero.
    """
    masks = [path for path, leaf in pairing.leaves.items() if leaf.kind.is_mask]
    if masks and target not in masks:
        return
    for value, defined in zip(expectation.values, expectation.defined, strict=True):
        fits = (value == 0) if pairing.all_masked == "zeros" else np.isnan(np.asarray(value, np.float64)) | ~defined
        if pairing.all_masked and not fits.all():
            raise _oracle_error(
                "oracle {oracle} returns {value} where everything is masked, but the pairing declares "
                "all_masked={declared!r}",
                oracle=pairing.name,
                value=str(np.asarray(value)[~fits].flat[0]),
                declared=pairing.all_masked,
            )


def _check_structure(
    name: str,
    result: object,
    own_names: Sequence[tuple[str, ...]],
    like: Sequence[ShapeDtype],
    names: Sequence[tuple[str, ...]],
) -> None:
    if result is None and like:
        raise _oracle_error("oracle {oracle} returned nothing (no `return`?)", oracle=name)
    if isinstance(result, list) and len(like) == 1 and (len(result) != 1 or np.shape(result[0]) != like[0].shape):
        with suppress(ValueError):  # of a list that is no array
            if np.shape(result) == like[0].shape:
                raise _oracle_error(
                    "oracle {oracle} returned a list, each element of which is an output, and the kernel returned one "
                    "array: return np.array(...) of the list",
                    oracle=name,
                )
    if len(own_names) == len(names):
        pairs = [pair for both in zip(own_names, names, strict=True) for pair in zip(*both, strict=False)]
        if any(own != other for own, other in pairs if own and other):
            raise _oracle_error(
                "oracle {oracle}: its outputs are named {own}, the kernel's {names}; they are compared in this order, "
                "so give them the same names",
                oracle=name,
                own=_format_names(own_names),
                names=_format_names(names),
            )


def _format_names(names: Sequence[tuple[str, ...]]) -> str:
    return ", ".join(".".join(keys) for keys in names)


def _check_outputs(name: str, values: tuple[Array, ...], outputs: tuple[ShapeDtype, ...]) -> None:
    if len(values) != len(outputs):
        sentence = "oracle {oracle} returned {number}, the kernel {wanted}"
        number = f"{len(values)} output{'s' * (len(values) != 1)}"
        raise _oracle_error(sentence, oracle=name, number=number, wanted=len(outputs))
    for i, (value, output) in enumerate(zip(values, outputs, strict=True)):
        which = f"output {i} of oracle {name}" if len(outputs) > 1 else f"oracle {name}"
        if value.shape != output.shape:
            sentence = "{output} has shape {shape}, the kernel's has {wanted}"
            raise _oracle_error(sentence, output=which, shape=str(value.shape), wanted=str(output.shape))
        if output.dtype.kind == "c":
            sentence = "{output} would be of {dtype}: have kernel and oracle return the real and the imaginary part"
            raise _oracle_error(sentence, output=which, dtype=str(output.dtype))
        kind = "float" if is_float(output.dtype) else "integer" if is_integer(output.dtype) else "bool"
        fits = value.dtype == np.bool_ or (kind != "bool" and is_integer(value.dtype))
        if not fits and not (kind == "float" and is_float(value.dtype)):
            raise _oracle_error(
                "{output} has dtype {dtype}, the kernel's has {wanted}: return {kind} values, for example by .astype",
                output=which,
                dtype=str(value.dtype),
                wanted=str(output.dtype),
                kind=kind,
            )
