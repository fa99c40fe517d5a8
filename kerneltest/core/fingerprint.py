"""Fingerprints: digests of values that are equal in two processes only if the values are.

A verdict is reused under the same fingerprint of all that it follows from. Everything in a value counts: each field of
a dataclass (unless the field names the reason why it does not), each bit of an array, the code of a function with what
it closes over and the globals that it reads. A value whose content cannot be read has no fingerprint. Rooms that know
other types register how these are read, with `reads`.
"""

import dataclasses
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from importlib import metadata, util
from pathlib import Path, PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float

# Packages whose contents count wherever code does (`library_contents`), so that a name tells one of their functions.
LIBRARIES = ("kerneltest", "jax", "jaxlib", "numpy", "ml_dtypes", "scipy")

_REASON = "does not count in fingerprints"


class NotReusableError(Exception):
    """Something that cannot be told from another one in a later run, or that may turn out otherwise; says what."""


def uncounted(reason: str) -> dict[str, str]:
    """Returns the metadata of a dataclass's field that does not count, with the reason: what counts in its place."""
    return {_REASON: reason}


def why_uncounted(field: "dataclasses.Field[Any]") -> str:
    """Returns the reason why a field does not count; "" if it does."""
    return str(field.metadata.get(_REASON, ""))


@dataclasses.dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digest of some values."""

    text: str  # 32 hexadecimal digits
    # names of what the values have in addition, and what does not count, such as derivatives of their own
    omits: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *values: Any, approximate: bool = False) -> "Fingerprint":
        """Returns the fingerprint of some values, in order; another fingerprint stands for what it was made of.

        If it is `approximate`, floats in arrays that differ by a few roundings, as between machines, count as equal.
        NotReusableError if the content of a value cannot be read, or it runs code elsewhere.
        """
        reader = Reader(approximate)
        try:
            for value in values:
                reader.add(value)
        except RecursionError:
            raise NotReusableError("it is nested too deeply") from None
        return reader.fingerprint()


class Reader:
    """Turns values into a sequence of texts."""

    def __init__(self, approximate: bool = False) -> None:
        self.approximate = approximate  # as for `Fingerprint.of`
        self.omits: set[str] = set()  # as of a `Fingerprint`
        self.reads_code = True  # whether Python functions are read; if not, those of JAX count by their names
        self._parts: list[str] = []
        self._numbers: dict[int, int] = {}  # by identity, in the order in which the values occur
        self._shared: dict[Hashable, list[str]] = {}
        self._kept: list[object] = []  # so that no identity is used twice
        self._open: set[int] = set()

    def fingerprint(self) -> Fingerprint:
        text = "\x1f".join(self._parts).encode("utf-8", "surrogatepass")
        return Fingerprint(hashlib.sha256(text).hexdigest()[:32], frozenset(self.omits))

    def note(self, text: str) -> None:
        """Appends a word of the reader's own, such as the name of a type."""
        self._parts.append(text)

    def add(self, value: Any) -> None:
        _read(value, self)

    def add_all(self, name: str, values: Iterable[Any]) -> None:
        """Appends a sequence of values, and what they are together."""
        self._parts.append(f"{name}(")
        for value in values:
            self.add(value)
        self._parts.append(")")

    def add_shared(self, value: Any) -> None:
        """Appends a value that many others hold an equal one of, such as the type of a variable."""
        try:
            known = self._shared.get(value)
        except TypeError:  # not hashable
            self.add(value)
            return
        if known is None:
            before, self._parts = self._parts, []
            try:
                self.add(value)
                known = self._shared[value] = self._parts
            finally:
                self._parts = before
        self._parts += known

    def number(self, value: object) -> int:
        """Returns the number of a value that others refer to: how many distinct ones came before it."""
        if id(value) not in self._numbers:
            self._kept.append(value)
            self._numbers[id(value)] = len(self._numbers)
        return self._numbers[id(value)]

    def meets_again(self, name: str, value: object) -> bool:
        """Appends the number of a value. Returns whether the value is known, so that its content need not follow."""
        known = id(value) in self._numbers
        self._parts.append(f"{name} {self.number(value)}")
        return known

    def add_object(self, value: Any) -> None:
        """Appends an object of any class by its attributes, or else by its text."""
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        fields = list(_fields(value))
        if not fields:
            if " at 0x" in (text := repr(value)):
                raise NotReusableError(f"the content of {name} is unknown")
            self._parts.append(f"{name} {text}")
            return
        if id(value) in self._open:
            self._parts.append("itself")
            return
        self._open.add(id(value))
        self._kept.append(value)
        self._parts.append(name)
        for key, part in fields:
            self._parts.append(key)
            self.add(part)
        self._parts.append("end")
        self._open.discard(id(value))


