"""`oracle_for`: pairs a kernel with its oracle."""

from __future__ import annotations

import inspect
import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneltest.core.failures import DeclarationError
from kerneltest.declare.arguments import DECLARED, Argument, ArrayArgument, DimSize, SameAs, leaves, tables_in
from kerneltest.declare.check import check_declaration, check_parts
from kerneltest.declare.dims import Dim, dims_in_axes, parse_relation, required_parameters
from kerneltest.declare.error_models import Tolerance
from kerneltest.declare.kinds.data import copy_of
from kerneltest.declare.outcomes import Rejection, Unordered, Xfail
from kerneltest.declare.pairing import ALL_PAIRINGS, Pairing
from kerneltest.declare.problems import format_given, hide_frames
from kerneltest.declare.tolerance import rounding


@hide_frames
def oracle_for(
    kernel: Callable[..., Any],
    /,
    *,
    arguments: Mapping[str, Argument | SameAs] | None = None,
    dims: Mapping[str, Dim] | None = None,
    tolerance: Tolerance | None = None,
    signed_zeros: bool = False,
    xfail: Sequence[Xfail] = (),
    all_masked: str = "",
    batch_dims: str | Sequence[str] = (),
    invariant_to: str | Sequence[str] = (),
    chunk_dims: str | Mapping[str, str] = "",
    grad: bool | str | Sequence[str] = False,
    rejects: Sequence[Rejection] = (),
    needs: Mapping[str, Callable[[int], slice]] | None = None,
    where: Callable[..., Any] | None = None,
    backends: str | Sequence[str] = (),
    returns: str | Sequence[str] = (),
    reproducible: bool = True,
    unordered: Unordered | None = None,
    invariants: Mapping[str, Sequence[Mapping[str, int]]] | None = None,
    **declared: Argument | SameAs,
) -> Callable[[Callable[..., Any]], Pairing]:
    """Pairs a kernel with the decorated oracle. All other keywords declare the kernel's arguments.

        @kt.oracle_for(matmul, x=kt.array("m k"), y=kt.array("k n"), dims=dict(k=kt.dim(block=32)))
        def matmul_oracle(x, y):
            return x @ y

    The oracle is a NumPy function of the kernel's arguments. It gets floats as float64 and integers as int64. It may
    omit static arguments that no value depends on, such as a block size.

    Args:
      kernel: the callable under test. It takes and returns arrays (or pytrees of them).
      arguments: declarations by name, for parameters whose names are options here, as in `{"dims": kt.array("n")}`.
      dims: block, bounds or values of dims, by name. Other dims have no block and any length from 1.
      tolerance: the error model of numeric families; by default `kt.tolerance.rounding()`.
      signed_zeros: -0 and +0 differ.
      xfail: expected findings, made by `kt.xfail`.
      all_masked: the value of all outputs if everything is masked: `"zeros"`, `"nan"`, or "" to declare nothing.
      batch_dims: dims along which each slice of the result is computed independently.
      invariant_to: that on which no bit of the result depends: static arguments by name, `"grid"` for the order of
        programs, `"batch"` for the number and the values of other slices along `batch_dims`, `"padding"` for the length
        of a tail that a mask or lengths leave out, `"chunks"` for where a sequence along `chunk_dims` is cut, and
        `"unread"` for data that the oracle does not read.
      chunk_dims: the dim along which a call may compute a piece of a sequence, or `{"q": "n"}` if `n` counts the
        sequence up to the end of that piece, as the keys of causal attention do.
      grad: the kernel can be differentiated, so its gradient is compared with the oracle's: by all floats, or by the
        arguments of these names, as in `("logits", "weight")`.
      rejects: calls that the kernel must refuse, made by `kt.rejects`.
      needs: for production sizes: by dim, the slice of the inputs that an output at a position along it needs, as in
        `{"n": lambda i: slice(0, i + 1)}` for a cumulative sum. A dim in `batch_dims` needs only the position.
      where: a relation that every call meets, as in `lambda q, kv: q <= kv`. By name, it gets lengths, the kernel's
        values of static arguments, and for an argument that may be absent whether it is given.
      backends: the backends that the kernel is for, by patterns of their ids or by `gpu`, `nvidia`, `amd` or `tpu`; all
        by default. It is not applicable to the others.
      returns: the dtype of each output in order, or one for all: `"float32"`, the name of an array argument of the same
        dtype or of a static argument whose options are dtypes, or `"any"`. By default, 16-bit results of float32 data
        are findings, unless an argument names the dtype.
      reproducible: the same inputs give the same bits. With False, as for a kernel that adds floats atomically, results
        of two runs may differ, but each must be right.
      unordered: outputs whose order along an axis is free, made by `kt.unordered`.
      invariants: by the name of an invariant, further lengths at which it is asked, of some dims or of all, as in
        `{"gradient": [{"n": 100}], "vmapped": [{"n": 7}]}`.
      declared: declarations by name: `kt.array`, `kt.mask`, `kt.static`, `kt.tree` and so on.

    Returns:
      A decorator that turns the oracle into a `Pairing`.

    Raises:
      DeclarationError: the declaration does not fit the kernel or the oracle.
    """
    options = {name: value for name, value in locals().items() if name not in ("kernel", "declared")}
    kernel_name = getattr(kernel, "__name__", type(kernel).__name__)
    if not callable(kernel):
        raise DeclarationError(f"oracle_for: the kernel is a function, not {format_given(kernel)}; name it without "
                               "calling it, as in oracle_for(kernel, ...)")  # fmt: skip
    try:
        needed = required_parameters(kernel)
    except ValueError:  # as of a built-in function
        raise DeclarationError(f"kernel {kernel_name!r}: it has no signature that Python can read; wrap it in a "
                               "function of its arguments") from None  # fmt: skip
    for name, value in options.items():
        if isinstance(value, DECLARED):
            raise DeclarationError(
                f"kernel {kernel_name!r}, argument {name!r}: {name}= is an option of oracle_for; declare the argument "
                f"as arguments={{{name!r}: ...}}"
            )
    twice = sorted(declared.keys() & (arguments or {}).keys())
    if twice:
        raise DeclarationError(f"kernel {kernel_name!r}, argument {twice[0]!r}: declared twice, as a keyword and in "
                               "arguments=; remove one")  # fmt: skip

    if not declared and not arguments and needed:
        raise DeclarationError(
            f"oracle_for: {kernel_name!r} needs {needed[0]!r}, and no argument is declared. If it is the oracle, name "
            'its kernel: @kt.oracle_for(kernel, x=kt.array("n")); if it is the kernel, declare its arguments'
        )

    @hide_frames
    def pair(oracle: Callable[..., Any]) -> Pairing:
        UNAPPLIED.pop(key, None)
        given = {**declared, **(arguments or {})}
        if not hasattr(oracle, "__name__") or isinstance(oracle, Pairing):
            raise DeclarationError(f"kernel {kernel_name!r}, oracle: a {type(oracle).__name__} has no name; wrap it in "
                                   "a function, as in def oracle(x): return ...")  # fmt: skip
        check_parts(kernel, oracle, given, options)
        every = {name: _resolve(each, given) for name, each in given.items()}
        relation = parse_relation(where) if where else None
        for name, table in tables_in(every).items():
            relation = table.selected(name, relation)
        pairing = Pairing(
            name=oracle.__name__,
            module=_importing_module() or getattr(oracle, "__module__", None) or "",
            kernel=kernel,
            oracle=oracle,
            arguments=every,
            dims=_all_dims(every, dims or {}),
            tolerance=tolerance or rounding(),
            signed_zeros=signed_zeros,
            xfail=tuple(xfail),
            all_masked=all_masked,
            batch_dims=_names(batch_dims),
            invariant_to=_names(invariant_to),
            chunk_dims=dict(chunk_dims) if isinstance(chunk_dims, Mapping) else {d: d for d in _names(chunk_dims) if d},
            grad=grad if isinstance(grad, bool) else _names(grad),
            rejects=tuple(rejects),
            needs=needs or {},
            where=relation,
            backends=_names(backends),
            returns=_names(returns),
            reproducible=reproducible,
            unordered=unordered,
            invariants={
                name: tuple({dim: operator.index(length) for dim, length in each.items()} for each in lists)
                for name, lists in (invariants or {}).items()
            },
        )
        check_declaration(pairing, dims or {})
        ALL_PAIRINGS.append(pairing)
        return pairing

    key = next(_COUNTER)
    caller = sys._getframe(2)  # past the decorator of `oracle_for`
    place = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
    UNAPPLIED[key] = Unapplied(kernel_name, _importing_module(), place, weakref.ref(pair))
    return pair


