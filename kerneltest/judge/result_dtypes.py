"""The dtypes of a kernel's outputs: what the declaration says of them or, if it says nothing, what cannot be right.

An output may be wider than the inputs, as an accumulator is, or of another kind, as indices, masks and quantised
numbers are. Without `returns=`, only two things are findings: 16-bit floats from float32 data although no argument
names that dtype, and a float dtype that depends on a length.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence

from kerneltest.core.details import Stated, WrongDtype
from kerneltest.core.dtypes import Array, DType, ShapeDtype, is_float, parse_dtype
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import ANY_DTYPE, Pairing
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.trace.tracing import Traced

_HALF, _SINGLE, _DOUBLE = 2, 4, 8  # bytes


def check_result_dtypes(
    pairing: Pairing, signature: Signature, traced: Traced, depth: str, trace: Callable[[Signature], Traced]
) -> None:
    """Checks a kernel's output dtypes; Failure: a `mismatch`, or an `oracle_error` where `returns=` does not fit."""
    if pairing.returns:
        for number, wanted in enumerate(_declared(pairing, signature, traced)):
            found = traced.outputs[number].dtype
            if wanted not in (ANY_DTYPE, str(found)):
                raise _failure(number, str(found), f"returns= declares {wanted}")
        return
    for number, output in enumerate(traced.outputs):
        if _loses_precision(pairing, signature, traced, output):
            why = "all data is float32 or wider; if this is meant, declare it with returns="
            raise _failure(number, str(output.dtype), why)
    chosen = signature.dtypes, signature.statics
    first = next((each for each in signatures(pairing, depth) if (each.dtypes, each.statics) == chosen), signature)
    if first == signature:
        return
    try:
        outputs = trace(first).outputs
    except Failure:
        return  # its own cases report that
    for number, (here, there) in enumerate(zip(traced.outputs, outputs, strict=False)):
        if here.dtype != there.dtype and is_float(here.dtype) and is_float(there.dtype):
            raise _failure(number, str(here.dtype), f"it is {there.dtype} for {first}, where only lengths differ")


def _failure(output: int, found: str, why: str) -> Failure:
    return Failure(Verdict.MISMATCH, WrongDtype(output, found, why))


def _declared(pairing: Pairing, signature: Signature, traced: Traced) -> Iterator[str]:
    returns, count = pairing.returns, len(traced.outputs)
    if len(returns) not in (1, count):
        sentence = "returns= declares {declared} outputs, and the kernel returns {count}"
        raise Failure(Verdict.ORACLE_ERROR, Stated(sentence, {"declared": len(returns), "count": count}))
    dtypes = {**dict(signature.statics), **dict(signature.dtypes)}
    for each in returns * count if len(returns) == 1 else returns:
        yield each if each == ANY_DTYPE else str(parse_dtype(dtypes.get(each, each)))


# Whether all data is float32 or wider, the output has 16 bits, and no argument names its dtype.
def _loses_precision(pairing: Pairing, signature: Signature, traced: Traced, output: ShapeDtype) -> bool:
    if not is_float(output.dtype) or output.dtype.itemsize != _HALF:
        return False
    leaves = signature.leaves(pairing).values()
    data = [each.dtype for leaf, each in zip(leaves, traced.inputs, strict=True) if leaf.kind.is_data]
    if not data or not all(is_float(dtype) and dtype.itemsize >= _SINGLE for dtype in data):
        return False
    return not _is_named(pairing, signature, output.dtype)


# Whether a static argument, or the default of a parameter of the kernel, names a dtype.
def _is_named(pairing: Pairing, signature: Signature, dtype: DType) -> bool:
    defaults = [parameter.default for parameter in inspect.signature(pairing.kernel).parameters.values()]
    named = [*pairing.option_values(dict(signature.statics)).values(), *dict(signature.statics).values(), *defaults]
    return any(str(dtype) in repr(each) for each in named)


def undeclared_narrow_dtype(pairing: Pairing, signature: Signature, traced: Traced, values: Sequence[Array]) -> str:
    """Returns the first dtype below float64 in which an oracle of float64 data returned an output; "" if none.

    Such a cast rounds the expected values, and a cast to float32 is in no bound. A dtype that `returns=`, a static
    argument or a default names is meant.

    `values` is what the oracle returned for a signature, for which the kernel is `traced`.
    """
    if not any(is_float(each.dtype) for each in traced.inputs):
        return ""
    declared = [*_declared(pairing, signature, traced)] if pairing.returns else [""] * len(values)
    for value, wanted in zip(values, declared, strict=True):
        dtype = value.dtype
        narrow = is_float(dtype) and dtype.itemsize < _DOUBLE and str(dtype) != wanted
        if narrow and not _is_named(pairing, signature, dtype):
            return str(dtype)
    return ""
