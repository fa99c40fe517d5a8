"""Replay of a counterexample in the simulator, which is independent of the proof."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltest.backends.codegen.gpu_lowering import LoweredKernel, lower_call
from kerneltest.backends.simulate.access_checker import Fault
from kerneltest.backends.simulate.at_scale import faults_on_zeros
from kerneltest.backends.simulate.backend import allocate_buffers, input_contents
from kerneltest.backends.simulate.simulation import Simulation
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.formulas import Sizes
from kerneltest.extensions.proofs.lowered_code import parse_code
from kerneltest.plan.signatures import Signature
from kerneltest.trace.partial_arrays import PartialArray
from kerneltest.trace.runnable import call_arrays
from kerneltest.trace.tracing import Call, trace

_MAX_ELEMENTS = 2**22  # of all arrays together, up to which they are allocated


def replay_programs(
    pairing: Pairing,
    signature: Signature,
    target: Target,
    call: int,
    sizes: Sizes,
    programs: Sequence[tuple[int, ...]],
    values: Mapping[int, Mapping[int, int]],
    *,
    with_others: bool = False,
) -> list[Fault]:
    """Runs some programs of a call and returns their faults; none if the kernel does not lower.

    Args:
      pairing, signature, target: the kernel, its dtypes and static arguments, and the GPU that it is lowered for.
      call: the number of the Pallas call.
      sizes: lengths of the dims.
      programs: to run, by their ids along x, y and z.
      values: by the number of an input and an offset: the element there. Other elements are 0.
      with_others: whether to run further programs, with which a wrapped index may make these conflict.
    """
    try:
        traced = trace(pairing, replace(signature, dims=tuple(sizes.items())), target.platform)
        one = traced.calls[call]
        (kernel,) = lower_call(one, target)
        return _faults(one, kernel, _ids(kernel, programs, with_others), values)
    except Failure:
        return []


def _ids(kernel: LoweredKernel, programs: Sequence[tuple[int, ...]], with_others: bool) -> Array:
    """Returns the linear ids of programs and, if `with_others`, of the first, the last and those at powers of two."""
    x, y, z = kernel.grid
    chosen = {a + x * (b + y * c) for a, b, c in programs}
    if with_others:
        count = x * y * z
        others = (*range(4), *range(count - 4, count), *(2**i for i in range(count.bit_length())))
        chosen |= {each for each in others if 0 <= each < count}
    return np.array(sorted(chosen), np.int64)


def _faults(call: Call, kernel: LoweredKernel, ids: Array, values: Mapping[int, Mapping[int, int]]) -> list[Fault]:
    inputs, outputs = call_arrays(call)
    if sum(math.prod(r.shape) for r in (*inputs, *outputs)) > _MAX_ELEMENTS:
        return faults_on_zeros(call, kernel, ids)
    inputs_memory, outputs_memory, hints = allocate_buffers(call, kernel)
    simulation = Simulation(parse_code(kernel.bytecode), kernel.grid, inputs_memory, outputs_memory, hints, ids)
    arrays = [_array_with(r.shape, r.dtype, values.get(i, {})) for i, r in enumerate(inputs)]
    simulation.run(input_contents([PartialArray(array) for array in arrays]))
    return simulation.faults()


def _array_with(shape: tuple[int, ...], dtype: np.dtype[Any], values: Mapping[int, int]) -> Array:
    array = np.zeros(math.prod(shape), dtype)
    for offset, value in values.items():
        if 0 <= offset < array.size:
            array[offset] = value
    return array.reshape(shape)
