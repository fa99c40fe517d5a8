"""Functions of single elements: floats, integers, booleans, and conversions, in each frame."""

import random

from tools.generate.conversion_forms import CONVERSIONS
from tools.generate.forms import Expression, apply_form, random_expression
from tools.generate.generated_kernel import Draft, production, random_dtype
from tools.generate.integer_forms import OF_ARGUMENTS, OF_WRAPPED
from tools.generate.pointwise_frames import bring_over_arrays
from tools.generate.pointwise_function import PointwiseFunction

_INTEGERS = ("int32", "int8", "uint8", "int16")


@production
def floats(rng: random.Random) -> Draft:
    """One or two functions of one or two arrays of floats."""
    names = ["x", "y"][: rng.randint(1, 2)]
    first, dtype = random_expression(rng, names), random_dtype(rng)
    expressions = [first]
    if rng.random() < 0.4:
        expressions.append(random_expression(rng, names, 1))
    declared = dtype + max((each.domain_on_gpus for each in expressions), key=_strictness)
    forms = frozenset().union(*(each.forms for each in expressions))
    function = PointwiseFunction(
        "functions of floats",
        dict.fromkeys(names, declared),
        tuple(each.kernel for each in expressions),
        ("x.dtype", "jnp.float32")[: len(expressions)],
        f"return {', '.join(each.oracle for each in expressions)}",
        ".astype(jnp.float32)",
        forms,
        in_place=True,
        mosaic_gpu=not {"softplus", "sine", "interpolation"} & forms,
    )
    return bring_over_arrays(rng, function)


def _strictness(domain: str) -> tuple[bool, int]:
    return "(-8" in domain, len(domain)


@production
def integers(rng: random.Random) -> Draft:
    """One or two functions of two arrays of integers, which wrap around."""
    dtype = rng.choice(_INTEGERS)
    expressions = [_integer_expression(rng) for _ in range(rng.randint(1, 2))]
    function = PointwiseFunction(
        f"functions of {dtype}",
        dict.fromkeys("xy", f'"{dtype}"'),
        tuple(each.kernel for each in expressions),
        ("x.dtype",) * len(expressions),
        f"return {', '.join(f'({each.oracle})' for each in expressions)}",
        features=frozenset({dtype}).union(*(each.forms for each in expressions)),
        in_place=True,
    )
    return bring_over_arrays(rng, function)


def _integer_expression(rng: random.Random) -> Expression:
    x, y = Expression("x", "x"), Expression("y", "y")
    value = apply_form(rng, rng.choice(OF_ARGUMENTS), *rng.sample((x, y), 2))
    for _ in range(rng.randint(0, 2)):
        value = apply_form(rng, rng.choice(OF_WRAPPED), *rng.sample((value, rng.choice((x, y))), 2))
    return value


@production
def selections(rng: random.Random) -> Draft:
    """Elements chosen by a mask, by comparisons, or both; the second result is the mask."""
    dtype = rng.choice(("float32", "bfloat16", "int32", "int8", "uint8"))
    compared = rng.choice((("x < y", "y > x"), ("x >= y", "~(x < y)"), ("x != y", "jnp.logical_not(x == y)")))
    joined = rng.choice((
        ("np.logical_and({0}, keep)", ("({0}) & keep", "jnp.logical_and(keep, {0})", "jnp.where(keep, {0}, False)")),
        ("np.logical_or({0}, keep)", ("({0}) | keep", "~(~({0}) & ~keep)", "jnp.where(keep, True, {0})")),
        ("np.logical_xor({0}, keep)", ("({0}) ^ keep", "({0}) != keep", "jnp.where(keep, ~({0}), {0})")),
    ))  # fmt: skip
    condition = rng.choice(joined[1]).format(rng.choice(compared))
    chosen = rng.choice((f"jnp.where({condition}, x, y)", f"jax.lax.select({condition}, x, y)"))
    results = (chosen, condition)[:: rng.choice((1, -1))][: rng.randint(1, 2)]
    oracle = {chosen: "np.where(chosen, x, y)", condition: "chosen"}
    domain = "" if dtype.startswith(("i", "u")) else ", domain=(-8, 8)"
    function = PointwiseFunction(
        f"elements of {dtype} that a mask chooses",
        {"x": f'"{dtype}"{domain}', "y": f'"{dtype}"{domain}', "keep": '"bool"'},
        results,
        tuple("x.dtype" if each == chosen else "jnp.bool_" for each in results),
        f"chosen = {joined[0].format(compared[0])}\nreturn {', '.join(oracle[each] for each in results)}",
        features=frozenset({dtype, "bool", *(("bool output",) if condition in results else ())}),
    )
    return bring_over_arrays(rng, function)


@production
def conversions(rng: random.Random) -> Draft:
    """Numbers of one dtype as those of another: widened, rounded, quantised, dequantised."""
    conversion = rng.choice(CONVERSIONS)
    source, target = rng.choice(conversion.sources), rng.choice(conversion.targets)
    domain = f", domain=({-conversion.domain}, {conversion.domain})" if conversion.domain else ""
    function = PointwiseFunction(
        f"numbers of {source}, {conversion.name}, as {target}",
        {"x": f'"{source}"{domain}'},
        (rng.choice(conversion.kernels),),
        (f'"{target}"',),
        f"return {conversion.oracle}",
        features=frozenset({conversion.name, f"from {source}", f"to {target}"}),
    )
    return bring_over_arrays(rng, function)
