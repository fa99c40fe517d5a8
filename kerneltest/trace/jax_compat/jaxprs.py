"""Names for the parts of a jaxpr.

JAX's abstract values declare neither shape nor dtype, and its classes differ between releases. Most of these names
therefore tell a reader what a value is, and leave its attributes unchecked.
"""

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax._src import core
from jax._src.interpreters.partial_eval import dce_jaxpr
from jax._src.lax import parallel
from jax._src.mesh import empty_concrete_mesh
from jax._src.pallas import core as pallas_core
from jax._src.pallas import primitives as shared_primitives
from jax._src.sharding_impls import UNSPECIFIED  # type: ignore[attr-defined, unused-ignore]
from jax.extend.core import ClosedJaxpr as ClosedJaxpr  # type: ignore[attr-defined, unused-ignore]
from jax.extend.core import Jaxpr as _OpenJaxpr
from jax.extend.core import Literal as Literal
from jax.extend.core import Primitive

OpenJaxpr: TypeAlias = _OpenJaxpr
Jaxpr: TypeAlias = Any  # an `OpenJaxpr`; also a `ClosedJaxpr` where a docstring says "open or closed"
Equation: TypeAlias = Any  # `jax.core.JaxprEqn`
Var: TypeAlias = Any  # `jax.core.Var`
Atom: TypeAlias = Any  # a `Var` or a `Literal`
AbstractValue: TypeAlias = Any  # the type of an atom: an array's shape and dtype, a reference, a semaphore
BlockMapping: TypeAlias = Any  # how a Pallas call cuts one array into blocks
SourceInfo: TypeAlias = Any  # the traceback that an equation remembers
JaxArray: TypeAlias = Any  # an array of JAX's or NumPy's, or a tracer
Params: TypeAlias = Mapping[str, Any]  # an equation's parameters


def open_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """The open jaxpr of one that is open or closed. Since JAX 0.12, every jaxpr is both."""
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def consts_of(jaxpr: Jaxpr) -> Sequence[Any]:
    """The values of the `constvars` of a jaxpr; none if it is open, and gets them as arguments."""
    return jaxpr.consts if isinstance(jaxpr, ClosedJaxpr) else ()


def is_key(value: Any) -> bool:
    """Returns whether a value, or its type, is one of random keys."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, dtypes.prng_key)


def data_of(value: Any) -> Any:
    """The data of random keys; any other value as it is."""
    return jax.random.key_data(value) if is_key(value) else value


def from_data(data: JaxArray, aval: AbstractValue) -> JaxArray:
    """The value of a type whose `data_of` it is."""
    return jax.random.wrap_key_data(data, impl=aval.dtype._impl) if is_key(aval) else data


def transformed_shape(transform: Any, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of what a reference's transform, such as a reshape, makes of memory of a shape."""
    return tuple(transform.transform_type(core.ShapedArray(tuple(shape), np.dtype(np.float32))).shape)


def with_constvars(jaxpr: Jaxpr, constvars: list[Var], **changed: Any) -> Jaxpr:
    """An open jaxpr that gets the values of other `constvars` as arguments, with other fields `changed` as well."""
    values = {"consts": [None] * len(constvars)} if isinstance(jaxpr, ClosedJaxpr) else {}  # or 0.12 drops `constvars`
    return jaxpr.replace(constvars=constvars, **values, **changed)


def without_dead_code(jaxpr: OpenJaxpr) -> OpenJaxpr:
    """Returns a jaxpr without the equations that have no effects and whose results are not used, as JAX compiles it."""
    return dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0]


def parameter_names(jaxpr: Jaxpr) -> list[str]:
    """The names of the parameters of the function behind a jaxpr; "" where one is unknown."""
    names = list(getattr(jaxpr.debug_info, "arg_names", None) or ())
    return [name or "" for name in names] if len(names) == len(jaxpr.invars) else [""] * len(jaxpr.invars)


# Pallas' languages: which of them a parameter, a memory space or a primitive belongs to.

_DIALECT_BY_PREFIX = {
    "jax._src.pallas.triton.": "triton",
    "jax._src.pallas.mosaic_gpu.": "mosaic_gpu",
    "jax._src.pallas.mosaic.": "mosaic_tpu",
}


def is_of_pallas(kind: type) -> bool:
    """Returns whether a class is one of Pallas' own."""
    return kind.__module__.startswith("jax._src.pallas")


def dialect_of(parameter: object) -> str:
    """The language of a Pallas call's parameter, or of a memory space; "" if it does not belong to a single one."""
    home = type(parameter).__module__
    return next((dialect for prefix, dialect in _DIALECT_BY_PREFIX.items() if home.startswith(prefix)), "")


# The primitives of a language's module, without those that all languages share.
@functools.cache
def _own_primitives(module: ModuleType) -> frozenset[Primitive]:
    shared = vars(shared_primitives).values()
    return frozenset(value for value in vars(module).values() if isinstance(value, Primitive) and value not in shared)


def dialect_of_operation(equation: Equation) -> str:
    """The only language that has an equation's primitive, or the memory that it works on; "" if all have both."""
    for prefix, dialect in _DIALECT_BY_PREFIX.items():
        module = sys.modules.get(f"{prefix}primitives")  # a language that is not imported is not in use
        if module is not None and equation.primitive in _own_primitives(module):
            return dialect
    spaces = (getattr(variable.aval, "memory_space", None) for variable in equation.invars)
    return next(filter(None, map(dialect_of, spaces)), "")


# Meshes in jaxprs: the types that name one, and the equations by which its devices communicate.

