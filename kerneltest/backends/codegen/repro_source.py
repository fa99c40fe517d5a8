"""Source code of single operations: `lax.sort(x)`, `x_ref[0:4]`, `plgpu.load(x_ref.at[...], mask=m)`."""

import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from kerneltest.trace.equation_steps import JaxprStep, is_literal

Operand = Any  # a variable or a literal of a jaxpr, whose classes JAX keeps private
Index = Any  # an int, a `Slice` or an operand
NameOf = Callable[[Operand], str]


class NotPlainError(Exception):
    """Something that cannot be written in public JAX and Pallas, as far as this module knows."""


class OperationWriter:
    """Writes operations.

    Args:
      name_of: returns the source of an operand.
      lengths: replacements for lengths of axes, wherever these occur.
    """

    def __init__(self, name_of: NameOf, lengths: Mapping[int, int]) -> None:
        self.name_of, self.lengths = name_of, lengths

    def statement(self, step: JaxprStep) -> str:
        """Returns an operation without a body as an assignment to its results.

        Raises:
          NotPlainError: it cannot be written in public JAX.
        """
        params, operands = step.equation.params, step.operands
        match step.name:
            case "get":
                ref, *rest = operands
                return self._assignment(
                    step, f"{self.name_of(ref)}[{self._index(ref, params['tree'].unflatten(rest))}]"
                )
            case "swap":
                if any(step.results):
                    raise NotPlainError("a swap whose old value is used")
                ref, value, *rest = operands
                return (
                    f"{self.name_of(ref)}[{self._index(ref, params['tree'].unflatten(rest))}] = {self.name_of(value)}"
                )
            case "addupdate":
                ref, value, *rest = operands
                index = self._index(ref, params["tree"].unflatten(rest), as_tuple=True)
                return f"jax.ref.addupdate({self.name_of(ref)}, {index}, {self.name_of(value)})"
            case "masked_load":
                ref, transforms, mask, other = params["args_tree"].unflatten(operands)
                options = self._options(params, mask=mask, other=other)
                return self._assignment(step, f"plgpu.load({self._at(ref, transforms)}{options})")
            case "masked_swap":
                ref, transforms, value, mask = params["args_tree"].unflatten(operands)
                return (
                    f"plgpu.store({self._at(ref, transforms)}, {self.name_of(value)}{self._options(params, mask=mask)})"
                )
            case "atomic_rmw":
                ref, transforms, value, mask = params["args_tree"].unflatten(operands)
                where = f"{self.name_of(ref)}, {self._index(ref, transforms, as_tuple=True)}"
                name, options = f"atomic_{params['atomic_type'].value}", self._options({}, mask=mask)
                return self._assignment(step, f"plgpu.{name}({where}, {self.name_of(value)}{options})")
        return self._assignment(step, self._call(step))

    def length(self, length: int) -> int:
        """Returns the length to write for a length."""
        return self.lengths.get(length, length)

    def _assignment(self, step: JaxprStep, text: str) -> str:
        names = ["_" if each is None else self.name_of(each) for each in step.results]
        return f"{', '.join(names)} = {text}" if any(step.results) else text

    def _options(self, params: Mapping[str, Any], **operands: Operand) -> str:
        """Returns the keyword arguments of a load or a store: operands that are not None, and parameters."""
        keywords = "".join(f", {name}={self.name_of(value)}" for name, value in operands.items() if value is not None)
        names = ("cache_modifier", "eviction_policy", "is_volatile")
        return keywords + _keywords({name: params[name] for name in names if params.get(name)})

    def _at(self, ref: Operand, transforms: Any) -> str:
        return f"{self.name_of(ref)}.at[{self._index(ref, transforms)}]"

    def _index(self, ref: Operand, transforms: Any, *, as_tuple: bool = False) -> str:
        """Returns the source of an index, as in brackets or as a tuple."""
        if not transforms:
            return "..."
        if len(transforms) > 1 or type(transforms[0]).__name__ != "NDIndexer":
            raise NotPlainError("a reference seen through more than one index")
        axes = [self._axis(i, n, as_tuple=as_tuple) for i, n in zip(transforms[0].indices, ref.aval.shape, strict=True)]
        return f"({', '.join(axes)},)" if as_tuple else ", ".join(axes)

    def _axis(self, index: Index, length: int, *, as_tuple: bool) -> str:
        if type(index).__name__ != "Slice":
            return self._number(index)
        start, size, stride = index.start, index.size, index.stride
        step = f", {stride}" if stride != 1 else ""
        if as_tuple or not isinstance(start, int):
            return f"pl.ds({self._number(start)}, {self.length(size)}{step})"
        if (start, size, stride) == (0, length, 1):
            return ":"
        return f"{start}:{start + (self.length(size) - 1) * stride + 1}{step.replace(', ', ':')}"

    def _number(self, index: Index) -> str:
        return str(int(index)) if isinstance(index, (int, np.integer)) else self.name_of(index)

    def _call(self, step: JaxprStep) -> str:
        operands = [self.name_of(each) for each in step.operands]
        params = {key: self._resize(key, value) for key, value in step.equation.params.items()}
        if step.name in _SPECIAL:
            return _SPECIAL[step.name](operands, params)
        name = _LAX.get(step.name, step.name.replace("-", "_"))
        return _function_call(name, operands, params) or _primitive_call(step.equation.primitive, operands, params)

    def _resize(self, key: str, value: Any) -> Any:
        if key in _SHAPE_PARAMETERS and isinstance(value, tuple):
            return tuple(self.length(each) if isinstance(each, int) else each for each in value)
        return value


