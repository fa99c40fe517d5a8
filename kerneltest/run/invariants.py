"""What holds of a right kernel beside the oracle: other ways to call it, whose results are known.

An invariant is a generator in a registry. From a case it makes `Variation`s: a function traced anew, what goes into
it, and what each share of its outputs should be.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import jax
import numpy as np

from kerneltest.plan.drawn import AnyCase
from kerneltest.core.dtypes import Array, is_float
from kerneltest.plan.families import FAMILIES, Family, normal
from kerneltest.oracle.gradient import gradients
from kerneltest.run.cache import Memory
from kerneltest.oracle.expectation import Expectation, OracleError, evaluator
from kerneltest.core.dtypes import Output
from kerneltest.declare.arguments import Choice
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import Case
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.jaxprs.rewrite import Fill, Rule, before, padding, reversing, rewritten
from kerneltest.jaxprs.trace import Traced, TraceError, read, trace_function

INVARIANTS = "invariants"  # the group of these families
# Backends, by patterns: those that give values, and those that run a kernel as it was traced. What a simulated memory
# shows of itself need not be asked by poisoning.
VALUES = ("interpret*", "simulate:*", "cuda", "rocm", "tpu")
RUN = ("interpret", "cuda", "rocm", "tpu")
_SIGNATURES = {"quick": 1, "standard": 2, "deep": 6}  # every variation is a compilation

Outputs = tuple[Array, ...]


class CannotVaryError(Exception):
    """JAX does not take the kernel this way, which is no fault of the kernel's."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a variation's outputs, and what it should be.

    Attributes:
      label: the call that it stands for.
      take: it, from all of them.
      expectation: of the oracle; None where it should be a part of what the plain call gives, bit for bit on a device.
      plain: that part, from the plain call's outputs.
      gradient_of: the leaf that each output is a gradient with respect to.
    """

    label: str
    take: Callable[[Outputs], Outputs] = lambda outputs: outputs
    expectation: Expectation | None = None
    plain: Callable[[Outputs], Outputs] = lambda outputs: outputs
    gradient_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Variation:
    """Another call of a kernel: the function, its inputs and the shares of its outputs."""

    traced: Traced
    leaves: tuple[Array, ...]
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What an invariant is asked about: one case and its plain call."""

    pairing: Pairing
    case: AnyCase
    seed: int
    memory: Memory
    traced: Traced
    arguments: Mapping[str, Array]
    expectation: Expectation

    @property
    def leaves(self) -> tuple[Array, ...]:
        return tuple(self.arguments[path] for path in self.pairing.leaves)

    def once(self, name: str, make: Callable[[], Traced]) -> Traced:
        """What `make` traces for this signature: compiled once, whatever the values."""
        key = (self.case.signature, name)
        if key not in self.memory.varied:
            self.memory.varied[key] = make()
        return self.memory.varied[key]

    def at(self, signature: Signature) -> Traced:
        """The kernel traced for another signature."""
        traced = self.memory.traced(self.pairing, signature)
        if isinstance(traced, TraceError):
            raise traced
        return traced


@dataclass(frozen=True, slots=True)
class Invariant:
    """A named way to vary calls.

    Attributes:
      family: under which its cases are recorded.
      vary: from what is asked to variations.
      applies: whether a signature of a pairing can be varied so.
      backends: patterns of those on which it says something that they do not say by themselves.
    """

    family: Family
    vary: Callable[[Asked], Iterator[Variation]]
    applies: Callable[[Pairing, Signature], bool]
    backends: tuple[str, ...]


REGISTRY: dict[str, Invariant] = {}


def invariant(
    applies: Callable[[Pairing, Signature], bool], backends: tuple[str, ...] = VALUES
) -> Callable[[Callable[[Asked], Iterator[Variation]]], Callable[[Asked], Iterator[Variation]]]:
    """Registers a generator of variations under its own name."""

    def register(vary: Callable[[Asked], Iterator[Variation]]) -> Callable[[Asked], Iterator[Variation]]:
        family = Family(vary.__name__, INVARIANTS, normal, lambda slot: slot.is_float_data, False, True)
        REGISTRY[vary.__name__] = Invariant(family, vary, applies, backends)
        return vary

    return register


