"""Calls of kernels written in Triton, evaluated in NumPy: with their floats promoted, and each operation in samples.

Triton IR is parsed with float64 in place of the other floats of 16 bits or more, and the simulator runs it as it is.
"""

import functools
import math
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltest.backends.codegen.tiers import LoweredKernel, lower_call
from kerneltest.backends.simulate.ir import Compute, Operation, Region, Rule, Type, unsupported_failure
from kerneltest.backends.simulate.memory import SimulatedBuffer, signless
from kerneltest.backends.simulate.operations import FLOAT_ADD, plain_name
from kerneltest.backends.simulate.simulation import Simulation, TritonReader, allocate_buffers, new_buffer, parse_body
from kerneltest.core.dtypes import Array, FloatFormat, float_format, is_promotable
from kerneltest.core.precision import FLOAT32
from kerneltest.core.targets import TARGETS
from kerneltest.numerics.rounding_model import fits, is_short, largest_error_of_sums, largest_rounding, noise_of
from kerneltest.trace.batched_interpreter.promoted_kernel import SampleArithmetic
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.machine import rows_of
from kerneltest.trace.runnable import CallArray
from kerneltest.trace.tracing import call_of
from kerneltest.trace.triton_kernels import Evaluation, register_evaluator

_FLOAT64 = np.dtype(np.float64)
_TARGET = TARGETS["sm_90"]


class _PromotedReader(TritonReader):
    """Reads Triton IR with promoted floats. Bits of a promoted float have no meaning."""

    def parse_type(self, text: str) -> Type:
        known = super().parse_type(text)
        return replace(known, dtype=_FLOAT64) if is_promotable(known.dtype) else known

    def _operation(self, op: Any) -> Operation:
        found = super()._operation(op)
        types = (*found.operand_types, *found.types)
        if found.name.endswith(".bitcast") and any(each.dtype == _FLOAT64 for each in types):
            raise unsupported_failure("bits of floats without rounding", found.place)
        if found.name == "tt.dot":
            given = [super(_PromotedReader, self).parse_type(str(operand.type)).dtype for operand in op.operands]
            return replace(found, attributes={**found.attributes, _GIVEN: tuple(given)})
        return found


_GIVEN = "dtypes"  # of the operands of a product in the kernel


@functools.lru_cache(maxsize=256)
def _body(code: bytes, promotes: bool) -> Region:
    return parse_body(code, reader=_PromotedReader(complete=False) if promotes else None)


