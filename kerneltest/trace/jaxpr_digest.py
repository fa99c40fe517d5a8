"""Digests of jaxprs: equal for two traces that compute the same in the same way, in any process."""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from types import FunctionType
from typing import Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from kerneltest.core.dtypes import digest_array
from kerneltest.trace.jax_compat.jaxprs import (
    AbstractValue,
    Atom,
    BlockMapping,
    ClosedJaxpr,
    Equation,
    Jaxpr,
    Literal,
    OpenJaxpr,
    is_of_pallas,
)
from kerneltest.trace.walk import iter_equations, nested_jaxprs, primitive_name, scan_counts

# Where code was written, and values that objects remember once they were asked for.
_IGNORED = frozenset("debug_info source_info name_and_src_info src_info traceback _hash".split())

# Primitives with Python functions that run only when they are differentiated or batched.
_RULES = frozenset("custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr custom_vmap_call".split())

# Primitives that run code outside of the jaxpr, in addition to callbacks.
_FOREIGN = frozenset("debug_print ffi_call infeed outfeed".split())

# Effects of reading and writing the kernel's own memory, and of naming an axis; those of Pallas count too.
_HARMLESS = frozenset("ReadEffect WriteEffect AccumEffect NamedAxisEffect".split())


class OpaqueError(ValueError):
    """Something whose content cannot be read, or that runs code outside of the jaxpr; says what."""


@dataclasses.dataclass(frozen=True, slots=True)
class JaxprDigest:
    """The digest of a jaxpr.

    Attributes:
      text: 64 hexadecimal digits.
      has_rules: whether it has derivatives or batching rules of its own, which the digest does not include.
    """

    text: str
    has_rules: bool


def digest_jaxpr(jaxpr: ClosedJaxpr, *, approximate: bool = False) -> JaxprDigest:
    """Returns the digest of a jaxpr: its operations, their parameters, and the bytes of its constants.

    Names of variables and source lines do not count.

    Args:
      jaxpr: to digest.
      approximate: whether constants that differ by a few roundings, as between machines, count as equal.

    Raises:
      OpaqueError: it has side effects, calls back into Python, or has a parameter whose content is unknown.
    """
    encoder = _Encoder(approximate)
    encoder.add(jaxpr)
    return JaxprDigest(encoder.digest(), encoder.has_rules)


