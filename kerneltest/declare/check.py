"""Checks that a declaration fits its kernel and its oracle."""

import inspect
import itertools
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_dtypes import iinfo

from kerneltest.core.dtypes import DTYPE_NAMES, DtypeError, is_float, is_integer, parse_dtype
from kerneltest.core.extension_registry import ABBREVIATED, suggest
from kerneltest.core.failures import format_exception
from kerneltest.core.targets import unknown_pattern
from kerneltest.declare.arguments import (
    DECLARED,
    ArrayArgument,
    DimSize,
    Optional,
    SameAs,
    Static,
    Tree,
    option_of,
    optional_parts,
    tables_in,
)
from kerneltest.declare.dims import (
    AxisExpression,
    Dim,
    Function,
    dims_in,
    dims_in_axes,
    length_of,
    parse_relation,
    required_parameters,
)
from kerneltest.declare.domains import DType
from kerneltest.declare.outcomes import Rejection, Unordered, Xfail
from kerneltest.declare.pairing import ANY_DTYPE, BATCH, CHUNKS, GIVEN, GRID, PADDING, UNREAD, Pairing, is_part_of
from kerneltest.declare.problems import Problems, format_given, refuse

# Checks of a pairing's arrays: their dtypes, domains and axes, and the rules of their kinds.


def check_leaves(pairing: Pairing) -> Problems:
    """Checks that dtypes and domains go together, and what the kind of each array requires."""
    for path, leaf in pairing.leaves.items():
        problems = [
            problem
            for pattern, names in {"": leaf.dtypes, **leaf.on}.items()
            for problem in _check_dtypes(f"argument {path!r}" + f", on={pattern!r}" * bool(pattern), leaf, names)
        ]
        yield from problems
        if not problems and (mistake := leaf.kind.find_mistake(leaf)):
            yield f"argument {path!r}", mistake


def _check_dtypes(place: str, leaf: ArrayArgument, names: Sequence[str]) -> Problems:
    known: dict[DType, str] = {}
    for name in names:
        dtype = parse_dtype(name)
        if dtype in known:
            twice = name if known[dtype] == name else f"{dtype.name}, as {known[dtype]!r} and {name!r},"
            yield place, f"its dtypes name {twice} twice; remove one"
            continue
        known[dtype] = name
        if leaf.kind.counts and not is_integer(dtype):
            yield place, f"it counts, so its dtype is an integer such as 'int32', not {name!r}"
            continue
        if dtype.itemsize == 8 and not _keeps_64_bits():
            yield (
                place,
                f"{name} would reach the kernel as 32 bits, since JAX's 64-bit mode is off; set "
                "JAX_ENABLE_X64=1 or remove it from the dtypes",
            )
        domain = leaf.interval(name)
        if is_integer(dtype):
            least, most = int(iinfo(dtype).min), int(iinfo(dtype).max)
            if any(math.isfinite(end) and not least <= end <= most for end in (domain.low, domain.high)):
                yield place, f"its domain {domain} reaches past {name}, which goes from {least} to {most}"
                continue
        low, high = domain.ends(dtype)
        if low > high:
            yield place, f"its domain {domain} holds no number of {name}"


def check_axes(pairing: Pairing) -> Problems:
    """Checks that no axis can be negative, and that arrays with dependent values have an axis."""
    least = {
        name: min(min(each.values) if each.values else each.fit(each.minimum) for each in (dim, *dim.on.values()))
        for name, dim in pairing.dims.items()
    }
    for path, leaf in pairing.leaves.items():
        for axis in leaf.axes:
            if length_of(axis, least) < 0:
                dim = dims_in(axis)[0]
                yield (f"argument {path!r}", f"{axis} is negative where {dim} is {least[dim]}; give the dim a minimum")
        if leaf.kind.along_last_axis and not leaf.shape:
            yield (f"argument {path!r}", "it needs an axis for its values to depend on each other along, such as 'n'")
        if leaf.least and pairing.where is None:
            shortest = {
                name: min(each.shortest for each in (pairing.dims[name], *pairing.dims[name].on.values()))
                for name in dims_in_axes(leaf.shape)
            }
            yield from _check_least(path, leaf, {**least, **shortest})


