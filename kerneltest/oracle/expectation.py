"""Evaluates an oracle in float64 and int64: what a kernel should give, and how far it may be off."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.tree_util import tree_leaves

from kerneltest.core.dtypes import Array, ShapeDtype, float_format, flush_subnormals, is_float, is_integer, widen
from kerneltest.core.failures import Failure, convert_exceptions, format_exception
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.bounds import Bound, Evaluate, Limit, Measured
from kerneltest.declare.closed_forms import Exact
from kerneltest.declare.defined import Defined, Ignored, parted, unasked
from kerneltest.declare.pairing import Pairing
from kerneltest.declare.rounding import Explained, Rounded, Rounding
from kerneltest.numerics.error_budget import Share
from kerneltest.numerics.numpy_patch import watching
from kerneltest.plan.signatures import Signature


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a kernel should give for a case.

    Attributes:
      values: the oracle's outputs, float64, int64 or bool; zero where nothing is asked.
      flushed: the same for inputs whose subnormal numbers are zero; None where no input has any.
      bounds: how far each output may be off, before it is rounded to its dtype; None for bit for bit.
      asked: where something is asked of each output, bool, in its shape; by default everywhere.
      unfollowed: how the bounds came about instead, where an oracle could not be followed on any backend.
    """

    values: tuple[Array, ...]
    flushed: tuple[Array, ...] | None
    bounds: Sequence[Limit] | None
    asked: tuple[Array, ...] = ()
    unfollowed: str = ""

    def __post_init__(self) -> None:
        if not self.asked:
            object.__setattr__(self, "asked", tuple(np.broadcast_to(np.True_, value.shape) for value in self.values))

    def bound(self, output: int, output_dtype: np.dtype[Any], precision: Precision) -> Array:
        """The largest absolute error of an output of some dtype, its own rounding included: zero if exact, infinite
        where nothing is asked.
        """
        total = self._bound(output, output_dtype, precision)
        return np.where(self.asked[output], total, np.inf)

    def _bound(self, output: int, output_dtype: np.dtype[Any], precision: Precision) -> Array:
        value = self.values[output]
        if not is_float(output_dtype):
            return np.zeros(value.shape)
        value = np.asarray(value, np.float64)
        size = np.where(np.isfinite(value), np.abs(value), 0.0)
        fmt = float_format(output_dtype)
        total = before = np.zeros(value.shape)
        if self.bounds is not None:
            limit = self.bounds[output]
            before = limit.at(precision)
            if isinstance(limit, Bound):  # a closed form is about finite values alone; NaN must meet NaN all the same
                before = np.where(np.isfinite(value), before, 0.0)
            if before.any():
                with np.errstate(over="ignore"):
                    total = before + fmt.ulp(size + np.where(np.isfinite(before), before, 0.0)) / 2
        if precision.flushes:
            threshold = fmt.smallest_normal if fmt.min_exponent <= -126 else 0.0
            if self.flushed is not None:
                with np.errstate(all="ignore"):
                    moved = np.abs(np.asarray(self.flushed[output], np.float64) - value)
                # A comparison may see zero where a move keeps the number, so an input may come out as it is.
                total = total + np.where(np.isfinite(moved), moved, 0.0) + np.where(size < threshold, threshold, 0.0)
            total = total + np.where(size < threshold + before, size, 0.0) * (threshold > 0)
        return total

    def others(self, output: int, precision: Precision) -> tuple[Array, ...]:
        """What else than `values` an output of integers or booleans may be, as a whole and element by element."""
        if is_float(self.values[output].dtype):
            return ()
        if self.bounds is not None and isinstance(bound := self.bounds[output], Rounded):
            return bound.others(precision)
        return (self.flushed[output],) if precision.flushes and self.flushed is not None else ()

    def all_bounds(self, outputs: Sequence[ShapeDtype | Array], precision: Precision) -> tuple[Array, ...]:
        """`bound` of every output, whose dtypes are those of `outputs`."""
        return tuple(self.bound(i, output.dtype, precision) for i, output in enumerate(outputs))

    def all_others(self, precision: Precision) -> tuple[tuple[Array, ...], ...]:
        """`others` of every output."""
        return tuple(self.others(i, precision) for i in range(len(self.values)))

    def shares(self, output: int, precision: Precision) -> tuple[Share, ...]:
        """What makes the bound of an output, the largest part first; () where that is not known."""
        bound = self.bounds[output] if self.bounds is not None else None
        return bound.shares(precision) if isinstance(bound, Explained) else ()

    def note(self, precision: Precision) -> str:
        """What a bound could not take into account, or ""."""
        found = (b.note(precision) for b in self.bounds or () if isinstance(b, Rounded))
        return next(filter(None, found), self.unfollowed)


