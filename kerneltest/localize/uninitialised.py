"""Whether wrong values come from memory that nobody wrote: the same case with something else in that memory."""

import numpy as np

from kerneltest.backends.base import Artifact
from kerneltest.core.dtypes import is_float
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Kind
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.variations import Varied
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.schema import Record
from kerneltest.trace.rewrite import Fill, before, empties, padding, rewritten
from kerneltest.trace.tracing import read

_EXPERIMENTS = (
    (before, "nobody wrote it: the result follows what the output's memory held before"),
    (empties, "nobody wrote it: the result follows what jax.lax.empty left there"),
    (padding, "it is read past the end of an array: the result follows what stands there"),
)


def unwritten(item: Item, case: AnyCase, record: Record, cache: Cache) -> str:
    """What a change of the interpreter's fill shows of a wrong element, in words; "" where it changes nothing.

    Interpret mode fills what nobody wrote, and padding, with NaN or the least integer. A wrong element that holds
    either may come from there, or from the kernel's own arithmetic: other values in that memory tell.
    """
    evidence = record.evidence
    if item.backend.tier is not Tier.INTERPRET or isinstance(item.group, Varied) or evidence is None:
        return ""
    if record.verdict.kind is not Kind.VALUES or evidence.actual is None:
        return ""
    try:
        traced = cache.traced(item.pairing, case.signature, item.backend)
        dtype = traced.outputs[evidence.output].dtype
        if evidence.actual == evidence.actual and (is_float(dtype) or evidence.actual != _least(dtype)):
            return ""
        arguments = cache.arguments(item.pairing, case)
        leaves = [arguments[path] for path, _ in case.signature.dtypes]
        for fill, words in _EXPERIMENTS:
            changed = read(rewritten(traced.jaxpr, fill(Fill(nan=False))), traced.function, traced.inputs)
            executable = item.backend.prepare(changed)
            assert not isinstance(executable, Artifact)
            got = executable.run(leaves)[evidence.output][evidence.index]
            if float(got) != evidence.actual and not np.isnan(float(got)):
                return words
    except Failure:
        return ""
    return ""


def _least(dtype: np.dtype) -> int:
    return 0 if dtype.kind == "b" else int(np.iinfo(dtype).min)
