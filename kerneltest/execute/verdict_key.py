"""The fingerprint of all that the verdicts of an item follow from. Verdicts are reused only under the same one.

It is made of what ran, never of which files were imported: the kernel is traced for each signature, the oracle is
evaluated once on each case, and nothing is compiled or run. In addition, everything that the pairing declares counts,
and what all items of a run have in common: installed packages, settings, and the machine with its environment.
"""

import itertools
import re
import sys
import warnings
from collections.abc import Iterator, Sequence

import jax

from kerneltest.backends.base import Backend, DelegatingBackend
from kerneltest.core.dtypes import ShapeDtype, widen
from kerneltest.core.failures import Failure, exception_text, reraise_interrupt, underlying_hang
from kerneltest.core.fingerprint import Fingerprint, NotReusableError, library_contents
from kerneltest.core.host import host_identity
from kerneltest.core.precision import TPU
from kerneltest.core.processes import blas_threads, throttle_gc
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.error_models import Conditioned, Dot, Each, Exact, Reduction, Rounding, Tolerance, Ulp
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, quarantine_reason
from kerneltest.execute.process_state import ProcessState
from kerneltest.oracle.evaluation import evaluate_oracle
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import GROUPS
from kerneltest.plan.signatures import Signature
from kerneltest.records.journal import Journal, Phase
from kerneltest.trace.jax_compat.rules import replaced_function
from kerneltest.trace.jax_environment import jax_environment
from kerneltest.trace.jaxpr_digest import jaxpr_fingerprint
from kerneltest.trace.tracing import Traced, without_debugging

_PLACES = re.compile("compilation_cache|persistent_cache|dump_ir_to")  # settings of JAX that only name folders


def verdict_key(parts: Sequence[Item], cache: Cache) -> str:
    """Returns the key of a pytest item, 32 hexadecimal digits; a NotReusableError if its verdicts follow from more."""
    first = parts[0]
    if reason := first.backend.unavailable():
        raise NotReusableError(reason)
    backend = first.backend
    while isinstance(backend, DelegatingBackend):
        backend = backend.wrapped
    if not type(backend).__module__.startswith("kerneltest."):
        raise NotReusableError(f"the backend {backend.id} is not kerneltest's own")
    cache.switch_to(first.pairing, first.dtype)
    if replaced := replaced_function(cache.traces):
        raise NotReusableError(f"{replaced} is not the library's own function")
    pairing = first.pairing  # in the order of its dims and arguments, in which cases are planned
    declared = pairing, (tuple(pairing.dims), tuple(pairing.arguments), tuple(pairing.leaves))
    values: list[object] = [*_circumstances(first, cache), *declared]
    journal = cache.process.journal
    journal.start(first.name)
    try:
        with without_debugging(), throttle_gc(), blas_threads():
            for part in parts:
                for case in part.cases():
                    reason = quarantine_reason(part, case)
                    if not reason:  # otherwise the case may crash or hang
                        cache.process.begin_case(part.name, case)
                    values += (part.group.name, case.id, reason or part.group.fingerprint(part, case, cache))
    finally:
        journal.stop()
    return Fingerprint.of(*values).text


def _circumstances(item: Item, cache: Cache) -> Iterator[object]:
    """Yields what all items of a run have in common, and the backend's side."""
    yield library_contents()
    yield sys.version, sys.flags.optimize, sys.platform
    yield {name: str(value) for name, value in item.settings.plan_fields().items()}
    yield item.backend.id, item.dtype, {name: str(value) for name, value in item.backend.environment().items()}
    yield (item.pairing_id, item.backend.lowering_backend(), item.dtype) in cache.process.planned
    yield item.arbiter.id if item.arbiter else ""
    yield {name: str(value) for name, value in jax_environment().items()}
    settings = {name: str(getattr(jax.config, name, value)) for name, value in jax.config.values.items()}
    yield {name: value for name, value in settings.items() if not _PLACES.search(name)}
    yield host_identity()
    filters = [tuple(getattr(part, "pattern", str(part)) for part in known) for known in warnings.filters]
    raising = [place for place, known in enumerate(filters) if known[0] == "error"]
    yield filters[: raising[-1] + 1] if raising else []  # the first that fits decides


