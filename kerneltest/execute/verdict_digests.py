"""Digests of what the verdict of a case follows from: the kernel's jaxpr, the inputs, the oracle's values and bounds.

They are made of what ran, never of which files were imported: a kernel is traced and an oracle evaluated, and nothing
is compiled.
"""

import hashlib
from collections.abc import Iterable

from kerneltest.backends.base import Backend
from kerneltest.core.dtypes import Array, ShapeDtype, digest_array
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.precision import TPU
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.error_models import Conditioned, Dot, Each, Exact, Reduction, Rounding, Tolerance, Ulp
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.trace.jaxpr_digest import JaxprDigest, OpaqueError, digest_jaxpr
from kerneltest.trace.tracing import Traced

_BOUNDED = "normal"  # the family on which the bounds of an oracle are compared, once for each signature

_MODELS = (Exact, Rounding, Conditioned, Dot, Reduction, Ulp)  # error models that run no code but the oracle's


class NotReusableError(Exception):
    """A verdict that must not be reused, since not all that it follows from can be told; says why."""


def digest_texts(texts: Iterable[str]) -> str:
    """Returns a digest of some texts, in order."""
    return hashlib.sha256("\x1f".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def digest_arrays(arrays: Iterable[Array]) -> str:
    """Returns a digest of the dtypes, shapes and bytes of arrays."""
    return digest_texts(map(digest_array, arrays))


def digest_function(traced: Traced, cache: Cache) -> JaxprDigest:
    """Returns the digest of a traced function.

    Raises:
      NotReusableError: it has side effects, or its content cannot be read.
    """
    if traced not in cache.jaxpr_digests:
        try:
            cache.jaxpr_digests[traced] = digest_jaxpr(traced.jaxpr)
        except OpaqueError as error:
            raise NotReusableError(f"the kernel cannot be compared with that of a later run: {error}") from error
    return cache.jaxpr_digests[traced]


def digest_kernel(pairing: Pairing, signature: Signature, backend: Backend, cache: Cache) -> str:
    """Returns the digest of a kernel for a signature, or of the failure to trace it.

    Raises:
      NotReusableError: as `digest_function`.
    """
    try:
        return digest_function(cache.trace_for(pairing, signature, backend), cache).text
    except Failure as failure:
        return _digest_failure(failure)


def digest_values(pairing: Pairing, case: AnyCase, backend: Backend, cache: Cache) -> str:
    """Returns the digest of a case whose outputs are compared: its kernel, its inputs and its expectation.

    Raises:
      NotReusableError: as `digest_function`.
    """
    kernel = digest_kernel(pairing, case.signature, backend, cache)
    try:
        traced = cache.trace_for(pairing, case.signature, backend)
    except Failure:
        return kernel
    return digest_texts((kernel, _digest_oracle(pairing, case, traced, cache)))


def _digest_oracle(pairing: Pairing, case: AnyCase, traced: Traced, cache: Cache) -> str:
    """Returns the digest of a case's inputs and of what the oracle makes of them; all backends share it."""
    has_bounds = case.family.name == _BOUNDED or not _follows_from_oracle(pairing.tolerance)
    key = f"{case.id} {has_bounds}"
    if key not in cache.case_digests:
        try:
            parts = [_digest_evaluation(pairing, case, traced, cache)]
            if has_bounds:
                parts.append(digest_bounds(cache.expect(pairing, case, traced)[0], traced.outputs))
        except Failure as failure:
            parts = [_digest_failure(failure)]
        cache.case_digests[key] = digest_texts(parts)
    return cache.case_digests[key]


def _digest_evaluation(pairing: Pairing, case: AnyCase, traced: Traced, cache: Cache) -> str:
    """Returns the digest of a case's inputs, and of the oracle's values for them or the exception that it raises."""
    arguments = cache.arguments(pairing, case)
    inputs = digest_arrays(arguments.values())
    try:
        known = cache.evaluate(pairing, case, traced, arguments)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, Failure) and error.verdict is Verdict.HANG:
            raise
        return digest_texts((inputs, type(error).__name__, exception_text(error)))
    values, defined = known.outputs
    return digest_texts((inputs, digest_arrays((*values, *defined))))


def digest_bounds(expectation: Expectation, outputs: tuple[ShapeDtype, ...]) -> str:
    """Returns the digest of the bounds that the oracle's operations give its values.

    They are those of a machine that rounds operands and flushes subnormal numbers; the operations are the same for all.
    """
    bounds = expectation.all_bounds(outputs, TPU)
    alternatives = [each for output in expectation.all_alternatives(TPU) for each in output]
    return digest_texts((digest_arrays((*bounds, *alternatives)), expectation.note(TPU)))


def _follows_from_oracle(tolerance: Tolerance) -> bool:
    """Returns whether an error model is kerneltest's own and runs no code but the oracle's."""
    if isinstance(tolerance, Each):
        return all(map(_follows_from_oracle, tolerance.models))
    if isinstance(tolerance, Rounding) and tolerance.forms:
        return False
    return type(tolerance) in _MODELS


def _digest_failure(failure: Failure) -> str:
    """Returns the digest of a failure that ends a case.

    Raises:
      NotReusableError: it is a hang, which may not occur again.
    """
    if failure.verdict is Verdict.HANG:
        raise NotReusableError(f"it hung: {failure}") from failure
    return digest_texts((str(failure.verdict), str(failure)))
