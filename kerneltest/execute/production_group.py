"""The group of production sizes: samples of the outputs of a call too large to hold, each compared with the oracle.

The arguments are position-coded arrays that are computed where they are read. For each sampled element, the oracle runs
on only the part of the arguments on which the element depends, as `batch_dims=` and `needs=` declare it.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.backends.base import Backend, OutputSamples
from kerneltest.core.details import Stated, Undefined
from kerneltest.core.dtypes import Array, ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.fingerprint import Fingerprint
from kerneltest.core.precision import TPU, Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import BIT_FOR_BIT
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.verdict_key import kernel_fingerprint
from kerneltest.judge.compare import compare
from kerneltest.judge.mismatch_evidence import output_dims
from kerneltest.oracle.evaluation import expect
from kerneltest.oracle.expectation import Expectation, oracle_noise
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import marker_family
from kerneltest.plan.production_sizes import (
    MOST_BOUNDED,
    MOST_EXACT,
    PositionCodedArray,
    RequiredPart,
    part_arguments,
    position_coded_arrays,
    production_signatures,
    required_part,
)
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.evidence import format_pair
from kerneltest.records.journal import Phase
from kerneltest.records.schema import Record
from kerneltest.trace.partial_arrays import axis_indices, format_element
from kerneltest.trace.tracing import Traced, trace

_MAX_EVALUATED = {True: 2**27, False: 2**24}  # elements in the parts of all samples, by whether arithmetic is exact
_MIN_SAMPLES = 4


class ProductionGroup(Group):
    """The group of the lengths that `kt.dim(production=)` declares."""

    name = GroupName.PRODUCTION
    shows_inputs = False
    _family = marker_family("production", name)

    def applies_to(self, backend: Backend) -> bool:
        return backend.supports_scale or backend.tier is Tier.LOWER

    def cases(self, item: Item) -> Iterator[AnyCase]:
        return item.cases_at(production_signatures(item.pairing), self._family)

    def fingerprint(self, item: Item, case: AnyCase, cache: Cache) -> Fingerprint:
        """Returns the fingerprint of the kernel, and of the oracle's values for a few elements of each output."""
        kernel = kernel_fingerprint(item.pairing, case.signature, item.backend, cache)
        if not item.backend.supports_scale:
            return kernel
        try:
            traced = cache.traces.of(item.pairing, case.signature, item.backend)
            cache.process.enter_phase(Phase.EXPECTING)
            return Fingerprint.of(kernel, *_telling_elements(item, case, traced))
        except Failure as failure:
            return Fingerprint.of(kernel, str(failure))

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        pairing, traced = item.pairing, cache.traces.of(item.pairing, case.signature, item.backend)
        record = item.record(Verdict.PASS, case=case)
        if not item.backend.supports_scale:
            cache.executables.wait(item.backend, traced)
            return Outcome(replace(record, compared=len(traced.calls)))
        if reason := item.backend.unsupported_reason(traced):
            raise Failure(Verdict.UNAVAILABLE, reason)
        prepared = item.backend.prepare_at_scale(traced)
        derived, call = _begin(item, case, traced)
        outputs = prepared.run([call.inputs[path] for path, _ in case.signature.dtypes])
        record = replace(record, tolerance=BIT_FOR_BIT if traced.exact else str(pairing.tolerance))
        for number, samples in enumerate(outputs):
            _check_defined(number, samples)
            if derived:
                note = f"values are not compared: the length of {derived} is not a dim, so its parts are unknown"
                record = replace(record, compared=record.compared + max(samples.offsets.size, 1), message=note)
            else:
                record = call.judge(number, samples, record, prepared.precision)
        return Outcome(record)


# The call of a case, and an axis that keeps its outputs from being compared, or "".
def _begin(item: Item, case: AnyCase, traced: Traced) -> tuple[str, "SampledCall"]:
    derived = find_derived_axis(item.pairing, item.dtype, item.depth, traced.outputs)
    if not derived:
        check_needs(item.pairing, item.dtype, item.depth)
    inputs = position_coded_arrays(item.pairing, case.signature)
    return derived, SampledCall(item.pairing, case.signature, item.depth, inputs, traced.outputs, traced.exact)