_SHAPE_PARAMETERS = frozenset({"shape", "new_sizes", "limit_indices", "slice_sizes", "sizes"})
_LAX = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not"}


def _list(operands: list[str]) -> str:
    return f"[{', '.join(operands)}]"


# Primitives whose public function takes other arguments.
_SPECIAL: Mapping[str, Callable[[list[str], Mapping[str, Any]], str]] = {
    "program_id": lambda _, params: f"pl.program_id({params['axis']})",
    "num_programs": lambda _, params: f"pl.num_programs({params['axis']})",
    "iota": lambda _, p: (
        f"lax.broadcasted_iota({literal(p['dtype'])}, {literal(p['shape'])}, {literal(p['dimension'])})"
    ),
    "argmax": lambda x, p: f"lax.argmax({x[0]}, {literal(p['axes'][0])}, {literal(p['index_dtype'])})",
    "argmin": lambda x, p: f"lax.argmin({x[0]}, {literal(p['axes'][0])}, {literal(p['index_dtype'])})",
    "concatenate": lambda x, p: f"lax.concatenate({_list(x)}, {literal(p['dimension'])})",
    "sort": lambda x, p: f"lax.sort({x[0] if len(x) == 1 else _list(x)}{_keywords(p)})",
    "reciprocal": lambda x, p: f"pl.reciprocal({x[0]}{_keywords(p)})",
    "dynamic_slice": lambda x, p: f"lax.dynamic_slice({x[0]}, {_list(x[1:])}, {literal(p['slice_sizes'])})",
    "dynamic_update_slice": lambda x, p: f"lax.dynamic_update_slice({x[0]}, {x[1]}, {_list(x[2:])})",
}  # fmt: skip


def _function_call(name: str, operands: list[str], params: Mapping[str, Any]) -> str:
    """Returns a call of the function of `jax.lax` with the primitive's name and parameters, or "" if there is none."""
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
    chosen = {p.name: params[p.name] for p in rest if p.name in params and not _is_default(params[p.name], p.default)}
    return f"lax.{name}({', '.join(operands)}{_keywords(chosen)})"


@functools.cache
def _parameters(name: str) -> tuple[inspect.Parameter, ...] | None:
    try:
        return tuple(inspect.signature(getattr(lax, name)).parameters.values())
    except (AttributeError, TypeError, ValueError):
        return None


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def _primitive_call(primitive: Any, operands: list[str], params: Mapping[str, Any]) -> str:
    """Returns a call of the primitive itself, under its name in `jax.extend.core.primitives`."""
    name = next((n for n in dir(primitives) if getattr(primitives, n) is primitive), "")
    if not name:
        raise NotPlainError(f"primitive {primitive}")
    return f"primitives.{name}.bind({', '.join(operands)}{_keywords(params)})"


def _keywords(params: Mapping[str, Any]) -> str:
    return "".join(f", {name}={literal(value)}" for name, value in params.items())


def literal(value: Any) -> str:
    """Returns Python source of a parameter: a number, text, a dtype, or an object that `jax.lax` has a name for.

    Raises:
      NotPlainError: it is another object.
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


def constant(value: Operand) -> str:
    """Returns Python source of a literal operand: a plain number, or one of its dtype.

    Raises:
      NotPlainError: it is not a number.
    """
    assert is_literal(value)
    array = np.asarray(value.val)
    if array.shape:
        raise NotPlainError("a constant array")
    plain = literal(array.item())
    return plain if getattr(value.aval, "weak_type", False) else f"{literal(array.dtype)}({plain})"
