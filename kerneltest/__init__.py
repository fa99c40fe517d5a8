"""kerneltest: conformance tests for Pallas kernels, from a pairing with a NumPy oracle.

The public API is loaded on first use, so that handing pytest the plugin (below) imports neither NumPy nor JAX. For the
same reason `dir()` does not list it: pytest looks at every name that a plugin lists.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerneltest.addresses import check_addresses as check_addresses
    from kerneltest.check_pairing import check as check
    from kerneltest.drawn import DrawnCase as DrawnCase
    from kerneltest.error_cases import error_case as error_case
    from kerneltest.error_models import conditioned as conditioned
    from kerneltest.error_models import dot as dot
    from kerneltest.error_models import exact as exact
    from kerneltest.error_models import reduction as reduction
    from kerneltest.error_models import relative_to as relative_to
    from kerneltest.error_models import ulp as ulp
    from kerneltest.families import family as family
    from kerneltest.limitations import limitation as limitation
    from kerneltest.lower import INSTEAD as INSTEAD
    from kerneltest.pairing import FLOATS as FLOATS
    from kerneltest.pairing import INTEGERS as INTEGERS
    from kerneltest.pairing import DeclarationError as DeclarationError
    from kerneltest.pairing import Pairing as Pairing
    from kerneltest.pairing import array as array
    from kerneltest.pairing import choice as choice
    from kerneltest.pairing import dim as dim
    from kerneltest.pairing import index as index
    from kerneltest.pairing import length as length
    from kerneltest.pairing import mask as mask
    from kerneltest.pairing import oracle_for as oracle_for
    from kerneltest.pairing import scalar as scalar
    from kerneltest.pairing import size as size
    from kerneltest.pairing import tree as tree
    from kerneltest.strategies import assert_conforms as assert_conforms
    from kerneltest.strategies import cases as cases

__version__ = "0.1.0"

pytest_plugins = ("kerneltest.plugin",)

_HOMES = {
    "kerneltest.addresses": "check_addresses",
    "kerneltest.pairing": (
        "FLOATS INTEGERS DeclarationError Pairing array choice dim index length mask oracle_for scalar size tree"
    ),
    "kerneltest.families": "family",
    "kerneltest.limitations": "limitation",
    "kerneltest.lower": "INSTEAD",
    "kerneltest.error_cases": "error_case",
    "kerneltest.error_models": "conditioned dot exact reduction relative_to ulp",
    "kerneltest.check_pairing": "check",
    "kerneltest.drawn": "DrawnCase",
    "kerneltest.strategies": "assert_conforms cases",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kerneltest' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
