"""What an invariant is asked about, and what it answers: other calls, and what their outputs should be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.numerics.error_budget import ErrorShare as Part
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.records.journal import Phase
from kerneltest.trace.tracing import Traced

Outputs = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class ExpectedOutputs:
    """What a share of outputs should be.

    Attributes:
      values: float64, int64 or bool, an array for each output, in its shape.
      bounds: how far each element may be off, in the same shapes: 0 for the value rounded to the output's dtype, inf
        where nothing is asked.
      bitwise: whether not a bit may differ, the sign of a zero included.
      others: for each output, other arrays whose integers or booleans are as right as those of `values`.
      asked: where the oracle asks something, bool, in the same shapes; () for everywhere.
      budget: what makes the bound of an output, the largest part first; () where that is not known.
      note: what the bounds could not take into account, or "".
    """

    values: Outputs
    bounds: Outputs
    bitwise: bool = False
    others: tuple[Outputs, ...] = ()
    asked: Outputs = ()
    budget: Callable[[int], tuple[Part, ...]] = lambda output: ()
    note: str = ""


Expect = Callable[[Outputs, Precision], ExpectedOutputs]
Take = Callable[[Outputs], Outputs]


def _all(outputs: Outputs) -> Outputs:
    return outputs


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """A part of the outputs of a variation, and what it should be.

    Attributes:
      label: the call in words, as messages show it: `first in a batch of two under jax.vmap`.
      wanted: what the part should be: `InvariantContext.by_oracle()`, `InvariantContext.as_plain_call()`, or a function
        of the part itself and of what its backend does to numbers.
      take: makes the part of all outputs, and undoes what was done to the inputs; by default all of them as they are.
      gradient_of: for outputs that are gradients, the path of the leaf that each is one by.
    """

    label: str
    wanted: Expect
    take: Take = _all
    gradient_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Variation:
    """Another call of a kernel.

    Attributes:
      traced: what is called: `InvariantContext.traced`, or what its `at` and `once` trace.
      leaves: its inputs, in the shapes and dtypes that it was traced for.
      shares: the parts of its outputs, each with what it should be.
    """

    traced: Traced
    leaves: tuple[Array, ...]
    shares: tuple[OutputCheck, ...]


@dataclass(frozen=True, slots=True)
class InvariantContext:
    """What an invariant is asked about: a case, and its plain call on a backend.

    Attributes:
      pairing, case, backend: what is varied. `case.signature` holds the lengths, dtypes and static arguments.
      traced: the plain call, traced.
      arguments: the case's array arguments, by path.
      expectation: the oracle's answer for them.
      cache: what the cases of the pairing share.
      seed: of the run.
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
        """The array arguments as the plain call gets them: in the pairing's order, in the kernel's dtypes."""
        return tuple(self.arguments[path] for path, _ in self.case.signature.dtypes)

    def once(self, name: str, make: Callable[[], Traced]) -> Traced:
        """Another function, traced and compiled once for each signature, whatever the values.

        Args:
          name: tells it from others that invariants trace for the same signature.
          make: traces it.
        """
        key = (self.case.signature, name)
        if key not in self.cache.variation_traces:
            self.cache.variation_traces[key] = make()
        return self.cache.variation_traces[key]

    def at(self, signature: Signature) -> Traced:
        """The kernel traced for another signature, such as `dataclasses.replace(asked.case.signature, statics=...)`.

        Raises:
          Failure: the kernel cannot be traced for it.
        """
        return self.cache.trace_for(self.pairing, signature, self.backend)

    def by_oracle(self, expectation: Expectation | None = None, part: Take = _all) -> Expect:
        """What the oracle says, within its bound.

        Args:
          expectation: what it says of other arguments; by default of the case's.
          part: the part of the oracle's outputs that the share is compared with; by default all of them.
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
        """What the plain call gives: bit for bit on a device, and by the oracle's bound elsewhere.

        Code for a CPU sums in an order that depends on the whole shape, whatever the kernel says.

        Args:
          part: the part of the plain call's outputs that the share is compared with; by default all of them.
        """
        if self.backend.tier is not Tier.DEVICE:
            return self.by_oracle(part=part)

        def wanted(share: Outputs, precision: Precision) -> ExpectedOutputs:
            self.cache.enter_phase(Phase.RUNNING)
            asked = part(self.expectation.defined)
            plain = map(widen, part(self.cache.executable(self.backend, self.traced).run(self.leaves)))
            values = tuple(
                np.where(where, value, np.zeros_like(value)) for value, where in zip(plain, asked, strict=True)
            )
            return ExpectedOutputs(
                values, tuple(np.where(where, 0.0, np.inf) for where in asked), bitwise=True, asked=asked
            )

        return wanted
