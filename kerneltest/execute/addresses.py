"""Addresses of a kernel at sizes too large to run: index arithmetic in 32 bits overflows from 2^31 elements on.

Nothing is allocated: the kernel is traced and lowered for shapes alone, and a few of its programs are run as far as
their addresses, which are compared with the arrays' lengths.
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
    """Out-of-bounds accesses of a kernel at given dim lengths, by its first, last and some other programs.

    Addresses and masks that depend on loaded values are not checked: every load gives zeros here.

    Args:
      pairing: whose kernel it is; its first dtypes and static options are taken.
      target: a GPU, as in backend ids.
      lengths: of dims, by name; the others keep their first planned length.

    Returns:
      The first fault on each array, with program, array and source line.

    Raises:
      ValueError: an unknown target or dim; lists the known ones.
      Failure: as the tiers `lower` and `simulate` report them.
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
