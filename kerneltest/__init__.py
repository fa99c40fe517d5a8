"""kerneltest: conformance tests for Pallas kernels, from a pairing with a NumPy oracle.

The public API is loaded on first use, so that handing pytest the plugin (below) imports neither NumPy nor JAX. For the
same reason `dir()` does not list it: pytest looks at every name that a plugin lists.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerneltest.run.addresses import check_addresses as check_addresses
    from kerneltest.api import check as check
    from kerneltest.plan.drawn import DrawnCase as DrawnCase
    from kerneltest.declare.rejects import error_case as error_case
    from kerneltest.declare.tolerance import conditioned as conditioned
    from kerneltest.declare.tolerance import dot as dot
    from kerneltest.declare.tolerance import exact as exact
    from kerneltest.declare.tolerance import reduction as reduction
    from kerneltest.declare.tolerance import relative_to as relative_to
    from kerneltest.declare.tolerance import ulp as ulp
    from kerneltest.plan.families import family as family
    from kerneltest.declare.xfail import limitation as limitation
    from kerneltest.backends.codegen.lower import INSTEAD as INSTEAD
    from kerneltest.declare.arguments import FLOATS as FLOATS
    from kerneltest.declare.arguments import INTEGERS as INTEGERS
    from kerneltest.declare.check import DeclarationError as DeclarationError
    from kerneltest.declare.pairing import Pairing as Pairing
    from kerneltest.declare.arguments import array as array
    from kerneltest.declare.arguments import choice as choice
    from kerneltest.declare.dims import dim as dim
    from kerneltest.declare.arguments import index as index
    from kerneltest.declare.arguments import length as length
    from kerneltest.declare.arguments import mask as mask
    from kerneltest.declare.oracle_for import oracle_for as oracle_for
    from kerneltest.declare.arguments import scalar as scalar
    from kerneltest.declare.arguments import size as size
    from kerneltest.declare.arguments import tree as tree
    from kerneltest.run.strategies import assert_conforms as assert_conforms
    from kerneltest.run.strategies import cases as cases

__version__ = "0.1.0"

pytest_plugins = ("kerneltest.pytest_plugin.hooks",)

_HOMES = {
    "kerneltest.run.addresses": "check_addresses",
    "kerneltest.declare.pairing": (
        "FLOATS INTEGERS DeclarationError Pairing array choice dim index length mask oracle_for scalar size tree"
    ),
    "kerneltest.plan.families": "family",
    "kerneltest.declare.xfail": "limitation",
    "kerneltest.backends.codegen.lower": "INSTEAD",
    "kerneltest.declare.rejects": "error_case",
    "kerneltest.declare.models": "conditioned dot exact reduction relative_to ulp",
    "kerneltest.api": "check",
    "kerneltest.plan.drawn": "DrawnCase",
    "kerneltest.run.strategies": "assert_conforms cases",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kerneltest' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