# Checks that an axis has the positions or counts of an array that is not empty.
def _check_least(path: str, leaf: ArrayArgument, lengths: Mapping[str, int]) -> Problems:
    end, needed = length_of(leaf.bound, lengths), leaf.least + (not leaf.kind.includes_end)
    if end >= needed or not all(length_of(axis, lengths) for axis in leaf.shape):
        return
    cure = ""
    if names := dims_in(leaf.bound):
        example = f", as in dims=dict({leaf.bound}=kt.dim(minimum={needed}))" if isinstance(leaf.bound, str) else ""
        cure = f"; exclude shorter lengths of {' and '.join(dict.fromkeys(names))}{example}"
    yield f"argument {path!r}", f"no number from {leaf.least} on is in a length of {end}{cure}"


def _keeps_64_bits() -> bool:
    """Returns whether JAX keeps 64-bit values. Importing the kernel has imported JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.config.jax_enable_x64)


# Checks of the options of a pairing that name its dims, its arguments or dtypes.


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
    dims = ", ".join(map(repr, pairing.dims)) or "none"
    chunked = (*pairing.chunk_dims, *pairing.chunk_dims.values())
    needed = [name for name in pairing.needs if name not in pairing.batch_dims]
    for option, names in (("batch_dims", pairing.batch_dims), ("chunk_dims", chunked), ("needs", needed)):
        for name in dict.fromkeys(names):
            if name not in pairing.dims:
                yield option, f"{name!r} is not a dim of the pairing; its dims are {dims}"
    for name in pairing.batch_dims:
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
    if pairing.claims(BATCH) and not pairing.batch_dims:
        yield "invariant_to", f"{BATCH!r} needs batch_dims=, the dims along which slices are independent"
    if pairing.claims(CHUNKS) and not pairing.chunk_dims:
        yield "invariant_to", f"{CHUNKS!r} needs chunk_dims=, the dim along which a sequence is cut"
    if pairing.claims(PADDING) and not any(
        leaf.kind.is_mask or leaf.kind.includes_end for leaf in pairing.leaves.values()
    ):
        yield "invariant_to", f"{PADDING!r} needs an argument that says where the tail begins: kt.lengths or kt.mask"
    statics = (name for name, argument in pairing.arguments.items() if isinstance(argument, Static))
    invariant = dict.fromkeys([*statics, GRID, BATCH, PADDING, CHUNKS, UNREAD])
    for name in pairing.invariant_to:
        if name not in invariant:
            hint = "; dims go into batch_dims" if name in pairing.dims else ""
            yield (
                "invariant_to",
                f"{name!r} is not a static argument; choose among {', '.join(map(repr, invariant))}{hint}",
            )
    for name, chosen in pairing.invariants.items():
        if name == "gradient" and not pairing.grad:
            yield "invariants", "'gradient' needs grad=True, or the arguments by which the kernel is differentiated"
        for dim, length in ((dim, length) for lengths in chosen for dim, length in lengths.items()):
            if dim not in pairing.dims:
                yield "invariants", f"{dim!r} is not a dim of the pairing; its dims are {dims}"
            elif not (length > 0 and pairing.dims[dim].admits(length)):
                yield "invariants", f"{dim}={length!r} is not a length that the declaration admits, or is 0"
    floats = [
        path
        for path, leaf in pairing.leaves.items()
        if leaf.kind.differentiable and any(is_float(parse_dtype(dtype)) for dtype in leaf.dtypes)
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


# Checks that the arguments of a pairing are the parameters of its kernel and of its oracle.

_METHOD = "the kernel is a method; name that of an object, as in oracle_for(model.forward, ...)"


def check_parameters(
    kernel: Function, oracle: Function, arguments: Mapping[str, object], options: Mapping[str, Any]
) -> Problems:
    """Checks names of arguments against parameters; no argument can have the name of one of `oracle_for`'s options."""
    parameters = inspect.signature(kernel).parameters
    declared = {name: each for name, each in arguments.items() if isinstance(each, DECLARED)}
    lacking = [name for name in required_parameters(kernel) if name not in arguments]
    references = [name for name in lacking if name.endswith("_ref")]
    if references and len(references) == len(lacking):
        name = getattr(kernel, "__name__", type(kernel).__name__)
        yield (
            f"kernel {name!r}",
            f"it takes references ({', '.join(references)}), as the body of a pallas_call does; pair the function that "
            "calls pallas_call with it",
        )
        return
    unknown = [name for name in declared if name not in parameters and not _takes_any(parameters)]
    suggested = ""
    for name in unknown:
        suggested += (hint := suggest(name, lacking))
        yield f"argument {name!r}", f"the kernel has no such parameter; it has {', '.join(parameters) or 'none'}{hint}"
    for name in lacking:
        if name == "self":
            yield f"argument {name!r}", _METHOD
        elif name in options:
            advice = f"declare it as arguments={{{name!r}: {_example_for(parameters[name])}}}"
            yield f"argument {name!r}", f"the kernel needs it, and {name}= is an option of oracle_for; {advice}"
        elif repr(name) not in suggested:
            yield (
                f"argument {name!r}",
                f"the kernel needs it; declare it, as in {name}={_example_for(parameters[name])}",
            )
    if not unknown:
        yield from _check_oracle(oracle, arguments, declared, lacking)