class _Samples:
    """Samples of a few cases, in which each operation is rounded at random as in a `SampleArithmetic`.

    There are `count` of each case, from the `first` on; number 0 is not rounded. Each case has the same noise.
    """

    def __init__(
        self, how: Evaluation, inputs: Container[np.dtype], first: int, count: int, cases: int, programs: int
    ) -> None:
        arithmetic: SampleArithmetic = how.samples
        self._fmt, self._constants, self._precision = arithmetic.fmt, arithmetic.constants, arithmetic.precision
        self._inputs, self._first, self._count, self._cases, self._programs = inputs, first, count, cases, programs

    def rounded(self, region: Region) -> Region:
        """Returns a region whose operations are rounded."""
        return replace(region, operations=tuple(map(self._operation, region.operations)))

    def _operation(self, op: Operation) -> Operation:
        inner = replace(op, regions=tuple(map(self.rounded, op.regions)))
        by_rule = op.semantics.execute is None or op.name == "tt.atomic_rmw"
        if not by_rule or not any(t.dtype == _FLOAT64 and not t.pointer for t in op.types):
            return inner
        return replace(inner, semantics=replace(op.semantics, rule=lambda _: self._rule(inner)))

    def _rule(self, op: Operation) -> Rule:
        rule, name = op.semantics.rule(op), op.name
        if name == "tt.dot":
            return replace(rule, compute=lambda a, b, c: self._dot(op, rule.compute, a, b, c))
        if name == "arith.constant":
            return replace(rule, compute=lambda: self._constant(op.results[0], rule.compute()))
        number = op.results[0]
        adds = name == "tt.atomic_rmw" and op.attributes["atomic_rmw_op"] == FLOAT_ADD  # in one program at a time
        if not adds and name not in _ROUNDS and not name.startswith("math."):
            return rule
        function = "divide" if name == "arith.divf" else name.removeprefix("math.")
        function = plain_name(op.attributes["symbol"]) if name == "tt.extern_elementwise" else function
        known = self._precision.ulps.get(function) if self._precision is not None else None

        def compute(*operands: Array) -> Array:
            x: Array = rule.compute(*operands)
            if known is not None:
                beyond = 2 * max(known.relative - 0.5, 0.0) * np.abs(x) + 2 * known.absolute
                x = self._moved((number, 1), x, beyond * self._fmt.unit_roundoff)
            most = largest_rounding(x, self._fmt, terms=operands if name in ("arith.addf", "arith.subf") else ())
            return self._moved((number, 0), x, most, 1 if adds else self._programs)

        return replace(rule, compute=compute)

    def _dot(self, op: Operation, product: Compute, a: Array, b: Array, c: Array) -> Array:
        formats, number = map(self._operand_format, op.attributes[_GIVEN][:2]), op.results[0]
        given = enumerate(zip((a, b), formats, strict=True))
        a, b = (x if fmt is None else self._round((number, 2 + i), x, fmt) for i, (x, fmt) in given)
        sums: Array = product(a, b, c)
        mass: Array = product(np.abs(a), np.abs(b), np.abs(c))
        terms = op.operand_types[0].shape[-1] + 1
        most = largest_error_of_sums(sums, mass, terms, self._fmt, self._fmt.smallest_normal)
        return self._round((number, 0), self._moved((number, 1), sums, most, of_sums=True), self._fmt)

    # As `SamplingRules` does: a narrow dtype that no input has is the kernel's own choice, and not the machine's.
    def _operand_format(self, dtype: np.dtype) -> FloatFormat | None:
        if self._precision is None or dtype.itemsize not in (2, 4):
            return None
        given = dtype.itemsize == 2 and dtype in self._inputs and self._precision.narrow_products
        return float_format(dtype) if given else self._precision.dot_input.get("float32")

    # A constant is known to half an ulp of float32, unless it is likely what its author wrote.
    def _constant(self, number: int, x: Array) -> Array:
        if not self._constants or not fits(x, FLOAT32):
            return x
        written = np.array([is_short(number, FLOAT32) for number in x.ravel().tolist()]).reshape(x.shape)
        return self._moved((number, 0), x, np.where(written, 0.0, FLOAT32.unit_roundoff * np.abs(x)))

    def _round(self, key: tuple[int, int], x: Array, fmt: FloatFormat) -> Array:
        return self._moved(key, x, largest_rounding(x, fmt))

    # Values (cases * count * programs, ...), or (1, ...) that all share, moved by the noise of each sample: a hash of
    # the value, of the operation and of a number in it. So it does not depend on how often the operation was run, as
    # other cases may decide. Equal sums may have other terms, so that theirs depends on their place, too.
    def _moved(
        self, key: tuple[int, int], x: Array, most: Array, programs: int | None = None, *, of_sums: bool = False
    ) -> Array:
        programs = programs or self._programs
        rows = np.tile(np.arange(self._first, self._first + self._count), self._cases)
        own = 1 if len(x) == 1 else programs
        values = np.broadcast_to(x, (len(rows) * own, *x.shape[1:])).reshape(len(rows), own, *x.shape[1:])
        seed = (8 * key[0] + key[1] + 1) * ((math.sqrt(5) - 1) / 2) % 1.0
        noise = noise_of(np.ascontiguousarray(values, np.float64), rows, seed)
        if of_sums:
            noise += np.random.Generator(np.random.PCG64((20, *key))).uniform(-1.0, 1.0, noise.shape[1:])
            noise -= 2 * np.rint(noise / 2)
        noise[rows == 0] = 0.0
        shape = len(rows), programs, *x.shape[1:]
        moved = x + most * np.broadcast_to(noise, shape).reshape(-1, *x.shape[1:])
        return np.where(np.isfinite(moved), moved, x)


