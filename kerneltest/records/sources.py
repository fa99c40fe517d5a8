"""A pairing's declaration and source code as text, for reports."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from kerneltest.core.source_location import relative_path
from kerneltest.declare.arguments import Argument, ArrayArgument, DimSize, Optional, Static, Tree
from kerneltest.declare.dims import Dim
from kerneltest.declare.domains import Domain, Interval
from kerneltest.declare.pairing import Pairing
from kerneltest.records.run_plan import FunctionSource, PairingSummary


def describe_pairing(pairing: Pairing) -> PairingSummary:
    """Returns a pairing's declaration in words, with the sources of its kernel and oracle."""
    words = {name: _argument(argument) for name, argument in pairing.arguments.items()}
    words |= {f"dim {name}": _dim(each) for name, each in pairing.dims.items()}
    words["tolerance"] = str(pairing.tolerance)
    if pairing.all_masked:
        words["where everything is masked"] = pairing.all_masked
    if pairing.where:
        words["where"] = f"a relation between {', '.join(pairing.where.parameters)}"
    if pairing.backends:
        words["backends"] = ", ".join(pairing.backends)
    if pairing.signed_zeros:
        words["signed zeros"] = "compared"
    if not pairing.reproducible:
        words["reproducible"] = "no: the same inputs may give other bits"
    if pairing.returns:
        words["returns"] = ", ".join(pairing.returns)
    blocks = {name: dim.block for name, dim in pairing.dims.items() if dim.block}
    return PairingSummary(words, source_of(pairing.kernel), source_of(pairing.oracle), blocks)


def source_of(function: Callable[..., Any]) -> FunctionSource:
    """Returns the text of a function, jitted or partial, and of the functions in its module that it names."""
    innermost = innermost_function(function)
    code = getattr(innermost, "__code__", None)
    if code is None:
        return FunctionSource("", ())
    module = sys.modules.get(innermost.__module__)
    try:
        parts = dict(_parts(innermost, vars(module) if module else {}, set()))
    except (OSError, TypeError):  # defined at a prompt or by exec
        parts = {}
    return FunctionSource(relative_path(code.co_filename), tuple(sorted(parts.items())))


def _parts(function: Any, names: dict[str, Any], seen: set[str]) -> Iterator[tuple[int, str]]:
    lines, first = inspect.getsourcelines(function)
    yield first, "".join(lines)
    for name in sorted(_global_names(function.__code__) - seen):
        seen.add(name)
        other = innermost_function(names.get(name))
        if inspect.isfunction(other) and other.__module__ == function.__module__ and other is not function:
            yield from _parts(other, names, seen)


def _global_names(code: CodeType) -> set[str]:
    """Returns the global names that a function and the functions inside it use."""
    inner = [_global_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inner)


def innermost_function(function: Any) -> Any:
    """Returns the function that decorators and partials wrap."""
    while isinstance(function, functools.partial):
        function = function.func
    try:
        return inspect.unwrap(function)
    except ValueError:
        return function


def _argument(argument: Argument) -> str:
    match argument:
        case ArrayArgument():
            axes = " ".join(map(str, argument.shape)) or "no axes"
            of = f" into {argument.bounded_by}" if argument.bounded_by is not None else ""
            of += f" or {argument.sentinel}" if argument.sentinel is not None else ""
            of += f", {argument.structure.__name__}," if argument.structure else ""
            from_others = f" from {', '.join(argument.derivation.parameters)}" if argument.derivation else ""
            text = f"{argument.kind.noun} [{axes}]{of} of {', '.join(argument.dtypes)}{from_others}"
            return "; ".join([f"{text}{_domain(argument.domain)}", *map(_elsewhere, argument.on.items())])
        case DimSize():
            return f"the length of {argument.dim}"
        case Static():
            return f"one of {', '.join(name for name, _ in argument.options)}"
        case Optional():
            return f"{_argument(argument.argument)}, or absent"
        case Tree():
            return f"tree of {'; '.join(f'{path}: {_argument(leaf)}' for path, leaf in argument.parts('_'))}"


def _domain(domain: Domain) -> str:
    if isinstance(domain, Interval):
        return "" if domain.everything else f", {domain}"
    return "".join(f", {name} {each}" for name, each in domain.items() if not each.everything)


def _elsewhere(given: tuple[str, tuple[str, ...]]) -> str:
    pattern, dtypes = given
    return f"on {pattern} of {', '.join(dtypes)}"


def _dim(each: Dim) -> str:
    if each.values:
        lengths = ", ".join(map(str, each.values))
    else:
        most = f" to {each.maximum}" if each.maximum is not None else ""
        lengths = f"from {each.minimum}{most}" + (f", a multiple of {each.multiple_of}" if each.multiple_of > 1 else "")
    lengths += f"; block {each.block}" if each.block else ""
    lengths += f"; {each.production} in production" if each.production else ""
    return "; ".join([lengths, *(f"on {pattern} {_dim(other)}" for pattern, other in each.on.items())])
