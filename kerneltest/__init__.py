"""kerneltest: conformance tests for Pallas kernels, from a pairing with a NumPy oracle.

    import kerneltest as kt

Each public name is loaded on first use, so that handing pytest the plugin imports neither NumPy nor JAX.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

pytest_plugins = ("kerneltest.pytest_plugin.hooks",)

# By public name: its module, and its name there.
_HOME = {
    alias.asname: (node.module, alias.name)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.asname
}

__all__ = sorted(_HOME)

# pytest looks for fixtures behind each name that dir() gives of a plugin, which would load all of them in every run.
# The plugin hides them until it has looked.
_hidden = False


def __dir__() -> list[str]:
    return [] if _hidden else list(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        hint = import_module("kerneltest.core.extension_registry").suggest(name, __all__)
        raise AttributeError(f"module 'kerneltest' has no attribute {name!r}{hint}")
    home, own_name = _HOME[name]
    module = import_module(home)
    return getattr(module, own_name) if hasattr(module, own_name) else import_module(f"{home}.{own_name}")
