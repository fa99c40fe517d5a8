"""Conversions of numbers from one dtype to another: as libraries write them, and in NumPy."""

from dataclasses import dataclass

_WIDE = ("float32", "bfloat16")
_F8 = ("float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion of `x`.

    Attributes:
      name: the name of the production.
      sources, targets: dtypes that it converts from and to.
      oracle: in NumPy.
      kernels: the ways to write it in `jnp`; the kernel converts their result to the target.
      domain: the largest magnitude that it accepts; 0 for all numbers.
    """

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    oracle: str
    kernels: tuple[str, ...]
    domain: float = 0


_FLOAT = "x.astype(jnp.float32)"

CONVERSIONS: tuple[Conversion, ...] = (
    Conversion("dequantised", ("int8",), _WIDE, "x / 8", (f"{_FLOAT} * 0.125", f"{_FLOAT} / 8")),
    Conversion(
        "dequantised", ("uint8",), _WIDE, "(x - 128) / 2", ("(x.astype(jnp.int32) - 128) * 0.5", f"{_FLOAT} / 2 - 64")
    ),
    Conversion(
        "unpacked",
        ("uint8",),
        _WIDE,
        "x % 16 - 8",
        ("(x & 15).astype(jnp.float32) - 8", "(x & 15) - 8.0"),
    ),
    Conversion(
        "unpacked",
        ("int8",),
        _WIDE,
        "(x + 8) % 16 - 8",
        ("((x << 4) >> 4).astype(jnp.float32)", "((x & 15) ^ 8).astype(jnp.float32) - 8"),
    ),
    Conversion(
        "quantised",
        _WIDE,
        ("int8",),
        "np.clip(np.floor(x + 0.5), -128, 127).astype(int)",
        (
            f"jnp.clip(jnp.floor({_FLOAT} + 0.5), -128, 127)",
            f"jnp.clip(-jnp.ceil(-{_FLOAT} - 0.5).astype(jnp.int32), -128, 127)",
        ),
        300,
    ),
    Conversion(
        "quantised",
        _WIDE,
        ("uint8",),
        "np.clip(np.floor(x + 0.5), 0, 255).astype(int)",
        (f"jnp.clip(jnp.floor({_FLOAT} + 0.5), 0, 255)", f"jnp.maximum(jnp.minimum({_FLOAT} + 0.5, 255), 0)"),
        300,
    ),
    Conversion(
        "truncated",
        _WIDE,
        ("int8", "int16", "int32"),
        "np.trunc(x).astype(int)",
        ("x", f"jnp.where(x < 0, jnp.ceil({_FLOAT}), jnp.floor({_FLOAT}))"),
        120,
    ),
    Conversion(
        "floored",
        _WIDE,
        ("int32",),
        "np.floor(x).astype(int)",
        (f"jnp.floor({_FLOAT})", f"-jnp.ceil(-{_FLOAT})"),
        99999,
    ),
    Conversion("widened", _F8, _WIDE, "x", ("x", _FLOAT, "x.astype(jnp.bfloat16)")),
    Conversion("widened", ("bool",), ("int8", "int32", "float32"), "x + 0", ("x", "jnp.where(x, 1, 0)")),
    Conversion("widened", ("uint8",), ("int16", "int32", "float32"), "x", ("x", "x.astype(jnp.int32)")),
    Conversion("widened", ("int8",), ("int16", "int32", "float32"), "x", ("x", "x.astype(jnp.int32)")),
    Conversion("narrowed", _WIDE, _F8, "x", ("x", _FLOAT), 400),
    Conversion("narrowed", ("int32",), ("uint8",), "x", ("x", "x & 255")),
    Conversion("narrowed", ("int32",), ("int8",), "x", ("x", "(x << 24) >> 24")),
    Conversion(
        "sign bit",
        ("float32",),
        ("int32",),
        "np.signbit(x) + 0",
        ("jax.lax.bitcast_convert_type(x, jnp.int32) < 0", "(jax.lax.bitcast_convert_type(x, jnp.int32) >> 31) & 1"),
        1e30,
    ),
    Conversion("compared with 0", _WIDE, ("bool",), "x != 0", ("x != 0", "jnp.abs(x) > 0", "~(x == 0)"), 9),
)
