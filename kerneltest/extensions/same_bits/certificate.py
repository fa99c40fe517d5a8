"""Certifies that ways to call a kernel give the same bits, or finds values for which they do not."""

import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

import jax
import numpy as np

from kerneltest.core.details import Nondeterministic
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.source_location import is_internal, relative_path
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.item import Item
from kerneltest.extensions.same_bits.expressions import ExpressionRules, SequentialRules, unknown_expressions
from kerneltest.extensions.same_bits.ways import CLAIMS, Arrays, Call, Claim, Question, Way, hide_tails
from kerneltest.judge.compare import first_difference
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced

_ORDERS = 2  # of the unknown floats, by each of which comparisons end in another way
_DRAWS = 8  # of values whose bits are compared


@dataclass(frozen=True, slots=True)
class Certified:
    """A claim that holds."""

    words: str  # what was compared
    compared: int  # elements


@dataclass(frozen=True, slots=True)
class Refuted:
    """A claim that does not hold, with inputs for which bits differ."""

    detail: Nondeterministic
    signature: Signature
    arguments: Mapping[str, Array]


def certify(item: Item, case: AnyCase, call: Call) -> Certified | Refuted:
    """Compares the expressions of all ways of a case's claim; of an explicit case, only its own values are tried.

    Failure: `unavailable` if expressions differ or cannot be computed, and no values are found whose bits differ.
    """
    words, open_questions, compared, claim = [], [], 0, CLAIMS[case.family.name]
    for question in claim.questions(call, case.signature):
        if isinstance(case, ExplicitCase) and case.signature != question.signature:
            continue
        reference, ways = call.trace(question.signature), list(question.ways)
        leaves = _expressions(item, case, question, reference)
        try:
            known = list(_differences(reference, ways, leaves, ExpressionRules()))
        except UnknownError as error:
            raise Failure(Verdict.UNAVAILABLE, f"not certified: no expression is known for {error}") from None
        agreeing = [way for way, differs in zip(ways, known, strict=True) if not any(map(np.any, differs))]
        if others := [way for way in ways if way not in agreeing]:
            values = tuple(map(np.stack, zip(*_cases(item, case, question, reference, _DRAWS), strict=True)))
            found = _search_values(values, claim, question, reference, agreeing, others)
            if isinstance(found, Refuted):
                return found
            open_questions.append(found)
        places = ", at each place" if any(way.is_moved for way in ways) else ""
        words.append(f"the same expressions {_listed(ways, 'and')}{places}")
        compared += sum(each.size for differs in known for each in differs)
    if open_questions or not compared:
        (why, *_) = [*open_questions, "there is only one way, or none of the outputs has the dim"]
        raise Failure(Verdict.UNAVAILABLE, f"not certified: {why}")
    return Certified("; ".join(words), compared)


# For each way, where each of its outputs differs from the reference.
def _differences(reference: Traced, ways: Sequence[Way], leaves: Arrays, rules: KernelRules) -> Iterator[Arrays]:
    for one, other in _outputs(reference, ways, leaves, rules):
        yield tuple(_bits(a) != _bits(b) for a, b in zip(one, other, strict=True))


# For each way, what is expected of it and its outputs.
def _outputs(
    reference: Traced, ways: Sequence[Way], leaves: Arrays, rules: KernelRules
) -> Iterator[tuple[Arrays, Arrays]]:
    kernels: dict[Traced, BatchedKernel] = {}

    def run(traced: Traced, arrays: Arrays) -> Arrays:
        if traced not in kernels:
            kernels[traced] = BatchedKernel(traced, rules)
        return kernels[traced](arrays)

    with jax.enable_x64(True):
        expected = run(reference, leaves)
        for way in ways:
            yield way.expected(expected), way.outputs(run(way.traced, way.leaves(leaves)))


def _bits(array: Array) -> Array:
    # Every NaN is the same.
    if not is_float(array.dtype):
        return array
    bits: Array = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return np.where(np.isnan(array.astype(np.float64)), np.array(-1).astype(bits.dtype), bits)


# The arrays of the reference: floats are unknown, and integers as a case has them.
def _expressions(item: Item, case: AnyCase, question: Question, reference: Traced) -> Arrays:
    (arrays,) = _cases(item, case, question, reference, 1)
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(str(question.signature).encode())))
    shapes = [(_ORDERS, *array.shape) for array in arrays]
    return tuple(
        unknown_expressions(rng.integers(0, 2**64 - 1, shape, np.uint64))
        if is_float(array.dtype)
        else np.broadcast_to(array, shape)
        for array, shape in zip(arrays, shapes, strict=True)
    )


