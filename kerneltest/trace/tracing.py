"""Tracing of kernels into jaxprs, and the properties of a jaxpr: its Pallas calls and its arithmetic."""

import functools
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from kerneltest.core.details import Raised, Stated
from kerneltest.core.dtypes import Array, DType, ShapeDtype, cast, float_format, is_float, is_promotable, parse_dtype
from kerneltest.core.failures import Failure, exception_text, reraise_interrupt, underlying_hang
from kerneltest.core.precision import Precision
from kerneltest.core.source_location import source_line
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.numerics.rounding_model import shortest_decimal
from kerneltest.plan.signatures import Signature
from kerneltest.trace.jax_compat.abstract_devices import hide_own_frame
from kerneltest.trace.jax_compat.jax_triton import is_jax_triton_call, read_call
from kerneltest.trace.jax_compat.jaxprs import ClosedJaxpr, Equation, Jaxpr
from kerneltest.trace.jax_compat.patches import keep_jax_frames, widen_float_names
from kerneltest.trace.jax_compat.source_lines import keep_lines_of_gradients, package_line, user_line
from kerneltest.trace.local_kernels import NotLocalError, localize, shard_maps
from kerneltest.trace.platform_dispatch import (
    LANGUAGES,
    PLATFORMS,
    call_on,
    is_platform_dependent,
    languages_of,
    queries_platform,
    required_device,
    resolve_platform,
    simulate_platform,
)
from kerneltest.trace.primitives import Kind, primitive_of
from kerneltest.trace.refused_lengths import length_declarations
from kerneltest.trace.rewrite import inline_equations, rewrite_jaxpr
from kerneltest.trace.site_states import SiteStates
from kerneltest.trace.triton_kernels import bind_triton_kernel, is_triton_call, triton_limit
from kerneltest.trace.walk import (
    adds_atomically,
    computes_outside_calls,
    dot_precision,
    float_dtype,
    has_narrow_products,
    is_exact,
    iter_calls,
    iter_constants,
    iter_equations,
    narrow_inputs,
    narrow_numbers,
    primitive_name,
    reads_bits_of_floats,
    rounds_explicitly,
    uses_call,
)

# Exceptions that end the tracing of a kernel.


def _tracing_failure(error: BaseException, purpose: str) -> Failure:
    hide_own_frame(error)
    if reason := _mesh_limit(error) or triton_limit(error):
        return Failure(Verdict.UNAVAILABLE, reason)
    line = (user_line(error) or package_line(error)).strip(" ()")  # the kernel may be an installed library's
    text = _error_text(error) or source_line(line)
    hint = _BODY_HINT if _OF_A_BODY.search(f"{text}\n{source_line(line)}") else ""
    detail = Raised("the kernel", type(error).__name__, text, f"while traced {purpose}", line, hint)
    return Failure(Verdict.RUNTIME_ERROR, detail)


# What JAX says of an array in the place of a reference, and functions that only work inside a Pallas call.
_OF_A_BODY = re.compile(
    r"immutable and do not support in-place|on a `Ref`|_IndexUpdateRef|\.(?:program_id|num_programs)\("
)
_BODY_HINT = "if this is the body of a pallas_call, pair the function that calls pallas_call"


_TOO_LARGE = re.compile(r"-?\d{10,}")


def _error_text(error: BaseException) -> str:
    # Of an integer that overflows, JAX only names its own argument.
    said = exception_text(error)
    number = _TOO_LARGE.search(said) if isinstance(error, OverflowError) else None
    if number is None:
        return said
    return (
        f"{int(number[0]):,} does not fit into 32 bits, the size of integers here: keep it between -2^31 and 2^31 - 1 "
        "(split a longer axis, for example by x.reshape(rows, columns), and index both parts), or compute in 64 bits "
        f"(jax_enable_x64, jnp.int64): {said}"
    )


# Either this machine has too few devices, or the function takes arrays that are on those devices already.
def _mesh_limit(error: BaseException) -> str:
    line, said = user_line(error), exception_text(error)
    if _PLACED.search(said):
        return (
            f"the function around the kernel takes arrays that are placed on its mesh{line}, and kerneltest passes "
            "plain ones: begin it with jax.reshard, or make the mesh with axis_types=(jax.sharding.AxisType.Auto,) for "
            "each axis"
        )
    found = _TOO_FEW.search(said)
    if not found and not (_NOT_THERE.search(said) and "devices" in source_line(line)):
        return ""
    count, kind = jax.device_count(), jax.default_backend()
    more = "; XLA_FLAGS=--xla_force_host_platform_device_count=N makes N" if kind == "cpu" else ""
    return (
        f"the function around the kernel makes a mesh of more devices than JAX finds here, {count} of {kind}{line}"
        f"{more}: {said}"
    )


