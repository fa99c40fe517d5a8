"""A kernel with its oracle and the declaration of its arguments."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import FrozenInstanceError, dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import raises_for_user
from kerneltest.core.fingerprint import uncounted
from kerneltest.core.targets import HARDWARE_PATTERNS
from kerneltest.declare.arguments import (
    Argument,
    ArrayArgument,
    DimSize,
    Static,
    fill_argument,
    leaves,
    option_of,
    optional_parts,
)
from kerneltest.declare.dims import Dim, Function, Relation
from kerneltest.declare.error_models import Tolerance
from kerneltest.declare.outcomes import Rejection, Unordered, Xfail

Value = Any  # an argument, a pytree of arguments, or a result: NumPy arrays, JAX arrays, tracers, static values

ANY_DTYPE = "any"  # in `returns`

ABSENT, GIVEN = "absent", "given"

# In `invariant_to`: the order of the programs, the rest of the batch, the length of a masked tail, the cuts of a
# sequence, and data that the oracle does not read.
GRID, BATCH, PADDING, CHUNKS, UNREAD = "grid", "batch", "padding", "chunks", "unread"

# All pairings in order of creation. The plugin reports those that it did not collect.
ALL_PAIRINGS: "list[Pairing]" = []


def matches_backend(patterns: Iterable[str], backend: str) -> bool:
    """Returns whether any pattern of backend ids, or word for hardware, matches a backend's id."""
    return any(fnmatchcase(backend, each) for word in patterns for each in HARDWARE_PATTERNS.get(word, (word,)))


def is_part_of(path: str, name: str) -> bool:
    """Returns whether an array is the argument or the branch of a pytree that has a name, or part of it."""
    return path == name or path.startswith(f"{name}.")


