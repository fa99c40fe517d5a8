"""A kernel with its oracle and the declaration of its arguments."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerneltest.declare.arguments import Argument, ArrayArgument, DimSize, Static, Tree, leaves
from kerneltest.declare.bounds import Tolerance
from kerneltest.declare.dims import Dim
from kerneltest.declare.rejects import Rejection
from kerneltest.declare.xfail import Xfail

# Every pairing that `oracle_for` made, in order: the plugin tells which of them no test module holds.
MADE: "list[Pairing]" = []


@dataclass(frozen=True, eq=False)
class Pairing:
    """A kernel with its oracle and the declaration of its arguments. Calling it calls the oracle.

    Attributes:
      name: the oracle's name.
      module: where the pairing was declared.
      kernel: the callable under test.
      oracle: NumPy, same arguments, in float64 and int64.
      arguments: by name, in the order of their declaration.
      dims: by name; a dim not declared has no block and any length from 1.
      tolerance: the error model of numeric families.
      signed_zeros: whether the sign of a zero is compared.
      xfail: expected findings.
      all_masked: what all outputs are where everything is masked: `zeros`, `nan`, or "" where that is not declared.
      batch_dims: dims along which each slice of the result is computed by itself.
      invariant_to: static arguments on which no bit of the result depends, and `grid` for the order of the programs.
      grad: the kernel can be differentiated, and its gradient is the oracle's.
      rejects: calls that it must refuse.
      leaves: the arrays among the arguments, by path.
    """

    name: str
    module: str
    kernel: Callable[..., Any]
    oracle: Callable[..., Any]
    arguments: Mapping[str, Argument]
    dims: Mapping[str, Dim]
    tolerance: Tolerance
    signed_zeros: bool = False
    xfail: tuple[Xfail, ...] = ()
    all_masked: str = ""
    batch_dims: tuple[str, ...] = ()
    invariant_to: tuple[str, ...] = ()
    grad: bool = False
    rejects: tuple[Rejection, ...] = ()
    leaves: Mapping[str, ArrayArgument] = field(init=False)

    def __post_init__(self) -> None:
        by_path = {path: leaf for name, argument in self.arguments.items() for path, leaf in leaves(name, argument)}
        object.__setattr__(self, "leaves", by_path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.oracle(*args, **kwargs)

    def assemble(
        self, values: Mapping[str, Any], dims: Mapping[str, int], statics: Mapping[str, str], *, oracle: bool
    ) -> dict[str, Any]:
        """Argument values by name, for the kernel or for the oracle.

        Args:
          values: arrays, by path.
          dims: lengths of dims.
          statics: the chosen option of each static argument.
          oracle: whether the oracle gets them; it gets the names of named options.
        """
        assembled: dict[str, Any] = {}
        for name, argument in self.arguments.items():
            match argument:
                case ArrayArgument():
                    assembled[name] = values[name]
                case Tree():
                    assembled[name] = argument.filled(name, values)
                case DimSize():
                    assembled[name] = dims[argument.dim]
                case Static():
                    assembled[name] = statics[name] if oracle and argument.named else argument.value(statics[name])
        return assembled

    def call_kernel(self, values: Mapping[str, Any]) -> Any:
        """The kernel's result."""
        return _call(self.kernel, values)

    def call_oracle(self, values: Mapping[str, Any]) -> Any:
        """The oracle's result; static arguments that it does not take are left out."""
        return self.call_as_oracle(self.oracle, values)

    def call_as_oracle(self, function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        """The result of the oracle or of a function that stands beside it; a ufunc gets the arrays in their order."""
        if isinstance(function, np.ufunc):
            return function(*(values[name] for name, each in self.arguments.items() if not isinstance(each, Static)))
        taken = inspect.signature(function).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
            values = {name: value for name, value in values.items() if name in taken}
        return _call(function, values)


def _call(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Calls positionally as far as the signature goes: `vmap` maps every keyword, and ufuncs take none."""
    positional: list[Any] = []
    keywords = dict(values)
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in keywords or parameter.kind is parameter.KEYWORD_ONLY:
            break
        positional.append(keywords.pop(name))
    return function(*positional, **keywords)
