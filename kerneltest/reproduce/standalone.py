"""Reproduces a finding of kerneltest.

Exits with 1 if the kernel still fails, with 0 if it does not, and with 2 if an import, the inputs or the device is
missing.
"""

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

import jax
import ml_dtypes
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun  # type: ignore[attr-defined, unused-ignore]

# The finding. Names are imported; nothing here is code.
FOUND: str = ""
NEEDS: str = ""
KERNEL: tuple[Any, ...] = ()
POSITIONAL: Sequence[tuple[Any, ...]] = ()
KEYWORDS: Mapping[str, tuple[Any, ...]] = {}
INPUTS: str = ""
FOLDERS: Sequence[str] = ()
PLATFORM: str = "cpu"
INTERPRET: bool = True
COMPILER_OPTIONS: Mapping[str, Any] = {}
X64: bool = False
OUTPUT: int = 0
INDEX: tuple[int, ...] | None = None
EXPECTED: Any = None
BOUND: float = 0.0
SIGNED_ZEROS: bool = False
# Reproduction.

HERE = Path(__file__).resolve().parent


class MissingError(Exception):
    """An import of the script failed."""


def import_object(module: str, name: str) -> Any:
    """Imports an object by name."""
    try:
        return attrgetter(name)(import_module(module))
    except (Exception, SystemExit) as error:
        raise MissingError(f"cannot import {name} from {module}: {error}; this script needs {NEEDS}") from error


def refuse_exit(*arguments: Any) -> NoReturn:
    """Replaces `os._exit` and `os.execv`, with which a kernel would end the script as if it were right."""
    raise RuntimeError(f"os._exit or os.execv was called with {arguments}")


def value(description: tuple[Any, ...], arrays: Mapping[str, Any]) -> Any:
    """Builds an argument of the kernel, or imports the kernel, from its description in the constants above."""
    match description:
        case ("array", path):
            return arrays[path]
        case ("key", path):
            return jax.random.wrap_key_data(arrays[path])
        case ("literal", literal):
            return literal
        case ("import", module, name):
            return import_object(module, name)
        case ("option", module, pairing, argument, option):
            return import_object(module, pairing).arguments[argument].value(option)
        case ("tree", module, pairing, argument):
            return import_object(module, pairing).arguments[argument].fill(argument, arrays)
        case ("dict", branches):
            return {key: value(branch, arrays) for key, branch in branches.items()}
        case ("list", branches):
            return [value(branch, arrays) for branch in branches]
        case ("tuple", branches):
            return tuple(value(branch, arrays) for branch in branches)
    raise ValueError(f"{description!r} is not a description of an argument")


def load_inputs() -> dict[str, Any]:
    """Loads the failing inputs, bit for bit, by path."""
    with np.load(HERE / INPUTS, allow_pickle=False) as saved:
        bits = {tuple(key.split(":", 1)): saved[key] for key in saved.files}
    return {path: v.view(getattr(ml_dtypes, dtype, dtype)).reshape(v.shape) for (dtype, path), v in bits.items()}


def rewrite(jaxpr: Jaxpr) -> Jaxpr:
    """Rewrites a jaxpr such that every Pallas call is interpreted, or compiled, according to INTERPRET."""
    equations = []
    for equation in jaxpr.eqns:
        params = {key: rewrite_parameter(param) for key, param in equation.params.items()}
        if equation.primitive.name in ("pallas_call", "core_map", "mpmd_map") and "interpret" in params:
            params["interpret"] = INTERPRET
        equations.append(equation.replace(params=params))
    changed: Jaxpr = jaxpr.replace(eqns=equations)
    return changed


def rewrite_parameter(param: Any) -> Any:
    """Rewrites the jaxprs in a parameter of an equation."""
    if isinstance(param, ClosedJaxpr):
        return param.replace(jaxpr=rewrite(param.jaxpr))
    if isinstance(param, Jaxpr):
        return rewrite(param)
    if isinstance(param, (tuple, list)) and any(isinstance(item, (ClosedJaxpr, Jaxpr)) for item in param):
        return type(param)(map(rewrite_parameter, param))
    return param


def run(arrays: Mapping[str, Any], device: jax.Device) -> list[Any]:
    """Runs the kernel and returns its outputs."""
    kernel = value(KERNEL, {})

    def call(arrays: Mapping[str, Any]) -> list[Any]:
        positional = [value(description, arrays) for description in POSITIONAL]
        keywords = {name: value(description, arrays) for name, description in KEYWORDS.items()}
        return jax.tree_util.tree_leaves(kernel(*positional, **keywords))

    leaves = jax.device_put(jax.tree_util.tree_leaves(arrays), device)
    with jax.default_device(device):
        function = jax.jit(jaxpr_as_fun(rewrite_parameter(jax.make_jaxpr(call)(arrays))))
        compiled = function.lower(*leaves).compile(compiler_options=dict(COMPILER_OPTIONS) or None)
        return [np.asarray(output) for output in compiled(*leaves)]


def conforms(actual: Any) -> bool:
    """Returns whether an element is as expected: equal, the same kind of special value, or within the bound."""
    rounded = np.asarray(EXPECTED).astype(actual.dtype)
    if isinstance(EXPECTED, int):  # also booleans
        return bool(actual == rounded)
    got, wanted = float(actual), float(rounded)
    if SIGNED_ZEROS and got == wanted == 0:
        return bool(np.signbit(got) == np.signbit(wanted))
    largest = float(np.asarray(abs(EXPECTED) + BOUND).astype(actual.dtype))
    overflowed = np.isinf(got) and np.sign(got) == np.sign(EXPECTED) and np.isinf(largest)
    near = np.isfinite(got) and abs(got - EXPECTED) <= BOUND
    return bool(got == wanted or (np.isnan(got) and np.isnan(wanted)) or near or overflowed)


def main() -> int:
    """Runs the kernel on the failing inputs and prints the result."""
    sys.path += [str(HERE / folder) for folder in FOLDERS] + [str(Path.cwd())]
    jax.config.update("jax_enable_x64", X64)
    print(f"found: {FOUND}")
    vars(os).update(_exit=refuse_exit, execv=refuse_exit, execve=refuse_exit)
    try:
        arrays, device = load_inputs(), jax.devices(PLATFORM)[0]
    except Exception as error:
        print(f"cannot run: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    try:
        outputs = run(arrays, device)
    except MissingError as error:
        print(error, file=sys.stderr)
        return 2
    except (Exception, SystemExit) as error:
        print("now: the kernel raised", *traceback.format_exception_only(error))
        return 1
    if INDEX is None:
        print("now: the kernel ran")
        return 0
    actual = outputs[OUTPUT][INDEX]
    failed = not conforms(actual)
    print(f"now: {'still wrong' if failed else 'right'} at {list(INDEX)}: got {actual}, expected {EXPECTED} ± {BOUND}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
