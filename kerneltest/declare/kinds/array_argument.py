"""The part of a declaration that all kinds of array arguments share: axes, dtypes and bounds, parsed and checked."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from kerneltest.core.dtypes import DTYPE_NAMES, DtypeError, UnknownDtypeError, parse_dtype
from kerneltest.core.suggestions import ABBREVIATED, suggest
from kerneltest.declare.axis_expressions import Axis, parse_axis
from kerneltest.declare.domains import Interval, parse_domain
from kerneltest.declare.kinds.base import ArrayArgument

DEFAULT_FLOATS = ("float32", "bfloat16", "float16")
DEFAULT_INTEGERS = ("int32", "int8", "uint8")

Ends = tuple[float, float]
AnyDomain = Ends | Interval | Mapping[str, Ends | Interval | None] | None
Dtype = str | type | np.dtype[Any]  # `"bfloat16"`, `jnp.bfloat16`, `x.dtype`
Dtypes = Dtype | Sequence[Dtype]


def array_argument(
    shape: object,
    dtypes: object,
    role: str,
    *,
    domain: object = None,
    bounded_by: object = None,
    exhaustive: bool = False,
    mask_values: Ends = (0, 1),
    on: object = None,
    problem: str = "",
) -> ArrayArgument:
    """Returns an array argument; if its author's declaration is wrong, one whose `problem` says why.

    Args:
      shape, dtypes, domain, on: as the author gave them, in the form that `kt.array` takes.
      role: the name of its kind.
      bounded_by: the axis that bounds its values, as its author gave it; None for its own last axis.
      exhaustive, mask_values: as in `ArrayArgument`.
      problem: a mistake that the kind has found already; "" if there is none.
    """
    try:
        if problem:
            raise ValueError(problem)
        axes, names, by = _axes(shape), _dtype_names(dtypes), _bounding_axis(bounded_by)
        if on is not None and not isinstance(on, Mapping):
            raise ValueError(f"on= gives dtypes by backend, as in on={{'tpu': 'bfloat16'}}, not {on!r}")
        others = {pattern: _dtype_names(each) for pattern, each in (on or {}).items()}
        known = tuple(dict.fromkeys([*names, *(name for each in others.values() for name in each)]))
        return ArrayArgument(axes, names, role, parse_domain(domain, known), by, exhaustive, mask_values, on=others)
    except ValueError as error:
        return ArrayArgument((), (), role, problem=str(error))


def _axes(shape: object) -> tuple[Axis, ...]:
    if not isinstance(shape, str):
        axes = " ".join(map(str, shape if isinstance(shape, (tuple, list)) else (shape,)))
        raise ValueError(f"its shape is one string, as in {axes!r}, not {shape!r}")
    return tuple(map(parse_axis, shape.split()))


def _bounding_axis(given: object) -> Axis | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    if not isinstance(given, str) or not given:
        raise ValueError(f"the axis that bounds its values is a dim such as 'n', or made of dims, not {given!r}")
    if len(given.split()) > 1:
        raise ValueError(f"the axis that bounds its values is one length, such as 'n' or 'n*m', not {given!r}")
    return parse_axis(given)


def _dtype_names(dtypes: object) -> tuple[str, ...]:
    """Returns the names of dtypes that are given by name, or as NumPy or JAX have them."""
    given = dtypes if isinstance(dtypes, (tuple, list)) else (dtypes,)
    if not given:
        raise ValueError("name at least one dtype")
    names = tuple(map(_dtype_name, given))
    for name in names:
        try:
            parse_dtype(name)
        except DtypeError as error:
            hint = suggest(name, DTYPE_NAMES, ABBREVIATED) if isinstance(error, UnknownDtypeError) else ""
            raise ValueError(f"{error}{hint or '; remove it from the dtypes'}") from error
    return names


def _dtype_name(given: object) -> str:
    if isinstance(given, str):
        return given
    try:
        if given is not None:  # which NumPy takes for float64
            return str(np.dtype(cast(Any, given)).name)
    except TypeError:
        pass
    raise ValueError(f"its dtypes are given by name, as in 'float32', not {given!r}")
