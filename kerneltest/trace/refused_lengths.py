"""The lengths that a kernel refuses by an assertion or a condition, and the declaration that leaves them out."""

import ast
import functools
import linecache
import operator
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from kerneltest.core.ids import Place
from kerneltest.core.source_location import parse_source, relative_path
from kerneltest.trace.jax_compat.source_lines import user_line


def length_declarations(error: BaseException, lengths: Mapping[str, int]) -> list[str]:
    """Returns declarations of dims that a kernel would not refuse, such as `dims=dict(n=kt.dim(multiple_of=128))`.

    They follow from the assertion that failed, or from the conditions under which the kernel raised. The lengths are
    those of the dims in the call that was refused.
    """
    place = Place.parse(user_line(error).strip(" ()"))
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if place is not None and line == place.line and relative_path(file) == place.file:
            conditions = _conditions("".join(linecache.getlines(file)), line)
            limits = dict.fromkeys(limit for test, wanted in conditions for limit in _limits(test, wanted, frame))
            return [
                f"dims=dict({name}=kt.dim({option}))"
                for length, option in limits
                for name, known in lengths.items()
                if known == length
            ]
    return []


@functools.lru_cache(maxsize=16)  # a kernel that refuses one length refuses many
def _conditions(source: str, line: int) -> list[tuple[ast.expr, bool]]:
    """Returns the conditions of an assertion or an exception at a line, each with the value that avoids it."""
    tree = parse_source(source) or ast.Module([], [])
    around = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and _covers(line, each)]
    refuses = any(isinstance(each, (ast.Assert, ast.Raise)) for each in around)
    tests = [each for each in around if refuses and isinstance(each, (ast.Assert, ast.If))]
    return [(each.test, isinstance(each, ast.Assert) or not _covers(line, *each.body)) for each in tests]


def _covers(line: int, *nodes: ast.stmt) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in nodes)


# Comparisons, with the option of `kt.dim` that makes them true where the length stands on the left.
_Compare = Callable[[Any, Any], bool]
_OPTIONS: dict[type[ast.cmpop], tuple[_Compare, Callable[[Any], str]]] = {
    ast.LtE: (operator.le, lambda bound: f"maximum={bound}"),
    ast.Lt: (operator.lt, lambda bound: f"maximum={bound - 1}"),
    ast.GtE: (operator.ge, lambda bound: f"minimum={bound}"),
    ast.Gt: (operator.gt, lambda bound: f"minimum={bound + 1}"),
    ast.Eq: (operator.eq, lambda bound: f"values=({bound},)"),
    ast.In: (lambda length, lengths: length in lengths, lambda lengths: f"values={tuple(lengths)}"),
}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.NotEq: ast.Eq, ast.NotIn: ast.In,
}  # fmt: skip
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.Eq: ast.Eq,
}  # fmt: skip


def _limits(test: ast.expr, wanted: bool, frame: FrameType) -> Iterator[tuple[int, str]]:
    """Yields the lengths for which a condition is not as wanted, each with the option that leaves them out."""
    for node in ast.walk(test):
        match node:
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                length, multiple = _value(left, frame), _value(right, frame)
                if _is_length(length) and _is_length(multiple) and multiple and length % multiple:
                    yield length, f"multiple_of={multiple}"
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                required = type(op) if wanted else _OPPOSITE.get(type(op))
                length, bound = _value(left, frame), _value(right, frame)
                if isinstance(left, ast.Constant):
                    length, bound, required = bound, length, _MIRRORED.get(required or ast.cmpop)
                holds, option = _OPTIONS.get(required or ast.cmpop, (None, None))
                fits = isinstance(bound, (list, tuple, set)) if required is ast.In else _is_length(bound)
                if holds and option and fits and _is_length(length) and not holds(length, bound):
                    yield length, option(bound)


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# Expressions that look a value up. A remainder is no length, though it may equal one.
_SIMPLE = (
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.UnaryOp, ast.Tuple, ast.List, ast.Set, ast.expr_context,
    ast.unaryop,
)  # fmt: skip


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Returns the value of a simple expression in a frame; None if it has none, or is not simple."""
    lengths = [part for part in ast.walk(node) if isinstance(part, ast.Call) and ast.unparse(part.func) == "len"]
    if not all(isinstance(part, _SIMPLE) or part in lengths for part in ast.walk(node)):
        return None
    try:
        return eval(compile(ast.Expression(node), "<condition>", "eval"), frame.f_globals, frame.f_locals)
    except Exception:  # whatever a class of the user's does
        return None
