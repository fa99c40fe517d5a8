"""Checks that a declaration fits its kernel and its oracle."""

import inspect
import itertools
from collections.abc import Mapping
from typing import Any

from kerneltest.core.backend_ids import unknown_pattern
from kerneltest.core.failures import format_exception
from kerneltest.core.suggestions import suggest
from kerneltest.declare.arguments import ArrayArgument, DimSize, Optional, SameAs, Static, Tree, optional_parts
from kerneltest.declare.check_arrays import check_axes, check_leaves
from kerneltest.declare.check_options import check_invariance, check_rejects, check_returns
from kerneltest.declare.check_parameters import check_parameters
from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing
from kerneltest.declare.problems import Problems, format_given, refuse
from kerneltest.declare.rejects import Rejection
from kerneltest.declare.relations import Function, parse_relation
from kerneltest.declare.xfail import Xfail

_TOLERANCES = {"rtol": "relative", "atol": "absolute"}  # keywords of NumPy, and the models that they mean
_TOLERANCE_ADVICE = (
    "by default the oracle's own rounding bounds the error, so leave it out; if a specification sets one, declare it "
    "with its reason"
)
_ALL_MASKED = ("zeros", "nan")


def check_parts(
    kernel: Function, oracle: Function, arguments: Mapping[str, object], options: Mapping[str, Any]
) -> None:
    """Checks the type and form of everything that a pairing will be made of, each part by itself.

    Args:
      kernel: the callable under test.
      oracle: its oracle.
      arguments: declarations, by name.
      options: the keywords of `oracle_for` other than declarations of arguments.

    Raises:
      DeclarationError: parts have the wrong type or form. It reports all of them.
    """
    problems = (
        _check_kinds(kernel, arguments, options),
        check_parameters(kernel, oracle, arguments, options),
        _check_dims(options["dims"] or {}),
        _check_models(options),
        _check_backends(options["backends"]),
    )
    refuse(oracle.__name__, itertools.chain(*problems))


def check_declaration(pairing: Pairing, declared: Mapping[str, Dim]) -> None:
    """Checks a new pairing, of well-formed parts, against its kernel and its oracle.

    Args:
      pairing: to check.
      declared: dims as its author declared them.

    Raises:
      DeclarationError: the pairing does not fit. It reports all reasons.
    """
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


def _check_backends(backends: object) -> Problems:
    if not isinstance(backends, (str, list, tuple)) or not all(isinstance(each, str) for each in backends):
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
            case _ if name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                yield (
                    f"argument {name!r}",
                    f"declare it, as in {name}={_example_of(argument)}, not {format_given(argument)}",
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


def _example_of(given: object) -> str:
    """Returns the declaration that was probably meant by a value in its place."""
    if isinstance(given, str):
        return f"kt.array({given!r})"
    shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return f"kt.array({' '.join('mnkabcdefgh'[: len(shape)])!r}, {str(dtype)!r})"
    if isinstance(given, (bool, int, float)):
        return f"kt.static({given!r})"
    return "kt.array('m n')"


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
        if name not in pairing.dims and name not in options:
            known = ", ".join([*pairing.dims, *options]) or "none"
            yield "where", f"{name!r} is no dim, static or optional argument of the pairing; there are {known}"
            return
    lengths = {name: dim.shortest for name, dim in pairing.dims.items()}
    rows = [dict(zip(options, row, strict=True)) for row in itertools.islice(itertools.product(*options.values()), 64)]
    try:
        admitted = [row for row in rows if pairing.fit_lengths(lengths, row)]
    except Exception as error:
        yield "where", f"it raised {format_exception(error)}"
        return
    meets = "give the dims lengths that meet it, as in kt.dim(values=...)"
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
