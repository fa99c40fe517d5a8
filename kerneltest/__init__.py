"""kerneltest: conformance tests for Pallas kernels, from a pairing with a NumPy oracle.

    import kerneltest as kt

Each public name is loaded on first use, so that handing pytest the plugin imports neither NumPy nor JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerneltest.api import Finding as Finding
    from kerneltest.api import Result as Result
    from kerneltest.api import assert_conforms as assert_conforms
    from kerneltest.api import check as check
    from kerneltest.backends.base import Artifact as Artifact
    from kerneltest.backends.base import Backend as Backend
    from kerneltest.backends.base import Executable as Executable
    from kerneltest.backends.hints import add_lowering_hint as add_lowering_hint
    from kerneltest.backends.registry import backend as backend
    from kerneltest.core.failures import DeclarationError as DeclarationError
    from kerneltest.core.failures import Failure as Failure
    from kerneltest.core.precision import Precision as Precision
    from kerneltest.core.precision import Ulps as Ulps
    from kerneltest.core.targets import Tier as Tier
    from kerneltest.core.verdicts import Verdict as Verdict
    from kerneltest.declare import array_structure as structure  # noqa: F401 - of kt.structure
    from kerneltest.declare import tolerance as tolerance
    from kerneltest.declare.defined import defined as defined
    from kerneltest.declare.defined import ignored as ignored
    from kerneltest.declare.dims import dim as dim
    from kerneltest.declare.domains import interval as interval
    from kerneltest.declare.error_model import Measured as Measured
    from kerneltest.declare.error_model import Tolerance as Tolerance
    from kerneltest.declare.kinds.array_argument import DEFAULT_FLOATS as DEFAULT_FLOATS
    from kerneltest.declare.kinds.array_argument import DEFAULT_INTEGERS as DEFAULT_INTEGERS
    from kerneltest.declare.kinds.array_data import array as array
    from kerneltest.declare.kinds.array_data import scalar as scalar
    from kerneltest.declare.kinds.base import Slot as Slot
    from kerneltest.declare.kinds.derivation import derived as derived
    from kerneltest.declare.kinds.index import indices as indices
    from kerneltest.declare.kinds.length import lengths as lengths
    from kerneltest.declare.kinds.mask import mask as mask
    from kerneltest.declare.kinds.offsets import offsets as offsets
    from kerneltest.declare.kinds.one_hot import one_hot as one_hot
    from kerneltest.declare.kinds.partition import partition as partition
    from kerneltest.declare.kinds.permutation import permutation as permutation
    from kerneltest.declare.kinds.random_key import key as key
    from kerneltest.declare.kinds.segments import segment_ids as segment_ids
    from kerneltest.declare.oracle_for import oracle_for as oracle_for
    from kerneltest.declare.pairing import Pairing as Pairing
    from kerneltest.declare.rejects import rejects as rejects
    from kerneltest.declare.statics import dim_size as dim_size
    from kerneltest.declare.statics import named as named
    from kerneltest.declare.statics import static as static
    from kerneltest.declare.structure import optional as optional
    from kerneltest.declare.structure import same_as as same_as
    from kerneltest.declare.structure import tree as tree
    from kerneltest.declare.xfail import xfail as xfail
    from kerneltest.execute.addresses import check_addresses as check_addresses
    from kerneltest.execute.invariant_context import ExpectedOutputs as ExpectedOutputs
    from kerneltest.execute.invariant_context import InvariantContext as InvariantContext
    from kerneltest.execute.invariant_context import OutputCheck as OutputCheck
    from kerneltest.execute.invariant_context import Variation as Variation
    from kerneltest.execute.invariants import invariant as invariant
    from kerneltest.execute.strategies import cases as cases
    from kerneltest.extensions.proofs.proof_search import Counterexample as Counterexample
    from kerneltest.extensions.proofs.proof_search import Proof as Proof
    from kerneltest.extensions.proofs.proof_search import prove as prove
    from kerneltest.numerics.bounds import Bound as Bound
    from kerneltest.numerics.bounds import Limit as Limit
    from kerneltest.plan.explicit import ExplicitCase as ExplicitCase
    from kerneltest.plan.standard_families import family as family
    from kerneltest.trace.tracing import Traced as Traced

__version__ = "0.2.0"

pytest_plugins = ("kerneltest.pytest_plugin.hooks",)

_HOMES = {
    "kerneltest.api": "Finding Result assert_conforms check",
    "kerneltest.backends.base": "Artifact Backend Executable",
    "kerneltest.backends.hints": "add_lowering_hint",
    "kerneltest.backends.registry": "backend",
    "kerneltest.core.failures": "DeclarationError Failure",
    "kerneltest.core.precision": "Precision Ulps",
    "kerneltest.core.targets": "Tier",
    "kerneltest.core.verdicts": "Verdict",
    "kerneltest.declare": "structure tolerance",
    "kerneltest.declare.defined": "defined ignored",
    "kerneltest.declare.dims": "dim",
    "kerneltest.declare.domains": "interval",
    "kerneltest.declare.error_model": "Measured Tolerance",
    "kerneltest.declare.oracle_for": "oracle_for",
    "kerneltest.declare.kinds.array_argument": "DEFAULT_FLOATS DEFAULT_INTEGERS",
    "kerneltest.declare.kinds.array_data": "array scalar",
    "kerneltest.declare.kinds.base": "Slot",
    "kerneltest.declare.kinds.derivation": "derived",
    "kerneltest.declare.kinds.index": "indices",
    "kerneltest.declare.kinds.length": "lengths",
    "kerneltest.declare.kinds.mask": "mask",
    "kerneltest.declare.kinds.offsets": "offsets",
    "kerneltest.declare.kinds.one_hot": "one_hot",
    "kerneltest.declare.kinds.partition": "partition",
    "kerneltest.declare.kinds.permutation": "permutation",
    "kerneltest.declare.kinds.random_key": "key",
    "kerneltest.declare.kinds.segments": "segment_ids",
    "kerneltest.declare.pairing": "Pairing",
    "kerneltest.declare.rejects": "rejects",
    "kerneltest.declare.statics": "dim_size named static",
    "kerneltest.declare.structure": "optional same_as tree",
    "kerneltest.declare.xfail": "xfail",
    "kerneltest.execute.invariants": "invariant",
    "kerneltest.plan.standard_families": "family",
    "kerneltest.trace.tracing": "Traced",
    "kerneltest.numerics.bounds": "Bound Limit",
    "kerneltest.plan.explicit": "ExplicitCase",
    "kerneltest.extensions.proofs.proof_search": "Counterexample Proof prove",
    "kerneltest.execute.addresses": "check_addresses",
    "kerneltest.execute.invariant_context": "ExpectedOutputs InvariantContext OutputCheck Variation",
    "kerneltest.execute.strategies": "cases",
}
# Names that are modules.
_MODULES = {"structure": "kerneltest.declare.array_structure", "tolerance": "kerneltest.declare.tolerance"}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)

# pytest looks for fixtures behind each name that dir() gives of a plugin, which would load all of them in every run.
# The plugin hides them until it has looked.
_hidden = False


def __dir__() -> list[str]:
    return [] if _hidden else list(__all__)


if not TYPE_CHECKING:  # which knows the names, and would take any other for one of them

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            hint = import_module("kerneltest.core.suggestions").suggest(name, __all__)
            raise AttributeError(f"module 'kerneltest' has no attribute {name!r}{hint}")
        if name in _MODULES:
            return import_module(_MODULES[name])
        return getattr(import_module(_HOME[name]), name)
