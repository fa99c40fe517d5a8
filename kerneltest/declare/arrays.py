"""What declares an array: of data, of booleans, or of integers that place or count elements."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from kerneltest.declare.arguments import ArrayArgument, Role
from kerneltest.declare.axes import Axis, parsed
from kerneltest.declare.domains import Interval, domain_of

DEFAULT_FLOATS = ("float32", "bfloat16", "float16")
DEFAULT_INTEGERS = ("int32", "int8", "uint8")

Ends = tuple[float, float]
AnyDomain = Ends | Interval | Mapping[str, Ends | Interval | None] | None
Dtypes = str | Sequence[str]


def array(
    shape: str,
    dtypes: Dtypes = DEFAULT_FLOATS,
    *,
    domain: AnyDomain = None,
    on: Mapping[str, Dtypes] | None = None,
) -> ArrayArgument:
    """Declares an array of data.

        kt.array("m k"), kt.array("b 3 n", "int8"), kt.array("n", ("float32", "bfloat16"), domain=(0, 1))
        kt.array("m 2*h"), kt.array("h*g s d"), kt.array("n", domain=kt.interval(nonzero=True))

    Args:
      shape: its axes, outermost first, separated by spaces: dims, fixed lengths, and products and sums of them. Along
        `h*g` come all g of the first h, then those of the next.
      dtypes: one dtype's name or several. Arguments that declare the same several dtypes change together.
      domain: the least and the greatest value, `kt.interval(...)`, or either for each dtype by its name. None for every
        value the dtype has, NaN and infinities included. A pair with an infinite end admits that infinity and NaN, but
        none of the dtype's largest and smallest numbers: `(-inf, inf)` is everything without these.
      on: dtypes on some backends, by patterns of their ids or by `gpu`, `nvidia`, `amd` or `tpu`.
    """
    return _array(shape, dtypes, "data", domain=domain, on=on)


def scalar(
    dtypes: Dtypes = DEFAULT_FLOATS, *, domain: AnyDomain = None, on: Mapping[str, Dtypes] | None = None
) -> ArrayArgument:
    """Declares an array without axes.

    Args:
      dtypes: one dtype's name or several, as for `array`.
      domain: which values it may hold, as for `array`.
      on: dtypes on some backends, as for `array`.
    """
    return _array("", dtypes, "data", domain=domain, on=on)


def mask(shape: str, dtypes: Dtypes = "bool", *, hidden: float = 0, shown: float = 1) -> ArrayArgument:
    """Declares an array that says which elements count: booleans, or two numbers.

    It is filled with nothing masked, everything, whole blocks, a row, a causal, a ragged and a random pattern.

        kt.mask("m n"), kt.mask("m n", "int32"), kt.mask("m n", "float32", hidden=-np.inf, shown=0)

    Args:
      shape: as for `array`, as in `"m n"`. At least one of its dims needs a block, declared in `dims=`.
      dtypes: `"bool"`, or dtypes of numbers, as for `array`.
      hidden, shown: what stands for an element that does not count, and for one that does.
    """
    problem = "" if _are_numbers(hidden, shown) else f"hidden= and shown= are numbers, not {hidden!r} and {shown!r}"
    if not problem and hidden == shown:
        problem = f"hidden= and shown= are both {shown!r}, so that nothing tells what counts"
    return _array(shape, dtypes, "mask", fills=(hidden, shown), problem=problem)


def indices(shape: str, *, into: str | int, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that point at elements along an axis; its first and last element are among them.

    Args:
      shape: of the indices themselves, as in `"q"`.
      into: what they point into: a dim, a length, or products and sums such as `"pages*size"`; values go from 0 to its
        length - 1.
      dtype: an integer dtype, by name.
    """
    return _array(shape, dtype, "index", bounded_by=into)


