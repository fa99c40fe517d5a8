"""What changes a fingerprint, and what does not: every field of a declaration, arrays, code, files."""

import dataclasses
import functools
import importlib
import pkgutil
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
import kerneltest.declare
from kerneltest.core.fingerprint import Fingerprint, NotReusableError, file_contents, why_uncounted
from tests.sample import double

# Classes of the room that are not part of a declaration: what plans and error models are given.
NOT_DECLARED = {"Measured", "Slot", "EdgeValues", "Unapplied", "Defined", "NamedOption"}
UNCOUNTED = {"Pairing": {"kernel", "oracle", "origin", "is_planned"}}


def _declaration_classes() -> dict[str, type]:
    modules = pkgutil.walk_packages(kerneltest.declare.__path__, "kerneltest.declare.")
    members = (kind for found in modules for kind in vars(importlib.import_module(found.name)).values())
    own = (kind for kind in members if isinstance(kind, type) and kind.__module__.startswith("kerneltest.declare."))
    declared = {kind.__name__: kind for kind in own if dataclasses.is_dataclass(kind)}
    return {name: declared[name] for name in sorted(declared.keys() - NOT_DECLARED)}


@pytest.mark.parametrize("kind", _declaration_classes().values(), ids=_declaration_classes())
def test_every_field_of_a_declaration_counts(kind: Any) -> None:
    def fingerprint(changed: str = "") -> Fingerprint:
        value = object.__new__(kind)
        for field in dataclasses.fields(kind):
            object.__setattr__(value, field.name, "other" if field.name == changed else field.name)
        return Fingerprint.of(value)

    fields = dataclasses.fields(kind)
    same = {field.name for field in fields if fingerprint(field.name) == fingerprint()}
    assert same == {field.name for field in fields if why_uncounted(field)} == UNCOUNTED.get(kind.__name__, set())


def _pairing(**declared: Any) -> Fingerprint:
    return Fingerprint.of(kt.oracle_for(double, x=kt.array("n", "float32"), **declared)(lambda x: 2 * x))


class RefusedError(ValueError):
    """What a kernel raises."""


def _other_refused(module: str = __name__, **members: Any) -> type[Exception]:
    return type("RefusedError", (ValueError,), {"__module__": module, "__qualname__": "RefusedError", **members})


@pytest.mark.parametrize(
    "declared",
    [
        {"returns": "float32"},
        {"dims": {"n": kt.dim(block=4)}},
        {"dims": {"n": kt.dim(production=4)}},
        {"where": lambda n: n > 1},
        {"where": lambda n: n > 2},
        {"batch_dims": ("n",)},
        {"batch_dims": ("n",), "needs": {"n": lambda i: slice(i, i + 2)}},
        {"tolerance": kt.tolerance.ulp(3)},
    ],
    ids=" ".join,
)
def test_a_declaration_counts(declared: dict[str, Any]) -> None:
    assert _pairing(**declared) != _pairing()
    assert _pairing(**declared) == _pairing(**declared)


def test_exceptions_are_told_apart_by_their_module_and_their_code() -> None:
    kinds = [RefusedError, _other_refused("another"), _other_refused(__init__=lambda self, text: None)]
    assert len({Fingerprint.of(kind) for kind in kinds}) == len(kinds)


LIMIT = 3


def _within(n: int) -> bool:
    return n < LIMIT


class Color(Enum):
    RED = 1


class Above:
    def __init__(self, least: int) -> None:
        self.least = least

    def __call__(self, n: int) -> bool:
        return n > self.least


def _above(least: int) -> Callable[[int], bool]:
    return lambda n: n > least


def _compiled(text: str, **names: Any) -> Any:
    space: dict[str, Any] = {"__name__": "suite", **names}
    exec(text, space)
    return space["f"]


def _in_package(value: int) -> Any:
    package, module = ModuleType("suite_package"), ModuleType("suite_package.module")
    vars(package)["module"], vars(module)["A"] = module, value
    vars(module)["module"] = package  # modules that import each other
    return _compiled("def f(): return package.module.A", package=package)


DIFFERENT: dict[str, tuple[Any, Any]] = {
    "closures": (_above(1), _above(2)),
    "defaults": (lambda n=1: n, lambda n=2: n),
    "constants": (lambda: 1, lambda: 2),
    "names of parameters": (lambda n: n, lambda m: m),
    "globals": (_compiled("def f(): return A", A=1), _compiled("def f(): return A", A=2)),
    "globals of modules in packages": (_in_package(1), _in_package(2)),
    "functions that they call": (
        _compiled("def g(): return 1\ndef f(): return g()"),
        _compiled("def g(): return 2\ndef f(): return g()"),
    ),
    "callable objects": (Above(1), Above(2)),
    "arguments of partial": (functools.partial(_within, 1), functools.partial(_within, 2)),
    "compiled functions": (jax.jit(lambda x: x), jax.jit(lambda x: x + 1)),
    "kept functions": (functools.cache(lambda x: x), functools.cache(lambda x: x + 1)),
    "functions of libraries": (jax.nn.relu, jax.nn.gelu),
    "ufuncs": (np.exp, np.log),
    "methods of builtins": ("a".join, "b".join),
    "an integer and a float": (1, 1.0),
    "texts and bytes": ("a", b"a"),
    "where a sequence ends": (("a", ("b",)), ("a", "b")),
    "members of sets": ({1, 2}, {1, 3}),
    "values of mappings": ({"a": 1}, {"a": 2}),
    "the last bit": (np.float32(1), np.nextafter(np.float32(1), np.float32(2))),
    "dtypes": (np.zeros(2, np.int32), np.zeros(2, np.int64)),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "patterns": (re.compile("a"), re.compile("a", re.I)),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_has_another_one(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert Fingerprint.of(one) == Fingerprint.of(one)
    assert Fingerprint.of(one) != Fingerprint.of(other)


EQUAL: dict[str, tuple[Any, Any]] = {
    "comments": (_compiled("def f(n): return n"), _compiled("# new\n\ndef f(n):\n    return n")),
    "equal closures": (_above(1), _above(1)),
    "members of an enum": (Color.RED, Color(1)),
    "orders of sets": ({"a", "b", "c"}, {"c", "b", "a"}),
}


@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL)
def test_what_is_equal_has_the_same(pair: tuple[Any, Any]) -> None:
    assert Fingerprint.of(pair[0]) == Fingerprint.of(pair[1])


def test_functions_that_call_each_other_have_one() -> None:
    text = "def g(n): return f(n - {})\ndef f(n): return n and g(n)"
    assert Fingerprint.of(_compiled(text.format(1))) != Fingerprint.of(_compiled(text.format(2)))


@pytest.mark.parametrize("value", [np.random.default_rng(0), iter(())], ids=["generator", "iterator"])
def test_what_cannot_be_read_has_none(value: object) -> None:
    with pytest.raises(NotReusableError):
        Fingerprint.of(value)


def test_files_are_told_by_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "data"
    seen = {file_contents(path)}
    for text in ("", "1", "2"):
        path.write_text(text, encoding="utf-8")
        seen.add(file_contents(path))
    assert len(seen) == 4
