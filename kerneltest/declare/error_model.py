"""The interface of error models: the oracle's side of a case, and the two methods of a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.dims import Dim
from kerneltest.numerics.bounds import Limit, OracleCase

Leaves = Mapping[str, ArrayArgument]
Dims = Mapping[str, Dim]


@dataclass(frozen=True, slots=True)
class Measured(OracleCase):
    """A case as an error model gets it: the oracle's side only, never what the kernel computed.

    Attributes:
      evaluate: evaluates the oracle: from leaves in float64 or int64 to its outputs.
      leaves: the case's array arguments by path, widened to float64 or int64.
      values: the oracle's outputs for them.
      formats: the formats of the float leaves in the kernel's dtypes, by path.
      watched: evaluates the oracle on leaves that may be tracked arrays; they are not checked.
      oracle: the oracle function itself.
      jax_in_float64: whether JAX computes in float64.
      declared: the declarations of the leaves, by path.
      dims: the length of each dim.
      in_kernel_dtypes: evaluates another function on the leaves in the kernel's dtypes; returns its outputs as float64.
      form: evaluates another form of the oracle on the case: returns its side of it, and raises what it raises.
      statics: the chosen option of each static argument.
    """

    declared: Leaves
    dims: Mapping[str, int]
    in_kernel_dtypes: Callable[[Callable[..., object]], tuple[Array, ...]]
    form: Callable[[Callable[..., object]], OracleCase]
    statics: Mapping[str, str] = field(default_factory=dict)

    @property
    def input_formats(self) -> tuple[FloatFormat, ...]:
        """The formats of the float leaves, in their order."""
        return tuple(self.formats.values())


class Tolerance(Protocol):
    """An error model: any object with these two methods. `str()` of it names it in reports, with its constants."""

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        """Returns why the model does not fit the declaration, with the fix; "" if it fits.

        It is called when a pairing is declared.

        Args:
          leaves: the pairing's array arguments, by path.
          dims: its dims, by name.
        """
        ...

    def bounds(self, measured: Measured) -> Sequence[Limit]:
        """Returns a bound for each output of a case. An exception ends the case as an `oracle_error`.

        Args:
          measured: the oracle's side of the case. No model sees what the kernel computed.
        """
        ...