# What the oracle makes of the first, the middle and the last element of each output.
def _telling_elements(item: Item, case: AnyCase, traced: Traced) -> Iterator[object]:
    derived, call = _begin(item, case, traced)
    if derived:
        yield derived
        return
    for number, output in enumerate(traced.outputs):
        size = math.prod(output.shape)
        for offset in sorted({0, size // 2, size - 1}) if size else ():
            yield call.expected_element(number, offset)


# Sampled elements must be written, and depend on no memory that is not.
def _check_defined(number: int, samples: OutputSamples) -> None:
    past = "programs with higher numbers write further on, and not even the last one reaches it"
    for verdict, found in (
        (Verdict.UNWRITTEN, samples.unwritten),
        (Verdict.UNINITIALISED, samples.offsets[samples.undefined]),
    ):
        if found.size:
            first, unwritten = format_element(samples.shape, int(found[0])), verdict is Verdict.UNWRITTEN
            count, total, remark = found.size, samples.offsets.size, past if unwritten else ""
            detail = Undefined(f"output {number}", unwritten, count, total, first, sampled=True, remark=remark)
            raise Failure(verdict, detail)


@dataclass(frozen=True, slots=True)
class SampledCall:
    """A call of which single elements of the outputs are compared with the oracle's."""

    pairing: Pairing
    signature: Signature
    depth: str  # of the run, whose signatures determine the dims of outputs
    inputs: Mapping[str, PositionCodedArray]  # the arguments by path
    outputs: Sequence[ShapeDtype]
    exact: bool  # whether the arithmetic is exact, so that every bit must be right

    def part(self, number: int, offset: int) -> RequiredPart:
        """Returns the part of the arguments on which the element of an output at an offset depends."""
        index = [int(i) for i in axis_indices(np.asarray(offset), self.outputs[number].shape)]
        names = self._dims(number)  # "" for an axis without one: the element needs everything there
        place = {name: i for name, i in zip(names, index, strict=True) if name and names.count(name) == 1}
        return required_part(self.pairing, self.signature, place)

    def _dims(self, number: int) -> tuple[str, ...]:
        return output_dims(self.pairing, number, len(self.outputs[number].shape), self.depth)

    def expect(self, part: RequiredPart, number: int, offset: int) -> tuple[Expectation, tuple[int, ...], float]:
        """Returns the oracle's outputs for a part, the position of an element of the whole in them, and the noise."""
        named = [self._dims(i) for i in range(len(self.outputs))]
        lengths, outputs = dict(part.signature.dims), []
        for output, names in zip(self.outputs, named, strict=True):
            shape = tuple(lengths.get(name, length) for name, length in zip(names, output.shape, strict=True))
            outputs.append(ShapeDtype(shape, output.dtype))
        arguments = part_arguments(self.pairing, part, self.inputs)
        expectation = expect(self.pairing, part.signature, arguments, tuple(outputs), bitwise=self.exact)
        index = axis_indices(np.asarray(offset), self.outputs[number].shape)
        at = tuple(int(i) - part.start.get(name, 0) for i, name in zip(index, named[number], strict=True))
        return expectation, at, oracle_noise(arguments)

    # The value, bound and alternatives of an element, each of shape (1,), and the oracle's noise.
    def _bounded(
        self, part: RequiredPart, number: int, offset: int, precision: Precision
    ) -> tuple[Array, Array, list[Array], float]:
        expectation, at, noise = self.expect(part, number, offset)
        bound = expectation.bound(number, self.outputs[number].dtype, precision)
        others = [np.reshape(other[at], 1) for other in expectation.alternatives(number, precision)]
        return np.reshape(expectation.values[number][at], 1), np.reshape(bound[at], 1), others, noise

    @property
    def _most(self) -> int:
        return MOST_EXACT if self.exact else MOST_BOUNDED

    def expected_element(self, number: int, offset: int) -> object:
        """Returns the oracle's value and bound of an element, or how large a part it needs if that is too large."""
        part = self.part(number, offset)
        if part.elements > self._most:
            return f"{part.elements} elements"
        value, bound, others, _ = self._bounded(part, number, offset, TPU)
        return [value, bound, *others]

    def judge(self, number: int, samples: OutputSamples, record: Record, precision: Precision) -> Record:
        """Returns the record with the samples of an output counted; Failure: at least one sample is wrong."""
        parts = [self.part(number, offset) for offset in samples.offsets.tolist()]
        largest = max((part.elements for part in parts), default=0)
        if not parts or largest > self._most:
            why = "no element is final before all programs have run"
            if parts:
                why = (
                    f"the oracle needs {largest:,} elements for one of them, and the limit is {self._most:,}; declare "
                    "the inputs on which it depends by batch_dims= or needs="
                )
            note = f"values of output {number} are not compared: {why}"
            message = "; ".join(filter(None, (record.message, note)))
            return replace(record, compared=record.compared + max(samples.offsets.size, 1), message=message)
        # The oracle runs on as many samples as it can handle, evenly spaced.
        count = max(_MAX_EVALUATED[self.exact] // max(largest, 1), _MIN_SAMPLES)
        chosen = sorted({int(i) for i in np.linspace(len(parts) - 1, 0, min(count, len(parts)))})
        rows = [self._bounded(parts[i], number, int(samples.offsets[i]), precision) for i in chosen]
        values, bounds = (np.concatenate([row[i] for row in rows]) for i in (0, 1))
        others = [
            np.concatenate([row[2][i] if i < len(row[2]) else row[0] for row in rows])
            for i in range(max(len(row[2]) for row in rows))
        ]
        comparison = compare(
            samples.values[chosen],
            values,
            bounds,
            signed_zeros=self.pairing.signed_zeros,
            noise=max(row[3] for row in rows),
            alternatives=others,
        )
        if comparison.verdict.is_finding:
            wrong = np.flatnonzero(comparison.wrong)
            first = chosen[int(wrong[0])]
            got, wanted = format_pair(samples.values[first].item(), values[wrong[0]].item(), 9)
            detail = Stated(
                "output {output}{element} is {got}, expected {wanted}{bound}; {wrong} of {sampled} sampled elements "
                "are wrong",
                {
                    "output": number,
                    "element": format_element(samples.shape, int(samples.offsets[first])),
                    "got": got,
                    "wanted": wanted,
                    "bound": "" if self.exact else f" ± {bounds[wrong[0]]:.3g}",
                    "wrong": wrong.size,
                    "sampled": len(chosen),
                },
            )
            raise Failure(comparison.verdict, detail)
        used = [each for each in (record.bound_fraction, comparison.bound_fraction) if each is not None]
        record = replace(record, compared=record.compared + comparison.compared, bound_fraction=max(used, default=None))
        if comparison.compared:
            return record
        note = f"values of output {number} are not compared: the bound of each sampled element is too wide"
        return replace(record, message="; ".join(filter(None, (record.message, note))))


# A check of `needs=` and `batch_dims=`: the inputs on which they say an output element depends must be all of them.

_CHECKED = 5  # elements of each output
_ROUNDING = 1e-9  # relative difference in float64, since an oracle sums a part in another order


def find_derived_axis(pairing: Pairing, dtype: str, depth: str, outputs: Sequence[ShapeDtype]) -> str:
    """Returns an axis of an output whose length varies and is not a dim, as `axis 0 of output 1`; "" if there is none.

    The outputs are those at production sizes, and are compared with those of a planned signature.
    """
    first = next(signature for signature in signatures(pairing, depth) if signature.dtype == dtype)
    short = trace(pairing, first).outputs
    for number, (one, other) in enumerate(zip(short, outputs, strict=True)):
        for axis, name in enumerate(output_dims(pairing, number, len(one.shape), depth)):
            if not name and one.shape[axis] != other.shape[axis]:
                return f"axis {axis} of output {number}"
    return ""


@functools.lru_cache(maxsize=256)
def check_needs(pairing: Pairing, dtype: str, depth: str) -> None:
    """Raises an `oracle_error` if, for a planned signature, parts of the inputs give other values than whole ones."""
    planned = [each for each in signatures(pairing, depth) if each.dtype == dtype]
    signature = max(planned, key=lambda each: min((n for _, n in each.dims), default=0))
    outputs, inputs = trace(pairing, signature).outputs, position_coded_arrays(pairing, signature)
    everything = required_part(pairing, signature, {})
    whole = expect(pairing, signature, part_arguments(pairing, everything, inputs), outputs, bitwise=True).values
    call = SampledCall(pairing, signature, depth, inputs, outputs, exact=True)
    for number, values in enumerate(whole):
        for offset in np.unique(np.linspace(0, values.size - 1, _CHECKED).astype(np.int64)) if values.size else ():
            expectation, at, _ = call.expect(call.part(number, int(offset)), number, int(offset))
            value = expectation.values[number][at]
            if not np.isclose(values.flat[offset], value, rtol=_ROUNDING, atol=0, equal_nan=True):
                detail = Stated(
                    "output {output}{element} needs more than batch_dims= and needs= say of {dims}: the oracle gives "
                    "{whole} for the whole input, and {part} for the part ({signature})",
                    {
                        "output": number,
                        "element": format_element(values.shape, int(offset)),
                        "dims": ", ".join(pairing.needs),
                        "whole": str(values.flat[offset]),
                        "part": str(value),
                        "signature": str(signature),
                    },
                )
                raise Failure(Verdict.ORACLE_ERROR, detail)
