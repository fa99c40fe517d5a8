"""The rule sets of kernels: numbers computed as a CPU does, or with floats promoted; and a kernel evaluated by them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.numerics.device_operations import convert, in_float32, integer_power, round_away, select
from kerneltest.trace.batched_interpreter.array_rules import ARRAY_RULES, TYPED_RULES
from kerneltest.trace.batched_interpreter.call_rules import pallas_call
from kerneltest.trace.batched_interpreter.memory_rules import MEMORY_RULES
from kerneltest.trace.batched_interpreter.mosaic_rules import MOSAIC_RULES
from kerneltest.trace.jax_compat.jaxprs import Equation, JaxArray, Jaxpr, data_of, from_data, inner_jaxprs, is_key
from kerneltest.trace.jax_compat.patches import interpretation
from kerneltest.trace.machine import (
    ArrayFunction,
    EquationFunction,
    Machine,
    Rule,
    RuleSet,
    UnknownError,
    Value,
    by_row,
    call_python,
    control_rule,
)
from kerneltest.trace.primitives import PRIMITIVES, Kind, kind_of, primitive_of
from kerneltest.trace.rewrite import interpret_calls, rewrite_jaxpr
from kerneltest.trace.site_states import SiteStates
from kerneltest.trace.tracing import Literals, Traced
from kerneltest.trace.triton_kernels import Evaluation, evaluate_call, is_triton_call
from kerneltest.trace.walk import primitive_name

# Of the functions that round, those that are evaluated in NumPy. JAX evaluates others.
_ROUNDING = frozenset("div pow exp exp2 expm1 log log1p sqrt rsqrt tanh logistic sin cos tan atan2".split())
_PLAIN: Mapping[str, ArrayFunction] = {
    **{
        p.name: p.numpy if p.exact or not p.rounds else in_float32(p.numpy)
        for p in PRIMITIVES.values()
        if p.kind in (Kind.ELEMENTWISE, Kind.COMPARISON) and p.numpy is not None
        if p.exact or not p.rounds or p.name in _ROUNDING
    },
    "select_n": select,
    **dict.fromkeys("stop_gradient multiple_of copy device_put remove_memory_space".split(), lambda x: x),
}


def _round(equation: Equation) -> ArrayFunction:
    method = str(equation.params.get("rounding_method", ""))
    return in_float32(round_away if "AWAY" in method or method == "0" else np.rint)


_WITH_PARAMETERS: Mapping[str, Callable[[Equation], ArrayFunction]] = {
    "round": _round,
    "integer_pow": lambda equation: in_float32(lambda x: integer_power(x, int(equation.params["y"]))),
}


def _convert(machine: Machine, equation: Equation) -> EquationFunction:
    dtype, promotes = machine.rules.dtype_of(equation.outvars[0].aval), machine.rules.promotes

    def evaluate(operands: Sequence[Array]) -> Sequence[Array]:
        (x,) = operands
        if not promotes and x.dtype == np.float64 and is_float(dtype) and dtype.itemsize < 4:
            raise UnknownError("float64 to a narrow float, which XLA rounds in an unknown way")
        return (convert(x, dtype),)

    return evaluate


_BY_MACHINE: Mapping[str, Rule] = {
    **TYPED_RULES,
    **MEMORY_RULES,
    **MOSAIC_RULES,
    "convert_element_type": _convert,
    "optimization_barrier": lambda machine, equation: lambda operands: operands,
    "pallas_call": pallas_call,
}


def supported_rule(machine: Machine, equation: Equation) -> EquationFunction:
    """The function that evaluates an equation in NumPy; UnknownError if it is not supported."""
    name = primitive_name(equation)
    if name in _PLAIN:
        return elementwise(machine, equation, _PLAIN[name])
    if name in _WITH_PARAMETERS:
        return elementwise(machine, equation, _WITH_PARAMETERS[name](equation))
    if name in ARRAY_RULES:
        function = ARRAY_RULES[name](equation)
        return lambda operands: (function(*operands),)
    return _BY_MACHINE.get(name, control_rule)(machine, equation)


def elementwise(machine: Machine, equation: Equation, function: ArrayFunction) -> EquationFunction:
    """The function that applies another one to the elements of its operands, which it aligns."""
    aval = equation.outvars[0].aval
    dtype, ndim = machine.rules.dtype_of(aval), len(aval.shape) + 1

    def evaluate(operands: Sequence[Array]) -> Sequence[Array]:
        aligned = [x if x.ndim == ndim else x.reshape(len(x), *(1,) * (ndim - 1)) for x in operands]
        result = function(*aligned)
        if type(result) is np.ndarray and result.dtype is dtype:  # the common case, and a program has many operations
            return (result,)
        return (np.asarray(result).astype(dtype, copy=False),)

    return evaluate


def _bind_by_row(equation: Equation) -> EquationFunction:
    primitive, params = equation.primitive, equation.params

    avals = [v.aval for v in equation.invars]

    def evaluate(operands: Sequence[Array]) -> Sequence[Array]:
        rows = [primitive.bind(*map(from_data, row, avals), **params) for row in by_row(operands)]
        columns = zip(*rows, strict=True) if primitive.multiple_results else [rows]
        return [np.stack([np.asarray(data_of(result)) for result in column]) for column in columns]

    return evaluate


# On this thread: XLA may call back on another, to which JAX's settings for a thread, such as 64 bits, do not reach.
def _call_back_by_row(machine: Machine, equation: Equation) -> EquationFunction:
    callback, dtypes = equation.params["callback"], [machine.rules.dtype_of(v.aval) for v in equation.outvars]

    def evaluate(operands: Sequence[Array]) -> Sequence[Array]:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            rows = [list(map(np.asarray, callback(*map(jnp.asarray, row)))) for row in by_row(operands)]
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        for column, dtype in zip(columns, dtypes, strict=True):
            if column.dtype != dtype:
                raise UnknownError(f"a callback that gives {column.dtype} for {dtype}")
        return columns

    return evaluate


class KernelRules(RuleSet):
    """Numbers, as Pallas' interpreter computes them on a CPU. JAX evaluates operations that NumPy lacks.

    Evaluations note the states of `sites`, if there are some. `literals` are numbers in the place of rounded ones.
    """

    def __init__(
        self,
        *,
        promotes: bool = False,
        sites: SiteStates | None = None,
        literals: Literals | None = None,
        counts_all_updates: bool = False,
    ) -> None:
        super().__init__(promotes=promotes)
        self.sites, self._literals = sites, literals or {}
        self.counts_all_updates |= counts_all_updates

    def constant(self, value: Any, dtype: Any = None) -> Value:
        """A constant of a jaxpr, or the number in the place of a literal."""
        known = super().constant(value, dtype)
        if not self._literals or np.ndim(known) != 1 or known.dtype != np.float64:
            return known
        given = np.asarray(value).dtype if dtype is None else np.dtype(dtype)
        return np.array([self._literals.get((given, float(known[0])), known[0])])

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        if self.sites is None:
            return self._rule(machine, equation)
        with self.sites.inside(equation):
            evaluate = self._rule(machine, equation)
        return self.sites.watch(equation, evaluate)

    def leave_loop(self, equation: Equation, steps: int) -> None:
        if self.sites is not None:
            self.sites.leave_loop(equation, steps)

    def _rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        if primitive_name(equation) == "pure_callback":
            return _call_back_by_row(machine, equation)
        if is_triton_call(equation):
            return lambda operands: evaluate_call(equation, operands, self.evaluation)
        is_single = not any(True for _ in inner_jaxprs(equation))
        if is_single and any(is_key(v.aval) for v in (*equation.invars, *equation.outvars)):
            return _bind_by_row(equation)
        try:
            return supported_rule(machine, equation)
        except UnknownError:
            if not is_single or equation.effects or any(hasattr(v.aval, "inner_aval") for v in equation.invars):
                raise
            return _bind_by_row(equation)

    @property
    def evaluation(self) -> Evaluation:
        """The arithmetic in which a call of a kernel written in Triton is evaluated."""
        return Evaluation(self.promotes)


class InterpreterRules(KernelRules):
    """The same, with each Pallas call replaced by the jaxpr to which JAX's own interpreter reduces it."""

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        if kind_of(equation) is Kind.KERNEL:
            return machine.compile(interpretation(equation))
        return super().rule(machine, equation)


