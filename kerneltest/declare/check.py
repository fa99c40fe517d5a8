"""Checks that a declaration fits its kernel and its oracle."""

import inspect
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from kerneltest.core.backend_ids import unknown_pattern
from kerneltest.core.failures import DeclarationError, format_exception
from kerneltest.declare.arguments import ArrayArgument, DimSize, Optional, SameAs, Static, Tree, optional_parts
from kerneltest.declare.check_arrays import MakeError, check_axes, check_leaves
from kerneltest.declare.check_options import check_invariance, check_rejects, check_returns
from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing
from kerneltest.declare.rejects import Rejection
from kerneltest.declare.relations import Function, parse_relation
from kerneltest.declare.xfail import Xfail

_TOLERANCES = {"rtol": "relative", "atol": "absolute"}  # keywords of NumPy, and the models that they mean


def check_parts(name: str, kernel: Function, arguments: Mapping[str, object], options: Mapping[str, Any]) -> None:
    """Checks the type and form of everything that a pairing will be made of, each part by itself.

    Args:
      name: of the pairing to be made.
      kernel: the callable under test.
      arguments: declarations, by name.
      options: the keywords of `oracle_for` other than declarations of arguments.

    Raises:
      DeclarationError: a part has the wrong type or form.
    """
    wrong = _wrong(name)
    _check_kinds(kernel, arguments, wrong)
    dims = options["dims"] or {}
    if not isinstance(dims, Mapping):
        raise wrong("dims", f"give them by name, as in dims=dict(n=kt.dim(block=64)), not {dims!r}")
    for dim, declared in dims.items():
        if not isinstance(declared, Dim):
            length = f"values=({declared},)" if isinstance(declared, int) else "block=64"
            raise wrong(f"dim {dim!r}", f"declare it with kt.dim, as in dims=dict({dim}=kt.dim({length})), not "
                        f"{declared!r}")  # fmt: skip
    tolerance = options["tolerance"]
    if tolerance is not None and not (hasattr(tolerance, "bounds") and hasattr(tolerance, "misfit")):
        example = "kt.tolerance.conditioned()"
        if isinstance(tolerance, (int, float)):
            example = f"kt.tolerance.relative({tolerance:g}, 'the specification that sets it')"
        raise wrong("tolerance", f"give an error model, as in {example}, not {tolerance!r}")
    for option, kind, made_by in (("xfail", Xfail, "kt.xfail"), ("rejects", Rejection, "kt.rejects")):
        given = options[option]
        if not isinstance(given, (list, tuple)) or not all(isinstance(each, kind) for each in given):
            raise wrong(option, f"give a list of {made_by}(...), not {given!r}")
    needs = options["needs"] or {}
    if not isinstance(needs, Mapping) or not all(map(callable, needs.values())):
        example = "needs={'n': lambda i: slice(0, i + 1)}"
        raise wrong("needs", f"give a function from a position to a slice for each dim, as in {example}, not {needs!r}")
    returns = options["returns"]
    if not isinstance(returns, (str, list, tuple)) or not all(isinstance(each, str) for each in returns):
        raise wrong("returns", f"give names of dtypes or of arguments, as in returns='float32', not {returns!r}")
    if options["where"] is not None:
        try:
            parse_relation(options["where"])
        except ValueError as error:
            raise wrong("where", str(error)) from error
    backends = options["backends"]
    if not isinstance(backends, (str, list, tuple)) or not all(isinstance(each, str) for each in backends):
        raise wrong("backends", f"give patterns of backend ids, as in backends='gpu', not {backends!r}")
    for pattern in (backends,) if isinstance(backends, str) else backends:
        if problem := unknown_pattern(pattern):
            raise wrong("backends", problem)


def _wrong(pairing: str) -> MakeError:
    return lambda argument, what: DeclarationError(f"pairing {pairing!r}, {argument}: {what}")


