"""The kernel of a seed, made by one of the productions."""

import random
import re
from textwrap import dedent, indent

from tools.generate import carry_kernels as carry_kernels
from tools.generate import elementwise_kernels as elementwise_kernels
from tools.generate import grid_kernels as grid_kernels
from tools.generate import mosaic_gpu_kernels as mosaic_gpu_kernels
from tools.generate import pointwise_kernels as pointwise_kernels
from tools.generate import product_kernels as product_kernels
from tools.generate import row_kernels as row_kernels
from tools.generate import triton_kernels as triton_kernels
from tools.generate import triton_product_kernels as triton_product_kernels
from tools.generate import triton_row_kernels as triton_row_kernels
from tools.generate.generated_kernel import MODULE, GeneratedKernel
from tools.generate.generated_kernel import PRODUCTIONS as PRODUCTIONS


def generate_kernel(seed: int, only: str = "") -> GeneratedKernel:
    """Returns the kernel of a seed.

    Args:
      seed: the same seed gives the same source, on every machine and with every version of JAX.
      only: the name of the production to use; by default the seed chooses one.

    Raises:
      KeyError: there is no such production.
    """
    rng = random.Random(f"kerneltest {seed}")
    name = rng.choice(sorted(PRODUCTIONS))
    draft = PRODUCTIONS[only or name](rng)
    declared = {**draft.arguments, **draft.options}
    source = MODULE.format(
        seed=seed,
        what=draft.what,
        imports=draft.imports,
        body=dedent(draft.body).strip() + "\n",
        declaration=indent("\n".join(f"{key}={value}," for key, value in declared.items()), "    "),
        parameters=", ".join(draft.arguments),
        oracle=indent(dedent(draft.oracle).strip(), "    "),
    )
    source = re.sub(r"\n{4,}", "\n\n\n", re.sub(r"(?m)^ +$\n", "", source))
    return GeneratedKernel(seed, draft.what, draft.features | {only or name}, source)
