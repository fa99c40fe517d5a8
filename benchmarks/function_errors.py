"""How wrong float32 functions are on this machine: `PYTHONPATH=$PWD python3 benchmarks/function_errors.py --json FILE`.

Each function of `kerneltest.core.precision` is evaluated through XLA and inside a Pallas kernel, on the CPU
(interpreted) and on a GPU where JAX finds one (through Triton), and compared with float64. The table says the largest
error in ulps, where it occurs, and whether subnormal numbers are taken for 0 or become 0. Ends with status 1 where that
is more than the machine's row allows.
"""

import argparse
import itertools
import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from tabulate import tabulate

from kerneltest.core.precision import AMD, FLOAT32, NVIDIA, XLA_AMD, XLA_CPU, XLA_NVIDIA, Precision
from kerneltest.trace.jax_environment import fast_compile_options

DTYPES = "float32 bfloat16 float16 float8_e4m3fn float8_e5m2".split()
TINY, LARGEST = FLOAT32.smallest_normal, float(np.finfo(np.float32).max)
COUNT = 2**21  # samples over all bit patterns of a float32, and as many near 0
BLOCK = 4096  # elements a program on a GPU; a sample's length is a multiple

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Function:
    """A function to measure.

    Attributes:
      row: its name in the table.
      computed: as JAX has it.
      true: in float64.
      pairs: for a function of two arguments, pairs that are telling beside random ones.
    """

    row: str
    computed: Callable[..., Any]
    true: Callable[..., Array]
    pairs: Callable[[np.random.Generator], Sequence[Array]] | None = None

    def samples(self) -> tuple[Array, ...]:
        """Its arguments: float32 vectors of one length."""
        rng = np.random.Generator(np.random.PCG64(0))
        if self.pairs is None:
            return (_padded(np.concatenate([_patterns(COUNT), _around(4096), 4 * rng.standard_normal(COUNT)])),)
        some = [_patterns(COUNT), _patterns(COUNT)]
        rng.shuffle(some[1])
        near = [rng.uniform(-20, 20, COUNT // 4) for _ in some]
        parts = zip(some, near, self.pairs(rng), strict=True)
        return tuple(_padded(np.concatenate(part)) for part in parts)


def _patterns(count: int) -> Array:
    """Finite numbers, even over the bit patterns; both signs, subnormal ones included."""
    bits = np.linspace(0, 2**32 - 1, count).astype(np.uint32)
    numbers = bits.view(np.float32)
    return numbers[np.isfinite(numbers)] if count < 1024 else np.where(np.isfinite(numbers), numbers, np.float32(1))


def _around(count: int) -> Array:
    """The `count` neighbours of numbers at which functions change: 1, multiples of pi / 2, ends of `exp`, and so on."""
    points = [0, TINY, 0.5, 1, 2, *(np.arange(1, 9) * np.pi / 2), np.log(2), np.e, 10]
    points += [*np.log([LARGEST, TINY, FLOAT32.smallest_subnormal]), 127, 128, 126, 149, 1e4, 2**23, 2**24]
    bits = np.abs(np.asarray(points, np.float32)).view(np.int32)[:, None] + np.arange(-count // 2, count // 2)
    found = np.maximum(bits, 0).astype(np.int32).reshape(-1).view(np.float32)
    return np.concatenate([found, -found])


def _padded(values: Array) -> Array:
    values = np.asarray(values, np.float32)
    return np.concatenate([values, np.ones(-len(values) % BLOCK, np.float32)])


def _independent(rng: np.random.Generator) -> Sequence[Array]:
    """Numbers of like magnitude, whose sums and differences cancel."""
    x = rng.uniform(-4, 4, COUNT // 4).astype(np.float32)
    return x, np.where(rng.integers(0, 2, x.shape), 1, -1) * x * (1 + rng.integers(0, 64, x.shape) * 2.0**-20)


def _powers(rng: np.random.Generator) -> Sequence[Array]:
    """Positive bases and exponents with finite powers."""
    x = np.exp2(rng.uniform(-126, 127, COUNT // 4)).astype(np.float32)
    return x, rng.uniform(-126, 127, x.shape) / np.where(np.abs(np.log2(x)) < 1e-3, 1, np.log2(x))


def _cancelling(rng: np.random.Generator) -> Sequence[Array]:
    """Pairs for which log(exp(x) + exp(y)) is near 0."""
    x = -rng.uniform(1e-4, 8, COUNT // 4).astype(np.float32)
    return x, np.log(-np.expm1(x.astype(np.float64)))


UNARY: dict[str, tuple[Any, Any]] = {
    name: (getattr(jnp, name), getattr(np, name))
    for name in (
        "square reciprocal sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh "
        "tanh arcsinh arccosh arctanh deg2rad rad2deg"
    ).split()
} | {
    "rsqrt": (lax.rsqrt, lambda x: 1 / np.sqrt(x)),
    "erf": (lax.erf, scipy.special.erf),
    "erfc": (lax.erfc, scipy.special.erfc),
    "expit": (jax.nn.sigmoid, scipy.special.expit),
}
BINARY = {
    "add": _independent,
    "subtract": _independent,
    "multiply": _independent,
    "divide": _independent,
    "arctan2": _independent,
    "power": _powers,
    "hypot": _independent,
    "logaddexp": _cancelling,
    "logaddexp2": _cancelling,
}
# XLA's simplifier multiplies by the reciprocal of a constant; of interpreted kernels, only those with functions such as
# tanh keep it. JAX multiplies for a power that is an integer.
CONSTANTS = {f"divide by {c}": Function("divide", lambda x, c=c: x / c, lambda x, c=c: x / c) for c in (3.0, 7.0, 49.0)}
CONSTANTS["divide by 7.0, with tanh"] = Function(
    "divide", lambda x: jnp.where(jnp.tanh(x) > 2, x, x / 7.0), lambda x: x / 7.0
)
CONSTANTS |= {f"power by {n}": Function("power", lambda x, n=n: x**n, lambda x, n=n: x**n) for n in (2, 3, 7, 20)}
FUNCTIONS = (
    {name: Function(name, *pair) for name, pair in UNARY.items()}
    | {name: Function(name, getattr(jnp, name), getattr(np, name), pairs) for name, pairs in BINARY.items()}
    | CONSTANTS
)


@dataclass(frozen=True)
class Place:
    """A way to compute a function of arrays.

    Attributes:
      name: as the table shows it.
      row: what is allowed there.
      run: the function's result for some arguments.
    """

    name: str
    row: Precision
    run: Callable[[Callable[..., Any], Sequence[Array]], Array]


def places(device: Any) -> tuple[Place, Place]:
    """XLA and Pallas on a device."""

    def run(transform: Any, function: Any, arguments: Sequence[Array], *, interpreted: bool = False) -> Array:
        given = [jax.device_put(x, device) for x in arguments]
        traced = jax.jit(transform(function)).trace(*given)
        options = fast_compile_options(traced.jaxpr.jaxpr) if interpreted else None
        return np.asarray(traced.lower().compile(compiler_options=options)(*given))

    by_xla = partial(run, lambda function: function)
    if device.platform == "cpu":
        interpreted = partial(run, partial(_kernel, interpret=True), interpreted=True)
        return Place("XLA, CPU", XLA_CPU, by_xla), Place("Pallas, interpreted", XLA_CPU, interpreted)
    rocm = "rocm" in device.client.platform_version.lower()
    by_triton = partial(run, partial(_kernel, interpret=False))
    return (
        Place(f"XLA, {device.device_kind}", XLA_AMD if rocm else XLA_NVIDIA, by_xla),
        Place(f"Pallas, {device.device_kind}", AMD if rocm else NVIDIA, by_triton),
    )


def _kernel(function: Callable[..., Any], *, interpret: bool) -> Callable[..., Any]:
    """A function as a Pallas kernel, of vectors in blocks, of anything else as a whole."""

    def body(*refs: Any) -> None:
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1]))

    def call(*arguments: Any) -> Any:
        shape = arguments[0].shape
        blocks = 1 if interpret or len(shape) > 1 else shape[0] // BLOCK
        spec = pl.BlockSpec((shape[0] // blocks, *shape[1:]), lambda i: (i, *(0 for _ in shape[1:])))
        return pl.pallas_call(
            body,
            grid=blocks,
            in_specs=[spec] * len(arguments),
            out_specs=spec,
            out_shape=jax.ShapeDtypeStruct(shape, np.float32),
            interpret=interpret,
            compiler_params=None if interpret else plgpu.CompilerParams(num_warps=4),
        )(*arguments)

    return call


@dataclass(frozen=True)
class Measured:
    """What was found of a function.

    Attributes:
      place: how it was computed.
      function: its name.
      ulps: the largest error, in ulps at the true result.
      at: the arguments there.
      used: the largest error as a fraction of what the table allows.
      used_at: the arguments there.
      takes_zero: it takes subnormal arguments for 0.
      gives_zero: it gives 0 for a subnormal result.
      special: for how many arguments it gives NaN or infinity where the true result is finite, or the reverse.
      special_at: one of these.
      allowed: whether the table allows all that.
    """

    place: str
    function: str
    ulps: float
    at: tuple[float, ...]
    used: float
    used_at: tuple[float, ...]
    takes_zero: bool
    gives_zero: bool
    special: int
    special_at: tuple[float, ...]
    allowed: bool


def compare(place: Place, name: str, arguments: Sequence[Array], got: Array, true: Array, moved: Array) -> Measured:
    """What the results `got` say of a function.

    Args:
      place, name: how it was computed and what it is called.
      arguments, got: float32.
      true: the true results, float64.
      moved: how far these are from those for other arguments, see `Ulps.error`.
    """
    row, function = place.row, FUNCTIONS[name].row
    wide, bound = got.astype(np.float64), row.ulps[function].error(true, moved)
    subnormal = [(np.abs(x) < TINY) & (x != 0) for x in arguments]
    ordinary = ~np.logical_or.reduce(subnormal)
    finite = np.isfinite(true) & (np.abs(true) <= LARGEST)
    normal = ordinary & finite & ((np.abs(true) >= 2 * TINY) | (true == 0)) & np.isfinite(wide)
    error = np.where(normal, np.abs(wide - true), 0)
    ulps, used = error / FLOAT32.ulp(true), error / bound
    # Rounding may carry a result over the largest number.
    inside = ordinary & (finite & (np.abs(true) < LARGEST * (1 - 2.0**-18)) | np.isnan(true) | np.isinf(true))
    special = inside & ((np.isnan(wide) != np.isnan(true)) | (np.isinf(wide) & finite))
    tiny = finite & (np.abs(true) < TINY * (1 - 2.0**-18)) & (np.abs(true) > FLOAT32.smallest_subnormal)
    gives_zero = bool((tiny & (wide == 0)).any())
    wrong = ~(np.abs(wide - true) <= bound + FLOAT32.ulp(true))
    takes_zero = bool((~ordinary & finite & (np.abs(true) >= TINY) & wrong).any())
    flushing = row.flushes or function in row.flushing

    def at(values: Array) -> tuple[float, ...]:
        return tuple(float(x[np.argmax(values)]) for x in arguments)

    allowed = float(used.max()) <= 1 + 2.0**-20 and (flushing or not (gives_zero or takes_zero)) and not special.any()
    return Measured(
        place.name,
        name,
        float(ulps.max()),
        at(ulps),
        float(used.max()),
        at(used),
        takes_zero,
        gives_zero,
        int(special.sum()),
        at(special) if special.any() else (),
        allowed,
    )


def measure(where: Sequence[Place], names: Sequence[str]) -> Iterator[Measured | str]:
    """What is found of functions; a sentence for what cannot be computed somewhere."""
    for name in names:
        function = FUNCTIONS[name]
        arguments = function.samples()
        x, *others = (argument.astype(np.float64) for argument in arguments)
        with np.errstate(all="ignore"):
            true = function.true(x, *others)
            for place in where:
                try:
                    got = place.run(function.computed, arguments)
                except Exception as error:
                    yield f"{place.name}: {name} cannot be computed: {str(error).splitlines()[0][:100]}"
                    continue
                moved = np.zeros(true.shape)
                for off in (-1, 1) if place.row.ulps[function.row].argument else ():
                    near = function.true(x + off * place.row.ulps[function.row].argument * FLOAT32.ulp(x), *others)
                    moved = np.fmax(moved, np.where(np.isfinite(near), np.abs(near - true), 0))
                yield compare(place, name, arguments, got, true, moved)


@dataclass(frozen=True)
class Product:
    """What was found of products of matrices.

    Attributes:
      place: how they were computed.
      dtype: of the operands.
      precision: as the kernel asked.
      size: of the square matrices.
      operands: the largest relative error of a product with the identity.
      accumulation: the largest error of other products, as a fraction of what their additions may lose.
      allowed: whether the table allows that.
    """

    place: str
    dtype: str
    precision: str
    size: int
    operands: float
    accumulation: float
    allowed: bool


def products(where: Sequence[Place]) -> Iterator[Product | str]:
    """What is found of matrix products; a sentence for what cannot be computed somewhere."""
    rng = np.random.Generator(np.random.PCG64(0))
    for dtype, precision, size in itertools.product(DTYPES, ("default", "highest"), (16, 64, 128)):
        x, y = (np.exp2(rng.uniform(-8, 0, (size, size))).astype(dtype) for _ in range(2))
        wide, other = x.astype(np.float64), y.astype(np.float64)
        dot = partial(jnp.dot, precision=precision, preferred_element_type=np.float32)
        for place in where:
            u = place.row.operand_roundoff(dtype) if precision == "default" else 0.0
            additions = size * place.row.accumulate.get(dtype, FLOAT32).unit_roundoff
            try:
                kept = place.run(dot, (x, np.eye(size, dtype=dtype))).astype(np.float64)
                got = place.run(dot, (x, y)).astype(np.float64)
            except Exception as error:
                yield f"{place.name}: product of {dtype}, {precision}: {str(error).splitlines()[0][:100]}"
                continue
            operands = float((np.abs(kept - wide) / wide).max())
            lost = float((np.abs(got / (wide @ other) - 1) / (2 * u + u * u + additions)).max())
            allowed = operands <= u + 2.0**-30 and lost <= 1
            yield Product(place.name, dtype, precision, size, operands, lost, allowed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", help="which; all, and products, where none is named")
    parser.add_argument("--json", type=Path, help="where all figures go")
    options = parser.parse_args()
    devices = {device.platform: device for device in [*jax.devices("cpu"), *jax.devices()]}.values()
    where = [place for device in devices for place in places(device)]
    found: list[Measured | Product | str] = list(measure(where, options.functions or list(FUNCTIONS)))
    found += products(where) if not options.functions else ()
    functions = [each for each in found if isinstance(each, Measured)]
    dots = [each for each in found if isinstance(each, Product)]
    print(tabulate(map(_cells, functions), "place function ulps at used flushes special".split(), floatfmt=".2f"))
    print(tabulate([list(asdict(each).values()) for each in dots], [each.name for each in fields(Product)]))
    print(*(each for each in found if isinstance(each, str)), sep="\n")
    wrong = [each for each in (*functions, *dots) if not each.allowed]
    for each in wrong:
        print(f"worse than its row in kerneltest/core/precision.py says: {each}")
    if options.json:
        versions = {"jax": jax.__version__, "python": platform.python_version(), "processor": platform.processor()}
        figures = {**versions, "functions": list(map(asdict, functions)), "products": list(map(asdict, dots))}
        options.json.write_text(json.dumps(figures, indent=1, allow_nan=False), encoding="utf-8")
    return 1 if wrong else 0


def _cells(each: Measured) -> list[Any]:
    flushes = " ".join(word for word, does in (("arguments", each.takes_zero), ("results", each.gives_zero)) if does)
    special = f"{each.special} at {each.special_at}" if each.special else ""
    return [each.place, each.function, each.ulps, " ".join(f"{x:.9g}" for x in each.at), each.used, flushes, special]


if __name__ == "__main__":
    sys.exit(main())
