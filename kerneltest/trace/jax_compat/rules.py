"""Code in JAX that is not JAX's own: primitives, rules that were registered for them, and replaced functions."""

import functools
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

from jax.extend.core import Primitive

from kerneltest.core.fingerprint import LIBRARIES, cell_contents, is_installed

_OWN = frozenset(LIBRARIES) | sys.stdlib_module_names - {"__main__"}


def foreign_code(primitive: Primitive) -> str:
    """Returns the name of code behind a primitive that is not JAX's or kerneltest's; "" if there is none.

    It is the primitive itself if they do not define it, or a rule that was registered for it in any table of JAX.
    """
    known, tables = _registries(len(sys.modules))
    if primitive not in known:
        return primitive.name
    rules = (table[primitive] for table in _with_inner(tables) if primitive in table)
    return next(filter(None, map(_judge, (*vars(primitive).values(), *rules))), "")


_judged: dict[int, tuple[Any, str]] = {}  # rules by identity, with the names of foreign code in them


def _judge(rule: Any) -> str:
    if id(rule) not in _judged:
        _judged[id(rule)] = rule, _foreign(rule)
    return _judged[id(rule)][1]


@functools.lru_cache(maxsize=1)
def _registries(modules: int) -> tuple[frozenset[Primitive], list[dict[Any, Any]]]:
    """Returns the primitives, and JAX's tables by primitive; `modules` is a key, since each module may add some."""
    members = [value for module in _modules("jax") for value in list(vars(module).values())]
    tables = {id(value): value for value in members if isinstance(value, dict) and _is_table(value)}
    members += [value for module in _modules("kerneltest") for value in list(vars(module).values())]
    return frozenset(value for value in members if isinstance(value, Primitive)), list(tables.values())


def _is_table(value: Mapping[Any, Any]) -> bool:
    """Returns whether a dictionary has rules by primitive, or may get some: JAX's tables are empty at first."""
    return not value or any(isinstance(key, Primitive) for table in _with_inner([value]) for key in table)


def _with_inner(tables: list[Any]) -> Iterator[Mapping[Any, Any]]:
    for table in tables:
        yield table
        if not isinstance(next(iter(table), None), Primitive):  # by platform, then by primitive
            yield from [inner for inner in list(table.values()) if isinstance(inner, dict)]


def _foreign(value: Any, seen: set[int] | None = None) -> str:
    """Returns the name of a function in a rule that belongs to neither JAX nor its libraries; "" if there is none."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, str | bytes | int | float | complex | None):
        return ""
    seen.add(id(value))
    kind = value if isinstance(value, type) else type(value)
    if isinstance(value, FunctionType):  # whose `__module__` decorators copy
        home = str(value.__globals__.get("__name__", ""))
    else:
        home = str(getattr(value, "__module__", None) or kind.__module__)
    if home.partition(".")[0] not in _OWN:
        return str(getattr(value, "__qualname__", kind.__qualname__))
    parts: list[Any] = []
    if isinstance(value, FunctionType):
        cells = map(cell_contents, value.__closure__ or ())
        parts = [value.__defaults__, value.__kwdefaults__, vars(value), *cells]
    elif isinstance(value, MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    elif not isinstance(value, type):
        slots = (getattr(base, "__slots__", ()) for base in kind.__mro__)
        names = [name for own in slots for name in ((own,) if isinstance(own, str) else own)]
        parts = [getattr(value, name, None) for name in ("__wrapped__", "__dict__", *names)]
    return next(filter(None, (_foreign(part, seen) for part in parts)), "")


# Functions that other code has put in the place of those of JAX, NumPy and kerneltest.


@functools.lru_cache(maxsize=1)
def replaced_function(purpose: object) -> str:
    """Returns a function or method of a library whose code is the project's, looked for once a purpose; or ""."""
    for module in (module for library in ("jax", "numpy", "kerneltest") for module in _modules(library)):
        space = vars(module)
        for name, value in list(space.items()):
            if type(value) is FunctionType:
                if _is_ours(value, space):
                    return f"{module.__name__}.{name}"
            elif isinstance(value, type) and value.__module__ == module.__name__:
                for key, part in list(vars(value).items()):
                    if type(part) is FunctionType and _is_ours(part, space):
                        return f"{module.__name__}.{name}.{key}"
    return ""


def _is_ours(function: FunctionType, space: dict[str, Any]) -> bool:
    if function.__globals__ is space:
        return False
    home = str(function.__globals__.get("__name__", ""))
    return not (is_installed(home) or home.startswith("namedtuple_"))


def _modules(package: str) -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if module and name.partition(".")[0] == package]