def check_declaration(pairing: Pairing, declared: Mapping[str, Dim], options: frozenset[str]) -> None:
    """Checks a new pairing against its kernel and its oracle.

    Args:
      pairing: to check.
      declared: dims as its author declared them.
      options: keywords of `oracle_for` that cannot be used to declare an argument.

    Raises:
      DeclarationError: the pairing does not fit.
    """
    wrong = _wrong(pairing.name)
    _check_parameters(pairing, wrong, options)
    for name in declared:
        if name not in pairing.dims:
            raise wrong(f"dim {name!r}", f"no argument has it; the dims in use are {', '.join(pairing.dims) or 'none'}")
    patterns = [(f"dim {name!r}", each) for name, dim in pairing.dims.items() for each in dim.on]
    patterns += [(f"argument {path!r}", each) for path, leaf in pairing.leaves.items() for each in leaf.on]
    for where, pattern in patterns:
        if problem := unknown_pattern(pattern):
            raise wrong(where, f"on=: {problem}")
    check_leaves(pairing, wrong)
    check_axes(pairing, wrong)
    _check_where(pairing, wrong)
    _check_derived(pairing, wrong)
    check_returns(pairing, wrong)
    if pairing.all_masked not in ("", "zeros", "nan"):
        raise wrong("all_masked", f"give 'zeros' or 'nan', not {pairing.all_masked!r}")
    check_invariance(pairing, wrong)
    check_rejects(pairing, wrong)
    problem = pairing.tolerance.misfit(pairing.leaves, pairing.dims)
    if problem:
        raise wrong("tolerance", problem)


def _check_kinds(kernel: Function, arguments: Mapping[str, object], wrong: MakeError) -> None:
    parameters = inspect.signature(kernel).parameters
    for name, argument in arguments.items():
        match argument:
            case ArrayArgument() | Optional() | Tree():
                _check_part(name, argument, wrong)
            case SameAs():
                other = arguments.get(argument.name)
                if isinstance(other, Optional):
                    raise wrong(f"argument {name!r}", f"it is declared the same as {argument.name!r}, which may be "
                                "absent; make it kt.optional(kt.derived(...)) of that one")  # fmt: skip
                if isinstance(other, ArrayArgument) and other.kind.is_key_object:
                    raise wrong(f"argument {name!r}", f"it is declared the same as {argument.name!r}, which is a key; "
                                "declare a key of its own, as kt.key()")  # fmt: skip
                if not isinstance(other, ArrayArgument) or argument.name == name:
                    raise wrong(f"argument {name!r}", f"it is declared the same as {argument.name!r}, which is not "
                                "another array of the pairing")  # fmt: skip
            case DimSize():
                if not (isinstance(argument.dim, str) and argument.dim.isidentifier()):
                    raise wrong(f"argument {name!r}", f"a dim is given by its name, as in 'n', not {argument.dim!r}")
            case Static():
                continue
            case _ if name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                raise wrong(f"argument {name!r}", "declare it with kt.array, kt.scalar, kt.mask, kt.indices, "
                            "kt.lengths, kt.dim_size, kt.static or kt.tree, not "
                            f"{type(argument).__name__}")  # fmt: skip
            case _ if name in _TOLERANCES:
                error = argument if isinstance(argument, (int, float)) else 1e-3
                raise wrong(f"{name!r}", "by default the oracle's own rounding bounds the error, so leave it out; if a "
                            f"specification sets one, declare it with its reason, as in "
                            f"tolerance=kt.tolerance.{_TOLERANCES[name]}({error:g}, 'section 4.2')")  # fmt: skip
            case _:
                raise wrong(f"{name!r}", "this is neither an option of oracle_for nor a parameter of the kernel, which "
                            f"has {', '.join(parameters)}")  # fmt: skip


def _check_part(path: str, part: object, wrong: MakeError) -> None:
    match part:
        case ArrayArgument():
            if part.problem:
                raise wrong(f"argument {path!r}", part.problem)
        case Optional():
            if any(True for _ in optional_parts(path, part.argument)):
                raise wrong(f"argument {path!r}", "it may be absent as a whole, so none of its parts is optional; "
                            "declare one of the two")  # fmt: skip
            _check_part(path, part.argument, wrong)
        case Tree():
            try:
                found = list(part.parts(path))
            except Exception as error:  # of JAX, or of a class of the user's
                raise wrong(
                    f"argument {path!r}", f"JAX does not accept this as a pytree: {format_exception(error)}"
                ) from error
            for inner, each in found:
                _check_part(inner, each, wrong)
        case _:
            raise wrong(f"argument {path!r}", f'a pytree\'s leaves are arrays, as in kt.array("n"), not {part!r}; '
                        "anything else may be a field of a dataclass")  # fmt: skip


