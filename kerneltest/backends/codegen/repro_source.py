"""One operation as its author would write it: `lax.sort(x)`, `x_ref[0:4]`, `plgpu.load(x_ref.at[...], mask=m)`."""

import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from kerneltest.trace.equation_steps import Step, is_literal

Say = Callable[[Any], str]  # an operand's text


class NotPlainError(Exception):
    """Something that public JAX and Pallas have no words for, or none that is known here."""


class Spelling:
    """Writes operations.

    Args:
      say: gives the text of an operand.
      lengths: other lengths for some, wherever they stand.
    """

    def __init__(self, say: Say, lengths: Mapping[int, int]) -> None:
        self.say, self.lengths = say, lengths

    def statement(self, step: Step) -> str:
        """An operation without a body, with the names of its results before it.

        Raises:
          NotPlainError: there is no public spelling.
        """
        params, operands = step.equation.params, step.operands
        match step.name:
            case "get":
                ref, *rest = operands
                return self._assigned(step, f"{self.say(ref)}[{self._index(ref, params['tree'].unflatten(rest))}]")
            case "swap":
                if any(step.results):
                    raise NotPlainError("a swap whose old value is used")
                ref, value, *rest = operands
                return f"{self.say(ref)}[{self._index(ref, params['tree'].unflatten(rest))}] = {self.say(value)}"
            case "addupdate":
                ref, value, *rest = operands
                index = self._index(ref, params["tree"].unflatten(rest), alone=True)
                return f"jax.ref.addupdate({self.say(ref)}, {index}, {self.say(value)})"
            case "masked_load":
                ref, transforms, mask, other = params["args_tree"].unflatten(operands)
                options = self._options(params, mask=mask, other=other)
                return self._assigned(step, f"plgpu.load({self._at(ref, transforms)}{options})")
            case "masked_swap":
                ref, transforms, value, mask = params["args_tree"].unflatten(operands)
                return f"plgpu.store({self._at(ref, transforms)}, {self.say(value)}{self._options(params, mask=mask)})"
            case "atomic_rmw":
                ref, transforms, value, mask = params["args_tree"].unflatten(operands)
                where = f"{self.say(ref)}, {self._index(ref, transforms, alone=True)}"
                name, options = f"atomic_{params['atomic_type'].value}", self._options({}, mask=mask)
                return self._assigned(step, f"plgpu.{name}({where}, {self.say(value)}{options})")
        return self._assigned(step, self._call(step))

    def length(self, length: int) -> int:
        """As it is to be written."""
        return self.lengths.get(length, length)

    def _assigned(self, step: Step, text: str) -> str:
        names = ["_" if each is None else self.say(each) for each in step.results]
        return f"{', '.join(names)} = {text}" if any(step.results) else text

    def _options(self, params: Mapping[str, Any], **operands: Any) -> str:
        """The operands that are there, and what else is asked of a load or a store."""
        given = "".join(f", {name}={self.say(value)}" for name, value in operands.items() if value is not None)
        asked = ("cache_modifier", "eviction_policy", "is_volatile")
        return given + _keywords({name: params[name] for name in asked if params.get(name)})

    def _at(self, ref: Any, transforms: Any) -> str:
        return f"{self.say(ref)}.at[{self._index(ref, transforms)}]"

    def _index(self, ref: Any, transforms: Any, *, alone: bool = False) -> str:
        """What stands between the brackets, or where there are none."""
        if not transforms:
            return "..."
        if len(transforms) > 1 or type(transforms[0]).__name__ != "NDIndexer":
            raise NotPlainError("a reference seen through more than one index")
        axes = [self._axis(i, n, alone=alone) for i, n in zip(transforms[0].indices, ref.aval.shape, strict=True)]
        return f"({', '.join(axes)},)" if alone else ", ".join(axes)

    def _axis(self, index: Any, length: int, *, alone: bool) -> str:
        if type(index).__name__ != "Slice":
            return self._number(index)
        start, size, stride = index.start, index.size, index.stride
        step = f", {stride}" if stride != 1 else ""
        if alone or not isinstance(start, int):
            return f"pl.ds({self._number(start)}, {self.length(size)}{step})"
        if (start, size, stride) == (0, length, 1):
            return ":"
        return f"{start}:{start + (self.length(size) - 1) * stride + 1}{step.replace(', ', ':')}"

    def _number(self, index: Any) -> str:
        return str(int(index)) if isinstance(index, (int, np.integer)) else self.say(index)

    def _call(self, step: Step) -> str:
        operands = [self.say(each) for each in step.operands]
        params = {key: self._resized(key, value) for key, value in step.equation.params.items()}
        if step.name in _OTHERS:
            return _OTHERS[step.name](operands, params)
        name = _LAX.get(step.name, step.name.replace("-", "_"))
        return _by_name(name, operands, params) or _bound(step.equation.primitive, operands, params)

    def _resized(self, key: str, value: Any) -> Any:
        if key in _SHAPES and isinstance(value, tuple):
            return tuple(self.length(each) if isinstance(each, int) else each for each in value)
        return value


