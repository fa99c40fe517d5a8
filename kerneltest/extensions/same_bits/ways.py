"""The ways to call a kernel that give the same bits, by the claim in `invariant_to=` that says so."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.arguments import Static
from kerneltest.declare.dims import Axis, dims_in, dims_in_axes
from kerneltest.declare.pairing import BATCH, CHUNKS, GRID, PADDING, Pairing
from kerneltest.execute.invariants import BatchSlices, differentiated, output_axes
from kerneltest.plan.signatures import Signature, order_by_variety
from kerneltest.trace.primitives import Kind, kind_of
from kerneltest.trace.rewrite import is_plain_call, reverse_grids, rewrite_jaxpr
from kerneltest.trace.tracing import Traced, analyze
from kerneltest.trace.walk import iter_equations

Arrays = tuple[Array, ...]  # each (rows, *shape)
Take = Callable[[Arrays], Arrays]
Trace = Callable[[Signature], Traced]
AxesOfArrays = list[Sequence[Axis]]
Positions = Mapping[str, Array]  # by dim


@dataclass(frozen=True, slots=True)
class Way:
    """A way to call a kernel."""

    words: str  # the way in words, after `with`: `m=4`
    traced: Traced
    leaves: Take = tuple  # from the arrays of the reference to those of this way
    outputs: Take = tuple  # from its outputs to what is compared
    expected: Take = tuple  # from the outputs of the reference to what they must equal
    is_moved: bool = False  # whether slices are at other places, between other neighbours


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel or its gradient, which the ways call."""

    pairing: Pairing
    trace_kernel: Trace
    trace: Trace  # of what is called
    trace_backwards: Trace  # of the same by `reverse_programs`
    is_gradient: bool  # whether that is the gradient, whose last arrays are weights of the kernel's outputs

    def axes(self, whole: Signature, shorter: Signature, name: str) -> tuple[AxesOfArrays, AxesOfArrays]:
        """The axes of its arrays and of its outputs, for signatures that differ in the length of a dim."""
        given: AxesOfArrays = [leaf.shape for leaf in whole.leaves(self.pairing).values()]
        one, other = self.trace_kernel(whole), self.trace_kernel(shorter)
        pairs, length = zip(one.outputs, other.outputs, strict=True), dict(shorter.dims)[name]
        made: AxesOfArrays = [output_axes(self.pairing, whole, name, length, a.shape, b.shape) for a, b in pairs]
        if not self.is_gradient:
            return given, made
        weights = [axes for axes, output in zip(made, one.outputs, strict=True) if is_float(output.dtype)]
        leaves = whole.leaves(self.pairing)
        return [*given, *weights], [leaves[path].shape for path in differentiated(self.pairing, whole, one)]


@dataclass(frozen=True, slots=True)
class Question:
    """The ways of one claim."""

    signature: Signature  # of the reference
    ways: Iterator[Way]  # the reference among them
    padded: str = ""  # the dim whose tail must be masked; "" for none
    shortest: Signature | None = None  # the signature with the least length of that dim


# Lengths at which kernels choose another way to compute: the least, and both sides of powers of two.
_LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)


def _lengths(pairing: Pairing, signature: Signature, *names: str) -> list[int]:
    # Of several dims, which all have the same length.
    dim, own, statics = pairing.dims[names[0]], dict(signature.dims), dict(signature.statics)
    block = dim.block or 1
    wanted = (*dim.values, *map(dim.fit, (*_LENGTHS, own[names[0]], block - 1, block, block + 1, 2 * block + 1)))
    return sorted({n for n in wanted if n and pairing.admits(own | dict.fromkeys(names, n), statics)})