_COLLECTIVES = frozenset(value for value in vars(parallel).values() if isinstance(value, Primitive))
_EXCHANGES = (core.NamedAxisEffect, pallas_core.CommsEffect)


def communicates(equation: Equation, own: frozenset[str] = frozenset()) -> bool:
    """Returns whether an equation, or one nested in it, asks for its place in a mesh or exchanges values there.

    The mesh is one of devices. The axes of grids, and of the cores and threads of a device, are the kernel's `own`.
    """
    own |= {axis for mesh in core_meshes(equation) for axis in mesh.shape}
    own |= {*(getattr(equation.params.get("grid_mapping"), "grid_names", None) or ())}
    if equation.primitive in _COLLECTIVES:
        named = equation.params.get("axes", equation.params.get("axis_name", ("",)))
        return not own.issuperset(named if isinstance(named, tuple) else (named,))
    return any(isinstance(e, _EXCHANGES) and getattr(e, "name", None) not in own for e in equation.effects) or any(
        communicates(inner, own) for jaxpr in inner_jaxprs(equation) for inner in jaxpr.eqns
    )


def core_meshes(equation: Equation) -> list[Any]:
    """The meshes of cores or threads, within a device, on which a `pl.kernel` or `core_map` runs."""
    found = equation.params.get("meshes", (equation.params.get("mesh"),))
    return [mesh for mesh in found if is_of_pallas(type(mesh))]


def asks_for_core(equation: Equation) -> bool:
    """Returns whether a `pl.kernel` or `core_map` asks for its place among the cores or threads of its mesh."""
    inside = (inner for jaxpr in inner_jaxprs(equation) for inner in jaxpr.eqns)
    return bool(core_meshes(equation)) and any(map(communicates, inside))


def sparse_cores(equation: Equation) -> int:
    """The number of SparseCores, or of their subcores, on which a Pallas call runs; 0 if it runs on TensorCores."""
    meshes = [m for m in core_meshes(equation) if str(getattr(m, "core_type", "")).startswith("sc_")]
    return max((mesh.size for mesh in meshes), default=0)


def parameter_jaxprs(equation: Equation) -> Iterator[Jaxpr]:
    """Yields the jaxprs among the parameters of an equation, open or closed."""
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, (ClosedJaxpr, OpenJaxpr)):
                yield item


def inner_jaxprs(equation: Equation) -> Iterator[Jaxpr]:
    """Yields the jaxprs among the parameters of an equation, as open ones."""
    return map(open_jaxpr, parameter_jaxprs(equation))


def without_effects(equations: list[Equation]) -> set[Any]:
    """The effects of some equations, other than naming an axis of a mesh."""
    return {e for equation in equations for e in equation.effects if not isinstance(e, core.NamedAxisEffect)}


def without_mesh(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a jaxpr, open or closed, whose types do not name a mesh."""
    if isinstance(jaxpr, ClosedJaxpr) and jaxpr.jaxpr is not jaxpr:
        return jaxpr.replace(jaxpr=without_mesh(jaxpr.jaxpr))
    names: dict[Var, Var] = {}

    def plain(atom: Atom) -> Atom:
        if isinstance(atom, Literal):
            return Literal(atom.val, _without_mesh(atom.aval))
        if atom not in names:
            names[atom] = type(atom)(_without_mesh(atom.aval))
        return names[atom]

    def renamed(owner: Any, *lists: str) -> dict[str, Any]:
        def rename(effect: Any) -> Any:
            return effect.replace(input=plain(effect.input)) if hasattr(effect, "input") else effect

        return {"effects": set(map(rename, owner.effects)), **{k: list(map(plain, getattr(owner, k))) for k in lists}}

    return jaxpr.replace(
        **({"consts": jaxpr.consts} if isinstance(jaxpr, ClosedJaxpr) else {}),  # which new `constvars` would lose
        eqns=[
            equation.replace(params=_plain_params(equation.params), **renamed(equation, "invars", "outvars"))
            for equation in jaxpr.eqns
        ],
        **renamed(jaxpr, "constvars", "invars", "outvars"),
    )


def _without_mesh(aval: AbstractValue) -> AbstractValue:
    if hasattr(aval, "inner_aval"):
        return aval.update(inner_aval=_without_mesh(aval.inner_aval))
    if type(aval) is not core.ShapedArray:
        return aval
    return core.ShapedArray(aval.shape, aval.dtype, aval.weak_type, memory_space=aval.memory_space)


def _plain_params(params: Params) -> dict[str, Any]:
    plain = {key: _plain_value(value) for key, value in params.items()}
    plain.update({key: None for key in ("sharding", "out_sharding") if key in plain})
    plain.update({key: (UNSPECIFIED,) * len(plain[key]) for key in ("in_shardings", "out_shardings") if key in plain})
    if "ctx_mesh" in plain:
        plain["ctx_mesh"] = empty_concrete_mesh
    if (mapping := params.get("grid_mapping")) is not None:
        names = ("array_aval", "transformed_block_aval")
        blocks = (b.replace(**{n: _without_mesh(getattr(b, n)) for n in names}) for b in mapping.block_mappings)
        plain["grid_mapping"] = mapping.replace(block_mappings=tuple(blocks))
    return plain


def _plain_value(value: Any) -> Any:
    if isinstance(value, (ClosedJaxpr, OpenJaxpr)):
        return without_mesh(value)
    if isinstance(value, core.AbstractValue):
        return _without_mesh(value)
    if type(value) in (tuple, list):
        return type(value)(map(_plain_value, value))
    return value
