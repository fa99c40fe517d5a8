"""A check of a kernel's addresses at sizes too large to run: 32-bit index arithmetic overflows from 2^31 elements on.

Nothing is allocated: the kernel is traced and lowered for shapes only. The simulator runs a few of its programs without
data, and compares their addresses with the arrays' lengths.
"""

from dataclasses import replace

from kerneltest.backends.codegen.gpu_lowering import lower_call
from kerneltest.backends.simulate.access_checker import Fault
from kerneltest.backends.simulate.at_scale import faults_on_zeros, select_programs
from kerneltest.core.targets import TARGETS
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import signatures
from kerneltest.trace.tracing import trace


def check_addresses(pairing: Pairing, *, target: str = "sm_90", **lengths: int) -> tuple[Fault, ...]:
    """Finds out-of-bounds accesses of a kernel at given lengths, in its first, its last and some other programs.

    Every load returns zeros, so addresses and masks that depend on loaded values are not checked.

    Args:
      pairing: the pairing, whose first dtypes and static options are used.
      target: a GPU, as in backend ids.
      lengths: lengths of dims by name. Other dims have their first planned length.

    Returns:
      The first fault on each array, with program, array and source line.

    Raises:
      ValueError: the target or a dim is unknown; the message lists the known ones.
      Failure: the kernel does not trace or lower, as the tiers `lower` and `simulate` report it.
    """
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; known are {', '.join(TARGETS)}")
    for name in lengths:
        if name not in pairing.dims:
            raise ValueError(f"{pairing.name} has no dim {name!r}; it has {', '.join(pairing.dims)}")
    planned = signatures(pairing, "quick")[0]
    signature = replace(planned, dims=tuple((name, lengths.get(name, length)) for name, length in planned.dims))
    faults: list[Fault] = []
    for call in trace(pairing, signature, TARGETS[target].platform).calls:
        (kernel,) = lower_call(call, TARGETS[target])
        faults += faults_on_zeros(call, kernel, select_programs(call, kernel))
    return tuple(faults)
