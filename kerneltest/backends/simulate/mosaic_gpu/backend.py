"""The simulate tier for Mosaic GPU kernels."""

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.backends.codegen.block_limits import check_shared_memory
from kerneltest.backends.simulate.ir import Region, Type, naming_kernel, unsupported_failure
from kerneltest.backends.simulate.memory import check_same, memory_failure
from kerneltest.backends.simulate.mosaic_gpu.machine import Block, Cluster, LaunchShape, Thread, Timing, Wait
from kerneltest.backends.simulate.mosaic_gpu.memory import Faults, Memory, Ref, plain_layout
from kerneltest.backends.simulate.mosaic_gpu.operations import Compiler, run
from kerneltest.backends.simulate.simulation import ELEMENTS, Reader
from kerneltest.core.details import Hung
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.trace.jax_compat.jaxprs import core_meshes, parameter_names
from kerneltest.trace.jax_compat.mosaic_gpu_lowering import read_dialect
from kerneltest.trace.partial_arrays import FilledRun, PartialArray, run_filled
from kerneltest.trace.runnable import CallArray, call_as_function, refuse_outer_references
from kerneltest.trace.tracing import Call, Traced

_OPAQUE = np.dtype(object)  # pointers, structures and barriers: types of a dialect, whose names begin with !
_ELEMENTS = {
    **ELEMENTS,
    "index": np.dtype(np.int64),
    "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
}
_SHAPED = re.compile(r"(vector|memref)<((?:[\d?]+x)*)([^,>]+)")


def read_program(module: Any) -> tuple[Region, int]:
    """Returns the body of a module's kernel, and the number of its values."""
    functions = (op.operation for block in module.regions[0] for op in block)
    function = next(op for op in functions if op.name == "func.func" and len(op.regions[0].blocks))
    reader = _MosaicReader(complete=True)
    return reader.region(function.regions[0]), len(reader.types)


class _MosaicReader(Reader):
    unused = re.compile("layouts?$|Flags$|^fastmath$|^constraints$")

    def parse_type(self, text: str) -> Type:
        """Returns a type; `pointer` says that it is a reference."""
        shaped = _SHAPED.match(text)
        kind, lengths, element = shaped.groups() if shaped else ("", "", text)
        if element not in _ELEMENTS and not element.startswith("!"):
            raise unsupported_failure(f"elements of type {element}")
        shape = tuple(int(length) for length in lengths.split("x")[:-1])
        return Type(shape, _ELEMENTS.get(element, _OPAQUE), kind == "memref")


_FILL, _OTHER_FILL = 0xFF, 0x33  # bytes of unwritten memory: NaN, and small positive numbers
_ARGUMENT = "mosaic_gpu.from_kernel_arg_idx"


def prepare_calls(
    traced: Traced, target: Target, lower: Callable[[], object], orders: int
) -> "dict[int, SimulatedKernel]":
    """Returns the calls of a kernel, by the ids of their equations, to run in `orders` random orders more."""
    calls = {}
    for call in traced.calls:
        refuse_outer_references(call)
        try:
            calls[id(call.equation)] = SimulatedKernel(call, target, orders)
        except Failure:
            raise
        except Exception:
            lower()
            raise
    return calls


def _memory(array: CallArray, values: Array, faults: Faults, *, output: bool) -> Memory:
    data = np.array(values, order="C").reshape(-1).view(np.uint8)
    return Memory(array.name, data, faults, output, not output, shape=array.shape, dtype=array.dtype)


def _arguments(call: Call) -> tuple[list[CallArray], list[CallArray]]:
    names = iter(parameter_names(call.equation.params["jaxprs"][0]))

    def arguments(kind: str, variables: Sequence[Any]) -> list[CallArray]:
        known = [name if (name := next(names, "")).isidentifier() else f"{kind} {i}" for i in range(len(variables))]
        return [
            CallArray(n, tuple(v.aval.shape), np.dtype(v.aval.dtype)) for n, v in zip(known, variables, strict=True)
        ]

    return arguments("input", call.equation.invars), arguments("output", call.equation.outvars)