_PLACED = re.compile(r"in_specs passed to shard_map: .* does not match the specs of the input")
# JAX's text, and the texts of NumPy and Python for a list of devices that is too short.
_TOO_FEW = re.compile(r"Number of devices \d+ must (?:be >=|equal) the product")
_NOT_THERE = re.compile(r"cannot reshape array of size \d+ into shape|list index out of range")


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One `pallas_call` or Mosaic kernel inside the function under test."""

    name: str  # its own, or that of its function
    grid: tuple[int, ...]  # the number of programs along each axis
    dialect: str  # `triton`, `mosaic_gpu`, `mosaic_tpu`, or `any` if it fits several
    evidence: str  # for the dialect, in words; "" for `any`
    equation: Equation


@dataclass(frozen=True, eq=False, slots=True)
class Traced:
    """A kernel as a jaxpr, for one signature.

    Attributes:
      function: the untraced kernel, from the leaves in the pairing's order to the flat outputs.
      jaxpr: the same, traced.
      inputs: shape and dtype of each leaf.
      outputs: shape and dtype of each output.
      calls: its Pallas calls, in order.
      uses_call: whether the result of any of them is used.
      exact: whether its arithmetic is exact, in any order, on integers within the plan's limit: only sums, moves and
        at most one multiplication of floats.
      reduced_dots: whether it has a float32 matrix product whose precision it leaves to the backend.
      named_dots: the dtype, narrower than TF32, that such a product or JAX's default matmul precision names; or "".
      narrow_products: whether values of 16-bit arguments may be rounded to 16 bits before they are multiplied.
      by_platform: whether it may be traced differently for another platform.
      eager: whether it must be called outside of `jax.jit`.
      sharded: for a kernel under `jax.shard_map`, the jaxpr for all devices of its mesh. `jaxpr` is then for a single
        device, which does the work of each in turn.
      output_names: of each output, the keys and fields under which the kernel returns it, from the outside in; "" in
        place of a position.
      not_local: the reason why there is no such jaxpr for one device, or "". `jaxpr` is then the one for all devices.
      sites: the states of its masks, branches, loops and grids, as far as NumPy has evaluated it.
    """

    function: Callable[..., Any]
    jaxpr: ClosedJaxpr
    inputs: tuple[ShapeDtype, ...]
    outputs: tuple[ShapeDtype, ...]
    calls: tuple[Call, ...]
    uses_call: bool
    exact: bool
    reduced_dots: bool
    named_dots: str = ""
    narrow_products: bool = True
    by_platform: bool = False
    eager: bool = False
    sharded: ClosedJaxpr | None = None
    not_local: str = ""
    output_names: tuple[tuple[str, ...], ...] = ()
    sites: SiteStates = field(default_factory=SiteStates)

    def adapt_precision(self, inside: Precision, around: Precision | None = None) -> Precision:
        """Adapts a machine's precision to the precision that the kernel requests for its matrix products.

        It is that `inside` the Pallas calls, and `around` them if that is another and the kernel computes there.
        """
        precision = inside
        if around is not None and computes_outside_calls(self.jaxpr.jaxpr):
            precision = inside.combine(around)
        precision = precision if self.narrow_products else precision.with_wide_products()
        if self.in_triton and precision.dot_input and not precision.truncates:
            precision = precision.but("truncated operands", truncates=True)  # low bits of float32, as an H200 does
        if precision.flushes_atomics and adds_atomically(self.jaxpr.jaxpr):
            precision = precision.but("atomic", flushes=True)
        if not self.reduced_dots:
            return precision.with_exact_dots()
        if not self.named_dots:
            return precision
        named = {"float32": float_format(parse_dtype(self.named_dots))}
        return precision.but(f"{self.named_dots} products", dot_input=named)

    @property
    def in_triton(self) -> str:
        """The name of the first of its calls that is written in Triton itself, or ""."""
        return next((call.name for call in self.calls if is_triton_call(call.equation)), "")

    @property
    def dialects(self) -> frozenset[str]:
        return frozenset(call.dialect for call in self.calls)

    def calls_back(self) -> bool:
        """Returns whether it computes results in Python, which may keep state, so that two runs may differ."""
        return self.eager or _calls_back(self.jaxpr.jaxpr)

    def foreign_dialect(self, foreign: Container[str]) -> str:
        """The first dialect of a call that is in `foreign`, with the evidence for it; "" if there is none."""
        call = next((call for call in self.calls if call.dialect in foreign), None)
        return "" if call is None else f"{call.dialect} ({call.evidence})" if call.evidence else call.dialect


@functools.lru_cache(maxsize=128)
def _calls_back(jaxpr: Jaxpr) -> bool:  # which is asked for each case
    names = (primitive_name(equation) for equation, _ in iter_equations(jaxpr))
    return any("callback" in name and name != "debug_callback" for name in names)


@contextmanager
def without_debugging() -> Iterator[None]:
    """Switches off JAX's debugging modes, which would reject a NaN that is right, or not compile a kernel at all."""
    with jax.debug_nans(False), jax.debug_infs(False), jax.disable_jit(False):
        yield


