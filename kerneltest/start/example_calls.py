"""Example calls of a kernel, from shapes or from the text of a call, and their arguments."""

import contextlib
import importlib
import inspect
import os
import re
import runpy
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from kerneltest.core.dtypes import DtypeError, ShapeDtype, is_integer, parse_dtype
from kerneltest.core.failures import UnusableInputError, exception_text, format_exception
from kerneltest.core.ids import PairingId
from kerneltest.trace.jaxpr_source import is_default


class StartError(UnusableInputError):
    """No pairing can be written. The message says why, and what to do."""


@dataclass(frozen=True, eq=False, slots=True)
class KernelFunction:
    """A function, with the name of its module and its qualified name there, such as `Layer.apply`."""

    module: str
    path: str
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


class ArrayPath(str):
    """The path of an array, in its place in an argument."""


@dataclass(frozen=True, eq=False, slots=True)
class Example:
    """The arguments of one call, without their values."""

    leaves: Mapping[str, ShapeDtype]  # the shape and dtype of each array, by path, in the order of the call
    trees: Mapping[str, Any]  # the arguments that are arrays or pytrees of arrays, by name, with paths as leaves
    statics: Mapping[str, Any]  # all other arguments that differ from their defaults
    ranges: Mapping[str, tuple[int, int]]  # the smallest and largest value of each integer array whose values are known
    # the paths of the leaves that are keys of `jax.random`, whose leaf is their data; True for those that are given
    # as data
    keys: Mapping[str, bool]
    left_out: Mapping[str, Any]  # the arguments that the call leaves out or gives their default, with the default


def import_kernel(name: str) -> KernelFunction:
    """Imports the function that `MODULE:FUNCTION` names, like `python -m` from the current folder."""
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise StartError(f"{name!r} does not name a function: give MODULE:FUNCTION, such as kernels.softmax:softmax")
    if os.getcwd() not in sys.path:  # noqa: PTH109
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise StartError(
            f"{module_name} cannot be imported: {exception_text(error)}; run kerneltest in its folder, or install its "
            "package"
        ) from error
    except Exception as error:
        raise StartError(f"importing {module_name} raised {format_exception(error)}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            known = [name for name, each in vars(found).items() if callable(each) and not name.startswith("_")]
            raise StartError(f"{module_name} has no {path!r}; it has {', '.join(sorted(known)) or 'no functions'}")
        found = getattr(found, part)
    if not callable(found):
        raise StartError(f"{name} is not a function, but of type {type(found).__name__}")
    return KernelFunction(module_name, path, found)


def example_from_shapes(kernel: KernelFunction, shapes: str, dtypes: str = "") -> Example:
    """Returns the call with arrays of the shapes `x=8x128,y=128`, in float32 or in the dtypes `y=int32`."""
    named = _parse_pairs("--shapes", shapes, "x=8x128,y=128")
    chosen = _parse_pairs("--dtypes", dtypes, "x=bfloat16,y=int32") if dtypes else {}
    if unknown := sorted(chosen.keys() - named.keys()):
        raise StartError(f"--dtypes: {unknown[0]!r} has no shape; add it to --shapes")
    values: dict[str, Any] = {}
    for name, text in named.items():
        if not re.fullmatch(r"\(\)|\d+(x\d+)*", text):
            raise StartError(
                f"--shapes: {name}={text} is not a shape; separate lengths by x, as in {name}=8x128, and write () for "
                "a scalar"
            )
        try:
            dtype = parse_dtype(chosen.get(name, "float32"))
        except DtypeError as error:
            raise StartError(f"--dtypes: {error}") from error
        values[name] = jax.ShapeDtypeStruct(tuple(map(int, re.findall(r"\d+", text))), dtype)
    parameters = inspect.signature(kernel.function).parameters
    if unknown := [name for name in values if name not in parameters]:
        raise StartError(f"{kernel.name} has no parameter {unknown[0]!r}; it has {', '.join(parameters)}")
    missing = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in _MANY and n not in values]
    if missing:
        raise StartError(
            f"{kernel.name} also needs {', '.join(missing)}: give their shapes as well, or a whole call, as in "
            f"--call '{kernel.name}(jnp.ones((8, 128)), ...)'"
        )
    return example_from_call(kernel, (), values)


