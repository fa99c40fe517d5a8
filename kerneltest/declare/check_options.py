"""Checks of the options of a pairing that name its dims, its arguments or dtypes."""

from kerneltest.core.dtypes import DTYPE_NAMES, DtypeError, is_float, parse_dtype
from kerneltest.core.suggestions import ABBREVIATED, suggest
from kerneltest.declare.arguments import ArrayArgument, Optional, Static
from kerneltest.declare.axis_expressions import AxisExpression, dims_in
from kerneltest.declare.pairing import ANY_DTYPE, Pairing, is_part_of
from kerneltest.declare.problems import Problems


def check_returns(pairing: Pairing) -> Problems:
    """Checks that `returns=` names dtypes and arguments."""
    options = pairing.options()
    for each in pairing.returns:
        if each not in (ANY_DTYPE, *pairing.leaves):
            try:
                for name in options.get(each, (each,)):
                    parse_dtype(name)
            except DtypeError:
                known = ", ".join(map(repr, [ANY_DTYPE, *pairing.leaves, *options]))
                why = f", and its option {name!r} names no dtype" if each in options else ""
                yield (
                    "returns",
                    f"{each!r} is neither a dtype nor one of {known}{why}{suggest(each, DTYPE_NAMES, ABBREVIATED)}",
                )


def check_invariance(pairing: Pairing) -> Problems:
    """Checks the dims and arguments that `batch_dims=`, `needs=`, `invariant_to=` and `grad=` name."""
    for name in pairing.batch_dims:
        if name not in pairing.dims:
            known = ", ".join(map(repr, pairing.dims)) or "none"
            yield "batch_dims", f"{name!r} is not a dim of the pairing; its dims are {known}"
            continue
        if any(leaf.bounded_by is not None and name in dims_in(leaf.bounded_by) for leaf in pairing.leaves.values()):
            yield "batch_dims", f"an index or a length points into {name!r}, so slices along it are not independent"
        for path, leaf in pairing.leaves.items():
            if leaf.kind.along_last_axis and leaf.shape and name in dims_in(leaf.shape[-1]):
                yield (
                    "batch_dims",
                    f"the values of {path!r} depend on each other along {name!r}, so slices "
                    "along it are not independent",
                )
            if any(isinstance(axis, AxisExpression) and axis.extra < 0 and name in axis.names for axis in leaf.shape):
                yield (
                    "batch_dims",
                    f"{path!r} has fewer elements than {name!r}, so slices along it are not independent",
                )
    for name in pairing.needs:
        if name not in pairing.dims and name not in pairing.batch_dims:
            known = ", ".join(map(repr, pairing.dims)) or "none"
            yield "needs", f"{name!r} is not a dim of the pairing; its dims are {known}"
    invariant = [*(name for name, argument in pairing.arguments.items() if isinstance(argument, Static)), "grid"]
    for name in pairing.invariant_to:
        if name not in invariant:
            hint = "; dims go into batch_dims" if name in pairing.dims else ""
            yield (
                "invariant_to",
                f"{name!r} is not a static argument; choose among {', '.join(map(repr, invariant))}{hint}",
            )
    floats = [
        path
        for path, leaf in pairing.leaves.items()
        if leaf.kind.differentiable and any(is_float(parse_dtype(each)) for each in leaf.dtypes)
    ]
    if pairing.grad and not floats:
        yield "grad", "no argument holds floats, so there is nothing to differentiate"
    for name in pairing.grad if isinstance(pairing.grad, tuple) and floats else ():
        if not any(is_part_of(path, name) for path in floats):
            known = ", ".join(map(repr, floats))
            yield "grad", f"{name!r} is not an argument of floats; choose among {known}"


def check_rejects(pairing: Pairing) -> Problems:
    """Checks the calls that the kernel must reject."""
    names = [rejection.name for rejection in pairing.rejects]
    for rejection in pairing.rejects:
        where = f"rejects {rejection.name!r}"
        if names.count(rejection.name) > 1:
            yield where, "another rejection has this name"
        for name in rejection.dims:
            if name not in pairing.dims:
                yield where, f"no argument has the dim {name!r}; there are {', '.join(pairing.dims) or 'none'}"
        for name, value in rejection.arguments.items():
            if isinstance(value, ArrayArgument) and value.problem:
                yield f"{where}, argument {name!r}", value.problem
                continue
            declared = pairing.arguments.get(name)
            declared = declared.argument if isinstance(declared, Optional) else declared
            if not isinstance(declared, (ArrayArgument, Static)):
                yield where, f"{name!r} is neither an array nor a static argument of the pairing"
            elif isinstance(declared, ArrayArgument) != isinstance(value, ArrayArgument):
                is_array = isinstance(declared, ArrayArgument)
                what = "an array: give kt.array(...)" if is_array else "static: give its value"
                yield where, f"{name!r} is {what}, not {value!r}"
