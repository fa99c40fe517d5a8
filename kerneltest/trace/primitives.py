"""The primitives of JAX and Pallas that a kernel can reach, one row each: what every other module asks about them.

A primitive that JAX adds is one row here. `kind` says what it does, and most questions are about kinds: "is it a call?"
is `kind is Kind.CALL`. The other fields say what the rounding of results, mutants and printed source need to know.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from kerneltest.numerics import device_operations
from kerneltest.trace.jax_compat.jaxprs import Equation, Jaxpr, open_jaxpr, parameter_jaxprs


class Kind(Enum):
    """The kind of operation that a primitive is."""

    CALL = auto()  # evaluates one jaxpr on its operands and returns the results
    LOOP = auto()
    BRANCH = auto()
    KERNEL = auto()  # enters a Pallas kernel
    REGION = auto()  # runs jaxprs with other arguments than its operands, such as new memory or the devices of a mesh

    MOVE = auto()  # returns elements of its operands
    FILL = auto()  # returns an array that depends on parameters or on one number
    EMPTY = auto()  # returns memory that has not been filled
    SCATTER = auto()  # writes elements into an array, and combines those that meet
    SORT = auto()  # returns elements of its operands in an order that depends on their values
    READ = auto()  # of a reference, at once
    WRITE = auto()
    UPDATE = auto()  # reads, adds and writes
    ATOMIC = auto()
    COPY = auto()  # between memories
    SYNCHRONISATION = auto()  # waits, signals and fences

    ELEMENTWISE = auto()
    COMPARISON = auto()  # elementwise, of two operands
    CAST = auto()
    REDUCTION = auto()
    SCAN = auto()  # cumulative, along an axis
    PRODUCT = auto()  # of matrices
    RANDOM = auto()

    PROGRAM = auto()  # where a program is in the grid, or a device in its mesh
    COLLECTIVE = auto()  # exchanges values between devices
    MESH_CAST = auto()  # of types that only a mesh has
    PLACEMENT = auto()  # of arrays on the devices of a mesh
    FOREIGN = auto()  # code outside of the jaxpr: callbacks, printing, foreign functions
    DEVICE = auto()  # a setting, or code of one device, without a meaning elsewhere
    UNKNOWN = auto()  # no row


CONTROL = frozenset({Kind.LOOP, Kind.BRANCH})
MOVES = frozenset({Kind.MOVE, Kind.FILL, Kind.PLACEMENT, Kind.MESH_CAST})
ACCESSES = frozenset({Kind.READ, Kind.WRITE, Kind.UPDATE, Kind.ATOMIC})
# Kinds that compute nothing themselves; equations that are nested in them may.
_TRANSPARENT = MOVES | ACCESSES | CONTROL | {Kind.SORT, Kind.CALL, Kind.KERNEL, Kind.PROGRAM}
_SELECTING = (_TRANSPARENT | {Kind.REGION}) - {Kind.FILL}
_READING = frozenset({Kind.READ, Kind.UPDATE, Kind.ATOMIC})
_WRITING = frozenset({Kind.WRITE, Kind.UPDATE, Kind.ATOMIC})


@dataclass(frozen=True, slots=True)
class Primitive:
    """One primitive."""

    name: str  # JAX's
    kind: Kind
    # The function in NumPy, in the dtype of its operands. For a reduction or scan, the one that takes `axis`.
    numpy: Callable[..., Any] | None = None
    exact: bool = False  # whether results on small integers, held in floats, are exact in any order of evaluation
    ulps: str | None = None  # the function in `Precision.ulps` that bounds its error; "": it rounds once; None: never
    adds: bool = False  # or subtracts two operands
    multiplies: bool = False
    sums: bool = False  # many terms for each result
    extreme: bool = False  # whether it chooses the largest or the smallest element
    reads: bool = False  # memory of the kernel
    writes: bool = False
    parts: tuple[str, ...] = ()  # of an access, what its operands are once they are unflattened
    rules: bool = False  # whether it has derivatives or batching rules of its own, which run only when asked for
    fused_only: bool = False  # whether XLA's older loop emitter computes it inaccurately
    # What an author may write in its place, the likeliest first: primitives; `x` for its operand, `swapped` for itself
    # with its operands exchanged, `true` for a constant.
    mistaken_for: tuple[str, ...] = ()
    sign: str = ""  # the operator that spells it, such as `+`
    words: str = ""  # its name in messages
    lax: str = ""  # the name of its function in `jax.lax`

    @property
    def may_round(self) -> bool:
        """True unless its result is representable wherever its operands are."""
        if self.kind in (Kind.ELEMENTWISE, Kind.COMPARISON, Kind.REDUCTION, Kind.SCAN):
            return self.rounds or self.sums
        return self.kind not in _SELECTING

    @property
    def rounds(self) -> bool:
        return self.ulps is not None


def _rows(kind: Kind, names: str, **fields: Any) -> Iterator[Primitive]:
    fields.setdefault("exact", kind in _TRANSPARENT)
    fields.setdefault("reads", kind in _READING)
    fields.setdefault("writes", kind in _WRITING)
    mistaken = tuple(fields.pop("mistaken_for", "").split())
    for name in names.split():
        own = {"words": name, "lax": name.replace("-", "_"), **fields}
        yield Primitive(name, kind, mistaken_for=mistaken, **own)


def _exact(names: str, numpy: Callable[..., Any] | None, **fields: Any) -> Iterator[Primitive]:
    return _rows(Kind.ELEMENTWISE, names, **{"numpy": numpy, "exact": True, **fields})


def _function(names: str, ulps: str | None = None, **fields: Any) -> Iterator[Primitive]:
    for name in names.split():
        own = name if ulps is None else ulps
        yield from _rows(Kind.ELEMENTWISE, name, **{"numpy": getattr(np, own or name, None), "ulps": own, **fields})


def _table() -> Iterator[Primitive]:
    yield from _rows(Kind.CALL, "jit closed_call call eval_jaxpr remat2 xla_metadata_call composite")
    # `remat_opt` is the forward rule of a `custom_vjp` with `optimize_remat`.
    yield from _rows(Kind.CALL, "custom_jvp_call custom_vjp_call custom_vmap_call remat_opt", rules=True)
    yield from _rows(Kind.LOOP, "scan while parallel_loop")
    yield from _rows(Kind.BRANCH, "cond")
    yield from _rows(Kind.KERNEL, "pallas_call core_map mpmd_map triton_kernel")
    yield from _rows(Kind.REGION, "run_scoped run_state", exact=True)
    yield from _rows(Kind.REGION, "emit_pipeline pipeline_body stage jaxpr_call shard_map custom_fusion")

    yield from _rows(Kind.MOVE, "broadcast_in_dim broadcast_to reshape squeeze transpose rev slice tile roll pad")
    yield from _rows(Kind.MOVE, "concatenate split stack unstack gather scatter dynamic_slice dynamic_update_slice")
    yield from _rows(Kind.MOVE, "copy stop_gradient device_put name")
    yield from _rows(Kind.MOVE, "select_n", words="where")
    yield from _rows(Kind.MOVE, "optimization_barrier add_dependency trace_value multiple_of max_contiguous")
    yield from _rows(Kind.MOVE, "remove_memory_space with_memory_space_constraint layout_cast relayout einshape_lo")
    yield from _rows(Kind.FILL, "iota iota_2x32_shape")
    yield from _rows(Kind.EMPTY, "empty empty2")
    yield from _rows(Kind.SCATTER, "scatter-add scatter-sub scatter-min scatter-max", exact=True)
    yield from _rows(Kind.SCATTER, "scatter-mul")
    yield from _rows(Kind.SORT, "sort top_k approx_top_k")

    yield from _rows(Kind.READ, "get", parts=("reference", "transforms"))
    yield from _rows(Kind.WRITE, "swap", parts=("reference", "value", "transforms"))
    yield from _rows(Kind.UPDATE, "addupdate", parts=("reference", "value", "transforms"))
    yield from _rows(Kind.READ, "masked_load", parts=("reference", "transforms", "mask", "other"))
    yield from _rows(Kind.WRITE, "masked_swap", parts=("reference", "transforms", "value", "mask"))
    yield from _rows(Kind.ATOMIC, "atomic_rmw", parts=("reference", "transforms", "value", "mask"))
    yield from _rows(Kind.ATOMIC, "atomic_cas", parts=("reference", "compared", "value"))
    yield from _rows(Kind.ATOMIC, "sc_fetch_and_add")
    yield from _rows(Kind.READ, "load async_load multimem_load_reduce wgmma_accumulator_deref")
    yield from _rows(Kind.WRITE, "store async_store_smem async_store_tmem mgpu_atomic_store multimem_store")
    yield from _rows(Kind.WRITE, "wgmma_accumulator_store")
    yield from _rows(Kind.COPY, "dma_start", reads=True, writes=True)
    yield from _rows(Kind.COPY, "copy_gmem_to_smem async_copy_gmem_to_smem async_prefetch", reads=True)
    yield from _rows(Kind.COPY, "copy_smem_to_gmem async_copy_smem_to_gmem", writes=True)
    yield from _rows(Kind.COPY, "async_copy_smem_to_tmem async_copy_scales_to_tmem async_copy_sparse_metadata_to_tmem")
    yield from _rows(Kind.SYNCHRONISATION, "dma_wait semaphore_read semaphore_wait semaphore_signal")
    yield from _rows(Kind.SYNCHRONISATION, "semaphore_signal_parallel semaphore_signal_multicast get_barrier_semaphore")
    yield from _rows(Kind.SYNCHRONISATION, "barrier_arrive barrier_wait barrier_test barrier_arrive_and_wait barrier")
    yield from _rows(Kind.SYNCHRONISATION, "commit_group commit_smem commit_tmem wait_smem_to_gmem wait_gmem_to_smem")
    yield from _rows(Kind.SYNCHRONISATION, "wait_load_tmem wgmma_wait tcgen05_commit_arrive debug_barrier")
    yield from _rows(Kind.SYNCHRONISATION, "griddepcontrol_wait")
    yield from _rows(Kind.SYNCHRONISATION, "griddepcontrol_launch_dependents try_cluster_cancel query_cluster_cancel")

    yield from _exact("add", np.add, ulps="", adds=True, sign="+", mistaken_for="sub mul")
    yield from _exact("add_any", np.add, ulps="", adds=True, sign="+")
    yield from _exact("sub", np.subtract, ulps="", adds=True, sign="-", mistaken_for="add swapped")
    yield from _exact("mul", np.multiply, ulps="", multiplies=True, sign="*", mistaken_for="div add")
    yield from _exact("square", np.square, ulps="", multiplies=True, mistaken_for="x")
    yield from _exact("neg", np.negative, mistaken_for="x")
    yield from _exact("abs", np.abs, mistaken_for="x")
    yield from _exact("sign", device_operations.sign, mistaken_for="x")
    yield from _exact("max", np.maximum, extreme=True, mistaken_for="min")
    yield from _exact("min", np.minimum, extreme=True, mistaken_for="max")
    yield from _exact("clamp", device_operations.clamp, mistaken_for="x")
    yield from _exact("floor", np.floor, mistaken_for="ceil round")
    yield from _exact("ceil", np.ceil, mistaken_for="floor round")
    yield from _exact("round", None, mistaken_for="floor")
    yield from _exact("rem", device_operations.remainder, ulps="")
    yield from _exact("_copysign", np.copysign)
    yield from _exact("nextafter", np.nextafter, exact=False)
    yield from _exact("and", np.bitwise_and, lax="bitwise_and", sign="&", mistaken_for="or")
    yield from _exact("or", np.bitwise_or, lax="bitwise_or", sign="|", mistaken_for="and")
    yield from _exact("xor", np.bitwise_xor, lax="bitwise_xor", sign="^")
    yield from _exact("not", np.invert, lax="bitwise_not", mistaken_for="x")
    yield from _exact("shift_left", device_operations.shift_left)
    yield from _exact("shift_right_arithmetic", device_operations.shift_right_arithmetic)
    yield from _exact("shift_right_logical", device_operations.shift_right_logical)
    yield from _exact("population_count", device_operations.count_ones)
    yield from _exact("clz", device_operations.leading_zeros)
    yield from _exact("mulhi", None)
    yield from _exact("is_finite", np.isfinite, mistaken_for="true")
    yield from _rows(Kind.COMPARISON, "lt", numpy=np.less, exact=True, sign="<", mistaken_for="le ge gt")
    yield from _rows(Kind.COMPARISON, "le", numpy=np.less_equal, exact=True, sign="<=", mistaken_for="lt gt ge")
    yield from _rows(Kind.COMPARISON, "gt", numpy=np.greater, exact=True, sign=">", mistaken_for="ge le lt")
    yield from _rows(Kind.COMPARISON, "ge", numpy=np.greater_equal, exact=True, sign=">=", mistaken_for="gt lt le")
    yield from _rows(Kind.COMPARISON, "eq", numpy=np.equal, exact=True, sign="==", mistaken_for="ne")
    yield from _rows(Kind.COMPARISON, "ne", numpy=np.not_equal, exact=True, sign="!=", mistaken_for="eq")

    yield from _function("div", "divide", numpy=device_operations.divide, sign="/", mistaken_for="mul swapped")
    yield from _function("pow", "power", numpy=device_operations.power, mistaken_for="swapped")
    yield from _function("integer_pow", "", multiplies=True)
    yield from _function("reciprocal", "divide", numpy=np.reciprocal)
    yield from _function("one_minus_square", "")
    yield from _function("exp", mistaken_for="exp2 expm1")
    yield from _function("exp2", mistaken_for="exp")
    yield from _function("expm1", mistaken_for="exp")
    yield from _function("log", mistaken_for="log2 log1p")
    yield from _function("log2", mistaken_for="log")
    yield from _function("log1p", mistaken_for="log")
    yield from _function("sqrt", mistaken_for="x rsqrt")
    yield from _function("rsqrt", numpy=device_operations.rsqrt, mistaken_for="sqrt reciprocal")
    yield from _function("cbrt", fused_only=True)
    yield from _function("tanh", fused_only=True, mistaken_for="x logistic")
    yield from _function("logistic", "expit", numpy=device_operations.logistic, words="the sigmoid",
                         mistaken_for="tanh")  # fmt: skip
    yield from _function("sin", mistaken_for="cos")
    yield from _function("cos", mistaken_for="sin")
    yield from _function("tan sinh cosh")
    yield from _function("atan2", "arctan2", mistaken_for="swapped")
    for name in "sin cos tan sinh cosh tanh".split():
        yield from _function(f"a{name}", f"arc{name}")
    yield from _function("erf", "erf", numpy=device_operations.erf, mistaken_for="tanh")
    yield from _function("erfc", "erfc", numpy=None)
    yield from _function("erf_inv", "erf", numpy=None)

    yield from _rows(Kind.CAST, "convert_element_type", exact=True, words="a cast")
    yield from _rows(Kind.CAST, "reduce_precision bitcast_convert_type bitcast stochastic_round")
    yield from _rows(Kind.CAST, "pack_elementwise unpack_elementwise")
    yield from _rows(Kind.REDUCTION, "reduce_sum", numpy=np.sum, exact=True, sums=True, words="a sum",
                     mistaken_for="reduce_max")  # fmt: skip
    yield from _rows(Kind.REDUCTION, "reduce_max", numpy=np.max, exact=True, extreme=True, words="a maximum",
                     mistaken_for="reduce_min")  # fmt: skip
    yield from _rows(Kind.REDUCTION, "reduce_min", numpy=np.min, exact=True, extreme=True, mistaken_for="reduce_max")
    yield from _rows(Kind.REDUCTION, "reduce_prod", numpy=np.prod, ulps="")
    yield from _rows(Kind.REDUCTION, "reduce_and", numpy=np.bitwise_and.reduce, exact=True)
    yield from _rows(Kind.REDUCTION, "reduce_or", numpy=np.bitwise_or.reduce, exact=True)
    yield from _rows(Kind.REDUCTION, "reduce_xor", numpy=np.bitwise_xor.reduce, exact=True)
    yield from _rows(Kind.REDUCTION, "argmax", numpy=np.argmax, exact=True, mistaken_for="argmin")
    yield from _rows(Kind.REDUCTION, "argmin", numpy=np.argmin, exact=True, mistaken_for="argmax")
    yield from _rows(Kind.REDUCTION, "mosaic_gpu_reduce_max mosaic_gpu_reduce_min")
    yield from _rows(Kind.REDUCTION, "mosaic_gpu_reduce_sum mosaic_gpu_reduce_prod", ulps="")
    yield from _rows(Kind.SCAN, "cumsum", numpy=np.cumsum, exact=True, sums=True, mistaken_for="cummax")
    yield from _rows(Kind.SCAN, "cummax", numpy=np.maximum.accumulate, exact=True, extreme=True)
    yield from _rows(Kind.SCAN, "cummin", numpy=np.minimum.accumulate, exact=True, extreme=True)
    yield from _rows(Kind.SCAN, "cumprod", numpy=np.cumprod, ulps="")
    yield from _rows(Kind.SCAN, "masked_cummax masked_cummin")
    yield from _rows(Kind.SCAN, "masked_cumsum cumlogsumexp", ulps="")
    yield from _rows(Kind.PRODUCT, "dot_general", exact=True, sums=True)
    yield from _rows(Kind.PRODUCT, "conv conv_general_dilated mma wgmma wgmma_ref tcgen05_mma")
    yield from _rows(Kind.PRODUCT, "matmul_push_rhs matmul_acc_lhs matmul_pop matmul_lhs_fifo matmul_pop_fifo")
    yield from _rows(Kind.RANDOM, "prng_seed prng_random_bits prng_split prng_join random_bits random_fold_in")
    yield from _rows(Kind.RANDOM, "random_seed random_split random_unwrap random_wrap threefry2x32 rng_bit_generator")

    yield from _rows(Kind.PROGRAM, "program_id", words="program_id")
    yield from _rows(Kind.PROGRAM, "num_programs axis_index platform_index dim_as_value has_memory_space")
    yield from _rows(Kind.COLLECTIVE, "psum pmax pmin psum_invariant all_gather all_gather_invariant all_to_all")
    yield from _rows(Kind.COLLECTIVE, "ppermute reduce_scatter ragged_all_to_all pbroadcast")
    yield from _rows(Kind.MESH_CAST, "pvary pcast vary_unreduced_cast")
    yield from _rows(Kind.PLACEMENT, "reshard mesh_cast sharding_constraint")
    yield from _rows(Kind.FOREIGN, "debug_callback pure_callback io_callback buffer_callback debug_print ffi_call")
    yield from _rows(Kind.DEVICE, "empty_ref get_global check delay print_layout set_max_registers")
    yield from _rows(Kind.DEVICE, "scan_count inline_mgpu elementwise_inline_asm")
    # Of a TPU's SparseCore, across its lanes.
    yield from _rows(Kind.DEVICE, "all_reduce_ffs all_reduce_population_count masked_sort pack unique unpack")


PRIMITIVES: Mapping[str, Primitive] = MappingProxyType({primitive.name: primitive for primitive in _table()})


def primitive_named(name: str) -> Primitive:
    """The row of a primitive, by its name; of kind `UNKNOWN`, or `FOREIGN` for a callback, if there is none."""
    name = name.removesuffix("_p")  # which some of Pallas' have before JAX 0.12
    if name in PRIMITIVES:
        return PRIMITIVES[name]
    return Primitive(name, Kind.FOREIGN if "callback" in name else Kind.UNKNOWN, words=name, lax=name.replace("-", "_"))


def primitive_of(equation: Equation) -> Primitive:
    """The row of an equation's primitive."""
    return primitive_named(equation.primitive.name)


