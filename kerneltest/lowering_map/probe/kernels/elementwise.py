"""Functions of one element, comparisons and selections."""

from collections.abc import Iterator

from .base import BITWISE, DTYPES, FLOATS, INTEGERS, NUMBERS, VECTOR, Probe, lax_function

_UNARY = {
    FLOATS: "exp exp2 log log2 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt rsqrt "
    "cbrt logistic erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e is_finite floor ceil round reciprocal",
    NUMBERS: "neg sign abs square",
    BITWISE: "population_count clz bitwise_not",
}
_BINARY = {
    NUMBERS: "add sub mul div rem max min",
    FLOATS: "pow atan2 nextafter igamma igammac igamma_grad_a random_gamma_grad zeta polygamma",
    INTEGERS: "shift_left shift_right_logical shift_right_arithmetic mulhi",
    BITWISE: "bitwise_and bitwise_or bitwise_xor",
}


def probes() -> Iterator[Probe]:
    """Of groups `elementwise` and `comparison`."""
    for arity, table in ((1, _UNARY), (2, _BINARY)):
        for dtypes, names in table.items():
            for name in names.split():
                primitive = "reciprocal[lax]" if name == "reciprocal" else name.removeprefix("bitwise_")
                yield Probe(primitive, "elementwise", lax_function(name), dtypes, (VECTOR,) * arity)
    for name in ("max", "min"):
        yield Probe(name + "[bool]", "elementwise", lax_function(name), ("bool",), (VECTOR, VECTOR))
    for power in (2, 3, -2):
        body = lax_function("integer_pow", power)
        yield Probe(f"integer_pow[{power}]", "elementwise", body, NUMBERS, (VECTOR,))
    yield Probe("pow[integer exponent]", "elementwise", lax_function("pow"), FLOATS, (VECTOR, (VECTOR, "int32")))
    yield Probe("betainc", "elementwise", lax_function("betainc"), FLOATS, (VECTOR,) * 3)
    yield Probe("clamp", "elementwise", lax_function("clamp"), NUMBERS, (VECTOR,) * 3)
    yield Probe("reduce_precision", "elementwise", lax_function("reduce_precision", 5, 10), FLOATS, (VECTOR,))

    for name in "eq ne lt le gt ge".split():
        yield Probe(name, "comparison", lax_function(name), DTYPES, (VECTOR, VECTOR))
    select, which = lax_function("select_n"), (VECTOR, "int32")
    yield Probe("select_n", "comparison", select, DTYPES, ((VECTOR, "bool"), VECTOR, VECTOR))
    yield Probe("select_n[three cases]", "comparison", select, DTYPES, (which, VECTOR, VECTOR, VECTOR))
