"""A kernel with its oracle and the declaration of its arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kerneltest.declare.arguments import Argument, ArrayArgument, DimSize, SameAs, Static, given, leaves, optionals
from kerneltest.declare.dims import Dim
from kerneltest.declare.error_model import Tolerance
from kerneltest.declare.platforms import speaks_of
from kerneltest.declare.rejects import Rejection
from kerneltest.declare.relations import Relation
from kerneltest.declare.xfail import Xfail

ABSENT, GIVEN = "absent", "given"

# Every pairing that `oracle_for` made, in order: the plugin tells which of them no test module holds.
MADE: "list[Pairing]" = []


@dataclass(frozen=True, eq=False)
class Pairing:
    """A kernel with its oracle and the declaration of its arguments. Calling it calls the oracle.

    Attributes:
      name: the oracle's name.
      module: that made it, while it was imported; or else the oracle's.
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
      needs: by dim, from a position along it in an output to the slice of the inputs that this needs; dims in
        `batch_dims` need no more than the position itself.
      where: what lengths and static arguments must meet; None for nothing more than `dims` says.
      backends: patterns of the backends that it is for; () for all.
      leaves: the arrays among the arguments, by path.
      optionals: what may be absent, by path, with the paths of the arrays in it.
      origin: what its author declared: itself, but for what `on` gives.
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
    needs: Mapping[str, Callable[[int], slice]] = field(default_factory=dict)
    where: Relation | None = None
    backends: tuple[str, ...] = ()
    leaves: Mapping[str, ArrayArgument] = field(init=False)
    optionals: Mapping[str, tuple[str, ...]] = field(init=False)
    origin: "Pairing" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_path = {path: leaf for name, argument in self.arguments.items() for path, leaf in leaves(name, argument)}
        object.__setattr__(self, "leaves", by_path)
        absent = {path: held for name, argument in self.arguments.items() for path, held in optionals(name, argument)}
        object.__setattr__(self, "optionals", absent)
        object.__setattr__(self, "origin", self)
        object.__setattr__(self, "needs", {**dict.fromkeys(self.batch_dims, _itself), **self.needs})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.oracle(*args, **kwargs)

    def admits(self, lengths: Mapping[str, int], statics: Mapping[str, str]) -> bool:
        """Whether dims may have these lengths, with the chosen options of static arguments."""
        each = all(self.dims[name].admits(length) for name, length in lengths.items())
        return each and (self.where is None or self.where.holds(lengths, self.chosen(statics)))

    def fitted(
        self, lengths: Mapping[str, int], statics: Mapping[str, str], fixed: Sequence[str] = ()
    ) -> dict[str, int] | None:
        """Lengths near some (each of which its dim admits) that `where` admits; None where it admits none.

        Args:
          lengths: of all dims.
          statics: the chosen option of each static argument.
          fixed: dims whose length stays.
        """
        if self.where is None:
            return dict(lengths)
        return self.where.nearest(self.dims, lengths, self.chosen(statics), fixed)

    def chosen(self, statics: Mapping[str, str]) -> dict[str, Any]:
        """What stands for the chosen options: what the kernel gets, and whether what may be absent is given."""
        return {
            name: option == GIVEN if name in self.optionals else self._static(name).value(option)
            for name, option in statics.items()
        }

    def _static(self, name: str) -> Static:
        argument = self.arguments[name]
        assert isinstance(argument, Static)
        return argument

    def options(self) -> dict[str, tuple[str, ...]]:
        """The options of each static argument, and of each argument that may be absent."""
        found = {name: each.options for name, each in self.arguments.items() if isinstance(each, Static)}
        named = {name: tuple(option for option, _ in options) for name, options in found.items()}
        return named | dict.fromkeys(self.optionals, (GIVEN, ABSENT))

    def on(self, backend: str) -> "Pairing":
        """The pairing as it is declared for a backend, given by its id: itself where nothing speaks of that."""
        dims = {name: _first(dim.on, backend, dim) for name, dim in self.dims.items()}
        dtypes = {path: _first(leaf.on, backend, leaf.dtypes) for path, leaf in self.leaves.items()}
        same = all(dims[name] is dim for name, dim in self.dims.items())
        if same and all(dtypes[path] == leaf.dtypes for path, leaf in self.leaves.items()):
            return self
        key = (tuple(map(id, dims.values())), tuple(dtypes.values()))
        known = _ON.setdefault(self, {})
        if key not in known:
            there = replace(self, dims=dims)
            leaves_there = {path: replace(leaf, dtypes=dtypes[path]) for path, leaf in self.leaves.items()}
            object.__setattr__(there, "leaves", leaves_there)
            object.__setattr__(there, "origin", self)
            known[key] = there
        return known[key]

    def assemble(
        self, values: Mapping[str, Any], dims: Mapping[str, int], statics: Mapping[str, str], *, oracle: bool
    ) -> dict[str, Any]:
        """Argument values by name, for the kernel or for the oracle; what is absent is left out where it has a default.

        Args:
          values: arrays, by path; those of what is absent are left out.
          dims: lengths of dims.
          statics: the chosen option of each static argument.
          oracle: whether the oracle gets them; it gets the names of named options, and the data of keys.
        """
        for path, leaf in self.leaves.items():
            if path in values and leaf.role in ("key", "raw_key"):
                data = values[path].astype(np.uint32)  # which an oracle's arguments are widened from
                values = {**values, path: data if oracle or leaf.role == "raw_key" else _key(data)}
        assembled: dict[str, Any] = {}
        for name, argument in self.arguments.items():
            match argument:
                case DimSize():
                    assembled[name] = dims[argument.dim]
                case Static():
                    assembled[name] = statics[name] if oracle and argument.named else argument.value(statics[name])
                case SameAs():
                    raise AssertionError("`oracle_for` puts the other array in its place")
                case _:
                    value = given(name, argument, values)
                    if value is not None or not _has_default(self.oracle if oracle else self.kernel, name):
                        assembled[name] = value
        return assembled

    def call_kernel(self, values: Mapping[str, Any]) -> Any:
        """The kernel's result."""
        return _call(self.kernel, inspect.signature(self.kernel).parameters, values)

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
        return _call(function, taken, values)


# What `Pairing.on` has made of a pairing, by what is declared for a backend.
_ON: "WeakKeyDictionary[Pairing, dict[object, Pairing]]" = WeakKeyDictionary()


def _first(on: Mapping[str, Any], backend: str, otherwise: Any) -> Any:
    return next((each for pattern, each in on.items() if speaks_of([pattern], backend)), otherwise)


def _key(data: Any) -> Any:
    import jax  # noqa: PLC0415 - whoever has a kernel has it

    return jax.random.wrap_key_data(data)


def _has_default(function: Callable[..., Any], name: str) -> bool:
    parameter = inspect.signature(function).parameters.get(name)
    return parameter is not None and parameter.default is not parameter.empty


def _itself(position: int) -> slice:
    return slice(position, position + 1)


def _call(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], values: Mapping[str, Any]) -> Any:
    """Calls positionally as far as the parameters go: `vmap` maps every keyword, and ufuncs take none."""
    positional: list[Any] = []
    keywords = dict(values)
    for name, parameter in parameters.items():
        if name not in keywords or parameter.kind is parameter.KEYWORD_ONLY:
            break
        positional.append(keywords.pop(name))
    return function(*positional, **keywords)
