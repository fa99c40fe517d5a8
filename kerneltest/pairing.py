"""The declaration: a kernel, its oracle and what its arguments may be."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kerneltest.dtypes import DtypeError, dtype, is_float
from kerneltest.error_cases import ErrorCase
from kerneltest.error_models import conditioned
from kerneltest.limitations import Limitation
from kerneltest.tolerance import Tolerance

FLOATS = ("float32", "bfloat16", "float16")
INTEGERS = ("int32", "int8", "uint8")

Role = Literal["data", "mask", "index", "length"]


class DeclarationError(ValueError):
    """A pairing that does not fit its kernel or oracle; the message names pairing, argument and mend."""


@dataclass(frozen=True, slots=True)
class Dim:
    """A symbolic axis length.

    Attributes:
      tile: the block length the kernel cuts the axis into, in elements; None if it does not.
      multiple_of: every length is a multiple of it.
      minimum, maximum: the least and greatest length; `minimum=0` admits the empty axis.
      values: the only lengths there are, in place of boundary lengths.
    """

    tile: int | None = None
    multiple_of: int = 1
    minimum: int = 1
    maximum: int | None = None
    values: tuple[int, ...] = ()

    def admits(self, length: int) -> bool:
        if self.values:
            return length in self.values
        below = self.maximum is None or length <= self.maximum
        return length % self.multiple_of == 0 and length >= self.minimum and below


@dataclass(frozen=True, slots=True)
class Array:
    """An array argument, or one leaf of a pytree.

    Attributes:
      shape: dim names and fixed lengths, outermost first.
      dtypes: names of what it may hold. Arguments that declare the same several dtypes change together.
      role: `data`, `mask` (booleans), `index` (0 to `of` - 1) or `length` (0 to `of`).
      domain: least and greatest value of data; None for every value the dtype has.
      of: the dim that an index or a length points into.
    """

    shape: tuple[str | int, ...]
    dtypes: tuple[str, ...]
    role: Role = "data"
    domain: tuple[float, float] | None = None
    of: str = ""


@dataclass(frozen=True, slots=True)
class Size:
    """A static argument that is the length of a dim."""

    dim: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A static argument with few values.

    Attributes:
      options: the option's name to what the kernel gets.
      named: the oracle gets the option's name instead of its value.
    """

    options: tuple[tuple[str, Any], ...]
    named: bool

    def value(self, name: str) -> Any:
        return dict(self.options)[name]


@dataclass(frozen=True, slots=True)
class Tree:
    """A pytree (dicts, lists and tuples) of arrays."""

    branches: Any


Argument = Array | Size | Choice | Tree


def array(shape: str, dtypes: str | Sequence[str] = FLOATS, *, domain: tuple[float, float] | None = None) -> Array:
    """An array of data: `shape` as in `"m k"` or `"b 3 n"`, `dtypes` by name, values within `domain`."""
    return Array(_shape(shape), _names(dtypes), "data", domain)


def scalar(dtypes: str | Sequence[str] = FLOATS, *, domain: tuple[float, float] | None = None) -> Array:
    """An array of no axes."""
    return Array((), _names(dtypes), "data", domain)


def mask(shape: str) -> Array:
    """Booleans: filled with none, all, causal, ragged and whole-tile patterns."""
    return Array(_shape(shape), ("bool",), "mask")


def index(shape: str, *, of: str, dtype: str = "int32") -> Array:
    """Integers that point at an element of dim `of`; the first and the last element are among them."""
    return Array(_shape(shape), (dtype,), "index", of=of)


def length(shape: str, *, of: str, dtype: str = "int32") -> Array:
    """Integers that count elements of dim `of`; 0 and all of it are among them."""
    return Array(_shape(shape), (dtype,), "length", of=of)


def size(dim: str) -> Size:
    """A static integer argument that is the length of `dim`, as in `iota(n)`."""
    return Size(dim)


def choice(*values: Any, **named: Any) -> Choice:
    """A static argument. `choice("none", "relu")` gives kernel and oracle the value itself;
    `choice(none=None, relu=jax.nn.relu)` gives the kernel the value and the oracle the name."""
    if bool(values) == bool(named):
        raise ValueError("choice: give either values or name=value options, and at least one")
    return Choice(tuple(named.items()) if named else tuple((str(v), v) for v in values), bool(named))