def _check_oracle(
    oracle: Function, arguments: Mapping[str, object], declared: Mapping[str, object], lacking: list[str]
) -> Problems:
    if isinstance(oracle, np.ufunc):
        given = sum(not isinstance(argument, Static) for argument in declared.values())
        if given != oracle.nin:
            yield "oracle", f"numpy.{oracle.__name__} takes {oracle.nin} arrays and {given} are declared"
        return
    taken = inspect.signature(oracle).parameters
    if _takes_any(taken):
        return
    for name in required_parameters(oracle):
        if name not in arguments and name not in lacking:
            hint = suggest(name, [each for each in declared if each not in taken])
            yield f"argument {name!r}", f"the oracle takes it but the pairing does not declare it{hint}"
    for name, argument in declared.items():
        if name not in taken and not isinstance(argument, Static):
            yield f"argument {name!r}", f"the oracle does not take it; add it to {oracle.__name__}'s parameters"


def _takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


_TOLERANCES = {"rtol": "relative", "atol": "absolute"}  # keywords of NumPy, and the models that they mean
_TOLERANCE_ADVICE = (
    "by default the oracle's own rounding bounds the error, so leave it out; if a specification sets one, declare it "
    "with its reason"
)
_ALL_MASKED = ("zeros", "nan")


def check_parts(
    kernel: Function, oracle: Function, arguments: Mapping[str, object], options: Mapping[str, Any]
) -> None:
    """Checks each part of a pairing by itself: its type and form; a DeclarationError reports all problems."""
    problems = (
        _check_kinds(kernel, arguments, options),
        check_parameters(kernel, oracle, arguments, options),
        _check_dims(options["dims"] or {}),
        _check_models(options),
        _check_invariants(options["invariants"] or {}),
        _check_backends(options["backends"]),
    )
    refuse(oracle.__name__, itertools.chain(*problems))


def check_declaration(pairing: Pairing, declared: Mapping[str, Dim]) -> None:
    """Checks a pairing of well-formed parts, with its dims as `declared`; a DeclarationError reports all problems."""
    problems = (
        _check_names(pairing, declared),
        check_leaves(pairing),
        check_axes(pairing),
        _check_where(pairing),
        _check_derived(pairing),
        check_returns(pairing),
        check_invariance(pairing),
        check_rejects(pairing),
    )
    refuse(pairing.name, itertools.chain(*problems))
    if problem := pairing.tolerance.misfit(pairing.leaves, pairing.dims):
        refuse(pairing.name, [("tolerance", problem)])