def trace(pairing: Pairing, signature: Signature, platform: str = "") -> Traced:
    """Traces the kernel for one signature, without values and without a device; see `trace_function`.

    A kernel that chooses an implementation by platform is traced for `platform`: `cuda`, `rocm`, `tpu`, or a TPU
    generation such as `tpu-v5e`; with "", for this machine, or else for the first other platform for which it makes a
    Pallas call.
    """
    dtypes = dict(signature.dtypes)
    present = signature.leaves(pairing)
    names: tuple[tuple[str, ...], ...] = ()
    inputs = tuple(ShapeDtype(signature.shape(leaf), parse_dtype(dtypes[path])) for path, leaf in present.items())

    def flat(*leaves: Any) -> list[Any]:
        nonlocal names
        named = dict(zip(present, leaves, strict=True))
        values = pairing.assemble(named, dict(signature.dims), dict(signature.statics), oracle=False)
        names, returned = named_outputs(pairing.call_kernel(values))
        return returned

    try:
        traced = trace_kernel(pairing.kernel, flat, inputs, f"for {signature}", platform)
    except Failure as failure:
        if isinstance(failure.detail, Raised) and failure.__cause__ is not None:
            accepted = length_declarations(failure.__cause__, dict(signature.dims))
            if accepted:
                hint = f"declare the lengths that it takes: {' or '.join(accepted)}"
                raise Failure(failure.verdict, replace(failure.detail, hint=hint)) from failure.__cause__
        raise
    if not traced.outputs:
        raise _refusal("the kernel returned nothing (no `return`?)")
    return replace(traced, output_names=names)


def named_outputs(returned: Any) -> tuple[tuple[tuple[str, ...], ...], list[Any]]:
    """Returns the outputs in what a kernel or an oracle returned, and the names under which it returned each.

    The names are keys and fields, from the outside in; a position in a tuple or list is "".
    """
    keyed = jax.tree_util.tree_flatten_with_path(returned)[0]
    names = (tuple(str(getattr(key, "key", getattr(key, "name", ""))) for key in keys) for keys, _ in keyed)
    return tuple(names), [output for _, output in keyed]


def trace_kernel(
    kernel: object,
    function: Callable[..., Any],
    inputs: tuple[ShapeDtype, ...],
    purpose: str,
    platform: str = "",
) -> Traced:
    """Traces a function that calls a kernel, which may ask for the platform; otherwise as `trace_function` does."""

    def traced_for(each: str) -> Traced:
        with simulate_platform(each, kernel):
            traced = trace_function(function, inputs, purpose, each)
        if is_platform_dependent(traced.jaxpr):
            resolved = resolve_platform(traced.jaxpr if traced.sharded is None else traced.sharded, each)
            return replace(analyze(resolved, jaxpr_as_fun(resolved), inputs), by_platform=True)
        if queries_platform(kernel):  # calling the function again could choose another implementation
            return replace(traced, function=jaxpr_as_fun(traced.jaxpr), by_platform=True)
        return traced

    try:
        traced = traced_for(platform)
    except Failure as failure:
        if platform or failure.verdict is Verdict.HANG or not queries_platform(kernel):
            raise
        for each in PLATFORMS:  # a kernel may refuse every platform but its own
            try:
                return traced_for(each)
            except Failure as other:
                if other.verdict is Verdict.HANG:
                    raise
        raise
    if platform or traced.calls or not traced.by_platform:
        return traced
    return next((each for each in map(traced_for, PLATFORMS) if each.calls), traced)