@contextmanager
def _special_values_allowed() -> Iterator[None]:
    """Special values are an oracle's business: what NumPy warns of there is no error, whatever pytest makes of it."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice|All-NaN|Degrees of freedom", RuntimeWarning)
        yield


def evaluator(pairing: Pairing, signature: Signature, outputs: Sequence[ShapeDtype]) -> Evaluate:
    """The oracle for a signature: from leaves in float64, complex128 or int64 to its outputs.

    They are zero where nothing is asked, and have the shapes of `outputs`, the kernel's, where they are ignored.

    Raises:
      Failure: when it is called: the oracle wrote to one of its arguments.
    """
    return lambda wide: _answer(pairing, signature, wide, outputs)[0]


def _answer(
    pairing: Pairing, signature: Signature, wide: Mapping[str, Array], like: Sequence[ShapeDtype]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """The oracle's outputs, and where something is asked of each."""
    given = {path: value.copy() for path, value in wide.items()}
    values = pairing.assemble(given, dict(signature.dims), dict(signature.statics), oracle=True)
    with _special_values_allowed():
        outputs = parted(tree_leaves(pairing.call_oracle(values)), like)
    for path, value in given.items():
        if value.tobytes() != wide[path].tobytes():
            raise Failure(
                Verdict.ORACLE_ERROR,
                f"oracle {pairing.name} wrote to its argument {path!r}: let it copy that first",
            )
    return outputs


def watchable(
    pairing: Pairing, signature: Signature, like: Sequence[ShapeDtype]
) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """The oracle for a signature, from watched leaves, to which it may write; zeros where nothing is asked."""
    oracle = watching(pairing.oracle)

    def evaluate(given: Mapping[str, Any]) -> tuple[Any, ...]:
        values = pairing.assemble(given, dict(signature.dims), dict(signature.statics), oracle=True)
        with _special_values_allowed():
            outputs = tree_leaves(pairing.call_as_oracle(oracle, values))
            outputs = [unasked(x) if isinstance(o, Ignored) else o for o, x in zip(outputs, like, strict=True)]
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
) -> Expectation:
    """Evaluates the oracle on a case's array arguments, once and then as often as the error model asks.

    Raises:
      Failure: naming the oracle and what is wrong.
    """

    evaluate = evaluator(pairing, signature, outputs)
    wide = {path: widen(value) for path, value in leaves.items()}
    with convert_exceptions(f"oracle {pairing.name}", Verdict.ORACLE_ERROR):
        values, asked = _answer(pairing, signature, wide, outputs)
        again = evaluate(wide) if repeat else values
        sampled = isinstance(pairing.tolerance, Rounding) and not bitwise  # it flushes by itself
        flat = leaves if sampled else {path: flush_subnormals(value) for path, value in leaves.items()}
        has_subnormals = any(flat[path] is not value for path, value in leaves.items())
        flushed = evaluate({path: widen(value) for path, value in flat.items()}) if has_subnormals else None
    _check_outputs(pairing.name, values, outputs)
    _check_repeatable(pairing.name, values, again)
    if bitwise or isinstance(pairing.tolerance, Exact):
        return Expectation(values, flushed, None, asked)
    formats = {path: float_format(value.dtype) for path, value in leaves.items() if is_float(value.dtype)}

    def in_kernel_dtypes(reference: Callable[..., object]) -> tuple[Array, ...]:
        given = {path: value.copy() for path, value in leaves.items()}
        chosen = pairing.assemble(given, dict(signature.dims), dict(signature.statics), oracle=True)
        with _special_values_allowed():
            results, _ = parted(tree_leaves(pairing.call_as_oracle(reference, chosen)), outputs)
        return tuple(result.astype(np.float64) for result in results)

    dims, statics = dict(signature.dims), dict(signature.statics)
    measured = Measured(
        evaluate=evaluate,
        leaves=wide,
        values=values,
        declared=signature.leaves(pairing),
        dims=dims,
        formats=formats,
        watched=watchable(pairing, signature, outputs),
        oracle=pairing.oracle,
        in_kernel_dtypes=in_kernel_dtypes,
        statics=statics,
    )
    try:
        return Expectation(values, flushed, pairing.tolerance.bounds(measured), asked)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise Failure(
            Verdict.ORACLE_ERROR,
            f"error model {pairing.tolerance} of oracle {pairing.name} raised {format_exception(error)}",
        ) from error