# What the verdict of a case follows from: the kernel's jaxpr, the inputs, the oracle's values and bounds.

_BOUNDED = "normal"  # the family on which the bounds of an oracle are compared, once for each signature
_MODELS = (Exact, Rounding, Conditioned, Dot, Reduction, Ulp)  # error models that run no code but the oracle's


def function_fingerprint(traced: Traced, cache: Cache) -> Fingerprint:
    """Returns the fingerprint of a traced function; NotReusableError: it has side effects, or cannot be read."""
    if traced not in cache.fingerprints:
        cache.fingerprints[traced] = jaxpr_fingerprint(traced.jaxpr)
    return cache.fingerprints[traced]


def kernel_fingerprint(pairing: Pairing, signature: Signature, backend: Backend, cache: Cache) -> Fingerprint:
    """Returns the `function_fingerprint` of a kernel for a signature, or the fingerprint of the failure to trace it."""
    try:
        return function_fingerprint(cache.traces.of(pairing, signature, backend), cache)
    except Failure as failure:
        return failure_fingerprint(failure)


def value_fingerprint(pairing: Pairing, case: AnyCase, backend: Backend, cache: Cache) -> Fingerprint:
    """Returns the fingerprint of a case whose outputs are compared: its kernel, its inputs and its expectation."""
    kernel = kernel_fingerprint(pairing, case.signature, backend, cache)
    try:
        traced = cache.traces.of(pairing, case.signature, backend)
    except Failure:
        return kernel
    has_bounds = case.family.name == _BOUNDED or not _follows_from_oracle(pairing.tolerance)
    key = case.id, has_bounds  # all backends share what the oracle makes of the case
    if key not in cache.fingerprints:
        try:
            parts = _evaluation(pairing, case, traced, cache)
            if has_bounds:
                parts += _bounds(cache.expectations.of(pairing, case, traced)[0], traced.outputs)
            cache.fingerprints[key] = Fingerprint.of(parts)
        except Failure as failure:
            cache.fingerprints[key] = failure_fingerprint(failure)
    return Fingerprint.of(kernel, cache.fingerprints[key])


def failure_fingerprint(failure: Failure) -> Fingerprint:
    """Returns the fingerprint of a failure that ends a case; NotReusableError: a hang, which may not recur."""
    if failure.verdict is Verdict.HANG:
        raise NotReusableError(f"it hung: {failure}") from failure
    return Fingerprint.of(str(failure.verdict), str(failure))


def _evaluation(pairing: Pairing, case: AnyCase, traced: Traced, cache: Cache) -> list[object]:
    """Returns a case's inputs, and the oracle's values for them or the exception that it raises."""
    arguments = cache.expectations.arguments(pairing, case)
    inputs = list(arguments.values())
    try:
        return [inputs, *cache.expectations.evaluate(pairing, case, traced, arguments).outputs]
    except BaseException as error:
        reraise_interrupt(error)
        if isinstance(error, Failure) and error.verdict is Verdict.HANG:
            raise
        return [inputs, type(error).__name__, exception_text(error)]


def _bounds(expectation: Expectation, outputs: tuple[ShapeDtype, ...]) -> list[object]:
    """Returns the bounds that the oracle's operations give its values.

    They are those of a machine that rounds operands and flushes subnormal numbers; the operations are the same for all.
    """
    bounds, alternatives = expectation.all_bounds(outputs, TPU), expectation.all_alternatives(TPU)
    return [list(bounds), [list(output) for output in alternatives], expectation.note(TPU)]


def _follows_from_oracle(tolerance: Tolerance) -> bool:
    """Returns whether an error model is kerneltest's own and runs no code but the oracle's."""
    if isinstance(tolerance, Each):
        return all(map(_follows_from_oracle, tolerance.models))
    if isinstance(tolerance, Rounding) and tolerance.forms:
        return False
    return type(tolerance) in _MODELS


