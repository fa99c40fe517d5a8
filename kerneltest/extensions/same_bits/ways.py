"""The ways to call a kernel that give the same bits, by the claim in `invariant_to=` that says so."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.arguments import Static
from kerneltest.declare.dims import Axis, dims_in, dims_in_axes
from kerneltest.declare.pairing import BATCH, GRID, PADDING, Pairing
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


def _all(arrays: Arrays) -> Arrays:
    return arrays


@dataclass(frozen=True, slots=True)
class Way:
    """A way to call a kernel.

    Attributes:
      words: the way in words, after `with`: `m=4`.
      traced: the kernel.
      leaves: from the arrays of the reference to those of this way.
      outputs: from its outputs to what is compared.
      expected: from the outputs of the reference to what they must equal.
      is_moved: whether slices are at other places, between other neighbours.
    """

    words: str
    traced: Traced
    leaves: Take = _all
    outputs: Take = _all
    expected: Take = _all
    is_moved: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel or its gradient, which the ways call.

    Attributes:
      pairing: of the kernel.
      trace_kernel: returns the kernel, traced for a signature.
      trace: the same of what is called.
      is_gradient: whether that is the gradient, whose last arrays are weights of the kernel's outputs.
    """

    pairing: Pairing
    trace_kernel: Trace
    trace: Trace
    is_gradient: bool

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
    """The ways of one claim.

    Attributes:
      signature: of the reference.
      ways: all of them, the reference among them.
      padded: the dim whose tail must be masked; "" for none.
      shortest: the signature with the least length of that dim.
    """

    signature: Signature
    ways: Iterator[Way]
    padded: str = ""
    shortest: Signature | None = None


# Lengths at which kernels choose another way to compute: the least, and both sides of powers of two.
_LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)


def _lengths(pairing: Pairing, signature: Signature, name: str) -> list[int]:
    dim, own = pairing.dims[name], dict(signature.dims)
    block = dim.block or 1
    wanted = (*dim.values, *(dim.fit(n) for n in (*_LENGTHS, own[name], block - 1, block, block + 1, 2 * block + 1)))
    statics = dict(signature.statics)
    return sorted({n for n in wanted if n and pairing.admits({**own, name: n}, statics)})