def _check_repeatable(name: str, values: tuple[Array, ...], again: tuple[Array, ...]) -> None:
    """An oracle that draws random numbers makes its own spread, and so every bound, as wide as it likes."""
    for one, other in zip(values, again, strict=True):
        if one is not other and not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            at = tuple(np.argwhere(np.asarray(one != other))[0])
            raise Failure(
                Verdict.ORACLE_ERROR,
                f"oracle {name} returned {one[at]} and then {other[at]} for the same inputs: it must compute the same "
                "each time",
            )


def check_all_masked(pairing: Pairing, target: str, expectation: Expectation) -> None:
    """Holds the oracle's values for a case in which all of an argument is masked against what the pairing declares.

    Where there are masks, they alone mask: of scores that are all -inf, NaN may be right beside masked zeros.

    Raises:
      Failure: they are not what it declares.
    """
    masks = [path for path, leaf in pairing.leaves.items() if leaf.kind.is_mask]
    if masks and target not in masks:
        return
    for value, asked in zip(expectation.values, expectation.asked, strict=True):
        fits = (value == 0) if pairing.all_masked == "zeros" else np.isnan(np.asarray(value, np.float64)) | ~asked
        if pairing.all_masked and not fits.all():
            raise Failure(
                Verdict.ORACLE_ERROR,
                f"oracle {pairing.name} returns {np.asarray(value)[~fits].flat[0]} where everything is masked, and the "
                f"pairing declares all_masked={pairing.all_masked!r}",
            )


def _check_outputs(name: str, values: tuple[Array, ...], outputs: tuple[ShapeDtype, ...]) -> None:
    if len(values) != len(outputs):
        raise Failure(Verdict.ORACLE_ERROR, f"oracle {name} returned {len(values)} outputs, the kernel {len(outputs)}")
    for i, (value, output) in enumerate(zip(values, outputs, strict=True)):
        which = f"output {i} of oracle {name}" if len(outputs) > 1 else f"oracle {name}"
        if value.shape != output.shape:
            raise Failure(Verdict.ORACLE_ERROR, f"{which} has shape {value.shape}, the kernel's has {output.shape}")
        wanted = "float" if is_float(output.dtype) else "integer" if is_integer(output.dtype) else "bool"
        dtype = value.dtype
        fits = {
            "float": is_float(dtype) or is_integer(dtype) or dtype == np.bool_,
            "integer": is_integer(dtype) or dtype == np.bool_,
            "bool": dtype == np.bool_,
        }[wanted]
        if not fits:
            raise Failure(
                Verdict.ORACLE_ERROR,
                f"{which} has dtype {dtype}, the kernel's has {output.dtype}: return {wanted} values, as by .astype",
            )