def _cases(item: Item, case: AnyCase, question: Question, reference: Traced, count: int) -> Iterator[list[Array]]:
    for seed in range(count):
        arrays = _fill(item, case, question.signature, seed)
        if question.shortest is not None:
            hide_tails(item.pairing, question, arrays, _fill(item, case, question.shortest, seed))
        leaves = [arrays[path] for path, _ in question.signature.dtypes]
        rng = np.random.Generator(np.random.PCG64(seed))
        weights = reference.inputs[len(leaves) :]  # of a gradient
        yield [*leaves, *(rng.standard_normal(weight.shape).astype(weight.dtype) for weight in weights)]


def _fill(item: Item, case: AnyCase, signature: Signature, seed: int) -> dict[str, Array]:
    if isinstance(case, ExplicitCase):
        shapes = {path: signature.shape(leaf) for path, leaf in signature.leaves(item.pairing).items()}
        return {path: case.arguments[path][tuple(map(slice, shape))].copy() for path, shape in shapes.items()}
    return Case(item.pairing_id, item.pairing.name, signature, FAMILIES["normal"], "", seed).fill(item.pairing)


# Returns values whose bits differ, or else what is known.
def _search_values(
    leaves: Arrays, claim: Claim, question: Question, reference: Traced, agreeing: Sequence[Way], others: Sequence[Way]
) -> Refuted | str:
    source = _choice(reference, others[0].traced)
    how = _listed(agreeing, "or"), _listed(others, "or")
    for way in others:
        try:
            found = _first_difference(reference, way, leaves)
        except UnknownError:
            continue
        if found is not None:
            detail, row = found
            paths = (path for path, _ in question.signature.dtypes)
            arguments = {path: leaf[row] for path, leaf in zip(paths, leaves, strict=False)}  # not a gradient's weights
            return Refuted(replace(detail, how=how, depends_on=claim.of, source=source), question.signature, arguments)
    at = f" ({source})" if source else ""
    return f"the expressions {how[1]} differ from those {how[0]}{at}, and no values were found whose bits differ"


# A difference in bits, whether or not compilers add products of matrices to sums so far, and the row of the leaves that
# shows it; None if there is none.
def _first_difference(reference: Traced, way: Way, leaves: Arrays) -> tuple[Nondeterministic, int] | None:
    for fuses in (True, False):
        ((expected, got),) = _outputs(reference, [way], leaves, SequentialRules(fuses=fuses))
        pairs = list(zip(expected, got, strict=True))
        wrong = [number for number, (one, other) in enumerate(pairs) if (_bits(one) != _bits(other)).any()]
        if not wrong:
            return None
    one, other = pairs[wrong[0]]
    row = int(np.argwhere(differs := _bits(one) != _bits(other))[0][0])
    return first_difference(f"output {wrong[0]}", one[row], other[row], differs[row]), row


# `with m=1, 2 or 3`.
def _listed(ways: Sequence[Way], last: str) -> str:
    plain = [way.words for way in ways if not way.is_moved] or [way.words for way in ways]
    name = plain[0].partition("=")[0]
    *others, end = [words.removeprefix(f"{name}=") if i else words for i, words in enumerate(plain)]
    return f"with {', '.join(others)}{f' {last} ' if others else ''}{end}"


# Where the kernel's Python takes another way for another signature.

_MOST_STEPS = 300_000


def _choice(one: Traced, other: Traced) -> str:
    first, second = _steps(one), _steps(other)
    for number, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            code, offset = first[number - 1] if number else a
            line = next((line for start, end, line in code.co_lines() if start <= offset < end), None)
            return f"{relative_path(code.co_filename)}:{line}" if line else ""
    return ""


# The instructions of the kernel's source, in order, that tracing it executes.
def _steps(traced: Traced) -> list[tuple[CodeType, int]]:
    steps: list[tuple[CodeType, int]] = []
    jax_folder = jax.__file__.rpartition("/")[0]

    def watch(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if event == "call" and (is_internal(name) or name.startswith((jax_folder, "<")) or "site-packages" in name):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and len(steps) < _MOST_STEPS:
            steps.append((frame.f_code, frame.f_lasti))
        return watch

    jax.clear_caches()  # JAX does not call a function again that it has traced
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        jax.make_jaxpr(traced.function)(*(jax.ShapeDtypeStruct(i.shape, i.dtype) for i in traced.inputs))
    finally:
        sys.settrace(before)
    return steps
