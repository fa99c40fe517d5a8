"""Kernels of `kernels/` with a bug each, for benchmarks/detection.py: those of tests/broken.py and of this folder."""

from benchmarks.variants.attention import ATTENTION
from benchmarks.variants.cross_entropy import CROSS_ENTROPY
from benchmarks.variants.cumulative_sum import CUMULATIVE_SUM
from benchmarks.variants.elementary import ELEMENTARY
from benchmarks.variants.layer_norm import LAYER_NORM
from benchmarks.variants.rotary import ROTARY
from benchmarks.variants.swiglu import SWIGLU
from benchmarks.variants.variant import Variant as Variant
from tests.broken import BROKEN

_OF_LITTLE_PRECISION = (
    "sums are accumulated in the input's dtype",
    "exponentials are computed and summed in the input's dtype",
)

VARIANTS = (
    *(Variant(b.name, b.pairing, b.function, b.edits, b.name in _OF_LITTLE_PRECISION) for b in BROKEN),
    *ELEMENTARY,
    *ATTENTION,
    *ROTARY,
    *SWIGLU,
    *LAYER_NORM,
    *CROSS_ENTROPY,
    *CUMULATIVE_SUM,
)
