"""Records example calls of a kernel while a script or a test runs."""

import contextlib
import inspect
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from kerneltest.core.failures import format_exception
from kerneltest.start.example_calls import Example, KernelFunction, StartError, example_from_call

_MOST = 8  # recorded calls


def record_calls(kernel: KernelFunction, script: str) -> list[Example]:
    """Runs a script or a pytest node, and returns the first calls of a kernel with distinct shapes.

    If a call fails on this machine, the script continues with zeros as its result.

    Raises:
      StartError: the kernel was not called.
    """
    seen: list[Example] = []
    raised = ""
    with _replace(kernel, _recorder(kernel, seen)):
        file = script.partition("::")[0]
        if not Path(file).exists():
            raise StartError(f"--watch: {file} does not exist")
        if "::" in script or Path(file).name.startswith("test_") or Path(file).is_dir():
            raised = _run_pytest(script)
        else:
            raised = _run_script(Path(file))
    if not seen:
        why = f"; it raised {raised}" if raised else f"; it must call the function of {kernel.module}"
        raise StartError(f"--watch: {script} never calls {kernel.name}{why}")
    return seen


def _run_pytest(node: str) -> str:
    code = pytest.main(["-q", "-p", "no:cacheprovider", node])
    return "" if code == pytest.ExitCode.OK else f"pytest's exit code {int(code)}"


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
        if len(seen) < _MOST and not any(_same(example, each) for each in seen):
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


def _same(one: Example, other: Example) -> bool:
    return one.leaves == other.leaves and str(one.statics) == str(other.statics)


@contextmanager
def _replace(kernel: KernelFunction, stand_in: Callable[..., Any]) -> Iterator[None]:
    """Replaces the kernel by a stand-in in every module that refers to it."""
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
