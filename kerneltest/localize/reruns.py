"""Reruns of a case in its interpreter with unwritten memory filled differently, or with the programs in order."""

import math
from enum import StrEnum

import numpy as np

from kerneltest.backends.base import Artifact
from kerneltest.core.dtypes import is_float
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import VerdictKind
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import InvariantGroup
from kerneltest.execute.item import Item
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.evidence import Evidence
from kerneltest.records.schema import Record
from kerneltest.trace.grid_rewrites import run_in_order
from kerneltest.trace.jax_compat.jaxpr_types import Equation
from kerneltest.trace.rewrite import Fill, fill_empty, fill_outputs, fill_padding, rewrite_jaxpr
from kerneltest.trace.tracing import Traced, analyze


class Cause(StrEnum):
    """The causes of a wrong element that a rerun can show, in words."""

    PREVIOUS_OUTPUT = "never written: the value depends on the previous content of the output's memory"
    EMPTY = "never written: the value depends on the content of jax.lax.empty"
    PADDING = "read past the end of an array: the value depends on what lies there"
    PROGRAM_ORDER = "right if programs run in order: the kernel relies on the order of a dimension declared parallel"


_FILLS = ((fill_outputs, Cause.PREVIOUS_OUTPUT), (fill_empty, Cause.EMPTY), (fill_padding, Cause.PADDING))


def depends_on_memory(item: Item, case: AnyCase, record: Record, cache: Cache) -> Cause | None:
    """Returns the undefined memory that a wrong element depends on, if other contents of it change the element.

    Interpreters fill unwritten memory and padding with NaN or the least integer. A wrong element with such a value may
    come from there or from the kernel's own arithmetic, which reruns with other fills tell apart.
    """
    evidence = _evidence(item, record)
    if evidence is None or evidence.actual is None:
        return None
    try:
        traced = cache.trace_for(item.pairing, case.signature, item.backend)
        dtype = traced.outputs[evidence.output].dtype
        if evidence.actual == evidence.actual and (is_float(dtype) or evidence.actual != _least(dtype)):
            return None
        for fill, cause in _FILLS:
            changed = analyze(rewrite_jaxpr(traced.jaxpr, fill(Fill(nan=False))), traced.function, traced.inputs)
            value = _rerun(item, case, changed, evidence, cache)
            if value != evidence.actual and not np.isnan(value):
                return cause
    except Failure:
        return None
    return None


def depends_on_order(item: Item, case: AnyCase, record: Record, cache: Cache) -> Cause | None:
    """Returns the order of the programs as the cause of a wrong element, if it is right when they run in order.

    An interpreter shuffles the dimensions of the grid that a kernel calls parallel, as a device may.
    """
    evidence = _evidence(item, record)
    if evidence is None or evidence.expected is None:
        return None
    try:
        traced = cache.trace_for(item.pairing, case.signature, item.backend)
        if not any("parallel" in str(_dimension_semantics(call.equation)).lower() for call in traced.calls):
            return None
        ordered = analyze(rewrite_jaxpr(traced.jaxpr, run_in_order()), traced.function, traced.inputs)
        value = _rerun(item, case, ordered, evidence, cache)
    except Failure:
        return None
    is_right = abs(value - evidence.expected) <= evidence.bound or (math.isnan(value) and math.isnan(evidence.expected))
    return Cause.PROGRAM_ORDER if is_right else None


def _evidence(item: Item, record: Record) -> Evidence | None:
    """Returns the evidence of a wrong value in an interpreter's plain call; None for any other finding."""
    is_plain_call = item.backend.tier is Tier.INTERPRET and not isinstance(item.group, InvariantGroup)
    return record.evidence if is_plain_call and record.verdict.kind is VerdictKind.VALUES else None


def _rerun(item: Item, case: AnyCase, traced: Traced, evidence: Evidence, cache: Cache) -> float:
    """Runs a changed kernel on a case's inputs, and returns the element that was wrong."""
    executable = item.backend.prepare(traced)
    assert not isinstance(executable, Artifact)
    arguments = cache.arguments(item.pairing, case)
    outputs = executable.run([arguments[path] for path, _ in case.signature.dtypes])
    return float(outputs[evidence.output][evidence.index])


def _least(dtype: np.dtype) -> int:
    return 0 if dtype.kind == "b" else int(np.iinfo(dtype).min)


def _dimension_semantics(equation: Equation) -> object:
    return getattr(getattr(equation, "params", {}).get("compiler_params"), "dimension_semantics", None)