_SHAPES = frozenset({"shape", "new_sizes", "limit_indices", "slice_sizes", "sizes"})
_LAX = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not"}


def _listed(operands: list[str]) -> str:
    return f"[{', '.join(operands)}]"


# Where the public function takes other arguments than the primitive.
_OTHERS: Mapping[str, Callable[[list[str], Mapping[str, Any]], str]] = {
    "program_id": lambda _, params: f"pl.program_id({params['axis']})",
    "num_programs": lambda _, params: f"pl.num_programs({params['axis']})",
    "iota": lambda _, p: (
        f"lax.broadcasted_iota({literal(p['dtype'])}, {literal(p['shape'])}, {literal(p['dimension'])})"
    ),
    "argmax": lambda x, p: f"lax.argmax({x[0]}, {literal(p['axes'][0])}, {literal(p['index_dtype'])})",
    "argmin": lambda x, p: f"lax.argmin({x[0]}, {literal(p['axes'][0])}, {literal(p['index_dtype'])})",
    "concatenate": lambda x, p: f"lax.concatenate({_listed(x)}, {literal(p['dimension'])})",
    "sort": lambda x, p: f"lax.sort({x[0] if len(x) == 1 else _listed(x)}{_keywords(p)})",
    "reciprocal": lambda x, p: f"pl.reciprocal({x[0]}{_keywords(p)})",
    "dynamic_slice": lambda x, p: f"lax.dynamic_slice({x[0]}, {_listed(x[1:])}, {literal(p['slice_sizes'])})",
    "dynamic_update_slice": lambda x, p: f"lax.dynamic_update_slice({x[0]}, {x[1]}, {_listed(x[2:])})",
}  # fmt: skip


def _by_name(name: str, operands: list[str], params: Mapping[str, Any]) -> str:
    """A call of the function of `jax.lax` that is called as its primitive is and has parameters of the same names."""
    parameters = _parameters(name)
    if parameters is None:
        return ""
    rest = list(parameters)
    for _ in operands:
        if not rest or rest[0].kind is inspect.Parameter.KEYWORD_ONLY:
            return ""
        if rest[0].kind is not inspect.Parameter.VAR_POSITIONAL:
            del rest[0]
    rest = [each for each in rest if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    if any(each.default is each.empty and each.name not in params for each in rest):
        return ""
    chosen = {p.name: params[p.name] for p in rest if p.name in params and not _same(params[p.name], p.default)}
    return f"lax.{name}({', '.join(operands)}{_keywords(chosen)})"


@functools.cache
def _parameters(name: str) -> tuple[inspect.Parameter, ...] | None:
    try:
        return tuple(inspect.signature(getattr(lax, name)).parameters.values())
    except (AttributeError, TypeError, ValueError):
        return None


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def _bound(primitive: Any, operands: list[str], params: Mapping[str, Any]) -> str:
    """A call of the primitive itself, by the name that JAX gives it and not by its own."""
    name = next((n for n in dir(primitives) if getattr(primitives, n) is primitive), "")
    if not name:
        raise NotPlainError(f"primitive {primitive}")
    return f"primitives.{name}.bind({', '.join(operands)}{_keywords(params)})"


def _keywords(params: Mapping[str, Any]) -> str:
    return "".join(f", {name}={literal(value)}" for name, value in params.items())


def literal(value: Any) -> str:
    """Python source of a parameter: numbers, text, dtypes, and what `jax.lax` has names for.

    Raises:
      NotPlainError: it has no such source.
    """
    kind = type(value)
    if value is None or kind in (bool, int):
        return repr(value)
    if kind is str:
        return ascii(value)
    if kind is float:
        return repr(value) if np.isfinite(value) else f"float('{value}')"
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        name = np.dtype(value).name
        if getattr(jnp, {"bool": "bool_"}.get(name, name), None) is not None:
            return f"jnp.{'bool_' if name == 'bool' else name}"
    if isinstance(value, np.generic):
        return literal(value.item())
    if getattr(lax, kind.__name__, None) is kind:
        if isinstance(value, enum.Enum):
            return f"lax.{kind.__name__}.{value.name}"
        if hasattr(value, "_asdict"):
            return f"lax.{kind.__name__}({_keywords(value._asdict()).removeprefix(', ')})"
    if kind in (tuple, list):
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    raise NotPlainError(f"a parameter of type {kind.__name__}")


def constant(value: Any) -> str:
    """Python source of a literal operand: a plain number, or one of its dtype.

    Raises:
      NotPlainError: it is no number.
    """
    assert is_literal(value)
    array = np.asarray(value.val)
    if array.shape:
        raise NotPlainError("a constant array")
    plain = literal(array.item())
    return plain if getattr(value.aval, "weak_type", False) else f"{literal(array.dtype)}({plain})"