def _check_dims(dims: object) -> Problems:
    if not isinstance(dims, Mapping):
        yield "dims", f"give them by name, as in dims=dict(n=kt.dim(block=64)), not {dims!r}"
        return
    for dim, declared in dims.items():
        if not isinstance(declared, Dim):
            length = f"values=({declared},)" if isinstance(declared, int) else "block=64"
            example = f"dims=dict({dim}=kt.dim({length}))"
            yield f"dim {dim!r}", f"declare it with kt.dim, as in {example}, not {format_given(declared)}"


def _check_models(options: Mapping[str, Any]) -> Problems:
    """Checks the options that are objects of kerneltest, functions, or names."""
    tolerance = options["tolerance"]
    if tolerance is not None and not (hasattr(tolerance, "bounds") and hasattr(tolerance, "misfit")):
        example = "kt.tolerance.conditioned()"
        if isinstance(tolerance, (int, float)):
            example = f"kt.tolerance.relative({tolerance:g}, 'the specification that sets it')"
        elif callable(tolerance) and tolerance.__module__.startswith("kerneltest."):
            example = f"kt.tolerance.{tolerance.__name__}(...)"
        yield "tolerance", f"give an error model, as in {example}, not {format_given(tolerance)}"
    for option, kind, made_by in (("xfail", Xfail, "kt.xfail"), ("rejects", Rejection, "kt.rejects")):
        given = options[option]
        if not isinstance(given, (list, tuple)) or not all(isinstance(each, kind) for each in given):
            yield option, f"give a list of {made_by}(...), not {given!r}"
    if not isinstance(unordered := options["unordered"], Unordered | None):
        yield "unordered", f"give kt.unordered(axis), not {unordered!r}"
    needs = options["needs"] or {}
    if not isinstance(needs, Mapping) or not all(map(callable, needs.values())):
        example = "needs={'n': lambda i: slice(0, i + 1)}"
        yield "needs", f"give a function from a position to a slice for each dim, as in {example}, not {needs!r}"
    returns = options["returns"]
    if not isinstance(returns, (str, list, tuple)) or not all(isinstance(each, str) for each in returns):
        yield "returns", f"give names of dtypes or of arguments, as in returns='float32', not {returns!r}"
    if options["where"] is not None:
        try:
            parse_relation(options["where"])
        except ValueError as error:
            yield "where", str(error)
    if (masked := options["all_masked"]) not in ("", *_ALL_MASKED):
        yield "all_masked", f"give 'zeros' or 'nan', not {masked!r}"


def _check_invariants(invariants: object) -> Problems:
    lists = list(invariants.values()) if isinstance(invariants, Mapping) else [invariants]
    if not all(isinstance(each, (list, tuple)) and each and all(map(_are_lengths, each)) for each in lists):
        example = 'invariants={"gradient": [{"n": 100}]}'
        yield "invariants", f"give lists of lengths by dim, as in {example}, not {invariants!r}"


def _are_lengths(given: object) -> bool:
    if not isinstance(given, Mapping) or not given:
        return False
    return all(isinstance(each, int | np.integer) and not isinstance(each, bool) for each in given.values())


def _check_backends(backends: object) -> Problems:
    if not isinstance(backends, (str, list, tuple)) or not all(isinstance(backend, str) for backend in backends):
        yield "backends", f"give patterns of backend ids, as in backends='gpu', not {backends!r}"
        return
    for pattern in (backends,) if isinstance(backends, str) else backends:
        if problem := unknown_pattern(pattern):
            yield "backends", problem


def _check_names(pairing: Pairing, declared: Mapping[str, Dim]) -> Problems:
    """Checks the names of dims, and the patterns of backends that dims and arguments are declared for."""
    for name in declared:
        if name not in pairing.dims:
            known = ", ".join(pairing.dims) or "none"
            yield f"dim {name!r}", f"no argument has it; the dims in use are {known}{suggest(name, pairing.dims)}"
    patterns = [(f"dim {name!r}", each) for name, dim in pairing.dims.items() for each in dim.on]
    patterns += [(f"argument {path!r}", each) for path, leaf in pairing.leaves.items() for each in leaf.on]
    for where, pattern in patterns:
        if problem := unknown_pattern(pattern):
            yield where, f"on=: {problem}"


