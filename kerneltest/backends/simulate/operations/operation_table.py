"""The semantics of every operation of Triton IR that the simulator supports, one line for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

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
    """Returns the semantics of an operation that moves masks of undefined elements as it moves the elements."""

    def rule(op: Operation) -> Rule:
        compute = make(op)
        return Rule(compute, lambda values, masks: compute(*dense_masks(values, masks)))

    return Semantics(rule, bare=bare)


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
    "arith.andi": _elementwise(np.bitwise_and, elementwise.undefined_and),
    "arith.ori": _elementwise(np.bitwise_or, elementwise.undefined_or),
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
    "arith.extf": _cast(elementwise.cast),
    "arith.truncf": _cast(elementwise.cast),
    "tt.fp_to_fp": _cast(elementwise.cast),
    "arith.extsi": _cast(elementwise.extend_signed),
    "arith.extui": _cast(elementwise.extend_unsigned),
    "arith.trunci": _cast(elementwise.truncate),
    "arith.sitofp": _cast(elementwise.signed_to_float),
    "arith.uitofp": _cast(elementwise.unsigned_to_float),
    "arith.fptosi": _cast(elementwise.float_to_signed),
    "arith.fptoui": _cast(elementwise.float_to_unsigned),
    "arith.bitcast": _cast(elementwise.bitcast),
    "tt.bitcast": replace(_cast(elementwise.bitcast), execute=tensor_operations.bitcast),
    # Shapes and constants.
    "tt.splat": _movement(tensor_operations.splat, bare=True),
    "tt.broadcast": _movement(tensor_operations.broadcast, bare=True),
    "tt.expand_dims": _movement(tensor_operations.expand_dims),
    "tt.reshape": _movement(tensor_operations.reshape, bare=True),
    "tt.trans": _movement(tensor_operations.transpose),
    "tt.join": _movement(tensor_operations.join, bare=True),
    "tt.split": _movement(tensor_operations.split, bare=True),
    "tt.cat": _movement(tensor_operations.concatenate, bare=True),
    "arith.constant": _movement(tensor_operations.constant),
    "tt.make_range": _movement(tensor_operations.make_range),
    # Along an axis.
    "tt.dot": Semantics(tensor_operations.dot),
    "tt.reduce": Semantics(tensor_operations.reduce),
    "tt.scan": Semantics(tensor_operations.scan),
    # Programs and their memory.
    "tt.get_program_id": Semantics(execute=tensor_operations.program_id),
    "tt.get_num_programs": Semantics(execute=tensor_operations.num_programs),
    "tt.addptr": Semantics(execute=tensor_operations.advance, bare=True),
    "tt.load": Semantics(execute=tensor_operations.load),
    "tt.store": Semantics(execute=tensor_operations.store, has_effect=True),
    "tt.atomic_rmw": Semantics(execute=tensor_operations.atomic_rmw, has_effect=True),
    "tt.atomic_cas": Semantics(execute=tensor_operations.atomic_cas, has_effect=True),
    "tt.print": Semantics(execute=tensor_operations.no_operation, has_effect=True),
    "tt.assert": Semantics(execute=tensor_operations.no_operation, has_effect=True),
    "gpu.barrier": Semantics(execute=tensor_operations.no_operation, has_effect=True),  # programs run in lockstep
    "tt.debug_barrier": Semantics(execute=tensor_operations.no_operation, has_effect=True),
    # Control flow.
    "scf.for": Semantics(execute=tensor_operations.loop),
    "scf.if": Semantics(execute=tensor_operations.branch),
    "scf.while": Semantics(execute=tensor_operations.repeat),
}