def trace_function(
    function: Callable[..., Any], inputs: tuple[ShapeDtype, ...], purpose: str, platform: str = ""
) -> Traced:
    """Traces a function of arrays that returns a list of arrays, for a purpose in words such as `for m=1,n=3`.

    It finds the abstract device of the platform; of "", the one that it asks for, if any. The Failure names the user's
    line that raised. It is `unavailable` if the function needs more devices.
    """
    shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype) for i in inputs]
    devices, closed = [platform], None
    try:
        with keep_jax_frames(), keep_lines_of_gradients():
            while closed is None:
                on_device = functools.partial(call_on, devices[-1], function)
                try:
                    closed = jax.make_jaxpr(on_device)(*shapes)
                except Exception as error:
                    device = required_device(error)
                    if not device or device in devices:
                        raise
                    devices.append(device)
    except BaseException as error:  # SystemExit and pytest's outcomes included
        reraise_interrupt(error)
        if (hang := underlying_hang(error)) is not None:
            raise hang from None
        raise _tracing_failure(error, purpose) from error
    if any(isinstance(const, jax.core.Tracer) for const in closed.consts):
        sentence = "the kernel used a value of an earlier trace while traced {purpose}: it keeps results between calls"
        raise _refusal(sentence, purpose=purpose)
    if any(is_jax_triton_call(equation) for equation, _ in iter_equations(closed.jaxpr)):
        closed = rewrite_jaxpr(closed, _own_call)
    _check_values(closed)
    traced = analyze(closed, on_device, inputs)
    if len(devices) == 1:
        return traced
    dialect, evidence = LANGUAGES[devices[-1]]
    calls = (replace(c, dialect=dialect, evidence=evidence) if c.dialect == "any" else c for c in traced.calls)
    return replace(traced, calls=tuple(calls))


# Makes a call by jax_triton one of kerneltest's own.
def _own_call(equation: Equation) -> Sequence[Equation] | None:
    if not is_jax_triton_call(equation):
        return None
    made = inline_equations(
        lambda *operands: bind_triton_kernel(read_call(equation, operands)), equation.invars, equation.outvars
    )
    return [each.replace(source_info=equation.source_info) for each in made]


def _refusal(sentence: str, **values: int | str) -> Failure:
    return Failure(Verdict.RUNTIME_ERROR, Stated(sentence, values))


def _check_values(closed: ClosedJaxpr) -> None:
    """Raises a `Failure` for what JAX traces although no backend could run it."""
    for variable in closed.jaxpr.outvars:
        kind = getattr(variable.aval, "dtype", None)
        if kind is None or jnp.issubdtype(kind, jax.dtypes.extended):
            raise _refusal(
                "the kernel returns a value of type {type}, and not an array of numbers: leave it out, or return its "
                "numbers, such as jax.random.key_data of a key",
                type=str(variable.aval),
            )
    if any(isinstance(const, jax.ShapeDtypeStruct) for const in closed.consts):
        raise _refusal("the kernel uses a jax.ShapeDtypeStruct as an array, but it has no values")
    for equation in iter_calls(closed.jaxpr):
        call, mapping = call_of(equation), equation.params.get("grid_mapping")
        if any(length < 0 for length in call.grid):
            sentence = "{call}: the grid {grid} has a negative length: make every length at least 0"
            raise _refusal(sentence, call=call.name, grid=str(call.grid))
        for block in getattr(mapping, "block_mappings", ()):
            for axis, length in zip(block.block_shape, block.array_aval.shape, strict=True):
                if (size := getattr(axis, "block_size", 1)) <= 0 < length:
                    sentence = "{call}: a block has length {size} along an axis of {length}: make it at least 1"
                    raise _refusal(sentence, call=call.name, size=size, length=length)