def _parts(
    call: Call, whole: Signature, name: str, parts: Iterable[Positions], words: Callable[[Array], str], *, moves: bool
) -> Iterator[Way]:
    # Calls on parts of the arrays, the shortest first. Outputs without the dim are not compared for a gradient: they
    # are sums over it.
    if BatchSlices(dict(whole.dims), name).overlap([leaf.shape for leaf in whole.leaves(call.pairing).values()]):
        raise Failure(Verdict.UNAVAILABLE, f"slices along {name!r} share elements of an argument")
    known: tuple[AxesOfArrays, AxesOfArrays] | None = None
    for positions in parts:
        part, first = whole, positions[name]
        for dim, at in positions.items():
            part = part.with_length(dim, len(at))
        if not call.pairing.admits(dict(part.dims), dict(part.statics)):
            continue
        try:
            traced = call.trace(part)
        except Failure:  # of which the cases of that signature tell
            continue
        # Of the shortest: axes that are as long in both do not depend on the dim.
        given, made = known = known or call.axes(whole, part, name)
        kept = [i for i, axes in enumerate(made) if not call.is_gradient or name in dims_in_axes(axes)]
        leaves, expected = _taking(whole, given, positions), _taking(whole, made, positions, kept)
        yield Way(f"{name}={words(first)}", traced, leaves, _taking(part, made, {}, kept), expected)
        if moves and len(first) > 1:
            further, back = (np.roll(np.arange(len(first)), by) for by in (1, -1))
            moved, outputs = _taking(whole, given, {name: first[further]}), _taking(part, made, {name: back}, kept)
            what = f"{name}={words(first)} and each slice one place further"
            yield Way(what, traced, moved, outputs, expected, is_moved=True)


def _taking(signature: Signature, axes: AxesOfArrays, positions: Positions, kept: Sequence[int] | None = None) -> Take:
    # Takes positions out of arrays with these axes, and some of the arrays.
    def take(arrays: Arrays) -> Arrays:
        for dim, at in positions.items():
            arrays = BatchSlices(dict(signature.dims), dim).taker([(1, *each) for each in axes], at)(arrays)
        return arrays if kept is None else tuple(arrays[number] for number in kept)

    return take