_ROUNDS = frozenset(
    "arith.addf arith.subf arith.mulf arith.divf arith.remf arith.sitofp arith.uitofp tt.extern_elementwise "
    "tt.precise_sqrt tt.precise_divf".split()
)


# Evaluation of rows at once: of all samples of several cases, as far as the values of an operation fit.

_MOST_ELEMENTS = 2**18  # of the largest operation
_MOST_CASES = 64


@functools.lru_cache(maxsize=64)
def _lowered(equation: Equation, promotes: bool) -> tuple[LoweredKernel, Region, int]:
    # With the elements of the largest operation in all programs.
    (kernel,) = lower_call(call_of(equation), _TARGET)
    body = _body(kernel.bytecode, promotes)
    return kernel, body, max(1, math.prod(kernel.grid)) * _largest(body)


def _largest(region: Region) -> int:
    inner = (_largest(each) for op in region.operations for each in op.regions)
    return max([1, *(math.prod(kind.shape) for op in region.operations for kind in op.types), *inner])


@functools.lru_cache(maxsize=16)
def _prepared(
    equation: Equation, how: Evaluation, first: int, count: int, cases: int
) -> tuple[Simulation, list[SimulatedBuffer]]:
    kernel, body, _ = _lowered(equation, how.promotes)

    def make(array: CallArray, number: int | None) -> SimulatedBuffer:
        return new_buffer(array, number, _promoted(array.dtype, how.promotes), cases * count)

    inputs, outputs, hints = allocate_buffers(call_of(equation), kernel, make)
    if how.samples is not None:
        dtypes = {np.dtype(variable.aval.dtype) for variable in equation.invars}
        samples = _Samples(how, dtypes, first, count, cases, math.prod(kernel.grid))
        body = samples.rounded(body)
    return Simulation(body, kernel.grid, inputs, outputs, hints, None, kernel.arguments), outputs


def _evaluate(equation: Equation, operands: Sequence[Array], how: Evaluation) -> list[Array]:
    rows = rows_of(operands)
    of_case = min(rows, how.samples.rows) if how.samples is not None else 1
    most = max(1, _MOST_ELEMENTS // _lowered(equation, how.promotes)[2])
    cases = rows // of_case
    given = [np.broadcast_to(x, (rows, *x.shape[1:])).reshape(cases, of_case, *x.shape[1:]) for x in operands]
    dtypes = [_promoted(variable.aval.dtype, how.promotes) for variable in equation.outvars]
    results = [np.empty((cases, of_case, *v.aval.shape), d) for v, d in zip(equation.outvars, dtypes, strict=True)]
    for first in range(0, of_case, most):
        count = min(most, of_case - first)
        begin = 0
        while begin < cases:  # a power of two at a time, so that few numbers of cases are prepared
            together = 1 << (min(cases - begin, max(1, most // count), _MOST_CASES).bit_length() - 1)
            simulation, outputs = _prepared(equation, how, first, count, together)
            part = slice(begin, begin + together), slice(first, first + count)
            simulation.run([(signless(np.ascontiguousarray(x[part])), None) for x in given])
            for result, buffer in zip(results, outputs, strict=True):
                result[part] = buffer.data.view(result.dtype).reshape(result[part].shape)
            begin += together
    return [result.reshape(rows, *result.shape[2:]) for result in results]


def _promoted(dtype: np.dtype, promotes: bool) -> np.dtype:
    return _FLOAT64 if promotes and is_promotable(dtype) else dtype


register_evaluator(_evaluate)