def kind_of(equation: Equation) -> Kind:
    """The kind of an equation's primitive."""
    return primitive_of(equation).kind


def called_jaxpr(equation: Equation) -> Jaxpr | None:
    """The jaxpr, open or closed, that a call evaluates on its operands; None if the equation is not a call.

    Calls hold it under different names (`jaxpr`, `call_jaxpr`, `fun_jaxpr`, `call`). Their other parameters hold
    functions, of which JAX makes derivatives. Only a closed jaxpr has constants, the values of its `constvars`.
    """
    if kind_of(equation) is not Kind.CALL:
        return None
    found = parameter_jaxprs(equation)
    return next((jaxpr for jaxpr in found if len(open_jaxpr(jaxpr).invars) == len(equation.invars)), None)


class AccessParts(NamedTuple):
    """The operands of an access to a reference, unflattened."""

    reference: Any
    transforms: Any = ()  # from the reference to the part of it that is accessed, among them indices
    value: Any = None  # what is written or added
    mask: Any = None  # the lanes that are accessed; None for all
    other: Any = None  # the result in the other lanes
    compared: Any = None  # with the memory


def access_parts(equation: Equation, operands: Sequence[Any] | None = None) -> AccessParts | None:
    """Unflattens the operands of an access, or values in their place; None for an equation of unknown layout."""
    parts = primitive_of(equation).parts
    if not parts:
        return None
    values = list(equation.invars if operands is None else operands)
    if "args_tree" in equation.params:
        values = list(equation.params["args_tree"].unflatten(values))
    elif "tree" in equation.params:
        before = len(parts) - 1  # the transforms come last
        values = [*values[:before], equation.params["tree"].unflatten(values[before:])]
    return AccessParts(**dict(zip(parts, values, strict=True)))


def with_access_parts(equation: Equation, parts: AccessParts) -> Equation:
    """Returns an access that has an `args_tree`, as `masked_load` has, with other operands."""
    operands = [getattr(parts, name) for name in primitive_of(equation).parts]
    leaves, tree = jax.tree_util.tree_flatten(operands)
    return equation.replace(invars=leaves, params={**equation.params, "args_tree": tree})
