"""Equivalent forms of elementwise functions: how an oracle writes them, and the ways in which libraries' kernels do."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FunctionForms:
    """A function of `{x}`, or of `{x}` and `{y}`.

    Attributes:
      name: the name of the production.
      oracle: in NumPy.
      kernels: the ways to write it in a kernel, in `jnp`.
      everywhere: whether all are equal for infinite and huge numbers too, in any combination.
    """

    name: str
    oracle: str
    kernels: tuple[str, ...]
    everywhere: bool = False

    @property
    def arity(self) -> int:
        return 2 if "{y}" in self.oracle else 1


_EXP2 = "1.4426950408889634"

UNARY: tuple[FunctionForms, ...] = (
    FunctionForms(
        "exp",
        "np.exp(-np.abs({x}))",
        ("jnp.exp(-jnp.abs({x}))", f"jnp.exp2(-jnp.abs({{x}}) * {_EXP2})"),
        everywhere=True,
    ),
    FunctionForms(
        "sigmoid",
        "1 / (1 + np.exp(-{x}))",
        ("jax.nn.sigmoid({x})", "1 / (1 + jnp.exp(-{x}))"),
        everywhere=True,
    ),
    FunctionForms("tanh", "np.tanh({x})", ("jnp.tanh({x})",), everywhere=True),
    FunctionForms(
        "silu",
        "{x} / (1 + np.exp(-{x}))",
        ("{x} * jax.nn.sigmoid({x})", "{x} / (1 + jnp.exp(-{x}))"),
        everywhere=True,
    ),
    FunctionForms(
        "softplus",
        "np.logaddexp({x}, 0)",
        ("jnp.logaddexp({x}, 0)", "jnp.maximum({x}, 0) + jnp.log1p(jnp.exp(-jnp.abs({x})))"),
        everywhere=True,
    ),
    FunctionForms(
        "relu",
        "np.maximum({x}, 0)",
        ("jnp.maximum({x}, 0)", "jnp.where({x} < 0, 0, {x})"),
        everywhere=True,
    ),
    FunctionForms(
        "clip",
        "np.clip({x}, -2, 3)",
        ("jnp.clip({x}, -2, 3)", "jnp.minimum(jnp.maximum({x}, -2), 3)"),
        everywhere=True,
    ),
    FunctionForms("square", "np.square({x})", ("jnp.square({x})", "{x} * {x}", "{x} ** 2")),
    FunctionForms(
        "rsqrt",
        "1 / np.sqrt(np.square({x}) + 1)",
        ("jax.lax.rsqrt(jnp.square({x}) + 1)", "1 / jnp.sqrt({x} * {x} + 1)"),
    ),
    FunctionForms("negative", "-{x}", ("-{x}", "0 - {x}"), everywhere=True),
    FunctionForms("sine", "np.sin({x})", ("jnp.sin({x})",)),
    FunctionForms("third", "{x} / 3", ("{x} / 3", "{x} * (1 / 3)"), everywhere=True),
)

BINARY: tuple[FunctionForms, ...] = (
    FunctionForms("add", "{x} + {y}", ("{x} + {y}", "{y} + {x}")),
    FunctionForms("subtract", "{x} - {y}", ("{x} - {y}", "-{y} + {x}")),
    FunctionForms("multiply", "{x} * {y}", ("{x} * {y}", "{y} * {x}")),
    FunctionForms(
        "maximum", "np.maximum({x}, {y})", ("jnp.maximum({x}, {y})", "-jnp.minimum(-{x}, -{y})"), everywhere=True
    ),
    FunctionForms(
        "quotient",
        "{x} / (1 + np.abs({y}))",
        ("{x} / (1 + jnp.abs({y}))", "{x} * (1 / (1 + jnp.abs({y})))"),
    ),
    FunctionForms(
        "interpolation",
        "0.75 * {x} + 0.25 * {y}",
        ("{x} + 0.25 * ({y} - {x})", "0.75 * {x} + 0.25 * {y}"),
    ),
    FunctionForms(
        "hypotenuse",
        "np.sqrt(np.square({x}) + np.square({y}) + 1)",
        ("jnp.sqrt({x} * {x} + {y} * {y} + 1)", "jnp.sqrt(jnp.square({y}) + (jnp.square({x}) + 1))"),
    ),
)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of named arrays.

    Attributes:
      kernel: in `jnp`.
      oracle: in NumPy.
      forms: the names of the forms in it.
      everywhere: whether both are equal for infinite and huge numbers too.
    """

    kernel: str
    oracle: str
    forms: frozenset[str] = frozenset()
    everywhere: bool = True

    @property
    def domain(self) -> str:
        """The source of a domain on which both are equal and neither overflows; "" for all numbers."""
        return "" if self.everywhere else ", domain=(-8, 8)"

    @property
    def domain_on_gpus(self) -> str:
        """The same for a GPU, where Pallas' maxima and minima drop NaN, as docs/how-backends-work.md says."""
        drops_nan = re.search("imum|clip", self.kernel)
        return ", domain=kt.interval(finite=True)" if self.everywhere and drops_nan else self.domain


def random_expression(rng: random.Random, names: Sequence[str], most: int = 3) -> Expression:
    """Returns an expression that has each of some names.

    Args:
      rng: chooses it.
      names: of float32 arrays in the kernel, and of float64 arrays in the oracle.
      most: the largest number of functions of one argument in it.
    """
    parts = [_apply_unary(rng, Expression(name, name), rng.randint(0, most // 2)) for name in names]
    while len(parts) > 1:
        x, y, *rest = parts
        parts = [apply_form(rng, rng.choice(BINARY), x, y), *rest]
    return _apply_unary(rng, parts[0], rng.randint(0 if parts[0].forms else 1, most - most // 2))


def _apply_unary(rng: random.Random, x: Expression, count: int) -> Expression:
    for _ in range(count):
        x = apply_form(rng, rng.choice(UNARY), x)
    return x


def apply_form(rng: random.Random, form: FunctionForms, *operands: Expression) -> Expression:
    """Returns a function of one or two expressions, in one of its forms."""
    named = dict(zip("xy", operands, strict=False))
    kernel = rng.choice(form.kernels).format(**{name: _as_operand(each.kernel) for name, each in named.items()})
    oracle = form.oracle.format(**{name: _as_operand(each.oracle) for name, each in named.items()})
    forms = frozenset().union({form.name}, *(each.forms for each in operands))
    return Expression(
        _tidy(kernel), _tidy(oracle), forms, form.everywhere and all(each.everywhere for each in operands)
    )


def _as_operand(text: str) -> str:
    """Returns an expression with parentheses, unless it is a name or a call."""
    call = re.fullmatch(r"[\w.]+(\(.*\))?", text)
    return text if call and (not call[1] or _is_one_pair(call[1])) else f"({text})"


def _tidy(text: str) -> str:
    """Returns an expression without doubled parentheses."""
    for place in range(len(text) - 1):
        if text[place : place + 2] == "((":
            inner = _closing(text, place + 1)
            if text[inner + 1 : inner + 2] == ")":
                return _tidy(text[:place] + text[place + 1 : inner] + text[inner + 1 :])
    return text


def _is_one_pair(text: str) -> bool:
    """Returns whether the first parenthesis of a text is closed by the last one."""
    return _closing(text, 0) == len(text) - 1


def _closing(text: str, opening: int) -> int:
    """Returns the index of the parenthesis that closes another."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place
    raise ValueError(f"unbalanced: {text}")