# How values of each type are read. The type of a value decides; then its nearest base.

_IGNORED: dict[str, frozenset[str]] = {}  # by package, attributes of its objects


@functools.singledispatch
def _read(value: Any, reader: Reader) -> None:
    if type(value) is object:  # a sentinel, which has no content
        reader.note(f"object {reader.number(value)}")
    elif hasattr(type(value), "__array__"):
        reader.note(f"array {_array_text(value, reader.approximate)}")
    elif is_code(value):
        _read_callable(value, reader)
    else:
        if reader.reads_code and not is_installed(type(value).__module__):
            reader.add(type(value))  # what its methods do
        reader.add_object(value)


def reads(*kinds: type) -> Callable[[Callable[[Any, Reader], None]], Callable[[Any, Reader], None]]:
    """Returns a decorator that registers how values of some types are read: `function(value, reader)`."""

    def register(function: Callable[[Any, Reader], None]) -> Callable[[Any, Reader], None]:
        for kind in kinds:
            _read.register(kind, function)
        return function

    return register


def ignore_attributes(package: str, names: Iterable[str]) -> None:
    """Leaves attributes of a package's objects out: where code was written, and what objects remember of themselves."""
    _IGNORED[package] = frozenset(names)


@reads(type(None), bool, int, float, complex, str, bytes)
def _read_scalar(value: Any, reader: Reader) -> None:
    if isinstance(value, Enum):
        _read_enum(value, reader)
    else:
        reader.note(f"{type(value).__name__}:{value!r}")


@reads(Enum)
def _read_enum(value: Enum, reader: Reader) -> None:
    kind = type(value)
    reader.add_all(f"{kind.__module__}.{kind.__qualname__}.{value.name}", (value.value,) if reader.reads_code else ())


@reads(tuple, list)
def _read_sequence(value: Any, reader: Reader) -> None:
    kind = type(value)
    plain = kind in (tuple, list)
    reader.add_all(kind.__name__ if plain else f"{kind.__module__}.{kind.__qualname__}", value)


@reads(Mapping)
def _read_mapping(value: Mapping[Any, Any], reader: Reader) -> None:
    keys = sorted(value, key=lambda key: (key, "") if isinstance(key, str) else ("", _alone(key, reader)))
    reader.add_all("mapping", (part for key in keys for part in (key, value[key])))


@reads(Set)
def _read_set(value: Set[Any], reader: Reader) -> None:
    reader.add_all("set", sorted(_alone(member, reader) for member in value))


def _alone(value: Any, reader: Reader) -> str:
    own = Reader(reader.approximate)
    own.reads_code = reader.reads_code
    own.add(value)
    reader.omits |= own.omits
    return own.fingerprint().text


@reads(Fingerprint)
def _read_fingerprint(value: Fingerprint, reader: Reader) -> None:
    reader.note(value.text)
    reader.omits |= value.omits


reads(np.dtype)(lambda value, reader: reader.note(f"dtype:{value}"))
reads(PurePath)(lambda value, reader: reader.note(f"path:{value}"))


def _read_attributes(name: str, attributes: Sequence[str], value: Any, reader: Reader) -> None:
    reader.add_all(name, (getattr(value, attribute) for attribute in attributes))


