"""Checks of the options of a pairing that name its dims, its arguments or dtypes."""

from kerneltest.core.dtypes import DtypeError, is_float, parse_dtype
from kerneltest.declare.arguments import ArrayArgument, Optional, Static
from kerneltest.declare.axis_expressions import AxisExpression, dims_in
from kerneltest.declare.check_arrays import MakeError
from kerneltest.declare.pairing import ANY_DTYPE, Pairing, is_part_of


def check_returns(pairing: Pairing, wrong: MakeError) -> None:
    """Checks that `returns=` names dtypes and arguments."""
    options = pairing.options()
    for each in pairing.returns:
        if each not in (ANY_DTYPE, *pairing.leaves):
            try:
                for name in options.get(each, (each,)):
                    parse_dtype(name)
            except DtypeError as error:
                known = ", ".join(map(repr, [ANY_DTYPE, *pairing.leaves, *options]))
                why = f", and its option {name!r} names no dtype" if each in options else ""
                raise wrong("returns", f"{each!r} is neither a dtype nor one of {known}{why}") from error


def check_invariance(pairing: Pairing, wrong: MakeError) -> None:
    """Checks the dims and arguments that `batch_dims=`, `needs=`, `invariant_to=` and `grad=` name."""
    for name in pairing.batch_dims:
        if name not in pairing.dims:
            known = ", ".join(map(repr, pairing.dims)) or "none"
            raise wrong("batch_dims", f"{name!r} is not a dim of the pairing; its dims are {known}")
        if any(leaf.bounded_by is not None and name in dims_in(leaf.bounded_by) for leaf in pairing.leaves.values()):
            raise wrong(
                "batch_dims", f"an index or a length points into {name!r}, so slices along it are not independent"
            )
        for path, leaf in pairing.leaves.items():
            if leaf.kind.along_last_axis and name in dims_in(leaf.shape[-1]):
                raise wrong("batch_dims", f"the values of {path!r} depend on each other along {name!r}, so slices "
                            "along it are not independent")  # fmt: skip
            if any(isinstance(axis, AxisExpression) and axis.extra < 0 and name in axis.names for axis in leaf.shape):
                raise wrong("batch_dims", f"{path!r} has fewer elements than {name!r}, so slices along it are not "
                            "independent")  # fmt: skip
    for name in pairing.needs:
        if name not in pairing.dims:
            known = ", ".join(map(repr, pairing.dims)) or "none"
            raise wrong("needs", f"{name!r} is not a dim of the pairing; its dims are {known}")
    invariant = [*(name for name, argument in pairing.arguments.items() if isinstance(argument, Static)), "grid"]
    for name in pairing.invariant_to:
        if name not in invariant:
            hint = "; dims go into batch_dims" if name in pairing.dims else ""
            raise wrong("invariant_to", f"{name!r} is not a static argument; choose among "
                        f"{', '.join(map(repr, invariant))}{hint}")  # fmt: skip
    floats = [
        path
        for path, leaf in pairing.leaves.items()
        if leaf.kind.differentiable and any(is_float(parse_dtype(each)) for each in leaf.dtypes)
    ]
    if pairing.grad and not floats:
        raise wrong("grad", "no argument holds floats, so there is nothing to differentiate")
    for name in pairing.grad if isinstance(pairing.grad, tuple) else ():
        if not any(is_part_of(path, name) for path in floats):
            known = ", ".join(map(repr, floats))
            raise wrong("grad", f"{name!r} is not an argument of floats; choose among {known}")


def check_rejects(pairing: Pairing, wrong: MakeError) -> None:
    """Checks the calls that the kernel must reject."""
    names = [rejection.name for rejection in pairing.rejects]
    for rejection in pairing.rejects:
        where = f"rejects {rejection.name!r}"
        if names.count(rejection.name) > 1:
            raise wrong(where, "another rejection has this name")
        for name in rejection.dims:
            if name not in pairing.dims:
                raise wrong(where, f"no argument has the dim {name!r}; there are {', '.join(pairing.dims) or 'none'}")
        for name, value in rejection.arguments.items():
            if isinstance(value, ArrayArgument) and value.problem:
                raise wrong(f"{where}, argument {name!r}", value.problem)
            declared = pairing.arguments.get(name)
            declared = declared.argument if isinstance(declared, Optional) else declared
            if not isinstance(declared, (ArrayArgument, Static)):
                raise wrong(where, f"{name!r} is neither an array nor a static argument of the pairing")
            if isinstance(declared, ArrayArgument) != isinstance(value, ArrayArgument):
                is_array = isinstance(declared, ArrayArgument)
                what = "an array: give kt.array(...)" if is_array else "static: give its value"
                raise wrong(where, f"{name!r} is {what}, not {value!r}")