def tree(branches: Any) -> Tree:
    """A pytree argument: dicts, lists and tuples whose leaves are `array`, `scalar`, `mask`, `index`, `length`."""
    return Tree(branches)


def dim(
    *,
    tile: int | None = None,
    multiple_of: int = 1,
    minimum: int = 1,
    maximum: int | None = None,
    values: Iterable[int] = (),
) -> Dim:
    """A dim; see `Dim`.

    Raises:
      ValueError: a tile or multiple below 1, or bounds that admit no length.
    """
    made = Dim(tile, multiple_of, minimum, maximum, tuple(values))
    if (tile is not None and tile < 1) or multiple_of < 1:
        raise ValueError("dim: tile and multiple_of count elements, so they are at least 1")
    if minimum < 0 or (maximum is not None and maximum < minimum) or any(v < 0 for v in made.values):
        raise ValueError(f"dim: no length lies between minimum={minimum} and maximum={maximum}")
    return made


@dataclass(frozen=True, eq=False)
class Pairing:
    """A kernel with its oracle and the declaration of its arguments. Calling it calls the oracle.

    Attributes:
      name: the oracle's name.
      module: where the pairing was declared.
      kernel: the callable under test.
      oracle: NumPy, same arguments, in float64 and int64.
      arguments: by name, in the kernel's order.
      dims: by name; a dim not declared has no tile and any length from 1.
      tolerance: the error model of numeric families.
      signed_zeros: whether the sign of a zero is compared.
      limitations: expected findings.
      all_masked: what all outputs are where everything is masked: `zeros`, `nan`, or "" where that is not declared.
      independent: what no bit of the result depends on: names of static arguments, of dims along which the result is
        computed slice by slice, and `grid` for the order in which programs run.
      grad: the kernel can be differentiated, and its gradient is the oracle's.
      errors: calls that it must refuse.
    """

    name: str
    module: str
    kernel: Callable[..., Any]
    oracle: Callable[..., Any]
    arguments: Mapping[str, Argument]
    dims: Mapping[str, Dim]
    tolerance: Tolerance
    signed_zeros: bool = False
    limitations: tuple[Limitation, ...] = ()
    all_masked: str = ""
    independent: tuple[str, ...] = ()
    grad: bool = False
    errors: tuple[ErrorCase, ...] = ()
    leaves: Mapping[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        found = {path: leaf for name, argument in self.arguments.items() for path, leaf in _leaves(name, argument)}
        object.__setattr__(self, "leaves", found)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.oracle(*args, **kwargs)

    def assemble(
        self, leaves: Mapping[str, Any], dims: Mapping[str, int], statics: Mapping[str, str], *, oracle: bool
    ) -> dict[str, Any]:
        """Argument values by name, from leaves by path, for the kernel or for the oracle."""
        values: dict[str, Any] = {}
        for name, argument in self.arguments.items():
            match argument:
                case Array():
                    values[name] = leaves[name]
                case Tree():
                    values[name] = _rebuild(name, argument.branches, leaves)
                case Size():
                    values[name] = dims[argument.dim]
                case Choice():
                    values[name] = statics[name] if oracle and argument.named else argument.value(statics[name])
        return values

    def call_kernel(self, values: Mapping[str, Any]) -> Any:
        """The kernel's result."""
        return _call(self.kernel, values)

    def call_oracle(self, values: Mapping[str, Any]) -> Any:
        """The oracle's result; static arguments that it does not take are left out."""
        return self.call_as_oracle(self.oracle, values)

    def call_as_oracle(self, function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        """The result of the oracle or of a function that stands beside it."""
        taken = inspect.signature(function).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
            values = {name: value for name, value in values.items() if name in taken}
        return _call(function, values)


def oracle_for(
    kernel: Callable[..., Any],
    *,
    dims: Mapping[str, Dim] | None = None,
    tolerance: Tolerance | None = None,
    signed_zeros: bool = False,
    limitations: Sequence[Limitation] = (),
    all_masked: str = "",
    independent: Sequence[str] = (),
    grad: bool = False,
    errors: Sequence[ErrorCase] = (),
    **arguments: Argument,
) -> Callable[[Callable[..., Any]], Pairing]:
    """Pairs `kernel` with the oracle it decorates; the other keywords declare the kernel's arguments.

    An oracle may leave out static arguments on which no value depends, such as a block size.

    Raises:
      DeclarationError: the declaration does not fit the kernel or the oracle.
    """

    def pair(oracle: Callable[..., Any]) -> Pairing:
        made = Pairing(
            name=oracle.__name__,
            module=oracle.__module__,
            kernel=kernel,
            oracle=oracle,
            arguments=dict(arguments),
            dims=_all_dims(arguments, dims or {}),
            tolerance=tolerance or conditioned(),
            signed_zeros=signed_zeros,
            limitations=tuple(limitations),
            all_masked=all_masked,
            independent=(independent,) if isinstance(independent, str) else tuple(independent),
            grad=grad,
            errors=tuple(errors),
        )
        _check(made, dims or {})
        return made

    return pair


def _call(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Calls positionally as far as the signature goes: `vmap` maps every keyword, and ufuncs take none."""
    positional: list[Any] = []
    keywords = dict(values)
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in keywords or parameter.kind is parameter.KEYWORD_ONLY:
            break
        positional.append(keywords.pop(name))
    return function(*positional, **keywords)


def _shape(text: str) -> tuple[str | int, ...]:
    return tuple(int(word) if word.isdigit() else word for word in text.split())


def _names(dtypes: str | Sequence[str]) -> tuple[str, ...]:
    return (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)


def _children(branches: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(branches, Mapping):
        yield from ((str(key), branches[key]) for key in sorted(branches))
    elif isinstance(branches, (list, tuple)):
        yield from ((str(i), branch) for i, branch in enumerate(branches))


def _leaves(path: str, argument: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(argument, Array):
        yield path, argument
    elif not isinstance(argument, (Size, Choice)):
        for key, branch in _children(argument.branches if isinstance(argument, Tree) else argument):
            yield from _leaves(f"{path}.{key}", branch)


def _rebuild(path: str, branches: Any, leaves: Mapping[str, Any]) -> Any:
    if isinstance(branches, Array):
        return leaves[path]
    children = {key: _rebuild(f"{path}.{key}", branch, leaves) for key, branch in _children(branches)}
    if isinstance(branches, Mapping):
        return {key: children[str(key)] for key in branches}
    return type(branches)(children.values())


def _wide() -> bool:
    """Whether JAX keeps 64-bit values; the kernel's own import has loaded JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.config.jax_enable_x64)


def _all_dims(arguments: Mapping[str, Argument], declared: Mapping[str, Dim]) -> dict[str, Dim]:
    used: dict[str, Dim] = {}
    for name, argument in arguments.items():
        if isinstance(argument, Size):
            used.setdefault(argument.dim, declared.get(argument.dim, Dim()))
        for _, leaf in _leaves(name, argument):
            named = [axis for axis in leaf.shape if isinstance(axis, str)]
            for axis in [*named, leaf.of] if leaf.of else named:
                used.setdefault(axis, declared.get(axis, Dim()))
    return used


def _check(pairing: Pairing, declared: Mapping[str, Dim]) -> None:
    """Raises DeclarationError, naming the pairing, the argument and the mend."""

    def wrong(argument: str, what: str) -> DeclarationError:
        return DeclarationError(f"pairing {pairing.name!r}, {argument}: {what}")

    _check_parameters(pairing, wrong)
    for name, argument in pairing.arguments.items():
        if not isinstance(argument, (Array, Size, Choice, Tree)):
            raise wrong(f"argument {name!r}", "declare it with kt.array, kt.scalar, kt.mask, kt.index, kt.length, "
                        f"kt.size, kt.choice or kt.tree, not {type(argument).__name__}")  # fmt: skip
    for name in declared:
        if name not in pairing.dims:
            raise wrong(f"dim {name!r}", f"no argument has it; the dims in use are {', '.join(pairing.dims) or 'none'}")
    for path, leaf in pairing.leaves.items():
        if not leaf.dtypes:
            raise wrong(f"argument {path!r}", "name at least one dtype")
        for each in leaf.dtypes:
            try:
                kind = dtype(each)
            except DtypeError as error:
                raise wrong(f"argument {path!r}", f"{error}; remove it from the dtypes") from error
            if kind.itemsize == 8 and not _wide():
                raise wrong(f"argument {path!r}", f"{each} would reach the kernel as 32 bits, since JAX's 64-bit "
                            "mode is off; set JAX_ENABLE_X64=1 or remove it from the dtypes")  # fmt: skip
        if leaf.domain and leaf.domain[0] > leaf.domain[1]:
            raise wrong(f"argument {path!r}", f"its domain {leaf.domain} is empty")
        if leaf.role == "mask" and not any(isinstance(a, str) and pairing.dims[a].tile for a in leaf.shape):
            axes = " ".join(map(str, leaf.shape))
            raise wrong(f"mask {path!r}", f"none of its dims ({axes}) has a tile, so there is no whole tile to mask; "
                        "declare one, as in dims=dict(n=kt.dim(tile=64))")  # fmt: skip
    if pairing.all_masked not in ("", "zeros", "nan"):
        raise wrong("all_masked", f"what everything masked yields is 'zeros' or 'nan', not {pairing.all_masked!r}")
    _check_independence(pairing, wrong)
    _check_errors(pairing, wrong)
    problem = pairing.tolerance.misfit(pairing.leaves, pairing.dims)
    if problem:
        raise wrong("tolerance", problem)


def _check_independence(pairing: Pairing, wrong: Callable[[str, str], DeclarationError]) -> None:
    choices = [name for name, argument in pairing.arguments.items() if isinstance(argument, Choice)]
    for name in pairing.independent:
        if name not in (*choices, *pairing.dims, "grid"):
            known = ", ".join(map(repr, (*choices, *pairing.dims, "grid")))
            raise wrong("independent", f"{name!r} is neither a static argument nor a dim; choose among {known}")
        if name in pairing.dims and not pairing.dims[name].admits(1):
            raise wrong("independent", f"a slice along {name!r} cannot be run alone, since the dim admits no length 1")
        if name in pairing.dims and any(leaf.of == name for leaf in pairing.leaves.values()):
            raise wrong("independent", f"an index or a length points into {name!r}, so no slice along it stands alone")
    floats = any(is_float(dtype(each)) for leaf in pairing.leaves.values() for each in leaf.dtypes)
    if pairing.grad and not floats:
        raise wrong("grad", "no argument is of floats, so there is nothing to differentiate by")


def _check_errors(pairing: Pairing, wrong: Callable[[str, str], DeclarationError]) -> None:
    names = [error.name for error in pairing.errors]
    for error in pairing.errors:
        where = f"error case {error.name!r}"
        if names.count(error.name) > 1:
            raise wrong(where, "another one has this name")
        for name in error.dims:
            if name not in pairing.dims:
                raise wrong(where, f"no argument has the dim {name!r}; there are {', '.join(pairing.dims) or 'none'}")
        for name, value in error.arguments.items():
            declared = pairing.arguments.get(name)
            if not isinstance(declared, (Array, Choice)):
                raise wrong(where, f"{name!r} is neither an array nor a static argument of the pairing")
            if isinstance(declared, Array) != isinstance(value, Array):
                kind = "an array: give kt.array(...)" if isinstance(declared, Array) else "static: give its value"
                raise wrong(where, f"{name!r} is {kind}, not {value!r}")


def _check_parameters(pairing: Pairing, wrong: Callable[[str, str], DeclarationError]) -> None:
    parameters = inspect.signature(pairing.kernel).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in pairing.arguments:
        if name not in parameters and not anything:
            raise wrong(f"argument {name!r}", f"the kernel has no such parameter; it has {', '.join(parameters)}")
    for name, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if not variadic and parameter.default is parameter.empty and name not in pairing.arguments:
            raise wrong(f"argument {name!r}", "the kernel needs it; declare it, as in "
                        f"{name}=kt.array(\"m n\", kt.FLOATS)")  # fmt: skip
    taken = inspect.signature(pairing.oracle).parameters
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return
    for name, parameter in taken.items():
        variadic = parameter.kind is parameter.VAR_POSITIONAL
        if not variadic and parameter.default is parameter.empty and name not in pairing.arguments:
            raise wrong(f"argument {name!r}", "the oracle takes it but the pairing does not declare it")
    for name, argument in pairing.arguments.items():
        if name not in taken and not isinstance(argument, Choice):
            raise wrong(f"argument {name!r}", f"the oracle does not take it; add it to {pairing.name}'s parameters")