def analyze(closed: ClosedJaxpr, function: Callable[..., Any], inputs: tuple[ShapeDtype, ...]) -> Traced:
    """Analyses a traced function, also given untraced: its outputs, its Pallas calls and its arithmetic."""
    sharded, not_local = closed if shard_maps(closed) else None, ""
    try:
        if sharded is not None:
            closed = localize(sharded)
            function = jaxpr_as_fun(closed)
    except NotLocalError as error:
        not_local = str(error)
    # A jitted function that is called twice is one jaxpr, so both calls have the same equations.
    unique = {id(equation): equation for equation in iter_calls(closed.jaxpr)}
    reduced_dots, named_dots = dot_precision(closed.jaxpr)
    return Traced(
        function=function,
        jaxpr=closed,
        inputs=inputs,
        outputs=tuple(ShapeDtype(tuple(v.aval.shape), np.dtype(v.aval.dtype)) for v in closed.jaxpr.outvars),
        calls=tuple(map(call_of, unique.values())),
        uses_call=bool(unique) and uses_call(closed.jaxpr),
        exact=is_exact(closed),
        reduced_dots=reduced_dots,
        named_dots=named_dots,
        narrow_products=has_narrow_products(closed.jaxpr),
        sharded=sharded,
        not_local=not_local,
    )


def call_of(equation: Equation) -> Call:
    """Analyses one Pallas call."""
    params = equation.params
    if is_triton_call(equation):
        return Call(params["function"].__name__, params["grid"], "triton", "it is written in Triton", equation)
    dialect, evidence = next(languages_of(equation), ("any", ""))
    grid = getattr(params.get("grid_mapping"), "grid", ())
    debug = getattr(params.get("jaxpr"), "debug_info", None)
    name = params.get("name") or getattr(debug, "func_name", "")
    return Call(name, tuple(g for g in grid if isinstance(g, int)), dialect, evidence, equation)


NEWEST = (0, 12)


TRITON_IS_DEPRECATED = jax.__version_info__ >= (0, 11)
"""Whether JAX warns that it will remove Pallas on Triton."""


def version_problem() -> str:
    """The reason why this JAX is newer than any that kerneltest was tested with, or ""."""
    if jax.__version_info__[:2] > NEWEST:
        newest = ".".join(map(str, NEWEST))
        return f"JAX {jax.__version__} is newer than {newest}, the newest that kerneltest was tested with"
    return ""


@functools.cache
def device_problem(platform: str = "") -> str:
    """The reason why JAX has no device of a platform here ("" for any), or "" if it has one."""
    try:
        jax.devices(platform or None)
    except Exception as error:  # an AssertionError without text if JAX_PLATFORMS names a missing platform
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
        setting = f"; JAX_PLATFORMS is {platforms!r}" if platforms and "JAX_PLATFORMS" not in reason else ""
        return f"JAX finds no {f'{platform} device' if platform else 'device'} here: {reason}{setting}"
    return ""


def kernel_device(platform: str) -> Any:
    """The device of a platform on which kernels run: the user's default device, or else JAX's first."""
    devices = jax.devices(platform)
    default = jax.config.jax_default_device  # type: ignore[attr-defined]
    return default if default in devices else devices[0]


# Tracing of kernels in float64, so that JAX does not round their constants to narrower floats.

# Part of the key of `jax.jit`'s traces, so that a trace with wide names is not taken for one without.
_traced_in_float64 = jax.make_user_context(default_value=None)

# A constant of float32 with at most three binary digits, such as 1, 0.75 or 10, is taken for what its author wrote. One
# in two million of those that were rounded has as few, or one in 32 if it was rounded to bfloat16 before.
_FEW_DIGITS = 2**3


def trace_in_float64(pairing: Pairing, signature: Signature, own: Traced, platform: str = "") -> Traced | None:
    """Traces a kernel with float64 in place of its floats of 16 bits or more, arguments and constants included.

    Returns None if the kernel cannot be traced so, if it consists of other operations in float64, or if none of its
    constants can have been rounded, so that its `own` trace is as good. In float64, JAX draws other random numbers.
    """
    jaxpr = own.jaxpr.jaxpr
    draws = any(primitive_of(equation).kind is Kind.RANDOM for equation, _ in iter_equations(jaxpr))
    other = draws or rounds_explicitly(jaxpr) or reads_bits_of_floats(jaxpr)
    if other or not any(map(_may_be_rounded, iter_constants(own.jaxpr))):
        return None
    dtypes = tuple((path, "float64" if is_promotable(parse_dtype(d)) else d) for path, d in signature.dtypes)
    with suppress(Failure), widen_float_names(), jax.enable_x64(True), _traced_in_float64(True):
        traced = trace(pairing, replace(signature, dtypes=dtypes), platform)
        if [*_operations(traced)] == [*_operations(own)]:
            return traced
    return None