class _Encoder:
    """Turns a value into a sequence of texts.

    Attributes:
      has_rules: whether the value has derivatives or batching rules of its own.
    """

    def __init__(self, approximate: bool = False) -> None:
        self.has_rules = False
        self._approximate = approximate
        self._parts: list[str] = []
        self._numbers: dict[int, int] = {}  # of variables and jaxprs, by identity, in the order in which they occur
        self._types: dict[Hashable, list[str]] = {}
        self._kept: list[object] = []  # so that no identity is used twice
        self._open: set[int] = set()

    def digest(self) -> str:
        return hashlib.sha256("\x1f".join(self._parts).encode("utf-8", "surrogatepass")).hexdigest()

    def add(self, value: Any) -> None:
        """Appends a value."""
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str, bytes):
            self._parts.append(f"{kind.__name__}:{value!r}")
        elif kind in (tuple, list):
            self._sequence(kind.__name__, value)
        elif isinstance(value, (ClosedJaxpr, OpenJaxpr)):
            self._jaxpr(getattr(value, "jaxpr", value))  # since JAX 0.12, an open one is closed as well
            self._sequence("constants", getattr(value, "consts", ()))
        elif isinstance(value, jax.core.Tracer):  # what a nested jaxpr takes from the one around it
            self._parts.append("outer")
            self._atom(getattr(value, "val", value))
        elif isinstance(value, Mapping):
            self._sequence("mapping", [part for key in sorted(value, key=repr) for part in (key, value[key])])
        elif isinstance(value, (set, frozenset)):
            self._sequence("set", sorted(map(_digest_alone, value)))
        elif isinstance(value, (np.ndarray, np.generic, jax.Array)) or kind.__name__ == "TypedNdArray":
            self._array(value)
        elif isinstance(value, (np.dtype, type)):
            self._parts.append(f"type:{getattr(value, '__module__', '')}.{value}")
        elif isinstance(value, tuple):  # a named one
            self._sequence(f"{kind.__module__}.{kind.__qualname__}", value)
        elif kind is object:  # a sentinel, which has no content
            self._parts.append(f"object {self._number(value)}")
        elif isinstance(value, Enum):
            self._parts.append(f"{kind.__qualname__}.{value.name}")
        else:
            self._object(value)

    def _sequence(self, name: str, values: Iterable[Any]) -> None:
        self._parts.append(f"{name}(")
        for each in values:
            self.add(each)
        self._parts.append(")")

    def _number(self, value: object) -> int:
        if id(value) not in self._numbers:
            self._kept.append(value)
            self._numbers[id(value)] = len(self._numbers)
        return self._numbers[id(value)]

    def _jaxpr(self, jaxpr: Jaxpr) -> None:
        known = id(jaxpr) in self._numbers
        self._parts.append(f"jaxpr {self._number(jaxpr)}")
        if known:
            return
        for effect in jaxpr.effects:
            kind = type(effect)
            if kind.__name__ not in _HARMLESS and not is_of_pallas(kind):
                raise OpaqueError(f"it has side effects ({kind.__name__})")
        for atom in (*jaxpr.constvars, *jaxpr.invars):
            self._atom(atom)
        for equation in jaxpr.eqns:
            self._equation(equation)
        self._parts.append("returns")
        for atom in jaxpr.outvars:
            self._atom(atom)

    def _equation(self, equation: Equation) -> None:
        name = str(equation.primitive.name)
        if "callback" in name or name in _FOREIGN:
            raise OpaqueError(f"it runs code outside of JAX ({name})")
        self._parts.append(f"do {name}")
        for key in sorted(equation.params):
            value = equation.params[key]
            if key in _IGNORED:
                continue
            if name in _RULES and _is_code(value):
                self.has_rules = True
                continue
            self._parts.append(key)
            self.add(value)
        for context in ("compute_type", "xla_metadata"):
            self.add(getattr(equation.ctx, context, None))
        for atom in (*equation.invars, *equation.outvars):
            self._atom(atom)

    def _atom(self, atom: Atom) -> None:
        if isinstance(atom, Literal):
            self.add(atom.val)
        else:
            self._parts.append(f"variable {self._number(atom)}")
        self._type(atom.aval)

    def _type(self, aval: AbstractValue) -> None:
        """Appends the type of a variable, which many share."""
        try:
            known = self._types.get(aval)
        except TypeError:  # not hashable
            self.add(aval)
            return
        if known is None:
            before, self._parts = self._parts, []
            try:
                self._object(aval)
                known = self._types[aval] = self._parts
            finally:
                self._parts = before
        self._parts += known

    def _array(self, value: Any) -> None:
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):  # type: ignore[attr-defined, unused-ignore]
            self._parts.append(f"key {value.dtype}")
            value = jax.random.key_data(value)
        array = np.asarray(value)
        if array.dtype == object:
            self._sequence(f"objects {array.shape}", array.ravel().tolist())
            return
        self._parts.append(f"array {digest_array(array, approximate=self._approximate)}")

    def _object(self, value: Any) -> None:
        if _is_code(value):
            self._code(value)
            return
        fields = list(_fields(value))
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        if not fields:
            if " at 0x" in (text := repr(value)):
                raise OpaqueError(f"the content of {name} is unknown")
            self._parts.append(f"{name} {text}")
            return
        if id(value) in self._open:
            self._parts.append("itself")
            return
        self._open.add(id(value))
        self._kept.append(value)
        self._parts.append(name)
        for key, part in fields:
            self._parts.append(key)
            self.add(part)
        self._parts.append("end")
        self._open.discard(id(value))

    def _code(self, value: Any) -> None:
        """Appends a function of JAX, which its name and the values that it closes over tell."""
        if isinstance(value, functools.partial):
            self._sequence("partial", (value.func, value.args, value.keywords))
            return
        module = getattr(value, "__module__", "") or ""
        if not module.startswith("jax.") or not hasattr(value, "__qualname__"):
            raise OpaqueError(f"it holds Python code ({getattr(value, '__qualname__', type(value).__qualname__)})")
        self._parts.append(f"function {module}.{value.__qualname__}")
        self._sequence("closure", [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()])


def _is_code(value: Any) -> bool:
    """Returns whether a value is or wraps a function, rather than data."""
    return not isinstance(value, type) and (
        isinstance(value, FunctionType | functools.partial)
        or type(value).__name__ in ("WrappedFun", "ClosedRule")
        or (callable(value) and not dataclasses.is_dataclass(value) and not _has_text(value))
    )


def _has_text(value: Callable[..., Any]) -> bool:
    """Returns whether a callable object of JAX is data, such as an index transformation."""
    return type(value).__module__.startswith(("jax", "jaxlib")) and " at 0x" not in repr(value)


