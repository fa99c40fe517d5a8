"""The corpus of broken kernels, each with its right twin: tests, benchmarks and documents read it."""

from tests.corpus import edited_elementary, mosaic_gpu
from tests.corpus.edited_below_rounding import BELOW_ROUNDING as BELOW_ROUNDING
from tests.corpus.edited_composed import COMPOSED
from tests.corpus.mosaic_gpu_pipelines import PIPELINES as PIPELINES
from tests.corpus.mosaic_gpu_scaled import SCALED
from tests.corpus.production import PRODUCTION as PRODUCTION
from tests.corpus.tpu import TPU as TPU
from tests.corpus.tpu_compilers import TPU_COMPILERS as TPU_COMPILERS
from tests.corpus.triton import TRITON as TRITON
from tests.corpus.twin import Twin as Twin

MOSAIC_GPU = (*mosaic_gpu.PRODUCTS, *SCALED, *mosaic_gpu.SMALL, *PIPELINES)
# Those that benchmarks measure: edits of kernels that every machine runs.
VARIANTS = (*edited_elementary.ELEMENTARY, *COMPOSED)
EDITED = (*VARIANTS, *edited_elementary.PIPELINES, *BELOW_ROUNDING)
TWINS = {twin.name: twin for twin in (*TRITON, *MOSAIC_GPU, *TPU, *TPU_COMPILERS, *PRODUCTION, *EDITED)}


def twin(name: str) -> Twin:
    """The only twin whose name contains some words."""
    (found,) = (twin for full, twin in TWINS.items() if name in full)
    return found
