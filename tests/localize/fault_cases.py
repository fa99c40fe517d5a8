"""Failing cases of kernels, and the locations of their faults."""

from dataclasses import replace
from typing import Any

import numpy as np

import kerneltest as kt
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import WorkBudget
from kerneltest.execute.item import Outcome
from kerneltest.localize.repair_search import LineSearch, locate_fault
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.schema import FaultLocation, Record


def make_case(pairing: kt.Pairing, dims: dict[str, int], dtype: str = "float32", **values: Any) -> ExplicitCase:
    """A case of some lengths, with the given arguments broadcast to their shapes, and ones for the others."""
    planned = next(s for s in signatures(pairing, "quick") if s.dtype == dtype)
    lengths = tuple((name, dims.get(name, length)) for name, length in planned.dims)
    signature = replace(planned, dims=lengths)
    arguments = {
        path: np.broadcast_to(np.asarray(values.get(path, 1.0)), signature.shape(leaf)).astype(dtype)
        for path, leaf in pairing.leaves.items()
    }
    return ExplicitCase(pairing.name, signature, arguments)


def locate_case(pairing: kt.Pairing, case: ExplicitCase, **options: Any) -> FaultLocation | None:
    """The location of the fault behind a failing case; options as for `search_case`."""
    return search_case(pairing, case, **options).location


def search_case(
    pairing: kt.Pairing,
    case: ExplicitCase,
    seconds: float = 30.0,
    backend: str = "simulate:sm_90",
    family: str = "drawn",
    verdict: Verdict = Verdict.MISMATCH,
    **more: Any,
) -> LineSearch:
    """The result of a search for the line behind a failing case."""
    signature: Signature = case.signature
    record = Record(
        item="", pairing=pairing.name, backend=backend, tier=Tier(backend.replace("-", ":").partition(":")[0]),
        dtype=signature.dtype,
        group="special", family=family, signature=str(signature), dims=dict(signature.dims),
        dtypes=dict(signature.dtypes), statics=dict(signature.statics), target="", case=case.id,
        verdict=verdict,
    )  # fmt: skip
    return locate_fault(pairing, case, Outcome(record), WorkBudget(seconds), **more)
