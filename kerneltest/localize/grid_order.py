"""Whether wrong values come from the order of a grid's programs: the same case with all of them in order."""

import math

from kerneltest.backends.base import Artifact
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Kind
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.variations import Varied
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.schema import Record
from kerneltest.trace.grid_rewrites import in_order
from kerneltest.trace.rewrite import rewritten
from kerneltest.trace.tracing import read

_WORDS = "right where programs run in order: it relies on the order of a dimension that it calls parallel"


def unordered(item: Item, case: AnyCase, record: Record, cache: Cache) -> str:
    """What a run in order shows of a wrong element, in words; "" where it is as wrong then.

    An interpreter shuffles the dimensions that a kernel calls parallel, as a device may.
    """
    evidence = record.evidence
    if item.backend.tier is not Tier.INTERPRET or isinstance(item.group, Varied) or evidence is None:
        return ""
    if record.verdict.kind is not Kind.VALUES or evidence.expected is None:
        return ""
    try:
        traced = cache.traced(item.pairing, case.signature, item.backend)
        if not any("parallel" in str(_semantics(call.equation)).lower() for call in traced.calls):
            return ""
        arguments = cache.arguments(item.pairing, case)
        ordered = read(rewritten(traced.jaxpr, in_order()), traced.function, traced.inputs)
        executable = item.backend.prepare(ordered)
        assert not isinstance(executable, Artifact)
        got = float(
            executable.run([arguments[path] for path, _ in case.signature.dtypes])[evidence.output][evidence.index]
        )
    except Failure:
        return ""
    right = abs(got - evidence.expected) <= evidence.bound or (math.isnan(got) and math.isnan(evidence.expected))
    return _WORDS if right else ""


def _semantics(equation: object) -> object:
    return getattr(getattr(equation, "params", {}).get("compiler_params"), "dimension_semantics", None)
