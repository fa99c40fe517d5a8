"""Addresses of a kernel at sizes too large to run: index arithmetic in 32 bits overflows from 2^31 elements on.

Nothing is allocated: the kernel is traced and lowered for shapes alone, and a few of its programs are run as far as
their addresses, which are compared with the arrays' lengths.
"""

import math
from dataclasses import replace

import numpy as np

from kerneltest.backends.codegen.lower import lower_call
from kerneltest.backends.simulate.memory import Buffer, Fault
from kerneltest.backends.simulate.parse import parse
from kerneltest.backends.simulate.simulation import Simulation
from kerneltest.core.targets import TARGETS
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.jaxprs.runnable import references
from kerneltest.jaxprs.trace import trace
from kerneltest.plan.signatures import signatures

_SAMPLE = 64


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
        inputs, outputs = references(call)
        arrays = [
            Buffer(r.name, r.shape, np.broadcast_to(np.zeros(1, r.dtype), math.prod(r.shape)), output=False)
            for r in (*inputs, *outputs)
        ]
        hints = {r.name: r.hint for r in (*inputs, *outputs) if r.hint}
        count = math.prod(kernel.grid)
        simulation = Simulation(parse(kernel.bytecode), kernel.grid, arrays, [], hints, _sample(count))
        faults += simulation.faults()
        faults += [fault for array in arrays if (fault := _meeting(array, simulation)) is not None]
    return tuple(faults)


def _sample(count: int) -> np.ndarray:
    """Programs from both ends and between, and those a power of two apart, which meet where an index wraps around."""
    powers = {2**i for i in range(count.bit_length())}
    spread = np.linspace(0, count - 1, _SAMPLE).astype(np.int64).tolist()
    chosen = {*range(8), *range(count - 8, count), *powers, *spread}
    return np.array(sorted(p for p in chosen if 0 <= p < count), np.int64)


def _meeting(array: Buffer, simulation: Simulation) -> Fault | None:
    """Two programs of the sample that store to one element of an array."""
    stores = [access for access in simulation.launch.stores if access.buffer is array]
    parts = []
    for access in stores:
        shape = (simulation.launch.programs.size, *access.offset.shape[1:])
        inside = np.broadcast_to(access.inside, shape)
        who = np.broadcast_to(simulation.launch.programs.reshape(-1, *(1,) * (len(shape) - 1)), shape)
        parts.append(np.stack([np.broadcast_to(access.offset, shape)[inside], who[inside]]))
    if not parts:
        return None
    offset, program = np.unique(np.concatenate(parts, axis=1), axis=1)
    same = np.flatnonzero(offset[1:] == offset[:-1])
    if not same.size:
        return None
    at = int(same[0])
    one, other = (simulation.launch.watch.program(int(program[at + i])) for i in (0, 1))
    where = array.element(int(offset[at]))
    return Fault(
        Verdict.RACE,
        f"{array.name}{where} is written by {one} and by {other} at {stores[0].place}, in no order: does an index wrap "
        "around at 2^32?",
        array.name,
        int(offset[at]),
    )