# Types whose values are no more than some of their attributes.
for _kind, _name, _attributes in (
    (re.Pattern, "pattern", ("pattern", "flags")),
    (functools.partial, "partial", ("func", "args", "keywords")),
    (MethodType, "method", ("__func__", "__self__")),
    (property, "property", ("fget", "fset", "fdel")),
    (staticmethod, "staticmethod", ("__func__",)),
    (classmethod, "classmethod", ("__func__",)),
):
    reads(_kind)(functools.partial(_read_attributes, _name, _attributes))


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the attributes that make up an object, by name."""
    kind = type(value)
    names: dict[str, None] = {}
    if dataclasses.is_dataclass(value):
        names = {field.name: None for field in dataclasses.fields(value) if not why_uncounted(field)}
    else:
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            names |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
        names |= dict.fromkeys(getattr(value, "__dict__", {}))
    ignored = _IGNORED.get(_package(kind.__module__), frozenset())
    for name in sorted(names):
        computed = isinstance(getattr(kind, name, None), functools.cached_property)
        if name not in ignored and not name.startswith("__") and not computed and hasattr(value, name):
            yield name, getattr(value, name)


# Arrays: every bit counts, or what two machines agree on.

_STEPS = 2.0**20  # of the largest finite magnitude, to which approximate values are rounded


@reads(np.ndarray, np.generic)
def _read_array(value: Any, reader: Reader) -> None:
    if value.dtype == object:
        reader.add_all(f"objects {value.shape}", np.asarray(value).ravel().tolist())
    else:
        reader.note(f"array {_array_text(value, reader.approximate)}")


def _array_text(value: Any, approximate: bool) -> str:
    array = np.asarray(value)
    content = _rounded(array) if approximate and is_float(array.dtype) else np.ascontiguousarray(array)
    return f"{array.dtype}{array.shape} {hashlib.sha256(content.tobytes()).hexdigest()[:32]}"


def _rounded(array: Array) -> Array:
    """Returns floats as integers in units of a step; infinities and NaN beyond all of them."""
    wide = np.asarray(array, np.float64)
    finite = np.isfinite(wide)
    largest = float(np.max(np.abs(wide[finite]), initial=0.0)) or 1.0
    with np.errstate(all="ignore"):
        steps = np.where(
            finite, np.rint(wide / largest * _STEPS), np.nan_to_num(wide, nan=3, posinf=2, neginf=-2) * 1e12
        )
        scale = np.rint(np.log2(largest) * _STEPS)
    return np.append(steps.ravel(), scale) + 0.0  # no negative zeros


# Code: the bytecode of the project's functions and classes, and the names of those in installed packages.

# What a class has besides its code and its values.
_CLASS_NOISE = frozenset("__module__ __qualname__ __doc__ __dict__ __weakref__ __firstlineno__ __static_attributes__ "
                         "__annotations__ __annotate__ __annotate_func__ __annotations_cache__ __dataclass_fields__ "
                         "__dataclass_params__ __match_args__ __abstractmethods__ _abc_impl __parameters__ "
                         "__orig_bases__ __slots__ __hash__".split())  # fmt: skip

_SLOTS = ("member_descriptor", "getset_descriptor")


def is_code(value: Any) -> bool:
    """Returns whether a value is or wraps a function, rather than data."""
    return not isinstance(value, type) and (
        isinstance(value, FunctionType | functools.partial)
        or type(value).__name__ in ("WrappedFun", "ClosedRule")
        or (callable(value) and not dataclasses.is_dataclass(value) and not _is_readable(value))
    )


def _is_readable(value: Callable[..., Any]) -> bool:
    """Returns whether a callable object of JAX is data, such as an index transformation."""
    return type(value).__module__.startswith(("jax", "jaxlib")) and " at 0x" not in repr(value)


@reads(ModuleType)
def _read_module(value: ModuleType, reader: Reader) -> None:
    reader.note(f"module {value.__name__} {package_contents(_package(value.__name__))}")


@reads(FunctionType)
def _read_function(value: FunctionType, reader: Reader) -> None:
    home = str(value.__globals__.get("__name__", ""))  # of the code, unlike `__module__`, which decorators copy
    if not reader.reads_code and _package(home) != "jax":
        raise NotReusableError(f"it holds Python code ({value.__qualname__})")
    if reader.meets_again("function", value):
        return
    reader.add(value.__code__)
    reader.add_all("defaults", (value.__defaults__, value.__kwdefaults__))
    reader.add_all("closure", map(cell_contents, value.__closure__ or ()))
    if is_installed(home):
        reader.note(f"in {home}.{value.__qualname__} {package_contents(_package(home))}")
        return
    for name in sorted(set(names_in(value.__code__))):
        if name in value.__globals__:
            reader.note(name)
            _read_named(value.__globals__[name], sorted(set(names_in(value.__code__))), reader, set())


# Of the project's modules, and of those in them, what the names in some code may mean.
def _read_named(value: Any, names: Sequence[str], reader: Reader, seen: set[str]) -> None:
    if not isinstance(value, ModuleType) or is_installed(value.__name__):
        reader.add(value)
        return
    reader.note(f"module {value.__name__}")
    if value.__name__ not in seen:
        seen.add(value.__name__)
        for name in names:
            if name in vars(value):
                reader.note(name)
                _read_named(vars(value)[name], names, reader, seen)
        reader.note("end")


def cell_contents(cell: Any) -> Any:
    """Returns the value that a closure holds in a cell; a word if it is not assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return "empty cell"