class _CallbackRules(InterpreterRules):
    """The same, with the callbacks that interpreters use. Other rule sets lack them: a user's would run twice."""

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        is_callback = primitive_name(equation) == "io_callback"
        return call_python(machine, equation) if is_callback else super().rule(machine, equation)


class NanDroppingRules(KernelRules):
    """Numbers, but that maxima (or minima, or both) of floats are NaN only if all operands are, as in lowered code."""

    def __init__(self, *extremes: str) -> None:
        super().__init__()
        self._extremes = tuple(extreme[:3] for extreme in extremes)

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        evaluate, primitive = super().rule(machine, equation), primitive_of(equation)
        of_floats = primitive.extreme and is_float(np.dtype(equation.outvars[0].aval.dtype))
        if not of_floats or not any(name in primitive.name for name in self._extremes):
            return evaluate

        def dropping(operands: Sequence[Array]) -> Sequence[Array]:
            def without_nan(numbers: Sequence[Array]) -> Array:
                pairs = zip(operands, numbers, strict=True)
                (result,) = evaluate([_without_nan(primitive.name, x, y) for x, y in pairs])
                return np.asarray(result)

            is_nan = np.isinf(without_nan([np.zeros_like(x) for x in operands]))
            result = without_nan(operands)
            return (np.where(is_nan, result.dtype.type(np.nan), result),)

        return dropping


