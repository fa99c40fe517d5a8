"""Declared outcomes: xfails, rejections, where outputs are defined, and outputs in any order."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, DType, ShapeDtype, is_float, is_integer
from kerneltest.core.failures import DeclarationError, exception_text, iter_causes
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.problems import hide_frames

DECLARABLE = tuple(verdict for verdict in Verdict if verdict.is_finding and verdict is not Verdict.XPASS)


@dataclass(frozen=True, slots=True)
class Xfail:
    """An expected finding. Any other finding fails; so does a cell in which a strict one never occurs."""

    verdict: Verdict  # the expected verdict
    reason: str  # why it is expected
    url: str  # a page that documents or tracks it
    # backend, dtype, group, family: shell-style patterns of the cases it covers
    backend: str = "*"
    dtype: str = "*"
    group: str = ""
    family: str = "*"
    signature: str = "*"  # a shell-style pattern of the signature's text, such as `*precision=highest*`
    strict: bool = True  # whether it must occur

    def __str__(self) -> str:
        backend = "every backend" if self.backend == "*" else self.backend
        narrowed = [each for each in (self.dtype, self.family, self.signature) if each != "*"]
        return f"{self.verdict} on {', '.join([backend, *filter(None, [self.group]), *narrowed])}"

    def covers(self, backend: str, dtype: str, group: str, family: str, signature: str) -> bool:
        patterns = self.backend, self.dtype, self.group or "*", self.family, self.signature
        return all(map(fnmatchcase, (backend, dtype, group, family, signature), patterns))


@hide_frames
def xfail(
    verdict: str,
    *,
    reason: str,
    url: str,
    backend: str = "*",
    dtype: str = "*",
    group: str = "",
    family: str = "*",
    signature: str = "*",
    strict: bool = True,
) -> Xfail:
    """Declares that a finding is expected.

        xfail=[kt.xfail("unimplemented", backend="rocm", dtype="float64", reason="...", url="https://...")]

    Args:
      verdict: the expected verdict, such as `"mismatch"`.
      reason: why it is expected, for readers of the report.
      url: a page that documents or tracks it.
      backend, dtype, family: shell-style patterns of the cases it covers; by default all.
      group: a pattern of groups of families, such as `"special"` or `"*"`. At least one family of each group must
        show it; without `group`, each family must.
      signature: a shell-style pattern of the signature's text, such as `"*precision=highest*"`.
      strict: fail where it never occurs; False for a failure that depends on the random values of a seed.

    Raises:
      ValueError: the verdict cannot be expected, the reason is empty, or the URL is not one.
    """
    if verdict not in DECLARABLE:
        raise ValueError(f"xfail: {verdict!r} cannot be expected; choose one of {', '.join(DECLARABLE)}")
    if not reason.strip():
        raise ValueError("xfail: give the reason, for readers of the report")
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"xfail: url must link to a page that documents or tracks it, not {url!r}")
    return Xfail(Verdict(verdict), reason, url, backend, dtype, group, family, signature, strict)


# Declared rejections: calls that a kernel must refuse.

Replacement = Any  # a static value, or an `ArrayArgument`


@dataclass(frozen=True, eq=False, slots=True)
class Rejection:
    """A call that must raise."""

    name: str  # of the mistake in the call
    # replacements for arguments, by name: a value for a static argument, an `ArrayArgument` of another shape or dtype
    # for an array
    arguments: Mapping[str, Replacement]
    dims: Mapping[str, int]  # lengths by dim, which the dim need not admit
    raises: type[Exception]  # the type of the exception
    match: str  # a regular expression to be found in its message

    @property
    def expected(self) -> str:
        return f"{self.raises.__name__} matching {self.match!r}"

    def matches(self, error: BaseException) -> bool:
        """Returns whether an exception, or one that it was raised from, is the expected one."""
        return any(isinstance(e, self.raises) and re.search(self.match, exception_text(e)) for e in iter_causes(error))


@hide_frames
def rejects(
    name: str,
    /,
    *,
    raises: type[Exception],
    match: str,
    dims: Mapping[str, int] | None = None,
    arguments: Mapping[str, Replacement] | None = None,
    **changed: Replacement,
) -> Rejection:
    """Declares a call that the kernel must refuse, on every backend, before it runs.

        rejects=[kt.rejects("negative_scale", scale=-1.0, raises=ValueError, match="scale must be positive")]

    Args:
      name: names it in reports, as the family `rejects_NAME`.
      raises: the type of the exception, whether the kernel, Pallas or the backend's compiler raises it.
      match: a regular expression to be found in its message.
      dims: lengths in elements, by dim, which the dim need not admit. The other lengths are those of the pairing's
        first signature.
      arguments: replacements by name, for parameters whose names are options here, as in `{"match": 3}`.
      changed: replacements by name: a value for a static argument, and `kt.array(...)` with another shape or dtype for
        an array.

    Raises:
      ValueError: the name is not an identifier, `raises` is not an exception type, `match` is empty or malformed, or an
        argument is given twice.
    """
    if not name.isidentifier():
        raise ValueError(f"rejects: the name {name!r} must be an identifier, such as 'negative_scale'")
    if not (isinstance(raises, type) and issubclass(raises, Exception)):
        raise ValueError(f"rejects {name}: raises is the type of an exception, such as ValueError, not {raises!r}")
    if not match:
        raise ValueError(f"rejects {name}: give a match for the message, or any {raises.__name__} would count")
    try:
        re.compile(match)
    except re.error as error:
        raise ValueError(f"rejects {name}: match is not a regular expression: {error}") from error
    every = {**changed, **(arguments or {})}
    if len(every) < len(changed) + len(arguments or {}):
        raise ValueError(f"rejects {name}: {', '.join(changed.keys() & (arguments or {}).keys())} is given twice")
    return Rejection(name, every, dict(dims or {}), raises, match)


# Outputs whose elements may come in any order along an axis.


@dataclass(frozen=True, slots=True)
class Unordered:
    """Outputs in which the order of the elements along an axis is free."""

    axis: int  # the axis
    outputs: tuple[int, ...]  # numbers of the outputs, whose elements at one position belong together; () for all

    def arrange(self, result: Any, xp: Any, like: Sequence[ShapeDtype] = ()) -> Any:
        """Returns the result of a kernel (`jax.numpy`) or of an oracle (`numpy`) with these outputs in ascending order.

        Integers (by the dtypes of `like`, if given) order the outputs before floats, which are rounded, and earlier
        outputs before later ones. The signs of zeros come last.
        """
        from jax import tree_util  # noqa: PLC0415 - only JAX knows its pytrees; the kernel has imported it

        leaves, structure = tree_util.tree_flatten(result)
        numbers = self.outputs or tuple(range(len(leaves)))
        chosen = [leaves[number] for number in numbers if number < len(leaves)]
        self._check_compared(dict(zip(numbers, chosen, strict=False)))
        shapes = list(dict.fromkeys(map(np.shape, chosen)))
        if len(chosen) < len(numbers) or len(shapes) != 1 or not -len(shapes[0]) <= self.axis < len(shapes[0]):
            raise DeclarationError(
                f"unordered: outputs {', '.join(map(str, numbers))} of {len(leaves)} have shapes "
                f"{', '.join(map(str, shapes))}; they need one shape, with an axis {self.axis}"
            )
        dtypes = [np.dtype((like if number < len(like) else leaves)[number].dtype) for number in numbers]
        ordered = sorted(zip(chosen, dtypes, strict=True), key=lambda each: not is_integer(each[1]))
        keys = [_sort_keys(values, dtype, xp) for values, dtype in ordered]
        first_to_last = [*(key for key, *_ in keys), *(key for _, *signs in keys for key in signs)]
        order = xp.lexsort(tuple(first_to_last[::-1]), axis=self.axis)  # NumPy tracks arrays in a tuple, not in a list
        for number, values in zip(numbers, chosen, strict=True):
            leaves[number] = xp.take_along_axis(values, order, axis=self.axis)
        return tree_util.tree_unflatten(structure, leaves)

    # Which of the kernel's elements are left out cannot be known once they are sorted.
    def _check_compared(self, chosen: Mapping[int, Any]) -> None:
        for number, output in chosen.items():
            if isinstance(output, Defined):
                raise DeclarationError(
                    f"unordered: output {number} is made by kt.defined, whose undefined elements have no place in the "
                    "kernel's output; return one value there from kernel and oracle, such as -1, without kt.defined"
                )
            if isinstance(output, Ignored):
                others = tuple(each for each in chosen if not isinstance(chosen[each], Ignored))
                example = f"name the other outputs, as in kt.unordered({self.axis}, outputs={others})"
                raise DeclarationError(
                    f"unordered: output {number} is kt.ignored, so it has no order; "
                    f"{example if others else 'leave out unordered='}"
                )


def _sort_keys(values: Any, dtype: DType, xp: Any) -> tuple[Any, ...]:
    """Returns keys of an output that put equal zeros together, NaN last, and negative zeros before other zeros."""
    if not is_float(dtype):
        return (values,)
    if xp is np:
        return values, ~((values == 0) & np.signbit(values))
    from jax import lax  # noqa: PLC0415 - the kernel has imported it

    # Integers in the order of the floats, because XLA's comparisons take subnormals for zeros.
    integer = np.dtype(f"int{8 * values.dtype.itemsize}")
    bits, most = lax.bitcast_convert_type(values, integer), np.iinfo(integer).max
    rank = xp.where(xp.isnan(values), most, bits ^ ((bits >> (8 * integer.itemsize - 1)) & most))
    return xp.where(rank == -1, 0, rank), rank != -1


@hide_frames
def unordered(axis: int, *, outputs: Sequence[int] = ()) -> Unordered:
    """Declares outputs whose elements may come in any order along an axis, as those of a set or of an unsorted top-k.

        @kt.oracle_for(top, x=kt.array("m n"), unordered=kt.unordered(-1))

    Args:
      axis: the axis.
      outputs: numbers of the outputs. They have one shape, and their elements at one position belong together, such as
        a value and its index. By default all.

    Raises:
      ValueError: the axis or a number is not an integer.
    """
    if not all(isinstance(number, int) for number in (axis, *outputs)):
        raise ValueError(
            f"unordered: give the number of an axis, and outputs=(0, 1) by number, not {axis!r}, {outputs!r}"
        )
    return Unordered(axis, tuple(outputs))


# Outputs of an oracle that are defined only at some elements; the kernel's other elements are not compared.

Output = Any  # anything that NumPy converts to an array


@dataclass(frozen=True, slots=True, eq=False)
class Defined:
    """One output of an oracle, as returned by `defined`."""

    values: Output  # the output
    where: Output  # True for elements that are compared; booleans that broadcast to the shape of `values`


def undefined_output(output: ShapeDtype | Array) -> Defined:
    """Returns an output that is not compared anywhere: zeros of the shape of a kernel's output."""
    wide = np.float64 if is_float(output.dtype) else np.int64 if is_integer(output.dtype) else np.bool_
    return Defined(np.zeros(output.shape, wide), np.False_)