# Numbers in the place of a kernel's literals, by the dtype and the number of each.
Literals = Mapping[tuple[DType, float], float]


# Whether numbers are rounded to a dtype by at most one unit roundoff.
def _is_near(rounded: Array, numbers: Array, dtype: DType) -> bool:
    return np.allclose(rounded, numbers, float_format(dtype).unit_roundoff, 0, equal_nan=True)


def written_decimals(own: Traced) -> Literals:
    """Returns the decimals for which a trace in float64 has literals of 16 bits: those that their author rounded."""
    wide: list[DType] = [np.dtype(np.float32), np.dtype(np.float64)]
    return {
        (d, n): shortest_decimal(n, float_format(narrow))
        for n, narrow in narrow_numbers(own.jaxpr).items()
        for d in (narrow, *wide)
    }


def rounded_literals(own: Traced, wide: Traced) -> Literals | None:
    """Returns a kernel's literals as its trace in float64 has them; None unless it rounds some to 16 bits, and no more.

    Its constants are then those of that trace, each rounded to its own dtype by at most one unit roundoff. Those that
    16 bits do not represent are numbers in a dtype of the inputs or a finer one, which their author may have rounded:
    then they are the shortest decimals. A table, or a number in a coarser dtype, was rounded by its author.
    """
    constants, exact = [*iter_constants(own.jaxpr)], [*iter_constants(wide.jaxpr)]
    if len(constants) != len(exact):
        return None
    given, decimals, narrowed = {leaf.dtype for leaf in own.inputs}, written_decimals(own), narrow_numbers(own.jaxpr)
    is_rounded, found = False, dict[tuple[DType, float], set[float]]()
    for constant, value in zip(constants, exact, strict=True):
        if (kept := float_dtype(getattr(constant, "dtype", type(constant)))) is None:
            continue
        numbers = np.asarray(value, np.float64)
        held = cast(np.asarray(constant).astype(np.float64), kept).astype(np.float64)  # literals may have more digits
        dtype = kept if held.ndim else narrowed.get(float(held), kept)
        rounded = cast(numbers, dtype).astype(np.float64)
        if not (np.array_equal(held, rounded, equal_nan=True) and _is_near(rounded, numbers, dtype)):
            return None
        if not numbers.ndim:
            decimal = np.asarray(decimals.get((dtype, float(held)), numbers))
            if numbers in (rounded, cast(decimal, kept)):  # by its author, or of few digits
                numbers = decimal
            for each in {kept, dtype}:
                found.setdefault((each, float(rounded)), set()).add(float(numbers))
        if isinstance(constant, float):  # of Python's, which becomes a number in the dtype of what it meets
            for narrow in (each for each in given if is_float(each) and each.itemsize == 2):
                if not _is_near(cast(numbers, narrow).astype(np.float64), numbers, narrow):
                    return None
                is_rounded |= not np.array_equal(cast(numbers, narrow), numbers)
        if dtype.itemsize < 4 and not np.array_equal(rounded, numbers, equal_nan=True):
            if numbers.ndim or dtype not in narrow_inputs(own.jaxpr):
                return None
            is_rounded = True
    unique = {key: numbers.pop() for key, numbers in found.items() if len(numbers) == 1}
    return {key: number for key, number in unique.items() if number != key[1]} if is_rounded else None


def _operations(traced: Traced) -> Iterator[str]:
    """Yields the names of its operations but for calls and casts, which come and go with dtypes."""
    found = (primitive_of(equation) for equation, _ in iter_equations(traced.jaxpr.jaxpr))
    return (primitive.name for primitive in found if primitive.kind not in (Kind.CALL, Kind.CAST))


def _may_be_rounded(constant: Any) -> bool:  # from what its author wrote
    dtype = float_dtype(getattr(constant, "dtype", type(constant)))
    if dtype is None:
        return False
    values = np.asarray(constant).astype(np.float64)
    values = values[np.isfinite(values)]
    return bool(values.any() if dtype.itemsize < 4 else (np.frexp(values)[0] * _FEW_DIGITS % 1).any())
