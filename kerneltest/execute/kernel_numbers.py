"""The numbers in a kernel: those that it compares with, the formats in which it adds up, and the lengths of its blocks.

Importing this module registers the family of values around those that it compares with.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.dims import Dim
from kerneltest.declare.domains import SCALE, DType
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.applicability import trace_if_possible
from kerneltest.plan.families import Rng, Slot, family, is_data
from kerneltest.plan.format_limits import signature_in_turn
from kerneltest.plan.signatures import Signature, first_alike, signatures
from kerneltest.trace.cost_model import cut_lengths, estimate_work
from kerneltest.trace.jax_compat.jaxprs import Atom, Jaxpr, Var, inner_jaxprs
from kerneltest.trace.primitives import Kind, primitive_of
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import inline_jaxpr, is_literal, iter_equations, iter_steps, primitive_name

_USES = frozenset(("sub", "div", "rem", "max", "min", "clamp"))  # besides comparisons
_COPIES = frozenset(("broadcast_in_dim", "convert_element_type", "reshape"))
_MOST = 32  # numbers of a kernel
_SHARE = 0.75  # of the elements; the others are ordinary
Number = np.generic  # in the dtype in which the kernel has it


@functools.lru_cache(maxsize=256)
def kernel_numbers(pairing: Pairing, signature: Signature) -> tuple[Number, ...]:
    """Returns the finite numbers that a kernel compares with, clips to, adds, subtracts or divides by, in order.

    After those come the numbers for which sums, differences, products or quotients of a value are compared ones.

    It returns none if the kernel cannot be traced, which is reported where it is run.
    """
    if (traced := trace_if_possible(pairing, signature)) is None:
        return ()
    return tuple(itertools.islice(dict.fromkeys(n for n in _numbers(traced.jaxpr) if np.isfinite(n)), _MOST))


# By operation, and whether the value is its first operand, the number for whose value the result is a compared one.
_UNDONE: dict[tuple[str, bool], Callable[[Any, Any], Any]] = {
    ("sub", True): operator.add,
    ("sub", False): lambda compared, number: number - compared,
    ("div", True): operator.mul,
    **dict.fromkeys((("add", True), ("add", False)), operator.sub),
    **dict.fromkeys(
        (("mul", True), ("mul", False)), lambda c, number: c // number if is_integer(c.dtype) else c / number
    ),
    **dict.fromkeys(itertools.product(("max", "min"), (True, False)), lambda compared, _: compared),
}


def _numbers(jaxpr: Jaxpr) -> Iterator[Number]:
    known: dict[Var, Number] = {}
    computed: _Computed = {}
    for step in iter_steps(inline_jaxpr(jaxpr).steps):
        values = [_literal(atom) if is_literal(atom) else known.get(atom) for atom in step.operands]
        numbers = [value for value in values if value is not None]
        primitive, result = primitive_of(step.equation), step.results[0] if step.results else None
        if step.name in _COPIES and numbers and result is not None:
            with np.errstate(all="ignore"):
                known[result] = numbers[0].astype(result.aval.dtype)
        elif step.name in _USES or primitive.kind is Kind.COMPARISON:
            yield from numbers
            for atom in step.operands:
                yield from _before(atom, numbers, computed)
        elif step.name == "add":  # such as an epsilon, which counts where the other term is as small
            yield from (number for number in numbers if is_float(number.dtype))
        undo = _UNDONE.get((step.name, values[:1] == [None]))
        if undo and result is not None and len(numbers) == 1 and numbers[0].dtype != np.bool_:
            computed[result] = undo, numbers[0], step.operands[values[0] is not None]
        if primitive.kind in (Kind.KERNEL, Kind.REGION):
            for inner in inner_jaxprs(step.equation):
                yield from _numbers(inner)


def _before(atom: Atom, numbers: Sequence[Number], computed: "_Computed") -> Iterator[Number]:
    """Yields the numbers that a value may have had before the operations after which it is compared with some."""
    while not is_literal(atom) and atom in computed:
        undo, number, atom = computed[atom]
        with np.errstate(all="ignore"):
            numbers = [undo(each, number) for each in numbers]
        yield from numbers


# Values that follow from another one: how to undo that, the number that it takes, and the other one.
_Computed = dict[Var, tuple[Callable[[Any, Any], Any], Number, Var]]


def _literal(atom: Atom) -> Number | None:
    is_number = np.ndim(atom.val) == 0 and isinstance(atom.aval.dtype, np.dtype)
    return atom.aval.dtype.type(atom.val) if is_number else None


def sum_formats(pairing: Pairing, signature: Signature) -> frozenset[DType]:
    """Returns the dtypes of at most 32 bits in which a kernel adds up, but for int32; none if it cannot be traced."""
    if (traced := trace_if_possible(pairing, signature)) is None:
        return frozenset()
    equations = iter_equations(traced.jaxpr.jaxpr)
    adding = (e for e, _ in equations if primitive_of(e).sums or primitive_name(e) in ("add", "addupdate"))
    dtypes = {np.dtype(v.aval.dtype) for e in adding for v in e.outvars if isinstance(v.aval.dtype, np.dtype)}
    return frozenset(d for d in dtypes if (is_float(d) and d.itemsize <= 4) or (is_integer(d) and d.itemsize <= 2))


# The blocks into which a kernel cuts dims whose author declares none.

_PROBED = (3001, 4507)  # lengths with other numbers of blocks, which are seldom powers of two
_SHORT = 16  # boundary lengths of a dim without a block have several blocks of this length
_MOST_OPTIONS = 4  # of static arguments, in turn
_SECONDS = 0.005  # estimated for one run with several blocks, at most: hundreds of cases have them


def with_learned_blocks(pairing: Pairing) -> Pairing:
    """Returns the pairing with blocks of dims without one, as far as traces at two lengths of the dim show the same.

    The longest are left out while a run with several blocks of each dim would take long.
    """
    unknown = {name: dim for name, dim in pairing.dims.items() if not (dim.block or dim.values)}
    options = range(min(max(map(len, pairing.options().values()), default=1), _MOST_OPTIONS) if unknown else 0)
    numbers = [number for number in options if not _is_unrolled(pairing, unknown, number)]
    blocks = {}
    for name, dim in unknown.items():
        longest = max(itertools.chain(*(_cuts(pairing, name, number) for number in numbers)), default=0)
        if longest > max(_SHORT, dim.multiple_of):
            blocks[name] = longest
    while blocks:
        learned = pairing.with_blocks(blocks)
        first = next(iter(signatures(learned, "quick")), None)
        if first and (traced := trace_if_possible(learned, first)) and estimate_work(traced).seconds <= _SECONDS:
            return learned
        del blocks[max(blocks, key=lambda name: blocks[name])]
    return pairing


# Returns whether a kernel has many more operations for longer dims, as loops in Python make: to trace it at the lengths
# that `_cuts` probes may take hours.
def _is_unrolled(pairing: Pairing, dims: Mapping[str, Dim], number: int) -> bool:
    probes = ({name: dim.fit(dim.fit(_SHORT) + more) for name, dim in dims.items()} for more in (0, 3 * _SHORT))
    traces = [_trace(pairing, lengths, number)[1] for lengths in probes]
    few, many = (sum(1 for _ in iter_equations(traced.jaxpr.jaxpr)) if traced else 0 for traced in traces)
    return 0 < 2 * few < many


def _cuts(pairing: Pairing, name: str, number: int) -> set[int]:
    found = set[int]()
    for count, length in enumerate(map(pairing.dims[name].fit, _PROBED)):
        lengths, traced = _trace(pairing, {name: length}, number)
        cuts = cut_lengths(traced, lengths[name]) if traced else set()
        if not (found := found & cuts if count else cuts):
            break
    return found


def _trace(pairing: Pairing, lengths: Mapping[str, int], number: int) -> tuple[dict[str, int], Traced | None]:
    probed = signature_in_turn(pairing, lengths, number, fixed=())
    return (dict(probed.dims), trace_if_possible(pairing, probed)) if probed else ({}, None)


def _holds_numbers(slot: Slot) -> bool:
    is_number = is_float(slot.dtype) or is_integer(slot.dtype)
    return is_data(slot) and slot.size > 0 and is_number and slot.dtype.name != SCALE


def _near(slot: Slot, numbers: tuple[Number, ...]) -> Array:
    """Returns the numbers that an argument may hold, their neighbours and multiples, and zeros of both signs."""
    low, high = slot.domain.finite_range(slot.dtype)
    if is_float(slot.dtype):
        with np.errstate(all="ignore"):
            wide = (n for n in numbers if is_float(n.dtype) and n.dtype.itemsize >= slot.dtype.itemsize)
            written = np.array([float(str(n)) for n in wide])
            chosen = written.astype(slot.dtype)
            ends = [np.nextafter(chosen, np.asarray(end).astype(slot.dtype)) for end in (low, high)]
            exact = written[written == chosen.astype(np.float64)]  # kernel and oracle compare with one number
            near = np.concatenate([exact, *ends, -exact, 2 * exact, np.zeros(1)]).astype(np.float64)
        near = np.unique(near[(near >= low) & (near <= high)])
        return np.append(near, -0.0) if low < 0 and 0 in near else near
    whole = [int(n) for n in numbers if n == int(n)]
    integers = {0, *(m + step for n in whole for m in (n, -n, 2 * n) for step in (-1, 0, 1))}
    return np.array(sorted(n for n in integers if low <= n <= high), slot.dtype)  # float64 cannot hold all of int64


@family(group=GroupName.SPECIAL, applies=_holds_numbers)
def kernel_constants(slot: Slot, rng: Rng) -> Array:
    """Numbers that the kernel compares with, clips to, adds, subtracts or divides by, their neighbours, and zeros."""
    numbers = kernel_numbers(slot.owner[0], first_alike(*slot.owner)) if slot.owner else ()
    near = rng.permutation(_near(slot, numbers))
    values = np.asarray(slot.sample(rng)).reshape(-1)
    if near.size:
        chosen = rng.random(values.size) < _SHARE
        values[chosen] = np.resize(near, values.size)[chosen].astype(slot.dtype)
    return values.reshape(slot.shape)