def _along(call: Call, signature: Signature, name: str, *, padded: bool = False) -> Iterator[Question]:
    lengths = _lengths(call.pairing, signature, name)
    whole = signature.with_length(name, lengths[-1]) if lengths else signature
    # How much is not masked decides what a longer tail may change.
    for first in sorted({0, len(lengths) // 2}) if padded else (0,):
        if len(lengths) > first + 1:
            ways, shortest = _slices(call, whole, name, lengths[first:]), signature.with_length(name, lengths[first])
            if padded:
                yield Question(whole, (way for way in ways if not way.is_moved), name, shortest)
            else:
                yield Question(whole, ways)


def _slices(call: Call, whole: Signature, name: str, lengths: Sequence[int]) -> Iterator[Way]:
    # The first slices along a dim by themselves, for each number of them. Of a gradient, what has no slices is a sum
    # over them.
    slices = BatchSlices(dict(whole.dims), name)
    if slices.overlap([leaf.shape for leaf in whole.leaves(call.pairing).values()]):
        raise Failure(Verdict.UNAVAILABLE, f"slices along {name!r} share elements of an argument")
    known: tuple[AxesOfArrays, AxesOfArrays] | None = None
    for length in lengths:
        shorter = whole.with_length(name, length)
        try:
            traced = call.trace(shorter)
        except Failure:  # of which the cases of that signature tell
            continue
        # Of the shortest: axes that are as long in both do not depend on the dim.
        known = known or call.axes(whole, shorter, name)
        given, made = known
        kept = [i for i, axes in enumerate(made) if not call.is_gradient or name in dims_in_axes(axes)]
        made, choose, first = [made[i] for i in kept], _choosing(kept), np.arange(length)
        leaves, expected = _rowwise(slices.taker(given, first)), _chain(choose, _rowwise(slices.taker(made, first)))
        yield Way(f"{name}={length}", traced, leaves, choose, expected)
        if length > 1:
            own = BatchSlices({**dict(whole.dims), name: length}, name)
            moved, back = (_rowwise(own.taker(axes, np.roll(first, by))) for axes, by in ((given, 1), (made, -1)))
            words = f"{name}={length} and each slice one place further"
            yield Way(words, traced, _chain(leaves, moved), _chain(choose, back), expected, is_moved=True)


def _choosing(numbers: Sequence[int]) -> Take:
    return lambda arrays: tuple(arrays[number] for number in numbers)


def _rowwise(take: Take) -> Take:
    def of_rows(arrays: Arrays) -> Arrays:
        rows = [take(tuple(array[row] for array in arrays)) for row in range(len(arrays[0]) if arrays else 0)]
        return tuple(np.stack(each) for each in zip(*rows, strict=True))

    return of_rows


def _chain(first: Take, then: Take) -> Take:
    return lambda arrays: then(first(arrays))


def _any_batch(call: Call, signature: Signature) -> Iterator[Question]:
    for name in call.pairing.batch_dims:
        yield from _along(call, signature, name)


def padded_dims(pairing: Pairing) -> tuple[str, ...]:
    """The dims whose tail may be masked: those that lengths count, and those of a mask's last axis."""
    found: dict[str, None] = {}
    for leaf in pairing.leaves.values():
        if leaf.kind.includes_end and leaf.bounded_by is not None:
            found |= dict.fromkeys(dims_in(leaf.bounded_by))
        if leaf.kind.is_mask and leaf.shape:
            found |= dict.fromkeys(dims_in(leaf.shape[-1]))
    return tuple(name for name in found if name not in pairing.batch_dims)


def _any_padding(call: Call, signature: Signature) -> Iterator[Question]:
    for name in padded_dims(call.pairing):
        yield from _along(call, signature, name, padded=True)


def _any_order(call: Call, signature: Signature) -> Iterator[Question]:
    # Of two programs that depend on each other, the reverse order exchanges them.
    traced = call.trace(signature)
    kernels = [equation for equation, _ in iter_equations(traced.jaxpr.jaxpr) if kind_of(equation) is Kind.KERNEL]
    if not all(map(is_plain_call, kernels)):
        raise Failure(
            Verdict.UNAVAILABLE, "not certified: it has a kernel whose programs cannot be run in reverse order"
        )
    changed = analyze(rewrite_jaxpr(traced.jaxpr, reverse_grids()), traced.function, traced.inputs)
    ways = Way("the programs in order", traced), Way("the programs in reverse order", changed)
    yield Question(signature, iter(ways))


def tuned_statics(pairing: Pairing) -> tuple[str, ...]:
    """The static arguments on which no bit depends."""
    return tuple(name for name in pairing.invariant_to if isinstance(pairing.arguments.get(name), Static))


def _any_option(call: Call, signature: Signature) -> Iterator[Question]:
    pairing = call.pairing
    for name in tuned_statics(pairing):
        others = (signature.with_option(name, option) for option in pairing.options()[name])
        admitted = [each for each in others if pairing.admits(dict(each.dims), dict(each.statics))]
        ways = (Way(f"{name}={dict(each.statics)[name]}", call.trace(each)) for each in admitted)
        yield Question(signature, ways)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, and what differs between its ways.

    Attributes:
      of: what no bit depends on.
      made_by: whether a pairing makes it.
      questions: from what is called and a signature to the ways that must agree.
      varied: the dims and static arguments that differ between ways, so that cases need not.
      of_gradient: whether the gradient is called.
    """

    of: str
    made_by: Callable[[Pairing], bool]
    questions: Callable[[Call, Signature], Iterator[Question]]
    varied: Callable[[Pairing], Sequence[str]] = lambda pairing: ()
    of_gradient: bool = False


_CLAIMS: Mapping[str, Claim] = {
    "bits_in_any_batch": Claim("the batch", lambda p: p.claims(BATCH), _any_batch, lambda p: p.batch_dims),
    "bits_with_any_padding": Claim(
        "the length of a masked tail", lambda p: p.claims(PADDING), _any_padding, padded_dims
    ),
    "bits_in_any_order": Claim("the order of programs", lambda p: p.claims(GRID), _any_order),
    "bits_with_any_option": Claim("a static argument", lambda p: bool(tuned_statics(p)), _any_option, tuned_statics),
}


def _of_gradient(claim: Claim) -> Claim:
    return replace(claim, made_by=lambda p: bool(p.grad) and claim.made_by(p), of_gradient=True)


# By family.
CLAIMS: Mapping[str, Claim] = {
    **_CLAIMS, **{f"gradient_{family}": _of_gradient(claim) for family, claim in _CLAIMS.items()}
}  # fmt: skip


_SIGNATURES = {"quick": 3, "standard": 6, "deep": 24}  # of a claim in a dtype


def chosen(claim: Claim, pairing: Pairing, planned: Sequence[Signature], depth: str) -> list[Signature]:
    """The signatures of a claim: a few of those planned, of which no two differ only in what its ways vary."""
    varied, found = set(claim.varied(pairing)), dict[object, Signature]()
    for signature in planned:
        parts = (
            tuple(each for each in pairs if each[0] not in varied) for pairs in (signature.dims, signature.statics)
        )
        found.setdefault((signature.dtypes, *parts), signature)
    first, others = order_by_variety(pairing, list(found.values()))
    return [*first, *others][: _SIGNATURES[depth]]


def hide_tails(pairing: Pairing, question: Question, arrays: dict[str, Array], least: Mapping[str, Array]) -> None:
    """Changes arrays of the reference so that only what the shortest way has counts.

    Args:
      pairing, question: the question, about padding.
      arrays: by path.
      least: those for the shortest way.
    """
    for path, leaf in question.signature.leaves(pairing).items():
        is_masked = leaf.kind.is_mask and question.padded in dims_in_axes(leaf.shape[-1:])
        if is_masked:
            arrays[path] = np.zeros_like(arrays[path])
        if is_masked or (leaf.bounded_by is not None and question.padded in dims_in(leaf.bounded_by)):
            arrays[path][tuple(map(slice, least[path].shape))] = least[path]