def _check_kinds(kernel: Function, arguments: Mapping[str, object], options: Mapping[str, Any]) -> Problems:
    parameters = inspect.signature(kernel).parameters
    for name, argument in arguments.items():
        match argument:
            case ArrayArgument() | Optional() | Tree():
                yield from _check_part(name, argument)
            case SameAs():
                if problem := _find_same_as_mistake(name, argument, arguments):
                    yield f"argument {name!r}", problem
            case DimSize():
                if not (isinstance(argument.dim, str) and argument.dim.isidentifier()):
                    yield f"argument {name!r}", f"a dim is given by its name, as in 'n', not {argument.dim!r}"
            case Static():
                continue
            case _ if name in parameters or _takes_any(parameters):
                yield (
                    f"argument {name!r}",
                    f"declare it, as in {name}={_example_of(name, argument, parameters.get(name))}, "
                    f"not {format_given(argument)}",
                )
            case _ if name in _TOLERANCES:
                error = argument if isinstance(argument, (int, float)) else 1e-3
                example = f"tolerance=kt.tolerance.{_TOLERANCES[name]}({error:g}, 'section 4.2')"
                yield repr(name), f"{_TOLERANCE_ADVICE}, as in {example}"
            case _:
                known = f"{', '.join(parameters) or 'none'}{suggest(name, [*options, *parameters])}"
                neither = "this is neither an option of oracle_for nor a parameter of the kernel"
                yield repr(name), f"{neither}, which has {known}"


def _find_same_as_mistake(name: str, argument: SameAs, arguments: Mapping[str, object]) -> str:
    other = arguments.get(argument.name)
    same = f"it is declared the same as {argument.name!r}, which"
    if isinstance(other, Optional):
        return f"{same} may be absent; make it kt.optional(kt.derived(...)) of that one"
    if isinstance(other, ArrayArgument) and other.kind.is_key_object:
        return f"{same} is a key; declare a key of its own, as kt.key()"
    if not isinstance(other, ArrayArgument) or argument.name == name:
        return f"{same} is not another array of the pairing"
    return ""


_KEYS = frozenset({"key", "rng", "rng_key", "prng_key"})  # parameters that usually take a key of jax.random
_STATIC_TYPES = (bool, int, float, str)


def _example_of(name: str, given: object, parameter: inspect.Parameter | None) -> str:
    """Returns the declaration that was probably meant by a value in its place."""
    shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    is_array = isinstance(shape, tuple) and dtype is not None
    if str(dtype).startswith("key<") or (name in _KEYS and isinstance(given, int)):
        return "kt.key()"
    if name in _KEYS and is_array:
        return "kt.key(raw=True)"
    if is_array:
        return f"kt.array({' '.join('mnkabcdefgh'[: len(shape or ())])!r}, {str(dtype)!r})"
    if given is None:
        return "kt.optional(kt.array('m n'))"
    if isinstance(given, dict):
        branches = (f"{key!r}: {_example_of('', branch, None)}" for key, branch in given.items())
        return f"kt.tree({{{', '.join(branches)}}})"
    is_axes = isinstance(given, str) and not (_takes_word(parameter) or re.fullmatch(r"[a-z]{2,}", given))
    is_ours = getattr(given, "__module__", "").startswith("kerneltest.")
    if is_ours or is_axes or not (callable(given) or isinstance(given, (*_STATIC_TYPES, tuple, list))):
        return f"kt.array({given if is_axes else 'm n'!r})"
    return f"kt.static({format_given(given)})"


def _takes_word(parameter: inspect.Parameter | None) -> bool:
    return parameter is not None and (isinstance(parameter.default, str) or parameter.annotation in (str, "str"))