def _digest_alone(value: Any) -> str:
    encoder = _Encoder()
    encoder.add(value)
    return encoder.digest()


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the attributes that make up an object, by name."""
    names: dict[str, None] = {}
    if dataclasses.is_dataclass(value):
        names = dict.fromkeys(field.name for field in dataclasses.fields(value))
    else:
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            names |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
        names |= dict.fromkeys(getattr(value, "__dict__", {}))
    for name in sorted(names):
        computed = isinstance(getattr(type(value), name, None), functools.cached_property)
        if name not in _IGNORED and not name.startswith("__") and not computed and hasattr(value, name):
            yield name, getattr(value, name)


# The kinds of equations in a kernel: what the rule that evaluates an equation goes by, apart from values and lengths.
#
# Two signatures of a kernel mostly consist of equations of the same kinds, though no two of their jaxprs are alike.

# Primitives that read or write a part of an array.
_ACCESSES = frozenset("get swap addupdate masked_load masked_swap load store atomic_rmw".split())
# Parameters that are lengths and positions. Numbers in others, such as axes, are of one kind only if they are equal.
_LENGTHS = frozenset("shape sizes slice_sizes new_sizes start_indices limit_indices length".split())
_LARGEST_AXIS = 7


def equation_kinds(jaxpr: ClosedJaxpr | Jaxpr) -> frozenset[Hashable]:
    """Returns the kinds of the equations at any depth of a jaxpr.

    An equation's kind is its primitive, its parameters, and the dtypes and shapes of what it takes and returns, in
    which a length is 0, 1 or more. How an access fits its array, and a block the array that it divides, are kinds of
    their own, for each axis.
    """
    return frozenset(kind for equation, _ in iter_equations(jaxpr) for kind in _kinds(equation))


def _kinds(equation: Equation) -> Iterator[Hashable]:
    name, parameters = primitive_name(equation), equation.params
    plain = tuple((key, _plain(value, key in _LENGTHS)) for key, value in sorted(parameters.items()))
    if any(True for value in parameters.values() for _ in nested_jaxprs(value)):  # whose equations follow
        yield name, plain, scan_counts(parameters) if name == "scan" else ()
    else:
        yield name, plain, tuple(map(_type, equation.invars)), tuple(map(_type, equation.outvars))
    if name in _ACCESSES:
        array, *others = (getattr(each.aval, "shape", ()) for each in (*equation.invars, *equation.outvars))
        for other in others:
            pairs = zip(array[::-1], other[::-1], strict=False)  # an access may select one index of the leading axes
            yield from ((name, axis, _fit(*pair)) for axis, pair in enumerate(pairs))
    if (grid := parameters.get("grid_mapping")) is not None:
        yield "grid", _plain(grid.grid, is_length=True)
        for number, block in enumerate(grid.block_mappings):
            yield from ((number, kind) for kind in _block_kinds(block))


def _block_kinds(block: BlockMapping) -> Iterator[Hashable]:
    for axis, (length, kind) in enumerate(zip(block.array_aval.shape, block.block_shape, strict=True)):
        yield axis, type(kind).__name__, _fit(length, getattr(kind, "block_size", kind))
    index_map = block.index_map_jaxpr
    yield from equation_kinds(index_map)
    opened = getattr(index_map, "jaxpr", index_map)
    programs = {variable: place for place, variable in enumerate(opened.invars)}
    yield tuple(
        programs.get(each, "computed") if not isinstance(each, Literal) else _type(each) for each in opened.outvars
    )


def _type(atom: Atom) -> Hashable:
    """Returns the type of an operand or result, and whether it is used; a constant number counts as a length."""
    if isinstance(atom, Literal) and np.ndim(atom.val) == 0 and np.asarray(atom.val).dtype.kind in "iu":
        return _plain(int(atom.val), is_length=True)
    shape = tuple(_plain(length, is_length=True) for length in getattr(atom.aval, "shape", ()))
    return str(getattr(atom.aval, "dtype", type(atom.aval).__name__)), shape, type(atom).__name__


def _plain(value: object, is_length: bool) -> Hashable:
    """Returns a parameter in a form to compare: a number below -1, or above 1 (lengths) or 7 (others), is a word."""
    if isinstance(value, (int, np.integer)):
        return "less" if value < -1 else int(value) if value <= (1 if is_length else _LARGEST_AXIS) else "more"
    if isinstance(value, (tuple, list)):
        return tuple(_plain(each, is_length) for each in value)
    if isinstance(value, PyTreeDef):  # holds the parts of an access
        return re.sub(r"\d+", lambda number: str(_plain(int(number[0]), is_length=True)), str(value))
    if value is None or isinstance(value, (str, Enum, np.dtype)):
        return str(value)
    return type(value).__name__


def _fit(length: object, part: object) -> str:
    """Returns how a part of an axis fits the axis: which of them is longer, and whether the part divides it."""
    if not (isinstance(length, int) and isinstance(part, int)):
        return type(part).__name__
    order = "<" if length < part else "=" if length == part else ">"
    return f"{order} whole" if part > 0 and length % part == 0 else order
