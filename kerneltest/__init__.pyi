"""The public names, and the modules that define them; `__init__.py` reads this file, too."""

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
from kerneltest.declare.outcomes import unordered as unordered
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
from kerneltest.trace.triton_kernels import triton_kernel as triton_kernel

__version__: str
__all__: list[str]
_hidden: bool