# Fingerprints of pairings as they are planned, by which the shards of one run are recognised on any machine.


@without_debugging()
def pairing_fingerprints(items: Sequence[Item], journal: Journal) -> dict[str, str]:
    """Returns a fingerprint of each pairing's kernel and oracle, by pairing, from all groups of all items of a run.

    It has the kernel's jaxpr for each signature and platform, and the oracle's values on one case of each signature and
    group, without the last bits in which machines differ. A journal notes the steps.
    """
    by_dtype: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        by_dtype.setdefault((item.pairing_id, item.dtype), []).append(item)
    cache, parts = Cache(ProcessState(journal)), dict[str, set[Fingerprint]]()
    try:
        for (pairing, dtype), group in sorted(by_dtype.items()):
            known = parts.setdefault(pairing, set())
            try:
                known.update(_approximations(group, cache))
            except Exception as error:
                if underlying_hang(error) is None:
                    raise
                known.add(Fingerprint.of(dtype, str(Verdict.HANG)))
    finally:
        journal.stop()
        cache.process.pool.close()
    return {pairing: Fingerprint.of(known).text for pairing, known in parts.items()}


@without_debugging()
def item_fingerprint(parts: Sequence[Item], journal: Journal) -> str:
    """Returns a fingerprint of the kernel and the oracle of an item, for its first case, that is equal on any machine.

    It is "" for a device, of which a kernel may make its code depend, and after a hang, which may not occur again. A
    journal notes the steps.
    """
    if parts[0].backend.tier is Tier.DEVICE:
        return ""
    cache = Cache(ProcessState(journal))
    try:
        return Fingerprint.of(*itertools.islice(_approximations(parts, cache), 2)).text
    except Exception as error:
        if underlying_hang(error) is None:
            raise
        return ""
    finally:
        journal.stop()
        cache.process.pool.close()


def _approximations(items: Sequence[Item], cache: Cache) -> Iterator[Fingerprint]:
    """Yields the fingerprints of the kernels and of the oracle's values in the items of a pairing and dtype."""
    seen: set[object] = set()
    for item in items:
        cache.switch_to(item.pairing, item.dtype)
        for case in item.cases():
            kernel, oracle = (case.signature, item.backend.platform), (case.signature, item.group.name)
            cache.process.begin_case(item.name, case)
            try:
                traced = cache.traces.of(item.pairing, case.signature, item.backend)
            except Failure as failure:
                if failure.verdict is Verdict.HANG:
                    raise
                yield Fingerprint.of(kernel, str(failure.verdict))
                continue
            if kernel not in seen:
                seen.add(kernel)
                yield Fingerprint.of(kernel, _approximate_kernel(traced))
            if item.group.name in GROUPS and oracle not in seen:
                seen.add(oracle)
                yield Fingerprint.of(oracle, _approximate_values(item, case, traced, cache))


def _approximate_kernel(traced: Traced) -> object:
    try:
        return jaxpr_fingerprint(traced.jaxpr, approximate=True)
    except NotReusableError as error:
        return str(error)


def _approximate_values(item: Item, case: AnyCase, traced: Traced, cache: Cache) -> object:
    try:
        cache.process.enter_phase(Phase.EXPECTING)
        wide = {path: widen(value) for path, value in cache.expectations.arguments(item.pairing, case).items()}
        values, _ = evaluate_oracle(item.pairing, case.signature, wide, traced.outputs)
    except BaseException as error:  # reported when the case is judged
        reraise_interrupt(error)
        if underlying_hang(error) is not None:
            raise
        return type(error).__name__
    return Fingerprint.of(*values, approximate=True)


def find_key(parts: Sequence[Item], cache: Cache) -> str:
    """Returns the key of an item; "" if its verdicts must not be reused."""
    try:
        return verdict_key(parts, cache)
    except BaseException as error:  # a `NotReusableError`, or what the case itself reports when it runs
        reraise_interrupt(error)
        return ""