@reads(CodeType)
def _read_code(value: CodeType, reader: Reader) -> None:
    parameters = value.co_varnames[: value.co_argcount + value.co_kwonlyargcount]
    counts = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
    outer = (value.co_names, len(value.co_freevars), len(value.co_cellvars), value.co_exceptiontable)
    reader.add_all("code", (value.co_code, parameters, counts, outer, value.co_consts))


def names_in(code: CodeType) -> Iterator[str]:
    """Yields the names of the globals and attributes that a function and those inside of it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


@reads(type)
def _read_class(value: type, reader: Reader) -> None:
    name = f"type:{value.__module__}.{value}"
    if not reader.reads_code:
        reader.note(name)
    elif is_installed(value.__module__):
        reader.note(f"{name} {package_contents(_package(value.__module__))}")
    elif not reader.meets_again(name, value):
        reader.add_all("bases", value.__bases__)
        for key, part in sorted(vars(value).items()):
            if key not in _CLASS_NOISE and type(part).__name__ not in _SLOTS:
                reader.note(key)
                reader.add(part)


@reads(BuiltinFunctionType, MethodWrapperType, WrapperDescriptorType, type(str.join), np.ufunc)
def _read_callable(value: Any, reader: Reader) -> None:
    """Appends something callable that has no bytecode of its own."""
    name = getattr(value, "__qualname__", getattr(value, "__name__", type(value).__qualname__))
    home = getattr(value, "__module__", None) or ("numpy" if isinstance(value, np.ufunc) else "")
    if not reader.reads_code:
        if not home.startswith("jax.") or not hasattr(value, "__qualname__"):
            raise NotReusableError(f"it holds Python code ({name})")
        reader.note(f"function {home}.{name}")
    elif is_installed(home) and find_object(home, name) is value:
        reader.note(f"{home}.{name} {package_contents(_package(home))}")
    elif (owner := getattr(value, "__self__", None)) is not None and not isinstance(owner, ModuleType):
        reader.add_all(f"bound {name}", (owner,))
    else:
        reader.add(type(value))
        wrapped = getattr(value, "__wrapped__", None)
        reader.add(wrapped)
        if wrapped is None or any(_fields(value)):  # `jax.jit` and `functools.cache` show nothing else of a function
            reader.add_object(value)


def find_object(module: str, name: str) -> object:
    """Returns what a loaded module has under a dotted name; None if it has nothing there."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _package(module: str) -> str:
    return module.partition(".")[0]


