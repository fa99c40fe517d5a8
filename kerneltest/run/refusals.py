"""Error cases planned and judged: what a kernel must refuse is traced and prepared, and never run."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kerneltest.backends import Backend, BackendError
from kerneltest.declare.rejects import ErrorCase
from kerneltest.plan.families import Family
from kerneltest.declare.arguments import Array, Choice
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import Case
from kerneltest.plan.signatures import Signature, dtypes_of, signatures
from kerneltest.jaxprs.trace import TraceError, trace

ERRORS = "errors"  # the group of these cases


def planned(pairing: Pairing, dtype: str, depth: str, seed: int) -> Iterator[Case]:
    """The error cases of a pairing, in the first of its dtypes."""
    if pairing.errors and dtype == dtypes_of(pairing, depth)[0]:
        base = next(each for each in signatures(pairing, depth) if each.dtype == dtype)
        for error in pairing.errors:
            family = Family(
                f"error_{error.name}", ERRORS, lambda slot, rng: np.zeros(slot.shape, slot.dtype), lambda slot: False,
                each=False, without_arrays=True,
            )  # fmt: skip
            yield Case(pairing.name, _signature(pairing, base, error), family, "", seed)


def judged(pairing: Pairing, case: Case, backend: Backend) -> tuple[str, str]:
    """A verdict and a message: whether what must be raised is, when the call is traced or else prepared."""
    (error,) = (each for each in pairing.errors if f"error_{each.name}" == case.family.name)
    try:
        backend.prepare(trace(_altered(pairing, error), case.signature))
    except (TraceError, BackendError) as raised:
        if error.met_by(raised):
            return "pass", ""
        cause = raised.__cause__ or raised
        return "runtime_error", f"expected {error.expected}, got {type(cause).__name__}: {cause}"
    return "unexpected_pass", f"expected {error.expected}, and nothing was raised"


def _altered(pairing: Pairing, error: ErrorCase) -> Pairing:
    """The pairing with the error case's arguments for its own."""
    changed = {
        name: value if isinstance(value, Array) else Choice(((str(value), value),), named=False)
        for name, value in error.arguments.items()
    }
    return replace(pairing, arguments={**pairing.arguments, **changed}, errors=())


def _signature(pairing: Pairing, base: Signature, error: ErrorCase) -> Signature:
    leaves = _altered(pairing, error).leaves
    kinds = dict(base.dtypes)
    return replace(
        base,
        dims=tuple((name, error.dims.get(name, length)) for name, length in base.dims),
        dtypes=tuple(
            (path, leaf.dtypes[0] if path in error.arguments else kinds[path]) for path, leaf in leaves.items()
        ),
        statics=tuple((name, str(error.arguments.get(name, option))) for name, option in base.statics),
    )
