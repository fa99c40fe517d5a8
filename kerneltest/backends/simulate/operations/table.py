"""Every operation of Triton's IR that the simulator runs, a line each: all that is known of it stands here."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Compute, Operation, Rule, Semantics, any_operand, given
from kerneltest.backends.simulate.operations import access, arithmetic, control, functions, movement


def _elementwise(compute: Compute, undefined: Callable[..., Any] = any_operand) -> Semantics:
    rule = Rule(compute, undefined)
    return Semantics(lambda op: rule, bare=True)


def _cast(make: Callable[[np.dtype[Any]], Compute]) -> Semantics:
    return Semantics(lambda op: Rule(make(op.types[0].dtype), any_operand), bare=True)


def _movement(make: Callable[[Operation], Compute], *, bare: bool = False) -> Semantics:
    """Masks of undefined elements move as the elements do."""

    def rule(op: Operation) -> Rule:
        compute = make(op)
        return Rule(compute, lambda values, masks: compute(*given(values, masks)))

    return Semantics(rule, bare=bare)


OPERATIONS: Mapping[str, Semantics] = {
    # Numbers. i1 is bool.
    "arith.addi": _elementwise(np.add),
    "arith.subi": _elementwise(np.subtract),
    "arith.muli": _elementwise(np.multiply),
    "arith.divsi": _elementwise(arithmetic.divide),
    "arith.divui": _elementwise(arithmetic.as_unsigned(arithmetic.unsigned_divide)),
    "arith.remsi": _elementwise(arithmetic.remainder),
    "arith.remui": _elementwise(arithmetic.as_unsigned(arithmetic.unsigned_remainder)),
    "arith.maxsi": _elementwise(np.maximum),
    "arith.minsi": _elementwise(np.minimum),
    "arith.maxui": _elementwise(arithmetic.as_unsigned(np.maximum)),
    "arith.minui": _elementwise(arithmetic.as_unsigned(np.minimum)),
    "arith.andi": _elementwise(np.bitwise_and, arithmetic.undefined_and),
    "arith.ori": _elementwise(np.bitwise_or, arithmetic.undefined_or),
    "arith.xori": _elementwise(np.bitwise_xor),
    "arith.shli": _elementwise(arithmetic.shift(np.left_shift)),
    "arith.shrsi": _elementwise(arithmetic.shift(np.right_shift)),
    "arith.shrui": _elementwise(arithmetic.shift_right_unsigned),
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
    "arith.cmpi": Semantics(arithmetic.compare_integers),
    "arith.cmpf": Semantics(arithmetic.compare_floats),
    "arith.select": _elementwise(np.where, arithmetic.undefined_select),
    **{f"math.{name}": Semantics(functions.builtin, bare=True) for name in functions.NAMES},
    "tt.extern_elementwise": Semantics(functions.external),
    # Dtypes.
    "arith.extf": _cast(arithmetic.cast),
    "arith.truncf": _cast(arithmetic.cast),
    "tt.fp_to_fp": _cast(arithmetic.cast),
    "arith.extsi": _cast(arithmetic.extend_signed),
    "arith.extui": _cast(arithmetic.extend_unsigned),
    "arith.trunci": _cast(arithmetic.truncate),
    "arith.sitofp": _cast(arithmetic.signed_to_float),
    "arith.uitofp": _cast(arithmetic.unsigned_to_float),
    "arith.fptosi": _cast(arithmetic.float_to_signed),
    "arith.fptoui": _cast(arithmetic.float_to_unsigned),
    "arith.bitcast": _cast(arithmetic.bitcast),
    "tt.bitcast": replace(_cast(arithmetic.bitcast), execute=control.bitcast),
    # Shapes and constants.
    "tt.splat": _movement(movement.splat, bare=True),
    "tt.broadcast": _movement(movement.broadcast, bare=True),
    "tt.expand_dims": _movement(movement.expand_dims),
    "tt.reshape": _movement(movement.reshape, bare=True),
    "tt.trans": _movement(movement.transpose),
    "tt.join": _movement(movement.join, bare=True),
    "tt.split": _movement(movement.split, bare=True),
    "tt.cat": _movement(movement.concatenate, bare=True),
    "arith.constant": _movement(movement.constant),
    "tt.make_range": _movement(movement.make_range),
    # Along an axis.
    "tt.dot": Semantics(movement.dot),
    "tt.reduce": Semantics(movement.reduce),
    "tt.scan": Semantics(movement.scan),
    # Programs and their memory.
    "tt.get_program_id": Semantics(execute=control.program_id),
    "tt.get_num_programs": Semantics(execute=control.num_programs),
    "tt.addptr": Semantics(execute=control.advance, bare=True),
    "tt.load": Semantics(execute=access.load),
    "tt.store": Semantics(execute=access.store, has_effect=True),
    "tt.atomic_rmw": Semantics(execute=access.atomic_rmw, has_effect=True),
    "tt.atomic_cas": Semantics(execute=access.atomic_cas, has_effect=True),
    "tt.print": Semantics(execute=control.nothing, has_effect=True),
    "tt.assert": Semantics(execute=control.nothing, has_effect=True),
    "tt.debug_barrier": Semantics(execute=control.nothing, has_effect=True),
    # Control flow.
    "scf.for": Semantics(execute=control.loop),
    "scf.if": Semantics(execute=control.branch),
    "scf.while": Semantics(execute=control.repeat),
}