def _example_for(parameter: inspect.Parameter) -> str:
    """Returns a declaration for a parameter that has none."""
    if parameter.name in _KEYS:
        return "kt.key()"
    is_static = parameter.annotation in (*_STATIC_TYPES, *(each.__name__ for each in _STATIC_TYPES))
    return "kt.static(...)" if is_static else 'kt.array("m n")'


def _check_part(path: str, part: object) -> Problems:
    match part:
        case ArrayArgument():
            if part.problem:
                yield f"argument {path!r}", part.problem
        case Optional():
            if any(True for _ in optional_parts(path, part.argument)):
                advice = "declare one of the two"
                yield f"argument {path!r}", f"it may be absent as a whole, so none of its parts is optional; {advice}"
            yield from _check_part(path, part.argument)
        case Tree():
            try:
                found = list(part.parts(path))
            except Exception as error:  # of JAX, or of a class of the user's
                yield f"argument {path!r}", f"JAX does not accept this as a pytree: {format_exception(error)}"
                return
            for inner, each in found:
                yield from _check_part(inner, each)
        case _:
            problem = f'a pytree\'s leaves are arrays, as in kt.array("n"), not {format_given(part)}'
            yield f"argument {path!r}", f"{problem}; anything else may be a field of a dataclass"


def _check_where(pairing: Pairing) -> Problems:
    if pairing.where is None:
        return
    options = pairing.options()
    for name in pairing.where.parameters:
        if name not in (*pairing.dims, *options, *map(option_of, options)):
            known = ", ".join([*pairing.dims, *options]) or "none"
            yield "where", f"{name!r} is no dim, static or optional argument of the pairing; there are {known}"
            return
    tables = tables_in(pairing.arguments)
    lengths = {name: dim.shortest for name, dim in pairing.dims.items()}
    rows = [dict(zip(options, row, strict=True)) for row in itertools.islice(itertools.product(*options.values()), 64)]
    try:
        fitted = [(row, found) for row in rows if (found := pairing.fit_lengths(lengths, row))]
    except Exception as error:
        raised = "where" if not tables else f"where= or key= of {', '.join(map(repr, tables))}"
        yield raised, f"it raised {format_exception(error)}"
        return
    admitted = [row for row, _ in fitted]
    for path, leaf in pairing.leaves.items():
        optional = [name for name, parts in pairing.optionals.items() if path in parts]
        given = [found for row, found in fitted if leaf.least and all(row[name] == GIVEN for name in optional)]
        yield from itertools.islice((problem for found in given for problem in _check_least(path, leaf, found)), 1)
    meets = "give the dims lengths that meet it, as in kt.dim(values=...)"
    if tables:
        return  # the plan names the rows of a table that no lengths select
    if not admitted:
        yield "where", f"it admits none of the lengths that were tried, from the shortest on; {meets}"
        return
    for name, texts in options.items():
        for text in texts:
            if any(row[name] == text for row in rows) and not any(row[name] == text for row in admitted):
                tried = f"it admits none of the lengths that were tried with {name}={text}"
                yield "where", f"{tried}; {meets}, or remove that option"


def _check_derived(pairing: Pairing) -> Problems:
    for path, leaf in pairing.leaves.items():
        for name in leaf.derivation.parameters if leaf.derivation else ():
            other = pairing.leaves.get(name)
            if other is not None and other.derivation is not None:
                yield f"argument {path!r}", f"it follows from {name!r}, which follows from others itself"
            if other is None and isinstance(pairing.arguments.get(name), Tree):
                advice = "an array may follow only from arrays"
                yield f"argument {path!r}", f"it follows from {name!r}, which is a pytree; {advice}"
            elif other is None and name not in (*pairing.dims, *pairing.options(), "rng"):
                known = ", ".join([*pairing.leaves, *pairing.dims, *pairing.options(), "rng"])
                yield f"argument {path!r}", f"it follows from {name!r}, which is not one of {known}"