@dataclass(frozen=True, slots=True)
class Unapplied:
    """A result of `oracle_for` that has decorated no oracle yet."""

    kernel: str  # the kernel's name
    module: str  # the module whose import called `oracle_for`; "" if there is none
    place: str  # FILE:LINE of the call
    decorator: weakref.ref[Callable[..., Any]]  # the result

    @property
    def is_lost(self) -> bool:
        """True if nothing holds it any more, so that it will never decorate an oracle."""
        return self.decorator() is None


UNAPPLIED: dict[int, Unapplied] = {}
_COUNTER = itertools.count()


def _importing_module() -> str:
    """Returns the name of the module being imported, even if a factory in another one makes the pairing; "" if none."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return "" if name == "__main__" else name  # a program, whose imports are done


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _resolve(argument: Argument | SameAs, every: Mapping[str, Argument | SameAs]) -> Argument:
    """Returns an argument; one that equals another array has that one's axes and dtypes."""
    if not isinstance(argument, SameAs):
        return argument
    other = every[argument.name]
    assert isinstance(other, ArrayArgument)
    return copy_of(argument.name, other)


def _all_dims(arguments: Mapping[str, Argument], declared: Mapping[str, Dim]) -> dict[str, Dim]:
    used: dict[str, Dim] = {}
    for name, argument in arguments.items():
        if isinstance(argument, DimSize):
            used.setdefault(argument.dim, declared.get(argument.dim, Dim()))
        for _, leaf in leaves(name, argument):
            for dim in dims_in_axes(leaf.axes):
                used.setdefault(dim, declared.get(dim, Dim()))
    return used