def planned(pairing: Pairing, dtype: str, backend: str, depth: str, seed: int) -> Iterator[Case]:
    """The cases of the group for one dtype of a pairing: each invariant on the first few signatures it applies to."""
    mine = [s for s in signatures(pairing, depth) if s.dtype == dtype and all(n for _, n in s.dims)]
    for each in REGISTRY.values():
        if any(fnmatchcase(backend, pattern) for pattern in each.backends):
            fitting = [signature for signature in mine if each.applies(pairing, signature)]
            for signature in fitting[: _SIGNATURES[depth]]:
                yield Case(pairing.name, signature, each.family, "", seed)


def variations(asked: Asked) -> tuple[Variation, ...]:
    """All variations of a case.

    Raises:
      CannotVaryError: JAX does not take the kernel this way.
      TraceError: the kernel raised where it should not.
      OracleError: the oracle raised.
    """
    return tuple(REGISTRY[asked.case.family.name].vary(asked))


def _always(pairing: Pairing, signature: Signature) -> bool:
    return True


def _has_arrays(pairing: Pairing, signature: Signature) -> bool:
    return bool(pairing.leaves)


@invariant(_has_arrays, RUN)
def plain_call(asked: Asked) -> Iterator[Variation]:
    """Called on arrays, outside of `jax.jit`, the kernel gives the same."""
    shares = (Share("called outside of jax.jit", expectation=asked.expectation),)
    traced = asked.once("eager", lambda: replace(asked.traced, eager=True))
    yield Variation(traced, asked.leaves, shares)


@invariant(_has_arrays)
def vmapped(asked: Asked) -> Iterator[Variation]:
    """Under `jax.vmap` over a new leading axis, each element of the batch comes out as by itself."""
    other = Case(asked.pairing.name, asked.case.signature, FAMILIES["small_integers"], "", asked.seed)
    arguments, expectation, _ = asked.memory.expected(asked.pairing, other, asked.traced)
    if isinstance(expectation, OracleError):
        raise expectation
    inputs = tuple(Output((2, *i.shape), i.dtype) for i in asked.traced.inputs)
    try:
        batched = jax.vmap(asked.traced.function)
        traced = asked.once(
            "vmapped", lambda: trace_function(batched, inputs, "under jax.vmap over a new leading axis")
        )
    except TraceError as error:
        raise CannotVaryError(str(error)) from error
    yield Variation(
        traced,
        tuple(np.stack([one, arguments[path]]) for path, one in zip(asked.pairing.leaves, asked.leaves, strict=True)),
        (
            Share(
                "first in a batch of two under jax.vmap",
                lambda outputs: tuple(o[0] for o in outputs),
                asked.expectation,
            ),
            Share("second in a batch of two under jax.vmap", lambda outputs: tuple(o[1] for o in outputs), expectation),
        ),
    )


def _has_tail(pairing: Pairing, signature: Signature) -> bool:
    return any(length % (pairing.dims[name].tile or 16) for name, length in signature.dims)


@invariant(_has_tail, RUN)
def poisoned_padding(asked: Asked) -> Iterator[Variation]:
    """What lies past an array's end in its last block, or in a masked lane of a load, does not matter."""
    yield _changed(asked, padding(Fill(nan=True)), "with NaN and the least integers as padding")
    yield _changed(asked, padding(Fill(nan=False)), "with the largest numbers as padding")


@invariant(_always, RUN)
def old_output(asked: Asked) -> Iterator[Variation]:
    """What the memory of an output held before does not matter."""
    yield _changed(asked, before(Fill(nan=True)), "with NaN and the least integers in the output before")
    yield _changed(asked, before(Fill(nan=False)), "with the largest numbers in the output before")


def _changed(asked: Asked, rule: Rule, label: str) -> Variation:
    traced = asked.traced
    changed = asked.once(label, lambda: read(rewritten(traced.jaxpr, rule), traced.function, traced.inputs))
    return Variation(changed, asked.leaves, (Share(label, expectation=asked.expectation),))


@invariant(lambda pairing, signature: "grid" in pairing.independent, RUN)
def reversed_grid(asked: Asked) -> Iterator[Variation]:
    """The order of the programs does not matter: declared by `independent=("grid",)`."""
    changed = _changed(asked, reversing(), "with the grid's programs in reverse order")
    yield replace(changed, shares=(Share(changed.shares[0].label),))


