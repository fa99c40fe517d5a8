"""Checks that the arguments of a pairing are the parameters of its kernel and of its oracle."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from kerneltest.core.suggestions import suggest
from kerneltest.declare.arguments import DECLARED, Static
from kerneltest.declare.problems import Problems
from kerneltest.declare.relations import Function

_METHOD = "the kernel is a method; name that of an object, as in oracle_for(model.forward, ...)"


def check_parameters(
    kernel: Function, oracle: Function, arguments: Mapping[str, object], options: Mapping[str, Any]
) -> Problems:
    """Checks the names of declared arguments against the parameters of the kernel and of the oracle.

    Args:
      kernel: the callable under test.
      oracle: its oracle.
      arguments: declarations, by name. Values that are no declarations are ignored.
      options: the keywords of `oracle_for` that cannot be used to declare an argument.
    """
    parameters = inspect.signature(kernel).parameters
    declared = {name: each for name, each in arguments.items() if isinstance(each, DECLARED)}
    lacking = [name for name in required_parameters(kernel) if name not in arguments]
    unknown = [name for name in declared if name not in parameters and not _takes_any(parameters)]
    suggested = ""
    for name in unknown:
        suggested += (hint := suggest(name, lacking))
        yield f"argument {name!r}", f"the kernel has no such parameter; it has {', '.join(parameters) or 'none'}{hint}"
    for name in lacking:
        if name == "self":
            yield f"argument {name!r}", _METHOD
        elif name in options:
            advice = f'declare it as arguments={{{name!r}: kt.array("m n")}}'
            yield f"argument {name!r}", f"the kernel needs it, and {name}= is an option of oracle_for; {advice}"
        elif repr(name) not in suggested:
            yield f"argument {name!r}", f'the kernel needs it; declare it, as in {name}=kt.array("m n")'
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


def required_parameters(function: Function) -> list[str]:
    """Returns the names of the parameters that every call gives."""
    parameters = inspect.signature(function).parameters.items()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, each in parameters if each.default is each.empty and each.kind not in variadic]


def _takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(each.kind is each.VAR_KEYWORD for each in parameters.values())