@dataclass(eq=False)
class Pairing:
    """A kernel with its oracle and the declaration of its arguments. Calling it calls the oracle.

    It is frozen, except for `is_planned` and for pytest's marks, in `pytestmark` as on a function.

    Attributes:
      name: the oracle's name.
      module: the module whose import created it, or else the oracle's.
      kernel: the callable under test.
      oracle: a NumPy function of the same arguments, in float64 and int64.
      arguments: by name, in the order of their declaration.
      dims: by name; a dim not declared has no block and any length from 1.
      tolerance: the error model of numeric families.
      signed_zeros: whether the sign of a zero is compared.
      xfail: expected findings.
      all_masked: the value of all outputs if everything is masked: `zeros`, `nan`, or "" if not declared.
      batch_dims: dims along which each slice of the result is computed independently.
      invariant_to: that on which no bit of the result depends: static arguments, `grid` (the order of the programs),
        `batch` (the other slices along `batch_dims`), `padding` (how long a masked tail is), `chunks` (where a sequence
        along `chunk_dims` is cut) and `unread` (data that the oracle does not read).
      chunk_dims: by a dim along which a call may compute a piece of a sequence, the dim that counts all of the sequence
        up to the end of the piece; the dim itself if the call gets only the piece.
      grad: the kernel can be differentiated, and its gradient is the oracle's: by all floats, or by some arguments.
      rejects: calls that the kernel must refuse.
      needs: by dim, a function from a position along it in an output to the slice of the inputs that it needs; dims in
        `batch_dims` need only the position itself.
      where: a relation that lengths and static arguments must meet; None if `dims` declares everything.
      backends: patterns of the backends that it is for; () for all.
      returns: the dtype of each output, or the path of an array argument that has the same, or a static argument whose
        options are dtypes, or `any`; one for all outputs; () to declare nothing.
      reproducible: whether the same inputs give the same bits.
      unordered: the outputs whose order is free, which kernel and oracle then return in ascending order.
      invariants: by the name of an invariant, further lengths at which it is asked, by dim.
      leaves: the arrays among the arguments, by path.
      optionals: by path, the parts that may be absent, with the paths of the arrays in them.
      origin: the pairing for all backends: itself, except for pairings returned by `on`.
      is_planned: whether anything has planned to test it, such as pytest or `kt.check`.
    """

    name: str
    module: str
    kernel: Function = field(metadata=uncounted("its jaxprs count"))
    oracle: Function = field(metadata=uncounted("its values and their bounds count"))
    arguments: Mapping[str, Argument]
    dims: Mapping[str, Dim]
    tolerance: Tolerance
    signed_zeros: bool = False
    xfail: tuple[Xfail, ...] = ()
    all_masked: str = ""
    batch_dims: tuple[str, ...] = ()
    invariant_to: tuple[str, ...] = ()
    chunk_dims: Mapping[str, str] = field(default_factory=dict)
    grad: bool | tuple[str, ...] = False
    rejects: tuple[Rejection, ...] = ()
    needs: Mapping[str, Callable[[int], slice]] = field(default_factory=dict)
    where: Relation | None = None
    backends: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()
    reproducible: bool = True
    unordered: Unordered | None = None
    invariants: Mapping[str, tuple[Mapping[str, int], ...]] = field(default_factory=dict)
    leaves: Mapping[str, ArrayArgument] = field(init=False)
    optionals: Mapping[str, tuple[str, ...]] = field(init=False)
    origin: "Pairing" = field(init=False, repr=False, metadata=uncounted("it is what others were made of"))
    is_planned: bool = field(init=False, repr=False, default=False, metadata=uncounted("it says nothing about it"))

    def __post_init__(self) -> None:
        by_path = {path: leaf for name, argument in self.arguments.items() for path, leaf in leaves(name, argument)}
        object.__setattr__(self, "leaves", by_path)
        absent = {path: inner for name, each in self.arguments.items() for path, inner in optional_parts(name, each)}
        object.__setattr__(self, "optionals", absent)
        object.__setattr__(self, "origin", self)
        object.__setattr__(self, "needs", {**dict.fromkeys(self.batch_dims, lambda i: slice(i, i + 1)), **self.needs})

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__ and name not in ("pytestmark", "is_planned"):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    @property
    def __name__(self) -> str:
        """The oracle's name, without which pytest's marks do not take it for a function."""
        return self.name

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        return self.oracle(*args, **kwargs)

    def claims(self, word: str) -> bool:
        """Returns whether `invariant_to` has a word of these; a static argument of that name wins."""
        return word in self.invariant_to and not isinstance(self.arguments.get(word), Static)

    def differentiates(self, path: str) -> bool:
        """Returns whether the gradient by an array argument is compared, if it holds floats."""
        chosen = self.grad if isinstance(self.grad, tuple) else ((path,) if self.grad else ())
        return self.leaves[path].kind.differentiable and any(is_part_of(path, name) for name in chosen)

    def admits(self, lengths: Mapping[str, int], statics: Mapping[str, str]) -> bool:
        """Returns whether dims may have these lengths, with the chosen options of static arguments."""
        each = all(self.dims[name].admits(length) for name, length in lengths.items())
        return each and (self.where is None or self.where.holds(lengths, self._known(statics)))

    def fit_lengths(
        self, lengths: Mapping[str, int], statics: Mapping[str, str], fixed: Sequence[str] = ()
    ) -> dict[str, int] | None:
        """Returns lengths that `where` admits, near some that each dim admits; None if it finds none."""
        if self.where is None:
            return dict(lengths)
        return self.where.nearest_lengths(self.dims, lengths, self._known(statics), fixed)

    def _known(self, statics: Mapping[str, str]) -> dict[str, Value]:
        return self.option_values(statics) | {option_of(name): option for name, option in statics.items()}

    def option_values(self, statics: Mapping[str, str]) -> dict[str, Value]:
        """Returns the kernel's values for the chosen options, and True or False for arguments that may be absent."""
        return {
            name: each.value(option) if isinstance(each := self.arguments.get(name), Static) else option == GIVEN
            for name, option in statics.items()
        }

    def options(self) -> dict[str, tuple[str, ...]]:
        """Returns the names of the options of each static argument, and of each argument that may be absent."""
        statics = {name: each.options for name, each in self.arguments.items() if isinstance(each, Static)}
        names = {name: tuple(option for option, _ in options) for name, options in statics.items()}
        return names | dict.fromkeys(self.optionals, (GIVEN, ABSENT))

    def on(self, backend: str) -> "Pairing":
        """Returns the pairing as declared for a backend, given by its id; itself if nothing is declared for it."""
        dims = {name: _first_match(dim.on, backend, dim) for name, dim in self.dims.items()}
        dtypes = {path: _first_match(leaf.on, backend, leaf.dtypes) for path, leaf in self.leaves.items()}
        same = all(dims[name] is dim for name, dim in self.dims.items())
        if same and all(dtypes[path] == leaf.dtypes for path, leaf in self.leaves.items()):
            return self
        key = (tuple(map(id, dims.values())), tuple(dtypes.values()))
        known = _VARIANTS.setdefault(self, {})
        if key not in known:
            there = replace(self, dims=dims)
            leaves_there = {path: replace(leaf, dtypes=dtypes[path]) for path, leaf in self.leaves.items()}
            object.__setattr__(there, "leaves", leaves_there)
            object.__setattr__(there, "origin", self)
            known[key] = there
        return known[key]

    def with_blocks(self, blocks: Mapping[str, int]) -> "Pairing":
        """Returns the pairing with the blocks of some dims, on all backends; a block or lengths declared there win."""
        dims = {name: dim.with_block(blocks.get(name)) for name, dim in self.dims.items()}
        if dims == self.dims:
            return self
        key = frozenset(blocks.items())
        known = _VARIANTS.setdefault(self, {})
        if key not in known:
            known[key] = copy(self)  # with pytest's marks
            vars(known[key]).update(dims=dims, origin=known[key])
        return known[key]

    def assemble(
        self, values: Mapping[str, Value], dims: Mapping[str, int], statics: Mapping[str, str], *, oracle: bool
    ) -> dict[str, Value]:
        """Returns arguments by name, the oracle's or the kernel's; absent ones that have a default are left out."""
        given_leaves = {path: leaf for path, leaf in self.leaves.items() if path in values}
        passed = {path: leaf.kind.pass_value(values[path], oracle=oracle) for path, leaf in given_leaves.items()}
        values = {**values, **passed}
        assembled: dict[str, Value] = {}
        for name, argument in self.arguments.items():
            match argument:
                case DimSize():
                    assembled[name] = dims[argument.dim]
                case Static():
                    assembled[name] = statics[name] if oracle and argument.named else argument.value(statics[name])
                case _:
                    value = fill_argument(name, argument, values)
                    if value is not None or not _has_default(self.oracle if oracle else self.kernel, name):
                        assembled[name] = value
        return assembled

    def call_kernel(self, values: Mapping[str, Value]) -> Value:
        """Returns the kernel's result."""
        result = _call(self.kernel, inspect.signature(self.kernel).parameters, values)
        if self.unordered is None:
            return result
        from jax import numpy  # noqa: PLC0415 - the kernel has imported it

        return self.unordered.arrange(result, numpy)

    def call_oracle(self, values: Mapping[str, Value], like: Sequence[ShapeDtype] = ()) -> Value:
        """Returns the oracle's result. Static arguments that it does not take are left out."""
        return self.call_as_oracle(self.oracle, values, like)

    def call_as_oracle(self, function: Function, values: Mapping[str, Value], like: Sequence[ShapeDtype] = ()) -> Value:
        """Returns the result of the oracle or a variant, with outputs arranged `like` the kernel's or its own."""
        if isinstance(function, np.ufunc):
            return function(*(values[name] for name, each in self.arguments.items() if not isinstance(each, Static)))
        taken = inspect.signature(function).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
            values = {name: value for name, value in values.items() if name in taken}
        result = _call(function, taken, values)
        return result if self.unordered is None else self.unordered.arrange(result, np, like)


# The results of `Pairing.on` and `Pairing.with_blocks`, by pairing and by what differs.
_VARIANTS: "WeakKeyDictionary[Pairing, dict[object, Pairing]]" = WeakKeyDictionary()


_T = TypeVar("_T")


def _first_match(on: Mapping[str, _T], backend: str, default: _T) -> _T:
    return next((each for pattern, each in on.items() if matches_backend([pattern], backend)), default)


def _has_default(function: Function, name: str) -> bool:
    parameter = inspect.signature(function).parameters.get(name)
    return parameter is not None and parameter.default is not parameter.empty


@raises_for_user
def _call(function: Function, parameters: Mapping[str, inspect.Parameter], values: Mapping[str, Value]) -> Value:
    """Calls a function with as many positional arguments as possible: `vmap` maps keywords, and ufuncs take none."""
    positional: list[Value] = []
    keywords = dict(values)
    for name, parameter in parameters.items():
        if name not in keywords or parameter.kind is parameter.KEYWORD_ONLY:
            break
        positional.append(keywords.pop(name))
    return function(*positional, **keywords)