def _along(call: Call, signature: Signature, *, padded: bool) -> Iterator[Question]:
    for name in padded_dims(call.pairing) if padded else call.pairing.batch_dims:
        lengths = _lengths(call.pairing, signature, name)
        # How much is not masked decides what a longer tail may change.
        for first in sorted({0, len(lengths) // 2}) if padded else (0,):
            if len(lengths) > first + 1:
                whole, shortest = (signature.with_length(name, lengths[i]) for i in (-1, first))
                parts = ({name: np.arange(length)} for length in lengths[first:])
                ways = _parts(call, whole, name, parts, lambda at: str(len(at)), moves=not padded)
                yield Question(whole, ways, name, shortest) if padded else Question(whole, ways)


def _any_chunks(call: Call, signature: Signature) -> Iterator[Question]:
    # The whole, and the pieces before and after each cut.
    for name, end in call.pairing.chunk_dims.items():
        *cuts, last = _lengths(call.pairing, signature, name, end) or [0]
        pieces = [(0, last), *((0, cut) for cut in cuts), *((cut, last) for cut in cuts)]
        ordered = sorted(pieces, key=lambda piece: piece[1] - piece[0])
        parts = ({end: np.arange(stop), name: np.arange(start, stop)} for start, stop in ordered)
        if cuts:
            whole = signature.with_length(name, last).with_length(end, last)
            yield Question(whole, _parts(call, whole, name, parts, lambda at: f"{at[0]}:{at[-1] + 1}", moves=False))


def padded_dims(pairing: Pairing) -> tuple[str, ...]:
    """The dims whose tail may be masked: those that lengths count, and those of a mask's last axis."""
    found: dict[str, None] = {}
    for leaf in pairing.leaves.values():
        if leaf.kind.includes_end and leaf.bounded_by is not None:
            found |= dict.fromkeys(dims_in(leaf.bounded_by))
        if leaf.kind.is_mask and leaf.shape:
            found |= dict.fromkeys(dims_in(leaf.shape[-1]))
    return tuple(name for name in found if name not in pairing.batch_dims)


def reverse_programs(traced: Traced) -> Traced:
    """The function with the programs of its kernels in reverse order; `unavailable` if these cannot be run so."""
    kernels = (equation for equation, _ in iter_equations(traced.jaxpr.jaxpr) if kind_of(equation) is Kind.KERNEL)
    if not all(map(is_plain_call, kernels)):
        raise Failure(Verdict.UNAVAILABLE, "not certified: programs of a kernel cannot be run in reverse order")
    return analyze(rewrite_jaxpr(traced.jaxpr, reverse_grids()), traced.function, traced.inputs)


def _any_order(call: Call, signature: Signature) -> Iterator[Question]:
    # Of two programs that depend on each other, the reverse order exchanges them.
    traces = {"order": call.trace(signature), "reverse order": call.trace_backwards(signature)}
    yield Question(signature, (Way(f"the programs in {words}", traced) for words, traced in traces.items()))


def tuned_statics(pairing: Pairing) -> tuple[str, ...]:
    """The static arguments on which no bit depends."""
    return tuple(name for name in pairing.invariant_to if isinstance(pairing.arguments.get(name), Static))


def _any_option(call: Call, signature: Signature) -> Iterator[Question]:
    pairing = call.pairing
    for name in tuned_statics(pairing):
        others = (signature.with_option(name, option) for option in pairing.options()[name])
        admitted = [each for each in others if pairing.admits(dict(each.dims), dict(each.statics))]
        yield Question(signature, (Way(f"{name}={dict(each.statics)[name]}", call.trace(each)) for each in admitted))


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, and what differs between its ways."""

    of: str  # what no bit depends on
    word: str  # by which a pairing makes it; "" for static arguments, which it names
    questions: Callable[[Call, Signature], Iterator[Question]]
    # the dims and static arguments that differ between ways, so that cases need not
    varied: Callable[[Pairing], Sequence[str]] = lambda pairing: ()
    of_gradient: bool = False

    def made_by(self, pairing: Pairing) -> bool:
        makes = pairing.claims(self.word) if self.word else bool(tuned_statics(pairing))
        return makes and (bool(pairing.grad) or not self.of_gradient)


_CLAIMS: Mapping[str, Claim] = {
    "bits_in_any_batch": Claim("the batch", BATCH, partial(_along, padded=False), lambda p: p.batch_dims),
    "bits_with_any_padding": Claim("the length of a masked tail", PADDING, partial(_along, padded=True), padded_dims),
    "bits_in_any_chunks": Claim(
        "where it is cut", CHUNKS, _any_chunks, lambda p: (*p.chunk_dims, *p.chunk_dims.values())
    ),
    "bits_in_any_order": Claim("the order of programs", GRID, _any_order),
    "bits_with_any_option": Claim("a static argument", "", _any_option, tuned_statics),
}
# By family.
CLAIMS = {**_CLAIMS, **{f"gradient_{family}": replace(c, of_gradient=True) for family, c in _CLAIMS.items()}}


_SIGNATURES = {"quick": 3, "standard": 6, "deep": 24}  # of a claim in a dtype


def chosen(claim: Claim, pairing: Pairing, planned: Sequence[Signature], depth: str) -> list[Signature]:
    """The signatures of a claim: a few of those planned, of which no two differ only in what its ways vary."""
    varied, found = set(claim.varied(pairing)), dict[object, Signature]()
    for signature in planned:
        parts = (tuple(one for one in pairs if one[0] not in varied) for pairs in (signature.dims, signature.statics))
        found.setdefault((signature.dtypes, *parts), signature)
    first, others = order_by_variety(pairing, list(found.values()))
    return [*first, *others][: _SIGNATURES[depth]]


def hide_tails(pairing: Pairing, question: Question, arrays: dict[str, Array], least: Mapping[str, Array]) -> None:
    """Changes arrays of the reference, by path, so that only what `least`, those of the shortest way, have counts."""
    for path, leaf in question.signature.leaves(pairing).items():
        is_masked = leaf.kind.is_mask and question.padded in dims_in_axes(leaf.shape[-1:])
        if is_masked:
            arrays[path] = np.zeros_like(arrays[path])
        if is_masked or (leaf.bounded_by is not None and question.padded in dims_in(leaf.bounded_by)):
            arrays[path][tuple(map(slice, least[path].shape))] = least[path]
