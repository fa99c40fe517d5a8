"""Fingerprints of jaxprs: equal for two traces that compute the same in the same way, in any process."""

import re
from collections.abc import Hashable, Iterator
from enum import Enum
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding
from jax.tree_util import PyTreeDef

from kerneltest.core.fingerprint import Fingerprint, NotReusableError, Reader, ignore_attributes, is_code, reads
from kerneltest.trace.jax_compat.jaxprs import (
    Atom,
    BlockMapping,
    ClosedJaxpr,
    Equation,
    Jaxpr,
    Literal,
    OpenJaxpr,
    consts_of,
    is_of_pallas,
    open_jaxpr,
    parameter_jaxprs,
)
from kerneltest.trace.jax_compat.rules import foreign_code
from kerneltest.trace.primitives import ACCESSES, Kind, kind_of, primitive_of
from kerneltest.trace.walk import iter_equations, primitive_name, scan_counts

# Where code was written, and values that objects remember once they were asked for.
_IGNORED = frozenset("debug_info source_info name_and_src_info src_info traceback _hash".split())

# Effects of reading and writing the kernel's own memory, and of naming an axis; those of Pallas count too.
_HARMLESS = frozenset("ReadEffect WriteEffect AccumEffect NamedAxisEffect".split())

RULES = "rules"  # in `Fingerprint.omits`: derivatives or batching rules of the jaxpr's own

ignore_attributes("jax", _IGNORED)
ignore_attributes("jaxlib", _IGNORED)


def jaxpr_fingerprint(jaxpr: ClosedJaxpr, *, approximate: bool = False) -> Fingerprint:
    """The fingerprint of a jaxpr: its operations, their parameters, and the bytes of its constants.

    Names of variables and source lines do not count. Constants that differ by a few roundings, as between machines,
    count as equal if it is `approximate`. NotReusableError for side effects, callbacks, unknown
    parameters, and primitives with rules that are not JAX's.
    """
    return Fingerprint.of(jaxpr, approximate=approximate)


@reads(ClosedJaxpr, OpenJaxpr)
def _read_jaxpr(value: Any, reader: Reader) -> None:
    before, reader.reads_code = reader.reads_code, False  # it may run the Python code that it holds at any time
    try:
        jaxpr = open_jaxpr(value)
        if not reader.meets_again("jaxpr", jaxpr):
            for effect in jaxpr.effects:
                kind = type(effect)
                if kind.__name__ not in _HARMLESS and not is_of_pallas(kind):
                    raise NotReusableError(f"it has side effects ({kind.__name__})")
            for atom in (*jaxpr.constvars, *jaxpr.invars):
                _read_atom(atom, reader)
            for equation in jaxpr.eqns:
                _read_equation(equation, reader)
            reader.note("returns")
            for atom in jaxpr.outvars:
                _read_atom(atom, reader)
        reader.add_all("constants", consts_of(value))
    finally:
        reader.reads_code = before


def _read_equation(equation: Equation, reader: Reader) -> None:
    primitive = primitive_of(equation)
    if primitive.kind is Kind.FOREIGN:
        raise NotReusableError(f"it runs code outside of JAX ({primitive.name})")
    if not reader.meets_again("rules", equation.primitive) and (foreign := foreign_code(equation.primitive)):
        raise NotReusableError(f"the primitive {primitive.name} has rules that are not JAX's ({foreign})")
    reader.note(f"do {primitive.name}")
    for key in sorted(equation.params):
        value = equation.params[key]
        if key in _IGNORED:
            continue
        if primitive.rules and is_code(value):
            reader.omits.add(RULES)
            continue
        reader.note(key)
        reader.add(value)
    for context in ("compute_type", "xla_metadata"):
        reader.add(getattr(equation.ctx, context, None))
    for atom in (*equation.invars, *equation.outvars):
        _read_atom(atom, reader)


def _read_atom(atom: Atom, reader: Reader) -> None:
    if isinstance(atom, Literal):
        reader.add(atom.val)
    else:
        reader.note(f"variable {reader.number(atom)}")
    reader.add_shared(atom.aval)


# The device for which types say that a kernel was traced does not count: its operations do, where it asked for one.
@reads(AbstractMesh)
def _read_mesh(value: AbstractMesh, reader: Reader) -> None:
    reader.note(f"mesh {value.update(abstract_device=None)}")


@reads(NamedSharding)
def _read_sharding(value: NamedSharding, reader: Reader) -> None:
    reader.add_all("sharding", (value.mesh, value.spec, value.memory_kind))


@reads(jax.core.Tracer)
def _read_tracer(value: Any, reader: Reader) -> None:
    reader.note("outer")  # what a nested jaxpr takes from the one around it
    _read_atom(getattr(value, "val", value), reader)


@reads(jax.Array)
def _read_jax_array(value: Any, reader: Reader) -> None:
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):  # type: ignore[attr-defined, unused-ignore]
        reader.note(f"key {value.dtype}")
        value = jax.random.key_data(value)
    reader.add(np.asarray(value))


# The kinds of equations in a kernel: what the rule that evaluates an equation goes by, apart from values and lengths.
#
# Two signatures of a kernel mostly consist of equations of the same kinds, though no two of their jaxprs are alike.

# Parameters that are lengths and positions. Numbers in others, such as axes, are of one kind only if they are equal.
_LENGTHS = frozenset("shape sizes slice_sizes new_sizes start_indices limit_indices length".split())
_LARGEST_AXIS = 7


def equation_kinds(jaxpr: ClosedJaxpr | Jaxpr) -> frozenset[Hashable]:
    """The kinds of the equations at any depth of a jaxpr.

    An equation's kind is its primitive, its parameters, and the dtypes and shapes of what it takes and returns, in
    which a length is 0, 1 or more. How an access fits its array, and a block the array that it divides, are kinds of
    their own, for each axis.
    """
    return frozenset(kind for equation, _ in iter_equations(jaxpr) for kind in _kinds(equation))


def _kinds(equation: Equation) -> Iterator[Hashable]:
    name, parameters = primitive_name(equation), equation.params
    plain = tuple((key, _plain(value, key in _LENGTHS)) for key, value in sorted(parameters.items()))
    if any(True for _ in parameter_jaxprs(equation)):  # whose equations follow
        yield name, plain, scan_counts(parameters) if name == "scan" else ()
    else:
        yield name, plain, tuple(map(_type, equation.invars)), tuple(map(_type, equation.outvars))
    if kind_of(equation) in ACCESSES:
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
    opened = open_jaxpr(index_map)
    programs = {variable: place for place, variable in enumerate(opened.invars)}
    yield tuple(_type(v) if isinstance(v, Literal) else programs.get(v, "computed") for v in opened.outvars)


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
