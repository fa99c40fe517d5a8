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
    from kerneltest.backends.lowering_errors import add_lowering_hint as add_lowering_hint
    from kerneltest.backends.registry import backend as backend
    from kerneltest.backends.simulate.at_scale import check_addresses as check_addresses
    from kerneltest.core.failures import DeclarationError as DeclarationError
    from kerneltest.core.failures import Failure as Failure
    from kerneltest.core.precision import Precision as Precision
    from kerneltest.core.precision import Ulps as Ulps
    from kerneltest.core.targets import Tier as Tier
    from kerneltest.core.verdicts import Verdict as Verdict
    from kerneltest.declare import array_structure as structure  # noqa: F401 - of kt.structure
    from kerneltest.declare import tolerance as tolerance
    from kerneltest.declare.arguments import dim_size as dim_size
    from kerneltest.declare.arguments import named as named
    from kerneltest.declare.arguments import optional as optional
    from kerneltest.declare.arguments import same_as as same_as
    from kerneltest.declare.arguments import static as static
    from kerneltest.declare.arguments import tree as tree
    from kerneltest.declare.dims import dim as dim
    from kerneltest.declare.domains import interval as interval
    from kerneltest.declare.error_models import Measured as Measured
    from kerneltest.declare.error_models import Tolerance as Tolerance
    from kerneltest.declare.kinds.base import DEFAULT_FLOATS as DEFAULT_FLOATS
    from kerneltest.declare.kinds.base import DEFAULT_INTEGERS as DEFAULT_INTEGERS
    from kerneltest.declare.kinds.base import Slot as Slot
    from kerneltest.declare.kinds.data import array as array
    from kerneltest.declare.kinds.data import derived as derived
    from kerneltest.declare.kinds.data import key as key
    from kerneltest.declare.kinds.data import scalar as scalar
    from kerneltest.declare.kinds.index import indices as indices
    from kerneltest.declare.kinds.index import one_hot as one_hot
    from kerneltest.declare.kinds.index import permutation as permutation
    from kerneltest.declare.kinds.mask import mask as mask
    from kerneltest.declare.kinds.parts import lengths as lengths
    from kerneltest.declare.kinds.parts import offsets as offsets
    from kerneltest.declare.kinds.parts import partition as partition
    from kerneltest.declare.kinds.parts import segment_ids as segment_ids
    from kerneltest.declare.oracle_for import oracle_for as oracle_for
    from kerneltest.declare.outcomes import defined as defined
    from kerneltest.declare.outcomes import ignored as ignored
    from kerneltest.declare.outcomes import rejects as rejects
    from kerneltest.declare.outcomes import xfail as xfail
    from kerneltest.declare.pairing import Pairing as Pairing
    from kerneltest.execute.claims import CaseContext as CaseContext
    from kerneltest.execute.claims import OutputCheck as OutputCheck
    from kerneltest.execute.claims import Variation as Variation
    from kerneltest.execute.fuzz_group import cases as cases
    from kerneltest.execute.invariants import invariant as invariant
    from kerneltest.extensions.proofs.proof_search import Counterexample as Counterexample
    from kerneltest.extensions.proofs.proof_search import Proof as Proof
    from kerneltest.extensions.proofs.proof_search import prove as prove
    from kerneltest.numerics.bounds import Bound as Bound
    from kerneltest.numerics.bounds import Limit as Limit
    from kerneltest.oracle.expectation import ExpectedOutputs as ExpectedOutputs
    from kerneltest.plan.explicit import ExplicitCase as ExplicitCase
    from kerneltest.plan.standard_families import family as family
    from kerneltest.trace.tracing import Traced as Traced

__version__ = "0.2.0"

pytest_plugins = ("kerneltest.pytest_plugin.hooks",)

_HOMES = {
    "kerneltest.api": "assert_conforms check Finding Result",
    "kerneltest.backends.base": "Artifact Backend Executable",
    "kerneltest.backends.lowering_errors": "add_lowering_hint",
    "kerneltest.backends.registry": "backend",
    "kerneltest.backends.simulate.at_scale": "check_addresses",
    "kerneltest.core.failures": "DeclarationError Failure",
    "kerneltest.core.precision": "Precision Ulps",
    "kerneltest.core.targets": "Tier",
    "kerneltest.core.verdicts": "Verdict",
    "kerneltest.declare": "structure tolerance",
    "kerneltest.declare.arguments": "dim_size named optional same_as static tree",
    "kerneltest.declare.dims": "dim",
    "kerneltest.declare.domains": "interval",
    "kerneltest.declare.error_models": "Measured Tolerance",
    "kerneltest.declare.kinds.base": "DEFAULT_FLOATS DEFAULT_INTEGERS Slot",
    "kerneltest.declare.kinds.data": "array derived key scalar",
    "kerneltest.declare.kinds.index": "indices one_hot permutation",
    "kerneltest.declare.kinds.mask": "mask",
    "kerneltest.declare.kinds.parts": "lengths offsets partition segment_ids",
    "kerneltest.declare.oracle_for": "oracle_for",
    "kerneltest.declare.outcomes": "defined ignored rejects xfail",
    "kerneltest.declare.pairing": "Pairing",
    "kerneltest.execute.fuzz_group": "cases",
    "kerneltest.execute.claims": "CaseContext OutputCheck Variation",
    "kerneltest.execute.invariants": "invariant",
    "kerneltest.extensions.proofs.proof_search": "Counterexample Proof prove",
    "kerneltest.numerics.bounds": "Bound Limit",
    "kerneltest.oracle.expectation": "ExpectedOutputs",
    "kerneltest.plan.explicit": "ExplicitCase",
    "kerneltest.plan.standard_families": "family",
    "kerneltest.trace.tracing": "Traced",
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
            hint = import_module("kerneltest.core.extension_registry").suggest(name, __all__)
            raise AttributeError(f"module 'kerneltest' has no attribute {name!r}{hint}")
        if name in _MODULES:
            return import_module(_MODULES[name])
        return getattr(import_module(_HOME[name]), name)