class Ignored:
    """An output that is not compared."""

    def __repr__(self) -> str:
        return "kt.ignored"


ignored = Ignored()
"""A placeholder for an output that is not compared, such as statistics saved for a backward pass.

    return x / norm, kt.ignored

Memory errors in the kernel's output are still found.
"""


@hide_frames
def defined(values: Output, *, where: Output) -> Defined:
    """Returns an output of an oracle that is defined only at some elements.

        scores = np.where(mask, q @ k.T, -np.inf)
        return kt.defined(softmax(scores) @ v, where=mask.any(axis=-1, keepdims=True))

    The kernel's other elements may be anything: they are not compared and are counted as such. Memory errors there are
    still found. A declared gradient is that of the defined elements.

    Args:
      values: one output. If there are several, wrap each that needs it: `return kt.defined(out, where=seen), maximum`.
      where: booleans that broadcast to the shape of `values`: True for elements that the kernel must compute.

    Raises:
      TypeError: `where` is not boolean, or `values` contains several outputs.
      ValueError: `where` does not broadcast to the shape of `values`.
    """
    if isinstance(values, (tuple, list, dict, Defined)):
        raise TypeError(f"kt.defined takes one output, not a {type(values).__name__}; wrap each output separately")
    dtype = getattr(where, "dtype", None) or np.asarray(where).dtype
    if dtype != np.bool_:
        raise TypeError(f"kt.defined: where= has dtype {dtype}; it takes booleans, such as the result of a comparison")
    shape, wanted = np.shape(where), np.shape(values)
    if len(shape) > len(wanted) or any(n not in (1, m) for n, m in zip(shape[::-1], wanted[::-1], strict=False)):
        raise ValueError(f"kt.defined: where= has shape {shape}, which does not broadcast to {wanted}, the output's")
    return Defined(values, where)


def split_defined(
    outputs: Sequence[Output], like: Sequence[ShapeDtype | Array]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Returns copies of outputs, zero where undefined, and masks of the rest; ignored ones have shapes as in `like`."""
    values, compared = [], []
    for number, output in enumerate(outputs):
        if isinstance(output, Ignored):
            output = undefined_output(like[number]) if number < len(like) else Defined(0.0, np.False_)
        value = np.array(output.values if isinstance(output, Defined) else output)
        where = np.broadcast_to(output.where if isinstance(output, Defined) else np.True_, value.shape)
        value[~where] = 0
        values.append(value)
        compared.append(where)
    return tuple(values), tuple(compared)