def _check_parameters(pairing: Pairing, wrong: MakeError, options: frozenset[str]) -> None:
    parameters = inspect.signature(pairing.kernel).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in pairing.arguments:
        if name not in parameters and not anything:
            raise wrong(f"argument {name!r}", f"the kernel has no such parameter; it has {', '.join(parameters)}")
    for name, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if variadic or parameter.default is not parameter.empty or name in pairing.arguments:
            continue
        if name in options:
            raise wrong(f"argument {name!r}", f"the kernel needs it, and {name}= is an option of oracle_for; declare "
                        f"it as arguments={{{name!r}: kt.array(\"m n\")}}")  # fmt: skip
        raise wrong(f"argument {name!r}", f'the kernel needs it; declare it, as in {name}=kt.array("m n")')
    if isinstance(pairing.oracle, np.ufunc):
        given = sum(not isinstance(argument, Static) for argument in pairing.arguments.values())
        if given != pairing.oracle.nin:
            raise wrong("oracle", f"numpy.{pairing.name} takes {pairing.oracle.nin} arrays and {given} are declared")
        return
    taken = inspect.signature(pairing.oracle).parameters
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return
    for name, parameter in taken.items():
        variadic = parameter.kind is parameter.VAR_POSITIONAL
        if not variadic and parameter.default is parameter.empty and name not in pairing.arguments:
            raise wrong(f"argument {name!r}", "the oracle takes it but the pairing does not declare it")
    for name, argument in pairing.arguments.items():
        if name not in taken and not isinstance(argument, Static):
            raise wrong(f"argument {name!r}", f"the oracle does not take it; add it to {pairing.name}'s parameters")


def _check_where(pairing: Pairing, wrong: MakeError) -> None:
    if pairing.where is None:
        return
    options = pairing.options()
    for name in pairing.where.parameters:
        if name not in pairing.dims and name not in options:
            known = ", ".join([*pairing.dims, *options]) or "none"
            raise wrong("where", f"{name!r} is neither a dim nor a static argument of the pairing; there are {known}")
    lengths = {name: dim.shortest for name, dim in pairing.dims.items()}
    rows = [dict(zip(options, row, strict=True)) for row in itertools.islice(itertools.product(*options.values()), 64)]
    try:
        admitted = [row for row in rows if pairing.fit_lengths(lengths, row)]
    except Exception as error:
        raise wrong("where", f"it raised {format_exception(error)}") from error
    meets = "give the dims lengths that meet it, as in kt.dim(values=...)"
    if not admitted:
        raise wrong("where", f"it admits none of the lengths that were tried, from the shortest on; {meets}")
    for name, texts in options.items():
        for text in texts:
            if any(row[name] == text for row in rows) and not any(row[name] == text for row in admitted):
                raise wrong("where", f"it admits none of the lengths that were tried with {name}={text}; {meets}, or "
                            "remove that option")  # fmt: skip


def _check_derived(pairing: Pairing, wrong: MakeError) -> None:
    for path, leaf in pairing.leaves.items():
        for name in leaf.derivation.parameters if leaf.derivation else ():
            other = pairing.leaves.get(name)
            if other is not None and other.derivation is not None:
                raise wrong(f"argument {path!r}", f"it follows from {name!r}, which follows from others itself")
            if other is None and isinstance(pairing.arguments.get(name), Tree):
                raise wrong(f"argument {path!r}", f"it follows from {name!r}, which is a pytree; an array may follow "
                            "only from arrays")  # fmt: skip
            if other is None and name not in (*pairing.dims, *pairing.options(), "rng"):
                known = ", ".join([*pairing.leaves, *pairing.dims, *pairing.options(), "rng"])
                raise wrong(f"argument {path!r}", f"it follows from {name!r}, which is not one of {known}")
