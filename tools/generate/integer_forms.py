"""Equivalent forms of functions of integers that wrap around."""

from tools.generate.forms import FunctionForms

# For numbers in the dtype's range, so that comparing and dividing them gives the same in any number of bits.
OF_ARGUMENTS: tuple[FunctionForms, ...] = (
    FunctionForms(
        "integer maximum", "np.maximum({x}, {y})", ("jnp.maximum({x}, {y})", "jnp.where({x} > {y}, {x}, {y})")
    ),
    FunctionForms(
        "integer minimum", "np.minimum({x}, {y})", ("jnp.minimum({x}, {y})", "jnp.where({x} <= {y}, {x}, {y})")
    ),
    FunctionForms(
        "floor division",
        "{x} // (({y} & 15) + 1)",
        ("{x} // (({y} & 15) + 1)", "jnp.floor_divide({x}, ({y} & 15) + 1)"),
    ),
    FunctionForms(
        "division toward zero",
        "np.sign({x}) * (np.abs({x}) // (({y} & 7) + 1))",
        ("jax.lax.div({x}, ({y} & 7) + 1)", "({x} - jax.lax.rem({x}, ({y} & 7) + 1)) // (({y} & 7) + 1)"),
    ),
    FunctionForms("modulus", "{x} % (({y} & 15) + 1)", ("{x} % (({y} & 15) + 1)", "jnp.mod({x}, ({y} & 15) + 1)")),
    FunctionForms(
        "remainder",
        "{x} - np.sign({x}) * (np.abs({x}) // (({y} & 15) + 1)) * (({y} & 15) + 1)",
        ("jax.lax.rem({x}, ({y} & 15) + 1)", "{x} - jax.lax.div({x}, ({y} & 15) + 1) * (({y} & 15) + 1)"),
    ),
    FunctionForms("right shift", "{x} // 2 ** ({y} & 3)", ("{x} >> ({y} & 3)", "jnp.right_shift({x}, {y} & 3)")),
    FunctionForms(
        "average",
        "({x} + {y}) // 2",
        ("({x} & {y}) + (({x} ^ {y}) >> 1)", "({x} | {y}) - (({x} ^ {y}) - (({x} ^ {y}) >> 1))"),
    ),
    FunctionForms(
        "less", "np.where({x} < {y}, 3, 1)", ("jnp.where({x} < {y}, 3, 1)", "1 + 2 * ({y} > {x}).astype({x}.dtype)")
    ),
    FunctionForms(
        "equal", "({x} == {y}) + 0", ("({x} == {y}).astype({x}.dtype)", "1 - (({x} ^ {y}) != 0).astype({x}.dtype)")
    ),
    FunctionForms(
        "high part of a product",
        "{x} % 256 * ({y} % 256) // 16",
        (
            "(({x}.astype(jnp.int32) & 255) * ({y}.astype(jnp.int32) & 255) >> 4).astype({x}.dtype)",
            "(({x} & 15).astype(jnp.int32) * ({y}.astype(jnp.int32) & 255) + ((({x}.astype(jnp.int32) & 255) - "
            "({x}.astype(jnp.int32) & 15)) * ({y}.astype(jnp.int32) & 255)) >> 4).astype({x}.dtype)",
        ),
    ),
    FunctionForms(
        "quotient of floats",
        "np.floor({x} % 128 / 4 + 0.5).astype(int)",
        (
            "jnp.floor(({x} & 127).astype(jnp.float32) / 4 + 0.5).astype({x}.dtype)",
            "(({x} & 127).astype(jnp.float32) * 0.25 + 0.5).astype({x}.dtype)",
        ),
    ),
    FunctionForms(
        "bits", "np.bitwise_count({x} % 256).astype(int)", ("jax.lax.population_count({x} & 127) + (({x} & 128) != 0)",)
    ),
    FunctionForms("sign", "np.sign({x})", ("jnp.sign({x})", "({x} > 0) * 1 - ({x} < 0) * 1")),
    FunctionForms(
        "clip of integers", "np.clip({x}, 3, 100)", ("jnp.clip({x}, 3, 100)", "jnp.minimum(jnp.maximum({x}, 3), 100)")
    ),
)

# For numbers of which only the last bits count, so that any of them may have wrapped around.
OF_WRAPPED: tuple[FunctionForms, ...] = (
    FunctionForms("wrapping sum", "{x} + {y}", ("{x} + {y}", "{y} - ~{x} - 1")),
    FunctionForms("wrapping difference", "{x} - {y}", ("{x} - {y}", "{x} + (~{y} + 1)")),
    FunctionForms("wrapping product", "{x} * {y}", ("{x} * {y}", "{y} * {x}")),
    FunctionForms("exclusive or", "{x} ^ {y}", ("{x} ^ {y}", "({x} | {y}) - ({x} & {y})")),
    FunctionForms("and", "{x} & {y}", ("{x} & {y}", "~(~{x} | ~{y})")),
    FunctionForms("not", "-1 - {x}", ("~{x}", "-1 - {x}", "jnp.invert({x})")),
    FunctionForms("left shift", "{x} * 8", ("{x} << 3", "jnp.left_shift({x}, 3)", "{x} * 8")),
)
