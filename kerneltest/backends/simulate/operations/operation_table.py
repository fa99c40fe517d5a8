"""The semantics of every operation of Triton IR that the simulator supports, one line for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from kerneltest.backends.simulate.interpreter import BufferPointer, IRInterpreter, Value
from kerneltest.backends.simulate.ir import Compute, Mask, Operation, Rule, Semantics, any_operand, dense_masks
from kerneltest.backends.simulate.operations import elementwise, tensor_operations
from kerneltest.core.dtypes import Array
from kerneltest.numerics import device_operations


def _elementwise(
    compute: Compute, undefined: Callable[[Sequence[Array], Sequence[Mask]], Array] = any_operand
) -> Semantics:
    rule = Rule(compute, undefined)
    return Semantics(lambda op: rule, bare=True)


def _cast(make: Callable[[np.dtype], Compute]) -> Semantics:
    return Semantics(lambda op: Rule(make(op.types[0].dtype), any_operand), bare=True)


def _movement(make: Callable[[Operation], Compute], *, bare: bool = False) -> Semantics:
    # Returns the semantics of an operation that moves masks of undefined elements as it moves the elements.

    def rule(op: Operation) -> Rule:
        compute = make(op)
        return Rule(compute, lambda values, masks: compute(*dense_masks(values, masks)))

    return Semantics(rule, bare=bare)


def _range(op: Operation) -> Compute:
    return tensor_operations.constantly(np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32)[None])


def _bitcast(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    return operands if isinstance(operands[0], BufferPointer) else interpreter.compute(op, operands)


def _num_programs(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    return [np.full(1, interpreter.launch.grid[op.attributes["axis"]], np.int32)]


OPERATIONS: Mapping[str, Semantics] = {
    # Numbers. i1 is bool.
    "arith.addi": _elementwise(np.add),
    "arith.subi": _elementwise(np.subtract),
    "arith.muli": _elementwise(np.multiply),
    "arith.divsi": _elementwise(device_operations.divide),
    "arith.divui": _elementwise(device_operations.as_unsigned(device_operations.divide)),
    "arith.remsi": _elementwise(device_operations.remainder),
    "arith.remui": _elementwise(device_operations.as_unsigned(device_operations.remainder)),
    "arith.maxsi": _elementwise(np.maximum),
    "arith.minsi": _elementwise(np.minimum),
    "arith.maxui": _elementwise(device_operations.as_unsigned(np.maximum)),
    "arith.minui": _elementwise(device_operations.as_unsigned(np.minimum)),
    "arith.andi": _elementwise(np.bitwise_and, elementwise.undefined_logical(determining=False)),
    "arith.ori": _elementwise(np.bitwise_or, elementwise.undefined_logical(determining=True)),
    "arith.xori": _elementwise(np.bitwise_xor),
    "arith.shli": _elementwise(device_operations.shift_left),
    "arith.shrsi": _elementwise(device_operations.shift_right_arithmetic),
    "arith.shrui": _elementwise(device_operations.shift_right_logical),
    "arith.addf": _elementwise(np.add),
    "arith.subf": _elementwise(np.subtract),
    "arith.mulf": _elementwise(np.multiply),
    "arith.divf": _elementwise(np.divide),
    "arith.remf": _elementwise(np.fmod),
    "arith.negf": _elementwise(np.negative),
    # IEEE 754's maximum keeps a NaN; its maxNum, which GPUs have, returns the other operand.
    "arith.maximumf": _elementwise(np.maximum),
    "arith.minimumf": _elementwise(np.minimum),
    "arith.maxnumf": _elementwise(np.fmax),
    "arith.minnumf": _elementwise(np.fmin),
    "arith.cmpi": Semantics(elementwise.compare_integers),
    "arith.cmpf": Semantics(elementwise.compare_floats),
    "arith.select": _elementwise(np.where, elementwise.undefined_select),
    **{f"math.{name}": Semantics(elementwise.builtin, bare=True) for name in elementwise.NAMES},
    "tt.extern_elementwise": Semantics(elementwise.external),
    # Dtypes.
    **dict.fromkeys(("arith.extf", "arith.truncf", "tt.fp_to_fp"), _cast(lambda dtype: lambda x: x.astype(dtype))),
    "arith.extsi": _cast(partial(elementwise.extend, signed=True)),
    "arith.extui": _cast(partial(elementwise.extend, signed=False)),
    "arith.trunci": _cast(elementwise.truncate),
    "arith.sitofp": _cast(partial(elementwise.to_float, signed=True)),
    "arith.uitofp": _cast(partial(elementwise.to_float, signed=False)),
    "arith.fptosi": _cast(partial(elementwise.to_integer, signed=True)),
    "arith.fptoui": _cast(partial(elementwise.to_integer, signed=False)),
    "arith.bitcast": _cast(elementwise.bitcast),
    "tt.bitcast": replace(_cast(elementwise.bitcast), execute=_bitcast),
    # Shapes and constants. An axis along which values are the same may have length 1.
    "tt.splat": _movement(lambda op: lambda x: x.reshape(x.shape[0], *(1,) * len(op.types[0].shape)), bare=True),
    "tt.broadcast": _movement(lambda op: lambda x: x, bare=True),
    "tt.expand_dims": _movement(lambda op: lambda x: np.expand_dims(x, op.attributes["axis"] + 1)),
    "tt.reshape": _movement(tensor_operations.reshape, bare=True),
    "tt.trans": _movement(lambda op: lambda x: x.transpose(0, *(axis + 1 for axis in op.attributes["order"]))),
    "tt.join": _movement(lambda op: lambda a, b: np.stack(np.broadcast_arrays(a, b), axis=-1), bare=True),
    "tt.split": _movement(tensor_operations.split, bare=True),
    "tt.cat": _movement(tensor_operations.concatenate, bare=True),
    "arith.constant": _movement(tensor_operations.constant),
    "tt.make_range": _movement(_range),
    # Along an axis.
    "tt.dot": Semantics(tensor_operations.dot),
    "tt.reduce": Semantics(tensor_operations.reduce),
    "tt.scan": Semantics(tensor_operations.scan),
    # Programs and their memory. Programs run in lockstep, so that a barrier has nothing to do.
    "tt.get_program_id": Semantics(execute=tensor_operations.program_id),
    "tt.get_num_programs": Semantics(execute=_num_programs),
    "tt.addptr": Semantics(execute=tensor_operations.advance, bare=True),
    "tt.load": Semantics(execute=tensor_operations.load),
    "tt.store": Semantics(execute=tensor_operations.store, has_effect=True),
    "tt.atomic_rmw": Semantics(execute=tensor_operations.atomic_rmw, has_effect=True),
    "tt.atomic_cas": Semantics(execute=tensor_operations.atomic_cas, has_effect=True),
    **dict.fromkeys(
        ("tt.print", "tt.assert", "gpu.barrier", "tt.debug_barrier"),
        Semantics(execute=lambda interpreter, op, operands: [], has_effect=True),
    ),
    # Control flow.
    "scf.for": Semantics(execute=tensor_operations.loop),
    "scf.if": Semantics(execute=tensor_operations.branch),
    "scf.while": Semantics(execute=tensor_operations.repeat),
}
