"""A kernel evaluated with every float of 16 bits or more promoted to float64: what its formula gives without rounding.

The same evaluation in samples, in each of which every operation is rounded at random, shows how far results move with
the roundings of an arithmetic, whatever the dtypes of the kernel are.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np

from kerneltest.core.dtypes import Array, DType, FloatFormat, float_format, is_float, is_integer
from kerneltest.core.precision import FLOAT32, NEVER_EXACT, Precision
from kerneltest.numerics.bounds import magnitude
from kerneltest.numerics.closed_forms import column_norms
from kerneltest.numerics.device_operations import multiply_matrices
from kerneltest.numerics.products import largest_aligned
from kerneltest.numerics.rounding_bounds import NEGLIGIBLE
from kerneltest.numerics.rounding_model import (
    fits,
    is_short,
    largest_error_of_sums,
    largest_rounding,
    noise_of,
    round_to_nearest,
)
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules
from kerneltest.trace.jax_compat.jaxprs import Atom, Equation, Var
from kerneltest.trace.machine import EquationFunction, Machine, UnknownError, Value
from kerneltest.trace.primitives import Kind, primitive_of
from kerneltest.trace.tracing import Literals, Traced
from kerneltest.trace.triton_kernels import Evaluation, is_triton_call
from kerneltest.trace.walk import float_dtype, iter_equations, primitive_name

# Evaluation of a kernel's operations in samples, in each of which every operation is rounded at random.


_PRODUCTS = {"dot_general": slice(0, 2), "wgmma_ref": slice(1, 3)}  # with their factors among the operands
_LONG = 2**12  # elements of a constant that are worth keeping
_MAX_KEPT = 2**29  # bytes of perturbed constants


@dataclass(frozen=True, slots=True)
class SampleArithmetic:
    """The arithmetic of samples."""

    fmt: FloatFormat  # of every result
    precision: Precision | None = None  # how functions and the operands of products are rounded in addition, if at all
    constants: bool = False  # whether constants in narrower floats are known to half an ulp of their dtype only
    inputs: float = 0.0  # the largest relative change of float inputs; if any, operations are not rounded
    normwise: bool = False  # whether it is relative to the norm of a column, instead of to each element
    counters: bool = False  # whether only what is made of counters and constants is rounded
    rows: int = 17  # the number of samples; none is rounded in row 0


class SamplingRules(KernelRules):
    """Numbers in samples, for several cases at once: (cases * rows, ...), the rows of a case together.

    If it `narrows`, numbers of Python's are as the kernel's dtypes represent them; else these are known to half an ulp.
    """

    def __init__(
        self, arithmetic: SampleArithmetic, traced: Traced, literals: Literals | None = None, *, narrows: bool = False
    ) -> None:
        super().__init__(promotes=True, literals=literals)
        self._arithmetic, self._narrows = arithmetic, narrows
        self._narrow = {number: dtype for dtype, number in literals or {} if dtype.itemsize == 2}
        self._arrays: frozenset[Var] = frozenset(traced.jaxpr.jaxpr.constvars)
        self._inputs = frozenset(leaf.dtype for leaf in traced.inputs)
        # What a compiler may multiply, the quotient by a constant as well: it is a product with its reciprocal.
        self._products = frozenset(
            each.outvars[0]
            for each, _ in iter_equations(traced.jaxpr.jaxpr)
            if primitive_of(each).multiplies or (primitive_name(each) == "div" and hasattr(each.invars[1], "val"))
        )
        self._room = _MAX_KEPT
        self._counters: WeakValueDictionary[int, Array] = WeakValueDictionary()  # made of counters, by their ids
        self._multiplied: list[DType] | None = None  # the dtypes of the operands of a rounded product; None outside one
        self.restart()

    def restart(self, cases: int = 1) -> None:
        """Draws the same noise again for some cases, the same for each, so that no case depends on any other."""
        self._bits, self._cases = np.random.PCG64(20), cases
        self.in_step = cases > 1  # or noise would depend on other cases
        self._random = np.random.Generator(self._bits)

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        exact = super().rule(machine, equation)
        if self._arithmetic.inputs:
            return exact
        rounded = self._rounded_rule(machine, equation, exact)
        if not self._arithmetic.counters:
            return rounded

        def sample(operands: Sequence[Value]) -> Sequence[Value]:
            if not all(map(self._is_counter, operands)):
                return exact(operands)
            results = rounded(operands)
            self._counters.update((id(each), each) for each in results if isinstance(each, np.ndarray))
            return results

        return sample

    @property
    def evaluation(self) -> Evaluation:
        """As for `KernelRules`: each row is a sample, and those of each case have the same noise."""
        is_exact = self._arithmetic.inputs or self._arithmetic.counters  # the operands are not made of them
        return Evaluation(self.promotes, None if is_exact else self._arithmetic)

    def multiply(self, a: Array, b: Array, dtype: DType) -> Array:
        """The product of matrices, rounded inside an equation that is, unless it is one of integers."""
        if self._multiplied is None or not is_float(dtype):
            return super().multiply(a, b, dtype)
        a, b = (self._round_operand(x, each) for x, each in zip((a, b), self._multiplied, strict=True))
        mass, precision = multiply_matrices(np.abs(a), np.abs(b), dtype), self._arithmetic.precision
        # Each may be rounded to a multiple of the least number, as a partial sum of normal size is.
        partial: Array = np.asarray(self._arithmetic.fmt.smallest_normal)
        narrow = {float_format(each) for each in self._multiplied if is_float(each) and each.itemsize == 2}
        if precision is not None and precision.aligns_subnormals and len(narrow) == 1:
            partial = np.maximum(partial, largest_aligned(a, b, *narrow))
        return self._round_sum(super().multiply(a, b, dtype), mass, a.shape[-1], partial)

    def accumulate(self, total: Array, a: Array, b: Array, dtype: DType) -> Array:
        """The sum of an accumulator and a product of matrices, rounded likewise."""
        result = super().accumulate(total, a, b, dtype)
        exact = self._multiplied is None or not is_float(dtype)
        return result if exact else self._round(result, self._arithmetic.fmt)

    # An array that has no rows yet does not depend on inputs.
    def _is_counter(self, value: Value) -> bool:
        return isinstance(value, np.ndarray) and (len(value) == 1 or self._counters.get(id(value)) is value)

    def _rounded_rule(self, machine: Machine, equation: Equation, evaluate: EquationFunction) -> EquationFunction:
        primitive = primitive_of(equation)
        if primitive.name in _PRODUCTS:
            evaluate = self._rounded_product(evaluate, equation.invars[_PRODUCTS[primitive.name]])
        errors = enumerate(map(self._constant_error, equation.invars if self._arithmetic.constants else ()))
        constants = {number: error for number, error in errors if error}
        rounds = primitive.rounds or primitive.sums or primitive.name == "convert_element_type"
        if is_triton_call(equation):
            return lambda operands: evaluate(
                [np.broadcast_to(x, (self._cases * self._arithmetic.rows, *x.shape[1:])) for x in operands]
            )
        if not constants and not (rounds and is_float(np.dtype(equation.outvars[0].aval.dtype))):
            return evaluate
        round_operands, round_result = self._operand_rounding(equation), self._result_rounding(machine, equation)
        fused, narrower = self._fused_products(equation), self._narrowed_number(equation)
        kept: dict[int, tuple[object, Array]] = {}  # long constants, as they were perturbed last

        def sample(operands: Sequence[Array]) -> Sequence[Array]:
            moved = list(operands)
            for number, unit in constants.items():
                moved[number] = self._perturb_constant(moved[number], unit, number, kept)
            for number in fused:
                moved[number] = self._round(moved[number], self._arithmetic.fmt)
            if narrower is not None:
                narrow = round_to_nearest if self._narrows else self._round
                moved[0] = narrow(moved[0], narrower)
            moved = round_operands(moved)
            results = evaluate(moved)
            return [round_result(moved, results[0])] if rounds else results

        return sample

    def _rounded_product(self, exact: EquationFunction, variables: Sequence[Var]) -> EquationFunction:
        dtypes = [np.dtype(variable.aval.dtype) for variable in variables]

        def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
            self._multiplied = dtypes
            try:
                return exact(operands)
            finally:
                self._multiplied = None

        return evaluate

    def perturb_inputs(self, leaves: Sequence[Array]) -> list[Array]:
        """Changes float inputs by up to `inputs` of the arithmetic, except in row 0 of each case."""
        unit = self._arithmetic.inputs

        def perturb(leaf: Array) -> Array:
            if not (unit and is_float(leaf.dtype)):
                return leaf
            if self._arithmetic.normwise and leaf.ndim > 1:
                moved = leaf + unit * column_norms(leaf, leaf.ndim - 1) * self._noise(leaf)
            else:
                moved = leaf * (1 + unit * self._noise(leaf))  # infinities stay
            return self._in_rows(leaf, moved)

        return [*map(perturb, leaves)]

    def _constant_error(self, variable: Atom) -> float:
        # Returns the largest relative error of a constant that its author may have rounded to a narrower float; else 0.
        # One that JAX has converted to float64 still has the digits of float32, or of the kernel's 16 bits.
        if (dtype := float_dtype(getattr(variable.aval, "dtype", None))) is None:
            return 0.0
        if not hasattr(variable, "val"):
            return float_format(dtype).unit_roundoff if variable in self._arrays else 0.0
        number = float(np.asarray(variable.val, dtype))  # a literal may have more digits than its dtype
        dtype = self._narrow.get(number, dtype)
        fmt = float_format(dtype) if dtype.itemsize < 8 else FLOAT32
        if fmt == FLOAT32 and number == 2 * fmt.unit_roundoff:
            return 1.0  # the epsilon of float32, which would be less in float64
        is_written = is_short(number, fmt) or not fits(np.array([number]), fmt)
        return 0.0 if is_written else float(fmt.ulp(np.array(abs(number)))) / 2 / abs(number)

    def _fused_products(self, equation: Equation) -> list[int]:
        # The operands of an addition that are products: a compiler that fuses the two does not round these. So the
        # difference of a product and itself need not be 0.
        if self._arithmetic.precision is None or not primitive_of(equation).adds:
            return []
        return [i for i, v in enumerate(equation.invars) if not hasattr(v, "val") and v in self._products]

    def _narrowed_number(self, equation: Equation) -> FloatFormat | None:
        # Returns the format of an input to which an equation converts numbers of Python's, which JAX has in float32 up
        # to there. A format that no input has is the kernel's own choice.
        if primitive_name(equation) != "convert_element_type" or hasattr(equation.invars[0], "val"):
            return None
        given, made = equation.invars[0].aval, np.dtype(equation.outvars[0].aval.dtype)
        is_number = getattr(given, "weak_type", False) and is_float(np.dtype(given.dtype)) and made in self._inputs
        return float_format(made) if is_number and is_float(made) and made.itemsize < given.dtype.itemsize else None

    def _operand_rounding(self, equation: Equation) -> Callable[[list[Array]], list[Array]]:
        primitive, precision = primitive_of(equation), self._arithmetic.precision
        known = precision.ulps.get(primitive.ulps or "") if precision is not None else None
        if known is None or not known.argument:
            return lambda operands: operands
        unit = 2 * known.argument * self._arithmetic.fmt.unit_roundoff
        return lambda operands: [self._perturb(operands[0], unit), *operands[1:]]

    def _round_operand(self, operand: Array, dtype: DType) -> Array:
        # Rounds an operand of a product, which has a dtype in the kernel, to the format of the machine. A dtype that no
        # input has is the kernel's own choice, so that its rounding is no machine's. Numbers of 8 bits are rounded
        # already.
        precision = self._arithmetic.precision
        if precision is None or not is_float(dtype) or dtype.itemsize not in (2, 4):
            return operand
        given = dtype != np.float32 and dtype in self._inputs and precision.narrow_products
        fmt = float_format(dtype) if given else precision.dot_input.get("float32")
        return operand if fmt is None else self._round(operand, fmt)

    def _result_rounding(self, machine: Machine, equation: Equation) -> Callable[[Sequence[Array], Array], Array]:
        primitive, fmt, precision = primitive_of(equation), self._arithmetic.fmt, self._arithmetic.precision
        if primitive.name == "convert_element_type":
            from_integer = not is_float(np.dtype(equation.invars[0].aval.dtype))
            return lambda operands, x: self._round(x, fmt) if from_integer and x.dtype == np.float64 else x
        if primitive.kind is Kind.PRODUCT:
            return lambda operands, x: x
        if primitive.sums:
            mass = self._mass(machine, equation)
            return lambda operands, x: self._round_sum(x, *mass(operands))
        known, beyond, absolute = precision.ulps.get(primitive.ulps or "") if precision is not None else None, 0.0, 0.0
        if known is not None:
            beyond = 2 * max(known.relative - 0.5, 0.0) * fmt.unit_roundoff
            absolute = 2 * known.absolute * fmt.unit_roundoff

        def round_result(operands: Sequence[Array], x: Array) -> Array:
            moved = self._perturb(x, beyond) if beyond else x
            if absolute:
                moved = self._in_rows(moved, moved + absolute * self._noise(moved))
            rounded = (operands[0] != 0) & np.isfinite(operands[0]) if primitive.ulps in NEVER_EXACT else False
            return self._round(moved, fmt, rounded=rounded, terms=operands if primitive.adds else ())

        return round_result

    def _mass(self, machine: Machine, equation: Equation) -> Callable[[Sequence[Array]], tuple[Array, int]]:
        absolute = super().rule(machine, equation)
        shape, params = equation.invars[0].aval.shape, equation.params
        axes = params["axes"] if "axes" in params else (params["axis"],)
        terms = math.prod(shape[axis] for axis in axes)
        return lambda operands: (np.asarray(absolute([np.abs(operand) for operand in operands])[0]), terms)

    def _round_sum(self, sums: Array, mass: Array, terms: int, partial: Array | float = 0.0) -> Array:
        fmt = self._arithmetic.fmt
        most = largest_error_of_sums(sums, mass, terms, fmt, partial)
        return self._round(self._in_rows(sums, sums + most * self._noise(sums)), fmt)

    def _round(self, values: Array, fmt: FloatFormat, **exceptions: Any) -> Array:
        # Perturbs values by up to a rounding, on either side of a power of two, unless they are representable.
        most = largest_rounding(values, fmt, **exceptions)
        if not most.any():
            self._bits.advance(1)  # as if the noise was drawn
            return values
        return self._in_rows(values, values + most * self._noise_of(values))

    # Every case perturbs a constant alike, as far as it has the same noise. In a table, a number such as cos(pi / 2) in
    # float64 is known to nothing.
    def _perturb_constant(
        self, values: Array, unit: float, number: int, kept: dict[int, tuple[object, Array]]
    ) -> Array:
        noise = self._cases, self._bits.state["state"]["state"]
        known, moved = kept.get(number, (None, values))
        if known == noise:
            self._bits.advance(1)  # as if the noise was drawn
            return moved
        size = magnitude(values)
        dust = size <= NEGLIGIBLE * min(1.0, float(np.max(size, initial=0.0)))
        moved = self._perturb(values, np.where(dust, 1.0, unit))
        if values.size >= _LONG and (number in kept or moved.nbytes <= self._room):
            self._room -= 0 if number in kept else moved.nbytes
            kept[number] = noise, moved
        return moved

    def _perturb(self, values: Array, unit: float | Array) -> Array:
        return self._in_rows(values, values * (1 + unit * self._noise_of(values)))

    def _in_rows(self, exact: Array, moved: Array) -> Array:
        rows, shape = self._arithmetic.rows, moved.shape[1:]
        if len(exact) not in (1, self._cases * rows):
            raise UnknownError("samples that take different branches")
        result = np.array(np.broadcast_to(moved, (self._cases * rows, *shape)), np.float64)
        result[::rows] = exact[::rows]
        return result

    # Equal values of a row get the same error, as one operation gives them: what ties before it ties after it.
    def _noise_of(self, values: Array) -> Array:
        rows = np.tile(np.arange(self._arithmetic.rows), self._cases)
        shape = len(rows), *values.shape[1:]
        return noise_of(np.ascontiguousarray(np.broadcast_to(values, shape), np.float64), rows, self._random.random())

    def _noise(self, values: Array) -> Array:
        drawn = self._random.uniform(-1.0, 1.0, (self._arithmetic.rows, *values.shape[1:]))
        return drawn if self._cases == 1 else np.concatenate([drawn] * self._cases)


class UnroundedRules(KernelRules):
    """Promoted numbers, of which an explicit rounding returns its operand."""

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        return list if primitive_name(equation) == "reduce_precision" else super().rule(machine, equation)


class WideRules(KernelRules):
    """Promoted numbers and signed integers."""

    def promoted(self, dtype: DType) -> DType:  # not of unsigned integers, which hashes let wrap
        return np.dtype(np.int64) if dtype.kind == "i" else super().promoted(dtype)


class CappedRules(WideRules):
    """The same; FloatingPointError if a number becomes too large for its dtype in the kernel."""

    room = 1.0  # so many times as large as the dtype's largest number

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        evaluate = super().rule(machine, equation)
        dtypes = [np.dtype(getattr(variable.aval, "dtype", np.bool_)) for variable in equation.outvars]
        limits = [
            float_format(d).overflow if is_float(d) else 2.0 ** (8 * d.itemsize - (d.kind != "u")) for d in dtypes
        ]

        def check(operands: Sequence[Array]) -> Sequence[Array]:
            results = evaluate(operands)
            for result, limit in zip(results, limits, strict=True):
                if not isinstance(result, np.ndarray):
                    continue
                size = np.abs(result, dtype=np.float64)  # the parts of a complex number are not promoted
                # Larger integers than products of 32 bits are made of the least one: memory that is never written.
                most = 2.0**62 if is_integer(result.dtype) else np.inf
                if ((size >= self.room * limit) & (size < most)).any():
                    raise FloatingPointError(f"{primitive_name(equation)} overflows")
            return results

        return check


class FarRules(CappedRules):
    """The same, of numbers so far too large that no other order of right operations explains them."""

    room = 2.0**12


class PromotedKernel:
    """A kernel with its floats promoted to float64; UnknownError for an unsupported operation or value.

    `literals` are numbers in the place of the kernel's. Its samples have numbers of Python's as the kernel's dtypes
    represent them if it `narrows`. `kind` are the rules of other evaluations.
    """

    def __init__(
        self,
        traced: Traced,
        kind: type[KernelRules] = KernelRules,
        *,
        literals: Literals | None = None,
        narrows: bool = False,
    ) -> None:
        self._traced, self._literals, self._narrows = traced, literals, narrows
        sites = traced.sites if kind is KernelRules else None
        self._kernel = BatchedKernel(traced, kind(promotes=True, sites=sites, literals=literals))
        self._sampled: dict[SampleArithmetic, tuple[SamplingRules, BatchedKernel]] = {}

    def __call__(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        """Evaluates the kernel on leaves (rows, *shape): float64 in place of floats of 16 bits or more."""
        with jax.enable_x64(True):
            return self._kernel([_promote(leaf, self._kernel) for leaf in leaves])

    def overflows(self, leaves: Sequence[Array]) -> bool:
        """Returns whether an operation on finite values overflows float64, or the limits of its rules, for one case."""
        with jax.enable_x64(True):
            try:
                self._kernel([_promote(leaf, self._kernel)[None] for leaf in leaves], overflow="raise")
            except FloatingPointError:
                return True
        return False

    def sample(self, leaves: Sequence[Array], arithmetic: SampleArithmetic) -> tuple[Array, ...]:
        """Evaluates the kernel in samples for one case: `leaves` are (*shape), the outputs (samples, *shape)."""
        return tuple(output[0] for output in self.sample_cases([np.asarray(leaf)[None] for leaf in leaves], arithmetic))

    def sample_cases(self, leaves: Sequence[Array], arithmetic: SampleArithmetic) -> tuple[Array, ...]:
        """Evaluates several cases at once, each as if by itself: from (cases, *shape) to (cases, samples, *shape)."""
        if arithmetic not in self._sampled:
            rules = SamplingRules(arithmetic, self._traced, self._literals, narrows=self._narrows)
            self._sampled[arithmetic] = rules, BatchedKernel(self._traced, rules)
        rules, kernel = self._sampled[arithmetic]
        cases = len(leaves[0]) if leaves else 1
        rules.restart(cases)
        with jax.enable_x64(True):
            try:
                repeated = [np.repeat(_promote(leaf, kernel), arithmetic.rows, 0) for leaf in leaves]
                outputs = kernel(rules.perturb_inputs(repeated))
            except ValueError as error:  # shapes with rows of one branch beside shapes with all rows
                raise UnknownError("samples that take different branches") from error
        return tuple(output.reshape(cases, len(output) // cases, *output.shape[1:]) for output in outputs)


def _promote(leaf: Array, kernel: BatchedKernel) -> Array:
    return leaf.astype(kernel.rules.promoted(leaf.dtype), copy=False)
