"""Names for dims: those that the kernel's source gives to lengths, or else conventional ones."""

import ast
import inspect
import keyword
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kerneltest.core.syntax import parse_source
from kerneltest.start.trace_probe import LengthSlot

_BY_RANK = {1: "n", 2: "mn", 3: "bmn", 4: "bhmn"}
_MORE = "nmkpqrstuvw"


def name_dims(function: Callable[..., Any], dims: Sequence[Sequence[LengthSlot]], ranks: dict[str, int]) -> list[str]:
    """Returns distinct names for dims.

    Args:
      function: the kernel, whose source may contain `m, n = x.shape`.
      dims: the slots of each dim.
      ranks: the ranks of the arrays, by path.
    """
    in_source = dict(_names_in_source(function))
    names: list[str] = []
    for slots in dims:
        own = [in_source[slot] for slot in slots if slot in in_source]
        numbers = [slot.path for slot in slots if slot.axis is None]
        usual = [_BY_RANK[rank][s.axis] for s in slots if s.axis is not None and (rank := ranks[s.path]) in _BY_RANK]
        candidates = [*own, *numbers, *usual, *_MORE, *(f"n{i}" for i in range(len(dims)))]
        names.append(next(name for name in candidates if name not in names))
    return names


def _names_in_source(function: Callable[..., Any]) -> Iterator[tuple[LengthSlot, str]]:
    """Yields slots and the names that the source assigns to them, as in `m, n = x.shape` and `n = x.shape[1]`."""
    function = inspect.unwrap(getattr(function, "func", function))
    try:
        tree = parse_source(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        tree = None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            for slot, name in _assigned_names(node.targets[0], node.value):
                if name.isidentifier() and not keyword.iskeyword(name) and name[0] != "_":
                    yield slot, name


def _assigned_names(target: ast.expr, value: ast.expr) -> Iterator[tuple[LengthSlot, str]]:
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for each, its in zip(targets, values, strict=True):
                yield from _assigned_names(each, its)
        case ast.Tuple(elts=targets), ast.Attribute(value=ast.Name(id=array), attr="shape"):
            for axis, each in enumerate(targets):
                if isinstance(each, ast.Name):
                    yield LengthSlot(array, axis), each.id
                else:
                    return  # a starred name matches any number of axes
        case ast.Name(id=name), ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=array), attr="shape"), slice=ast.Constant(value=int(axis))
        ):
            yield LengthSlot(array, axis), name