# Numbers for the operand of an extreme, in which those lose that are in the place of NaN.
def _without_nan(extreme: str, operand: Array, numbers: Array) -> Array:
    loses = math.inf if "min" in extreme else -math.inf
    return np.where(np.isnan(operand), operand.dtype.type(loses), numbers)


# The operations for which JAX's lowering to Triton takes others, which differ for NaN or zeros.
_LOWERED: Mapping[str, ArrayFunction] = {
    "max": np.fmax,
    "min": np.fmin,
    "clamp": lambda least, x, most: np.fmin(np.fmax(least, x), most),
    "neg": lambda x: np.zeros_like(x) - x,
    "sign": np.sign,
}


class LoweredRules(NanDroppingRules):
    """Numbers, with all known differences of lowered code: what drops NaN, and what loses the sign of a zero."""

    def __init__(self) -> None:
        super().__init__("maximum", "minimum")
        self.counts_all_updates = True

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        name = primitive_name(equation)
        if name in _LOWERED:
            return elementwise(machine, equation, _LOWERED[name])
        evaluate = super().rule(machine, equation)
        if name not in ("argmax", "argmin") or not is_float(np.dtype(equation.invars[0].aval.dtype)):
            return evaluate
        return lambda operands: evaluate([_without_nan(name, x, x) for x in operands])


class BatchedKernel:
    """A kernel evaluated in NumPy for many inputs at once; UnknownError for an unsupported operation or value."""

    def __init__(self, traced: Traced, rules: RuleSet | None = None) -> None:
        self.rules = rules or KernelRules(sites=traced.sites)
        self._sites = self.rules.sites if isinstance(self.rules, KernelRules) else None
        self._compiled = Machine(self.rules).compile(rewrite_jaxpr(traced.jaxpr, interpret_calls(True)))
        self._outputs = traced.outputs

    def __call__(
        self, leaves: Sequence[Array], *, overflow: Literal["ignore", "raise"] = "ignore"
    ) -> tuple[Array, ...]:
        """Evaluates the kernel on leaves (rows, *shape), or (1, *shape) if all rows share one; returns (rows, *shape).

        If `overflow` is "raise", a FloatingPointError is raised where finite operands have an infinite result.
        """
        rows = max((len(leaf) for leaf in leaves), default=1)
        if rows == 1 and self._sites is not None and self._sites.needs_rows:
            leaves = [np.repeat(leaf, 2, 0) for leaf in leaves]
        with np.errstate(all="ignore", over=overflow):
            outputs = self._compiled(leaves)
        if self._sites is not None:
            self._sites.is_evaluated = True
        return tuple(np.broadcast_to(x[:rows], (rows, *o.shape)) for x, o in zip(outputs, self._outputs, strict=True))


class NumpyInterpretedCall:
    """A Pallas call as the interpreter among its parameters runs it, with that one's operations evaluated in NumPy."""

    def __init__(self, equation: Equation) -> None:
        self._machine = Machine(_CallbackRules())
        self._function = self._machine.rules.rule(self._machine, equation)

    def __call__(self, *operands: JaxArray) -> list[Array]:
        """Runs the call and returns its outputs, without rows."""
        with np.errstate(all="ignore"):
            return [output[0] for output in self._function([np.asarray(operand)[None] for operand in operands])]

    def run_thread(self, jaxpr: Jaxpr, values: Sequence[JaxArray]) -> None:
        """Runs one of the kernel's threads: an open jaxpr, on the values of its constants and inputs."""
        with np.errstate(all="ignore"):
            self._machine.compile(jaxpr, consts_as_arguments=True)([np.asarray(value)[None] for value in values])