@functools.cache
def is_installed(module: str) -> bool:
    """Returns whether a module belongs to Python or to an installed package, rather than to the project."""
    package = _package(module)
    if package in sys.stdlib_module_names or package in LIBRARIES:
        return package != "__main__"
    try:
        origin = getattr(util.find_spec(package), "origin", None) or ""
    except (ImportError, ValueError):
        return False
    return bool({"site-packages", "dist-packages"} & set(Path(origin).parts))


# Files and packages: two builds of one version differ.

_COMPILERS = tuple("jax-cuda jax_cuda jax-rocm jax_rocm nvidia- nvidia_ triton pytorch-triton libtpu".split())


@functools.cache
def library_contents() -> str:
    """Returns the fingerprint of kerneltest, JAX with its plugins, NumPy and the compilers, as they are installed."""
    plugins = {entry.dist.name.lower() for entry in metadata.entry_points(group="jax_plugins") if entry.dist}
    parts = [(name, module_contents(name)) for name in LIBRARIES]
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name in plugins or name.startswith(_COMPILERS):
            record = distribution.read_text("RECORD")
            parts.append((name, f"{distribution.version} {list(_recorded(record or ''))}"))
            is_editable = "editable" in (distribution.read_text("direct_url.json") or "")
            if record is None or is_editable:  # no record of its files
                modules = (distribution.read_text("top_level.txt") or name.replace("-", "_")).split()
                parts += [(module, module_contents(module)) for module in modules]
    spec = util.find_spec("jax_plugins")  # a namespace, in which JAX also finds what no distribution installed
    for place in (spec.submodule_search_locations or ()) if spec else ():
        parts += [(str(path.relative_to(place)), file_contents(path)) for path in Path(place).rglob("*.py")]
    return Fingerprint.of(sorted(parts)).text


# Packages on whose versions verdicts depend, as records name them.
PACKAGES = ("jax", "jaxlib", "numpy", "ml_dtypes", "triton", "libtpu")


def package_versions() -> dict[str, str]:
    """Returns the versions of those of `PACKAGES` that are installed."""
    return {name: version for name in PACKAGES if (version := installed_version(name))}


def installed_version(package: str) -> str:
    """Returns the version of an installed package; "" if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@functools.cache
def package_contents(name: str) -> str:
    """Returns the fingerprint of an installed package that is not one of `LIBRARIES`; "" for those and for Python."""
    known = name in LIBRARIES or name in sys.stdlib_module_names
    return "" if known or not is_installed(name) else module_contents(name)


def module_contents(name: str) -> str:
    """Returns the fingerprint of a top-level module: of its RECORD, or else its files; "" if it is not installed."""
    try:
        spec = util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    if not (places := list(spec.submodule_search_locations or ())):
        return file_contents(Path(spec.origin or ""))
    home = Path(places[0])
    for record in sorted(home.parent.glob(f"{name}-*.dist-info/RECORD")):
        lines = list(_recorded(record.read_text(encoding="utf-8", errors="replace")))
        if any(line.startswith(f"{name}/") for line in lines):
            return Fingerprint.of(lines).text
    return folder_contents(home)


def folder_contents(home: Path) -> str:
    """Returns the fingerprint of all files below a folder, without hidden folders and bytecode."""
    return Fingerprint.of(list(_files(home))).text


def file_contents(path: Path) -> str:
    """Returns the fingerprint of a file's bytes, or why it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable: {error}"


def _recorded(text: str) -> Iterator[str]:
    """Yields the lines of a RECORD that tell the content of a file."""
    yield from sorted(line for line in text.splitlines() if re.search(r",sha\d+=", line) and ".dist-info/" not in line)


def _files(home: Path) -> Iterator[tuple[str, str]]:
    for folder, folders, names in os.walk(home):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for path in (Path(folder, name) for name in sorted(names)):
            if path.suffix != ".pyc" and path.is_file():
                yield path.relative_to(home).as_posix(), file_contents(path)