@invariant(lambda pairing, signature: any(_others(pairing, signature)))
def other_choices(asked: Asked) -> Iterator[Variation]:
    """A static argument that `independent` names does not matter."""
    for name, option in _others(asked.pairing, asked.case.signature):
        statics = {**dict(asked.case.signature.statics), name: option}
        other = replace(asked.case.signature, statics=tuple(statics.items()))
        yield Variation(asked.at(other), asked.leaves, (Share(f"with {name}={option}"),))


def _others(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, str]]:
    for name, chosen in signature.statics:
        argument = pairing.arguments[name]
        if name in pairing.independent and isinstance(argument, Choice):
            yield from ((name, option) for option, _ in argument.options if option != chosen)


@invariant(lambda pairing, signature: any(_batches(pairing, signature)))
def alone(asked: Asked) -> Iterator[Variation]:
    """A slice along a dim that `independent` names does not depend on what else is in the batch."""
    for name, length in _batches(asked.pairing, asked.case.signature):
        dims = {**dict(asked.case.signature.dims), name: 1}
        single = asked.at(replace(asked.case.signature, dims=tuple(dims.items())))
        axes = [leaf.shape.index(name) if name in leaf.shape else None for leaf in asked.pairing.leaves.values()]
        out_axes = [_shrunk_axis(a, b) for a, b in zip(asked.traced.outputs, single.outputs, strict=True)]
        for at in sorted({0, length - 1}):
            leaves = tuple(_cut(x, axis, at) for x, axis in zip(asked.leaves, axes, strict=True))

            def plain(outputs: Outputs, at: int = at, out_axes: Sequence[int | None] = out_axes) -> Outputs:
                return tuple(_cut(o, axis, at) for o, axis in zip(outputs, out_axes, strict=True))

            yield Variation(single, leaves, (Share(f"{name}={at} alone, of {length}", plain=plain),))


def _batches(pairing: Pairing, signature: Signature) -> Iterator[tuple[str, int]]:
    yield from ((name, length) for name, length in signature.dims if name in pairing.independent and length > 1)


def _shrunk_axis(whole: Output, single: Output) -> int | None:
    changed = [i for i, (a, b) in enumerate(zip(whole.shape, single.shape, strict=True)) if a != b]
    return changed[0] if changed else None


def _cut(values: Array, axis: int | None, at: int) -> Array:
    return values if axis is None else np.take(values, [at], axis)


@invariant(lambda pairing, signature: pairing.grad)
def gradient(asked: Asked) -> Iterator[Variation]:
    """The gradient is the oracle's: declared by `grad=True`."""
    traced = asked.traced
    kept = [o for o in traced.outputs if is_float(o.dtype)]
    moving = [i for i, x in enumerate(traced.inputs) if is_float(x.dtype)]
    rng = np.random.Generator(np.random.PCG64(int(asked.case.id, 16)))
    cotangents = tuple(rng.choice((-1.0, -0.5, 0.5, 1.0), o.shape).astype(o.dtype) for o in kept)

    def pulled_back(*values: Any) -> list[Any]:
        leaves, weights = values[: len(traced.inputs)], values[len(traced.inputs) :]

        def floats(*chosen: Any) -> list[Any]:
            whole = list(leaves)
            for i, value in zip(moving, chosen, strict=True):
                whole[i] = value
            return [o for o in traced.function(*whole) if is_float(np.dtype(o.dtype))]

        return list(jax.vjp(floats, *(leaves[i] for i in moving))[1](list(weights)))

    inputs = (*traced.inputs, *(Output(w.shape, w.dtype) for w in cotangents))
    paths = list(asked.pairing.leaves)
    expectation = gradients(evaluator(asked.pairing, asked.case.signature), asked.arguments, cotangents, rng)
    share = Share("the gradient", expectation=expectation, gradient_of=tuple(paths[i] for i in moving))
    pulled = asked.once("gradient", lambda: trace_function(pulled_back, inputs, "by jax.vjp"))
    yield Variation(pulled, (*asked.leaves, *cotangents), (share,))