def lengths(shape: str, *, up_to: str | int, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that count elements along an axis; 0 and all of them are among them.

    Args:
      shape: of the lengths themselves, as in `"b"`.
      up_to: what they count, as `into` of `indices`; values go from 0 to its length.
      dtype: an integer dtype, by name.
    """
    return _array(shape, dtype, "length", bounded_by=up_to)


def partition(
    shape: str, *, of: str | int | None = None, up_to: str | int | None = None, dtype: str = "int32"
) -> ArrayArgument:
    """Declares sizes of groups, along the last axis: integers from 0 on that add up to a length.

    Groups are alike, empty, one of them has everything, or they end beside the ends of blocks.

    Args:
      shape: of the sizes themselves, as in `"g"`.
      of: what they add up to: a dim, a length, or products and sums of these.
      up_to: in its place, what they add up to at most.
      dtype: an integer dtype, by name.
    """
    return _parts(shape, "partition", of, up_to, dtype)


def offsets(
    shape: str, *, of: str | int | None = None, up_to: str | int | None = None, dtype: str = "int32"
) -> ArrayArgument:
    """Declares where groups start, and where the last one ends: integers that ascend from 0 along the last axis.

        cu_seqlens=kt.offsets("b+1", of="tokens")

    Args:
      shape: of the offsets themselves; one more than there are groups, as in `"b+1"`.
      of: where the last group ends: a dim, a length, or products and sums of these.
      up_to: in its place, where it ends at most.
      dtype: an integer dtype, by name.
    """
    return _parts(shape, "offsets", of, up_to, dtype)


def permutation(shape: str, *, into: str | int | None = None, dtype: str = "int32") -> ArrayArgument:
    """Declares indices of which none occurs twice.

        order=kt.permutation("n"), page_table=kt.permutation("b p", into="pages")

    Args:
      shape: of the indices themselves.
      into: what they point into, of which no two anywhere are the same, so that the array may have no more elements
        (say so with `where=`). None for the last axis itself, each row a permutation of it.
      dtype: an integer dtype, by name.
    """
    return _array(shape, dtype, "permutation", bounded_by=into)


def segment_ids(shape: str, *, up_to: str | int | None = None, dtype: str = "int32") -> ArrayArgument:
    """Declares which segment each element of the last axis belongs to: integers that ascend along it, from 0 on.

    Args:
      shape: of the ids themselves, as in `"b s"`.
      up_to: how many segments there may be: a dim, a length, or products and sums of these; None for as many as there
        are elements.
      dtype: an integer dtype, by name.
    """
    return _array(shape, dtype, "segments", bounded_by=up_to)


def one_hot(shape: str, dtypes: Dtypes = DEFAULT_FLOATS) -> ArrayArgument:
    """Declares rows, along the last axis, of zeros and a single one.

    Args:
      shape: as for `array`, as in `"n classes"`.
      dtypes: as for `array`.
    """
    return _array(shape, dtypes, "one_hot")


def key(*, raw: bool = False) -> ArrayArgument:
    """Declares a key of `jax.random`. The oracle gets its data, two or more numbers of uint32.

    Args:
      raw: the kernel takes the data too, as `jax.random.PRNGKey` gives it; else what `jax.random.key` gives.
    """
    import jax  # noqa: PLC0415 - whoever declares a kernel has it

    (length,) = jax.eval_shape(jax.random.PRNGKey, 0).shape
    return ArrayArgument((length,), ("uint32",), "raw_key" if raw else "key")


def _parts(shape: Any, role: Role, of: Any, up_to: Any, dtype: Any) -> ArrayArgument:
    problem = ""
    if (of is None) == (up_to is None):
        problem = "give of=, what it comes to, or up_to=, what it comes to at most"
    return _array(shape, dtype, role, bounded_by=up_to if of is None else of, whole=of is not None, problem=problem)


def _array(
    shape: Any,
    dtypes: Any,
    role: Role,
    *,
    domain: Any = None,
    bounded_by: Any = None,
    whole: bool = False,
    fills: Ends = (0, 1),
    on: Any = None,
    problem: str = "",
) -> ArrayArgument:
    """An array argument, or one that says what is wrong with it."""
    try:
        if problem:
            raise ValueError(problem)
        axes, names, by = _axes(shape), _names(dtypes), _bound(bounded_by)
        if on is not None and not isinstance(on, Mapping):
            raise ValueError(f"on= gives dtypes by backend, as in on={{'tpu': 'bfloat16'}}, not {on!r}")
        others = {pattern: _names(each) for pattern, each in (on or {}).items()}
        known = tuple(dict.fromkeys([*names, *(name for each in others.values() for name in each)]))
        return ArrayArgument(axes, names, role, domain_of(domain, known), by, whole, fills, on=others)
    except ValueError as error:
        return ArrayArgument((), (), role, problem=str(error))


def _axes(shape: Any) -> tuple[Axis, ...]:
    if not isinstance(shape, str):
        axes = " ".join(map(str, shape if isinstance(shape, (tuple, list)) else (shape,)))
        raise ValueError(f"its shape is one string, as in {axes!r}, not {shape!r}")
    return tuple(map(parsed, shape.split()))


def _bound(given: Any) -> Axis | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    if not isinstance(given, str) or not given:
        raise ValueError(f"what it points into or counts is a dim such as 'n', or made of dims, not {given!r}")
    if len(given.split()) > 1:
        raise ValueError(f"what it points into or counts is one length, such as 'n' or 'n*m', not {given!r}")
    return parsed(given)


def _names(dtypes: Any) -> tuple[str, ...]:
    if isinstance(dtypes, str):
        return (dtypes,)
    for each in dtypes if isinstance(dtypes, (tuple, list)) else (dtypes,):
        if not isinstance(each, str):
            raise ValueError(f"its dtypes are given by name, as in {_name_of_dtype(each)!r}, not {each!r}")
    return tuple(dtypes)


def _name_of_dtype(given: Any) -> str:
    try:
        return str(np.dtype(given).name)
    except TypeError:
        return "float32"


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, (Real, np.number)) for value in values)
