"""Typical mistakes: each is told in at most six lines, with the fix, and with no frame of kerneltest."""

import functools
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.cli import main
from tests import forked
from tests.plugins import PLUGINS

LOOSE: Any = kt  # for what a type checker refuses
PACKAGE = Path(kt.__file__).parent


def add(x: Any, y: Any) -> Any:
    return x + y


def double(x: Any) -> Any:
    return 2 * x


def scale(x: Any, *, factor: int) -> Any:
    return factor * x


def activate(x: Any, kind: str) -> Any:
    return x if kind == "none" else 0 * x


def draw(key: Any, x: Any) -> Any:
    return x


def body(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = 2 * x_ref[...]


class Model:
    def forward(self, x: Any) -> Any:
        return x


def _pair(kernel: Any = double, oracle: Any = None, /, **declared: Any) -> Any:
    paired = oracle or functools.wraps(kernel)(lambda **arguments: kernel(**arguments))
    return kt.oracle_for(kernel, **declared)(paired)


N = kt.array("n")

# What is written, and words of the message.
DECLARED: dict[str, tuple[Callable[[], object], list[str]]] = {
    "axes as a tuple": (lambda: _pair(x=LOOSE.array((8, 128))), ["'x'", "one string, as in '8 128'"]),
    "axes with commas": (lambda: _pair(x=kt.array("m, n")), ["'m,'", "separate axes by spaces"]),
    "an argument misspelt": (lambda: _pair(add, x=N, yy=N), ["'yy'", "did you mean 'y'?"]),
    "an argument left out": (lambda: _pair(add, x=N), ["'y'", 'declare it, as in y=kt.array("m n")']),
    "an option misspelt": (
        lambda: _pair(x=N, tolerence=3),
        ["'tolerence': this is neither an option of oracle_for nor a parameter", "did you mean 'tolerance'?"],
    ),
    "a dim misspelt": (
        lambda: _pair(x=kt.array("rows"), dims=dict(row=kt.dim(block=8))), ["'row'", "did you mean 'rows'?"],
    ),
    "a dim as a number": (lambda: _pair(x=N, dims=dict(n=64)), ["dims=dict(n=kt.dim(values=(64,)))", "not 64"]),
    "a dim without parentheses": (lambda: _pair(x=N, dims=dict(n=kt.dim)), ["kt.dim(block=64)", "parentheses"]),
    "a dtype abbreviated": (lambda: _pair(x=kt.array("n", "fp16")), ["'fp16'", "did you mean 'float16'?"]),
    "a dtype that no oracle takes": (
        lambda: _pair(x=kt.array("n", "complex64")), ["takes real numbers and booleans, not complex64", "remove it"],
    ),
    "float64 without 64-bit mode": (lambda: _pair(x=kt.array("n", "float64")), ["float64", "set JAX_ENABLE_X64=1"]),
    "rtol": (lambda: _pair(x=N, rtol=1e-3), ["'rtol'", "leave it out", "kt.tolerance.relative(0.001, 'section 4.2')"]),
    "atol": (lambda: _pair(x=N, atol=1e-5), ["'atol'", "leave it out", "kt.tolerance.absolute(1e-05, 'section 4.2')"]),
    "a tolerance as a number": (lambda: _pair(x=N, tolerance=0.1), ["kt.tolerance.relative(0.1, ", "not 0.1"]),
    "a tolerance without parentheses": (
        lambda: _pair(x=N, tolerance=kt.tolerance.exact), ["kt.tolerance.exact(...)", "parentheses"],
    ),
    "a tolerance over an unknown dim": (lambda: _pair(x=N, tolerance=kt.tolerance.dot("k")), ["dot('k')", "dim k"]),
    "a bare decorator": (lambda: LOOSE.oracle_for(double), ["'double' needs 'x'", "name its kernel"]),
    "an array without parentheses": (lambda: _pair(x=kt.array), ["x=kt.array('m n')", "array without its parentheses"]),
    "an example array": (lambda: _pair(x=np.ones((2, 3), np.int8)), ["x=kt.array('m n', 'int8')"]),
    "axes alone": (lambda: _pair(x="m n"), ["x=kt.array('m n')", "not 'm n'"]),
    "a word": (lambda: _pair(activate, x=N, kind="relu"), ["kind=kt.static('relu')", "not 'relu'"]),
    "a word left out": (lambda: _pair(activate, x=N), ["'kind'", "kind=kt.static(...)"]),
    "a function": (lambda: _pair(activate, x=N, kind=jnp.tanh), ["kind=kt.static(tanh)", "not tanh"]),
    "a tuple of numbers": (lambda: _pair(activate, x=N, kind=(8, 128)), ["kind=kt.static((8, 128))"]),
    "a pytree of arrays": (lambda: _pair(x={"w": np.ones(3)}), ["x=kt.tree({'w': kt.array('m', 'float64')})"]),
    "None": (lambda: _pair(add, x=N, y=None), ["y=kt.optional(kt.array('m n'))", "not None"]),
    "a key": (lambda: _pair(draw, x=N, key=jax.random.key(0)), ["key=kt.key()"]),
    "a raw key": (lambda: _pair(draw, x=N, key=jax.random.PRNGKey(0)), ["key=kt.key(raw=True)"]),
    "a seed for a key": (lambda: _pair(draw, x=N, key=0), ["key=kt.key()"]),
    "a key left out": (lambda: _pair(draw, x=N), ["'key'", "key=kt.key()"]),
    "a Pallas body": (
        lambda: _pair(body, lambda x: 2 * x, x=N),
        ["kernel 'body'", "takes references (x_ref, o_ref)", "pair the function that calls pallas_call"],
    ),
    "array() without axes": (lambda: LOOSE.array(), ["array: it needs shape, as in kt.array(\"m k\")"]),
    "array(dtype=...)": (
        lambda: LOOSE.array("n", dtype="float32"), ["array: 'dtype' is not an option", "did you mean 'dtypes'?"],
    ),
    "array() of two dtypes": (
        lambda: LOOSE.array("n", "int8", "int32"), ["array: 'int32' needs a name: domain=", "several dtypes go"],
    ),
    "dim() by position": (lambda: LOOSE.dim(64), ["dim: 64 needs a name: block=", "kt.dim(block=64)"]),
    "dim() misspelt": (lambda: LOOSE.dim(blok=64), ["dim: 'blok' is not an option", "did you mean 'block'?"]),
    "indices() without an axis": (lambda: LOOSE.indices("q"), ["indices: it needs into, as in kt.indices("]),
    "a tolerance without a reason": (
        lambda: LOOSE.tolerance.relative(0.1), ["relative: it needs reason, as in kt.tolerance.relative("],
    ),
    "approximated functions as a list": (
        lambda: LOOSE.tolerance.rounding(functions=["exp"]),
        ["rounding: functions= gives the error of each, as in functions={'exp': 1e-4}, not ['exp']"],
    ),
    "check() misspelt": (
        lambda: LOOSE.check(_pair(x=N), backend="interpret"),
        ["check: 'backend' is not an option", "did you mean 'backends'?"],
    ),
    "a method": (lambda: _pair(Model.forward, x=N), ["method", "oracle_for(model.forward, ...)"]),
    "a kernel that was called": (lambda: _pair(double(np.ones(99)), double, x=N), ["without calling it"]),
    "a keyword-only parameter left out": (lambda: _pair(scale, x=N), ["'factor'", "the kernel needs it"]),
    "an oracle of other names": (lambda: _pair(double, lambda a: a, x=N), ["'a'", "'x'"]),
    "a backend misspelt": (lambda: _pair(x=N, backends="interpet"), ["did you mean 'interpret'?"]),
    "a mark's verdict misspelt": (
        lambda: kt.xfail("mismach", reason="r", url="https://x"), ["'mismach'", "choose one of", "mismatch"],
    ),
    "several at once": (
        lambda: _pair(add, x=kt.array("n", "fp16"), dims=dict(n=64), rtol=1e-3),
        ["4 mistakes", "did you mean 'float16'?", "'rtol'", "'y'", "kt.dim(values=(64,))"],
    ),
    "a function to check": (lambda: LOOSE.check(double), ["takes a pairing", "@kt.oracle_for(double, "]),
    "a decorator to check": (lambda: LOOSE.check(kt.oracle_for(double, x=N)), ["takes a pairing, not a function"]),
    "a backend to check on": (lambda: kt.check(_pair(x=N), backends=["cpu"]), ["'cpu'", "a CPU runs 'interpret'"]),
    "static values as a list": (lambda: kt.static(["a", "b"]), ["one value", "kt.static('a', 'b')"]),
    "a package as a decorator": (lambda: import_module("kerneltest.oracle")(double), ["@kt.oracle_for(kernel, ...)"]),
    "a name of the package": (lambda: LOOSE.arrays, ["'arrays'", "did you mean 'array'?"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", DECLARED, ids=lambda name: name.replace(" ", "-"))
def test_a_mistake_is_told_in_a_few_lines_with_the_fix(mistake: str) -> None:
    make, words = DECLARED[mistake]
    with pytest.raises((ValueError, TypeError, AttributeError)) as caught:
        make()
    message = str(caught.value)
    assert [word for word in words if word not in message] == []
    assert sum(len(textwrap.wrap(line, 100)) for line in message.splitlines()) <= 6 or mistake == "several at once"
    assert len(message.splitlines()) <= 6
    shown = caught.traceback.filter(caught)
    own = [entry.name for entry in shown if PACKAGE in Path(entry.path).parents]
    assert set(own) <= {"__getattr__", "__call__"}
    assert caught.value.__cause__ is None


def test_dtypes_are_taken_as_numpy_and_jax_name_them() -> None:
    given = kt.array("n", (jnp.float32, np.float16, np.dtype("int8"), "bfloat16"))
    assert given.dtypes == ("float32", "float16", "int8", "bfloat16")


COLLECTED = """
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
import kerneltest as kt

def double(x):
    def body(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]

    return pl.pallas_call(body, x)(x)

@pytest.mark.parametrize("n", [1, 2])
@kt.oracle_for(double, x=kt.array("n"))
def parametrised(x):
    return 2 * x

@pytest.mark.usefixtures("tmp_path")
@kt.oracle_for(double, x=kt.array("n"))
def with_fixture(x):
    return 2 * x

@kt.oracle_for(double, x=kt.array("n", "int32"), dims=dict(n=kt.dim(values=(3,))))
def in_jax(x):
    return jnp.multiply(2, x)
"""


def test_mistakes_that_pytest_meets_are_told_without_frames(tmp_path: Path) -> None:
    (tmp_path / "test_told.py").write_text(COLLECTED, encoding="utf-8")
    (tmp_path / "test_refused.py").write_text(
        COLLECTED.partition("@pytest")[0] + 'kt.oracle_for(double, x=kt.array("n", "fp16"))(double)\n', encoding="utf-8"
    )
    run = forked.run(
        tmp_path, "pytest", *PLUGINS, "-p", "no:cacheprovider", "--kt-backends", "interpret", "--kt-depth", "quick",
        "--continue-on-collection-errors",
    )  # fmt: skip
    assert "@pytest.mark.parametrize has no effect on a pairing. Declare what varies: kt.static" in run.stdout
    assert "@pytest.mark.usefixtures has no effect on a pairing. Do what it needs when" in run.stdout
    assert "oracle in_jax returned a jax.Array" in run.stdout
    assert "write it in NumPy" in run.stdout
    _, error = run.stdout.split("ERROR collecting")
    assert "kerneltest.DeclarationError: pairing 'double', argument 'x': 'fp16' is not a dtype" in error
    assert "test_refused.py:13: in <module>" in error
    assert str(PACKAGE) not in run.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["init", "no_such_module:f", "--shapes", "x=8"], "run kerneltest in its folder, or install its package"),
        (["repro", "no_such_folder", "0123"], "no_such_folder"),
    ],
    ids=["init-in-another-folder", "repro-in-another-folder"],
)
def test_a_command_in_another_folder_says_so(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert len(shown.splitlines()) <= 6


HOSTILE = "\x1b[31m\x9b2J\u202e\n::error ::taken\r\n::add-mask::a\x08"


class Hostile:
    def __repr__(self) -> str:
        return HOSTILE


Named = type(HOSTILE, (), {})
SPOKEN: dict[str, Callable[[], Any]] = {
    "an option of a static": lambda: LOOSE.static(HOSTILE, "b"),
    "an object in a static": lambda: kt.static(Hostile(), 1),
    "the values of a dim": lambda: LOOSE.dim(values=HOSTILE),
    "a dim's block": lambda: LOOSE.dim(block=Hostile()),
    "a name": lambda: LOOSE.named(Hostile(), 1),
    "an end": lambda: LOOSE.interval(Hostile(), 1),
    "a pairing": lambda: LOOSE.check(Named()),
    "an argument": lambda: _pair(x=N, **{HOSTILE: N}),
    "an exception": lambda: LOOSE.rejects("name", raises=Hostile(), match="m"),
}


@pytest.mark.parametrize("place", SPOKEN)
def test_no_message_about_a_declaration_has_control_characters_or_commands(place: str) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        SPOKEN[place]()
    said = str(raised.value)
    assert all(line.isprintable() for line in said.splitlines()), said
    assert "\n::" not in said