class SimulatedKernel:
    """One Mosaic GPU call, compiled to steps."""

    def __init__(self, call: Call, target: Target, orders: int) -> None:
        self.name = call.name
        if call.equation.params.get("input_output_aliases"):
            raise unsupported_failure("outputs that share memory with inputs")
        if getattr(call.equation.params.get("compiler_params"), "unsafe_no_auto_barriers", False):
            raise unsupported_failure("threads of a warpgroup out of step, as with unsafe_no_auto_barriers=True")
        function, shapes = call_as_function(call, "mosaic_gpu")
        body, values = read_dialect(function, shapes, target, read_program)
        self.inputs, self.outputs = _arguments(call)
        self.axes = min(3, max((len(mesh.grid) for mesh in core_meshes(call.equation)), default=0) or 1)
        self.schedules = [
            (Timing.LATE, 0),
            (Timing.EARLY, 0),
            *((Timing.RANDOM, seed) for seed in range(1 + orders)),
        ]
        compiler = Compiler(values)
        compiler.region(replace(body, operations=tuple(op for op in body.operations if op.name == "arith.constant")))
        self.references = {
            op.attributes[_ARGUMENT]: (op.results[0], plain_layout(op.types[0].shape, op.types[0].dtype))
            for op in body.operations
            if _ARGUMENT in op.attributes
        }
        (launch,) = (op for op in body.operations if op.name == "gpu.launch")
        given = iter(launch.operands)
        parts = [[compiler.constants[next(given)] for _ in range(n)] for n in launch.attributes["operandSegmentSizes"]]
        _, gx, gy, gz, bx, by, bz, cx, cy, cz, shared, *_ = parts
        grid, cluster = (gx[0], gy[0], gz[0]), (*(cx or [1]), *(cy or [1]), *(cz or [1]))
        self.shape = LaunchShape(grid, cluster, bx[0] * by[0] * bz[0] // 128, shared[0] if shared else 0)
        check_shared_memory([call], call.name, self.shape.shared, target)
        with naming_kernel(call.name):
            self.steps = compiler.region(launch.regions[0])
        self.constants = compiler.constants

    def run(self, operands: Sequence[PartialArray]) -> list[PartialArray]:
        """Returns the outputs. Failure: misuse of memory or a barrier, a deadlock, a race of the schedule."""
        return run_filled(self._run_all, operands)

    def _run_all(self, operands: Sequence[Any], fill: Any) -> FilledRun:
        # By each schedule; the results are those with work as late as possible.
        results = []
        for timing, seed in self.schedules:
            faults = Faults()
            try:
                with np.errstate(all="ignore"):
                    outputs = self._run(operands, _FILL if fill is None else _OTHER_FILL, timing, seed, faults)
            except Failure as failure:
                if faults.found:
                    raise memory_failure(self.name, list(faults.found.values())) from failure
                if isinstance(failure.detail, Hung):
                    words = f"{failure.detail.words} (asynchronous work {timing.value})"
                    raise Failure(failure.verdict, replace(failure.detail, words=words)) from failure
                raise
            if faults.found:
                raise memory_failure(self.name, list(faults.found.values()))
            results.append((timing, outputs, faults))
        _, outputs, faults = results[0]
        if not faults.reads:
            for timing, others, _ in results[1:]:
                self._compare(outputs, others, timing)
        values = [self._values(argument, memory) for argument, memory in zip(self.outputs, outputs, strict=True)]
        reads = tuple(dict.fromkeys(read for _, _, found in results for read in found.reads))
        return FilledRun(values, [memory.unwritten() for memory in outputs], reads)

    def _run(self, operands: Sequence[Any], fill: int, timing: Timing, seed: int, faults: Faults) -> list[Memory]:
        inputs = [
            _memory(a, np.asarray(x, a.dtype), faults, output=False) for a, x in zip(self.inputs, operands, strict=True)
        ]
        outputs = [
            _memory(a, np.full(math.prod(a.shape) * a.dtype.itemsize, fill, np.uint8), faults, output=True)
            for a in self.outputs
        ]
        values = list(self.constants)
        memories = [*inputs, *outputs]
        for argument, (number, layout) in self.references.items():
            if argument >= len(memories):
                raise unsupported_failure("scratch in global memory")
            values[number] = Ref(memories[argument], layout)
        waiting = deque(_corners(self.shape.grid, self.shape.cluster))
        while waiting:
            corner = waiting.popleft()
            cluster = Cluster(timing, seed, faults, self.shape, waiting)
            threads = []
            for rank in _corners(self.shape.cluster, (1, 1, 1)):
                index = corner[0] + rank[0], corner[1] + rank[1], corner[2] + rank[2]
                block = cluster.blocks[rank] = Block(index, rank, cluster, fill)
                for group in range(self.shape.threads):
                    event = cluster.new_event()
                    program = index[::-1][3 - self.axes :]
                    who = f"program ({', '.join(map(str, program))})"
                    who = f"warpgroup {group} of {who}" if self.shape.threads > 1 else who
                    thread = Thread(
                        cluster.scope,
                        event,
                        event,
                        who,
                        program,
                        group,
                        block=block,
                        values=list(values),
                        number=128 * group,
                    )
                    threads.append((thread, self._whole(thread)))
            cluster.run(threads)
        for memory in outputs:
            memory.forget_accesses()
        return outputs

    def _whole(self, thread: Thread) -> Iterator[Wait]:
        yield from run(thread, self.steps)
        thread.end()

    def _values(self, argument: CallArray, memory: Memory) -> Array:
        values = memory.data != 0 if argument.dtype == np.bool_ else memory.data.view(argument.dtype)
        return values.reshape(argument.shape)

    def _compare(self, outputs: Sequence[Memory], others: Sequence[Memory], timing: Timing) -> None:
        for argument, memory, other in zip(self.outputs, outputs, others, strict=True):
            one, two = (m.data.view(argument.dtype) for m in (memory, other))
            how = f"with asynchronous work {Timing.LATE.value}", timing.value
            check_same(argument.name, argument.shape, one, two, how, self.name)


def _corners(whole: Sequence[int], part: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    x, y, z = (range(0, n, size) for n, size in zip(whole, part, strict=True))
    return ((i, j, k) for k in z for j in y for i in x)
