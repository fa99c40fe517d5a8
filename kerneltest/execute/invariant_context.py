"""The interface of invariants: they take an `InvariantContext` and yield `Variation`s of its plain call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.dims import Axis, AxisExpression, dims_in, length_of, positions_along
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.numerics.spread import ErrorShare
from kerneltest.oracle.evaluation import evaluator
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.records.journal import Phase
from kerneltest.trace.tracing import Traced

Outputs = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class ExpectedOutputs:
    """The expected values of a share of outputs. Tuples have an array for each output, in its shape.

    Attributes:
      values: the expected values: float64, int64 or bool.
      bounds: the absolute error allowed of each element: 0 admits only the value rounded to the output's dtype, inf
        admits any value.
      bitwise: whether every bit must be equal, including the sign of a zero.
      others: for each output, further arrays whose integers or booleans are as right as those of `values`.
      asked: bool, True for the elements whose value the oracle defines; () if it defines all.
      budget: returns the error budget of the output of a number, the largest share first; () if it is unknown.
      note: effects that the bounds could not take into account, in words; "" if there are none.
    """

    values: Outputs
    bounds: Outputs
    bitwise: bool = False
    others: tuple[Outputs, ...] = ()
    asked: Outputs = ()
    budget: Callable[[int], tuple[ErrorShare, ...]] = lambda output: ()
    note: str = ""


Expect = Callable[[Outputs, Precision], ExpectedOutputs]
Take = Callable[[Outputs], Outputs]


def _all(outputs: Outputs) -> Outputs:
    return outputs


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """A share of the outputs of a variation, and its expected values.

    Attributes:
      label: the call in words, for messages: `first in a batch of two under jax.vmap`.
      wanted: returns the expected values: `InvariantContext.by_oracle()`, `InvariantContext.as_plain_call()`, or a
        function of the share and of the backend's `Precision`.
      take: returns the share of all outputs, with the change of the inputs undone; by default all outputs unchanged.
      gradient_of: for outputs that are gradients, the path of the leaf with respect to which each is one.
      formula: the oracle's values for the share, to which it is held without rounding as well; None to ask only what
        `wanted` asks.
    """

    label: str
    wanted: Expect
    take: Take = _all
    gradient_of: tuple[str, ...] = ()
    formula: Expectation | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Variation:
    """Another call of a kernel.

    Attributes:
      traced: the function to call: `InvariantContext.traced`, or a result of its `at` or `once`.
      leaves: the inputs, in the shapes and dtypes that it was traced for.
      shares: shares of its outputs with their expected values.
      transformation: the transformation by which JAX made the function, such as `jax.vmap`. A backend that cannot run
        its result, but runs the plain call, says nothing about the kernel.
    """

    traced: Traced
    leaves: tuple[Array, ...]
    shares: tuple[OutputCheck, ...]
    transformation: str = ""


@dataclass(frozen=True, slots=True)
class InvariantContext:
    """The input of an invariant: a case, and its plain call on a backend.

    Attributes:
      pairing, case, backend: of the call to vary. `case.signature` has the lengths, dtypes and static arguments.
      traced: the plain call, traced.
      arguments: the case's array arguments by path.
      expectation: the oracle's values for them, with bounds.
      cache: the cache that the cases of the pairing share.
      seed: the run's seed.
    """

    pairing: Pairing
    case: AnyCase
    backend: Backend
    traced: Traced
    arguments: Mapping[str, Array]
    expectation: Expectation
    cache: Cache
    seed: int

    @property
    def leaves(self) -> Outputs:
        """The array arguments of the plain call, in the pairing's order and the kernel's dtypes."""
        return tuple(self.arguments[path] for path, _ in self.case.signature.dtypes)

    def once(self, name: str, make: Callable[[], Traced]) -> Traced:
        """Returns another traced function. It is traced and compiled only once for each signature.

        Args:
          name: distinguishes it from other functions that invariants trace for the same signature.
          make: traces the function.
        """
        key = (self.case.signature, name)
        if key not in self.cache.variation_traces:
            self.cache.variation_traces[key] = self.cache.tracer.trace_variation(self.traced, make)
        return self.cache.variation_traces[key]

    def at(self, signature: Signature) -> Traced:
        """Returns the kernel traced for another signature.

        Args:
          signature: such as `dataclasses.replace(asked.case.signature, statics=...)`.

        Raises:
          Failure: the kernel cannot be traced for it.
        """
        return self.cache.trace_for(self.pairing, signature, self.backend)

    def by_oracle(self, expectation: Expectation | None = None, part: Take = _all) -> Expect:
        """Expects the oracle's values, within their bounds.

        Args:
          expectation: the oracle's values for other arguments; by default those for the case's.
          part: returns the part of the oracle's outputs to compare the share with; by default all of them.
        """
        chosen = expectation or self.expectation

        def wanted(share: Outputs, precision: Precision) -> ExpectedOutputs:
            self.cache.enter_phase(Phase.EXPECTING)
            others = chosen.all_alternatives(precision)
            sets = [
                tuple(o[i] if i < len(o) else v for v, o in zip(chosen.values, others, strict=True))
                for i in range(max(map(len, others), default=0))
            ]
            return ExpectedOutputs(
                part(chosen.values),
                part(chosen.all_bounds(share, precision)),
                asked=part(chosen.defined),
                others=tuple(zip(*map(part, sets), strict=True)),
                budget=lambda output: chosen.shares(output, precision),
                note=chosen.note(precision),
            )

        return wanted

    def as_plain_call(self, part: Take = _all) -> Expect:
        """Expects the outputs of the plain call, bit for bit, on a device; elsewhere the oracle's values and bounds.

        Code for a CPU sums in an order that depends on the whole shape, even if the kernel's own order does not. A
        kernel that is not reproducible has no order of its own.

        Args:
          part: returns the part of the plain call's outputs to compare the share with; by default all of them.
        """
        if self.backend.tier is not Tier.DEVICE or not self.pairing.reproducible:
            return self.by_oracle(part=part)

        def wanted(share: Outputs, precision: Precision) -> ExpectedOutputs:
            self.cache.enter_phase(Phase.RUNNING)
            defined = part(self.expectation.defined)
            plain = map(widen, part(self.cache.executable(self.backend, self.traced).run(self.leaves)))
            values = tuple(
                np.where(where, value, np.zeros_like(value)) for value, where in zip(plain, defined, strict=True)
            )
            bounds = tuple(np.where(where, 0.0, np.inf) for where in defined)
            return ExpectedOutputs(values, bounds, bitwise=True, asked=defined)

        return wanted


# Slices of arguments and outputs along a dim that `batch_dims` names, even if several dims make up an axis.

_ROUNDING = 1e-9  # relative difference in float64 between two orders of summation


@dataclass(frozen=True, slots=True)
class BatchSlices:
    """Slices along one dim.

    Attributes:
      lengths: the lengths of all dims in the whole arrays.
      name: the dim.
    """

    lengths: dict[str, int]
    name: str

    def repeated_positions(self, start: int, length: int, count: int) -> Array:
        """Returns the positions of a slice, repeated `count` times."""
        return np.tile(np.arange(start, start + length), count)

    def overlap(self, arrays: Sequence[Sequence[Axis]]) -> bool:
        """Returns whether neighbouring slices of an array share elements, as in an array of offsets of length n + 1."""
        return any(isinstance(a, AxisExpression) and a.extra and self.name in a.names for axes in arrays for a in axes)

    def taker(self, arrays: Sequence[Sequence[Axis]], positions: Array) -> Take:
        """Returns a function that takes the elements at some positions along the dim out of arrays with these axes."""
        return lambda values: tuple(self._take(x, axes, positions) for x, axes in zip(values, arrays, strict=True))

    def _take(self, array: Array, axes: Sequence[Axis], positions: Array) -> Array:
        for place, axis in enumerate(axes):
            if self.name in dims_in(axis):
                array = array.take(positions_along(axis, self.lengths, {self.name: positions}), place)
        return array


def batch_slices(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, int, int]]:
    """Yields the dims along which slices can run alone, each with its length and that of the shortest slice."""
    lengths, statics = dict(signature.dims), dict(signature.statics)
    for name in pairing.batch_dims:
        least = pairing.dims[name].shortest
        if lengths[name] > least > 0 and pairing.admits({**lengths, name: least}, statics):
            yield name, lengths[name], least


def output_axes(
    pairing: Pairing, signature: Signature, name: str, least: int, whole: Sequence[int], single: Sequence[int]
) -> list[Axis]:
    """Returns the axes of an output: an expression where a dim is part of the axis, else the length.

    Args:
      pairing, signature: of the call.
      name: the dim.
      least: its length in a slice.
      whole: the output's shape for all of the dim.
      single: the output's shape for a slice.

    Raises:
      Failure: `unavailable`; the length of an axis changes with the slice as no declared axis does.
    """
    lengths = dict(signature.dims)
    short = {**lengths, name: least}
    declared = [axis for leaf in pairing.leaves.values() for axis in leaf.shape if name in dims_in(axis)]
    axes: list[Axis] = []
    for length, less in zip(whole, single, strict=True):
        fitting = [
            axis for axis in [name, *declared] if (length_of(axis, lengths), length_of(axis, short)) == (length, less)
        ]
        if length != less and not fitting:
            raise Failure(
                Verdict.UNAVAILABLE,
                f"the output has an axis of {length} elements, and of {less} with a slice of {least} along {name!r}; "
                "no declared shape tells which elements belong to the slice",
            )
        axes.append(fitting[0] if length != less else length)
    return axes


def check_order(asked: InvariantContext, shorter: Signature, single: Traced, sliced: Outputs, part: Take) -> None:
    """Checks that outputs order the elements of a composed axis in the same way as the argument that declares it.

    An output does not if the oracle's values for a slice differ from that part of its values for the whole, but are
    among these elsewhere.

    Args:
      asked: the plain call.
      shorter: the signature of a slice.
      single: the kernel, traced for that signature.
      sliced: the arguments of a slice.
      part: takes the slice out of outputs.

    Raises:
      Failure: `unavailable`; an output has another order, so its slices are unknown.
    """
    wide = {path: widen(leaf) for (path, _), leaf in zip(shorter.dtypes, sliced, strict=True)}
    asked.cache.enter_phase(Phase.EXPECTING)
    alone = evaluator(asked.pairing, shorter, single.outputs)(wide)
    for one, there, whole in zip(alone, part(asked.expectation.values), asked.expectation.values, strict=True):
        if one.shape != there.shape or (not _are_close(one, there) and _are_among(one, whole)):
            raise Failure(
                Verdict.UNAVAILABLE,
                "an output orders the elements of an axis differently from the argument that has this axis, so its "
                "slices are unknown; leave the dim out of batch_dims, or give it an axis of its own",
            )


def _are_close(one: Array, other: Array) -> bool:
    return bool(np.allclose(one, other, rtol=_ROUNDING, atol=0, equal_nan=True))


def _are_among(values: Array, others: Array) -> bool:
    """Returns whether each finite value is close to one of the others."""
    known = np.concatenate([[-np.inf], np.sort(others[np.isfinite(others)].astype(np.float64), axis=None), [np.inf]])
    wanted = values[np.isfinite(values)].astype(np.float64)
    at = np.clip(np.searchsorted(known, wanted), 1, known.size - 1)
    off = np.minimum(wanted - known[at - 1], known[at] - wanted)
    return bool((off <= _ROUNDING * np.abs(wanted)).all())