_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _parse_pairs(option: str, text: str, like: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not pairs or not all(name and equals for name, equals, _ in pairs):
        raise StartError(f"{option}: {text!r} is not of the form {like}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def example_from_text(kernel: KernelFunction, text: str) -> Example:
    """Evaluates the text of a call, such as `f(jnp.ones((8, 128)), axis=1)`; `f` and the kernel's name both work."""
    seen: list[Example] = []

    def stand_in(*args: object, **kwargs: object) -> None:
        seen.append(example_from_call(kernel, args, kwargs))

    names = {"jax": jax, "jnp": jnp, "np": np, "pl": pl, **vars(sys.modules[kernel.module])}
    try:
        eval(text, {**names, "f": stand_in, kernel.name: stand_in})
    except StartError:
        raise
    except Exception as error:
        raise StartError(f"--call: {text!r} raises {format_exception(error)}") from error
    if not seen:
        raise StartError(f"--call: {text!r} does not call {kernel.name}; write it as {kernel.name}(jnp.ones((8, 128)))")
    return seen[0]


def example_from_call(kernel: KernelFunction, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Example:
    """Returns the arguments of a call; raises a StartError if they do not fit the kernel, or mix arrays and others."""
    signature = inspect.signature(kernel.function)
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise StartError(f"{kernel.name}{signature} does not accept this call: {exception_text(error)}") from error
    leaves: dict[str, ShapeDtype] = {}
    trees: dict[str, Any] = {}
    statics: dict[str, Any] = {}
    ranges: dict[str, tuple[int, int]] = {}
    keys_of: dict[str, bool] = {}
    for name, value in bound.items():
        parameter = signature.parameters[name]
        if parameter.kind in _MANY:
            raise StartError(f"{kernel.name} takes *{name}: pair a function with named arguments that calls it")
        flat, structure = jax.tree_util.tree_flatten_with_path(value)
        arrays = [isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)) for _, leaf in flat]
        if arrays and all(arrays):
            inside = [jax.tree_util.keystr(keys, simple=True, separator=".") for keys, _ in flat]
            paths = [f"{name}.{path}" if path else name for path in inside]
            trees[name] = jax.tree_util.tree_unflatten(structure, map(ArrayPath, paths))
            for path, (_, leaf) in zip(paths, flat, strict=True):
                if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                    if leaf.shape:
                        raise StartError(f"argument {name!r} has several keys; pair a function that splits one key")
                    leaf, keys_of[path] = jax.eval_shape(jax.random.key_data, leaf), False
                elif _is_raw_key(path, leaf):
                    keys_of[path] = True
                leaves[path] = ShapeDtype(tuple(leaf.shape), np.dtype(leaf.dtype))
                traced = isinstance(leaf, (jax.core.Tracer, jax.ShapeDtypeStruct))
                if not traced and is_integer(np.dtype(leaf.dtype)) and leaf.size:
                    ranges[path] = int(leaf.min()), int(leaf.max())
        elif any(arrays):
            raise StartError(
                f"argument {name!r} mixes arrays and other values; pair a function that takes them as separate "
                f"arguments and calls {kernel.name}"
            )
        elif not is_default(value, parameter.default):
            statics[name] = value
    left_out = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in (*trees, *statics) and parameter.default is not inspect.Parameter.empty
    }
    return Example(leaves, trees, statics, ranges, keys_of, left_out)


def _is_raw_key(path: str, leaf: Any) -> bool:
    named = path.rpartition(".")[2].lower().split("_")[-1] in ("key", "rng")
    return named and tuple(leaf.shape) == (2,) and np.dtype(leaf.dtype) == np.uint32


# Records example calls of a kernel while a script or a test runs.

_MOST = 8  # recorded calls


class _EndAtLimit:
    """A plugin that ends a session after the test in which a limit passed."""

    def __init__(self, end_if_over: Callable[[], bool]) -> None:
        self._end_if_over = end_if_over

    # Before pytest handles what was raised into the test, since the same may be raised again.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        try:
            yield
        finally:
            self._end_if_over()

    def pytest_runtest_logfinish(self) -> None:
        if self._end_if_over():
            pytest.exit("the limit has passed", returncode=pytest.ExitCode.OK)


def record_calls(kernel: KernelFunction, script: str, end_if_over: Callable[[], bool]) -> list[Example]:
    """Runs a script or a pytest node, up to a test after which `end_if_over` is true; returns the first distinct calls.

    Zeros stand in for the results of calls that fail here.
    """
    seen: list[Example] = []
    raised = ""
    with _replace(kernel, _recorder(kernel, seen)):
        file = PairingId.parse(script).file
        if not Path(file).exists():
            raise StartError(f"--watch: {file} does not exist")
        if "::" in script or Path(file).name.startswith("test_") or Path(file).is_dir():
            code = pytest.main(["-q", "-p", "no:cacheprovider", script], [_EndAtLimit(end_if_over)])
            raised = "" if code == pytest.ExitCode.OK else f"pytest's exit code {int(code)}"
        else:
            raised = _run_script(Path(file))
    if not seen:
        why = f"; it raised {raised}" if raised else f"; it must call the function of {kernel.module}"
        raise StartError(f"--watch: {script} never calls {kernel.name}{why}")
    return seen


def _run_script(path: Path) -> str:
    arguments, sys.argv = sys.argv, [str(path)]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit:
        return ""
    except Exception as error:  # earlier calls are recorded all the same
        return format_exception(error)
    finally:
        sys.argv = arguments
        sys.path.pop(0)
    return ""


def _recorder(kernel: KernelFunction, seen: list[Example]) -> Callable[..., Any]:
    def recorder(*args: Any, **kwargs: Any) -> Any:
        example = example_from_call(kernel, args, kwargs)
        known = any(call.leaves == example.leaves and str(call.statics) == str(example.statics) for call in seen)
        if len(seen) < _MOST and not known:
            seen.append(example)
        try:
            return kernel.function(*args, **kwargs)
        except Exception:
            with contextlib.suppress(Exception):
                shapes = jax.eval_shape(lambda: kernel.function(*args, **kwargs))
                return jax.tree_util.tree_map(lambda each: jnp.zeros(each.shape, each.dtype), shapes)
            raise

    recorder.__signature__ = inspect.signature(kernel.function)  # type: ignore[attr-defined]
    return recorder


@contextmanager
def _replace(kernel: KernelFunction, stand_in: Callable[..., Any]) -> Iterator[None]:
    # In every module that refers to it.
    references = [
        (vars(module) if module is not None else {}, name)
        for module in list(sys.modules.values())
        for name, value in list(vars(module).items() if hasattr(module, "__dict__") else ())
        if value is kernel.function
    ]
    *outer, last = kernel.path.split(".")
    home: Any = sys.modules[kernel.module]
    for part in outer:
        home = getattr(home, part)
    for names, name in references:
        names[name] = stand_in
    setattr(home, last, stand_in)
    try:
        yield
    finally:
        for names, name in references:
            names[name] = kernel.function
        setattr(home, last, kernel.function)
