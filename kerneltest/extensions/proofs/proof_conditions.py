"""The conditions of a proof, in words."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kerneltest.core.targets import Target
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.code_forms import Form, Forms
from kerneltest.extensions.proofs.declaration_facts import unbounded_assumption
from kerneltest.extensions.proofs.obligations import MAX_TENSOR
from kerneltest.extensions.proofs.program_slice import axis_lengths
from kerneltest.extensions.proofs.size_samples import max_length
from kerneltest.plan.signatures import Signature


def describe_conditions(
    pairing: Pairing, signature: Signature, target: Target, found: Forms, call: Sequence[Form]
) -> Iterator[str]:
    """Yields the conditions of a proof.

    Args:
      pairing: with the kernel.
      signature: with the dtypes and static arguments.
      target: a GPU.
      found: all forms of the kernel.
      call: the forms of the call that was proved.
    """
    present = [form for form in call if form.code is not None]
    count = f"as at the {found.seen} sizes that were lowered"
    if found.refused:
        count += f" ({found.refused} more did not lower)"
    yield f"the code lowered for {target} has {_describe_forms(present, len(call))} at all sizes, {count}"
    if any(map(_has_growing_tensor, present)):
        yield f"no tensor has more than {MAX_TENSOR} elements, which is Triton's limit"
    cut = ", ".join(f"{name} is declared in blocks of {dim.block}" for name, dim in pairing.dims.items() if dim.block)
    yield f"dtypes and static arguments are {replace(signature, dims=())}" + (f", and {cut}" if cut else "")
    if limits := "; ".join(_declared_limits(pairing)):
        yield f"lengths are as declared: {limits}"
    if free := unbounded_assumption(pairing):
        yield free
    read = {array.leaf for form in call if form.code for array in form.code.arrays}
    for path, leaf in pairing.leaves.items():
        if leaf.kind.counts and path in read:
            below = "" if leaf.kind.includes_end else " - 1"
            least = 0 if leaf.sentinel is None else min(leaf.sentinel, 0)
            yield f"elements of {path} are from {least} to {leaf.bound}{below}"
    if pairing.where:
        yield f"{', '.join(pairing.where.parameters)} satisfy where= as at the sizes that were lowered"


def _describe_forms(present: Sequence[Form], count: int) -> str:
    """Describes the forms and their sizes."""
    if count == 1:
        return "one form"
    where = "; ".join(map(str, present))
    absent = "; no call at other sizes" if len(present) < count else ""
    return f"{len(present)} form{'s' if len(present) > 1 else ''} ({where}{absent})"


def _has_growing_tensor(form: Form) -> bool:
    """Returns whether a form has a tensor whose length depends on the sizes."""
    assert form.code is not None
    return any(length.constant is None for length in axis_lengths(form.code.body))


def _declared_limits(pairing: Pairing) -> Iterator[str]:
    """Yields the declared range of each dim."""
    for name, dim in pairing.dims.items():
        if dim.values:
            yield f"{name} is {' or '.join(map(str, sorted(set(dim.values))))}"
            continue
        greatest = max_length(dim)
        parts = [f"{name} from {dim.minimum}" + (f" to {greatest}" if greatest is not None else "")]
        if dim.multiple_of > 1:
            parts.append(f"a multiple of {dim.multiple_of}")
        yield ", ".join(parts)
