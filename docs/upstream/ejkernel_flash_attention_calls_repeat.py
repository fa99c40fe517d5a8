"""ejkernel's flash_attention and flash_mla call a function that JAX has removed (ejkernel 0.0.80.3, JAX 0.10.2).

On TPUs they use `pltpu.repeat`, which JAX 0.10.2 does not have, though the package asks for jax~=0.10.0. Only one block
of keys is computed without it.
"""

import jax
import jax.numpy as jnp
from ejkernel.kernels._pallas.tpu.flash_attention import flash_attention

x = jnp.ones((1, 1024, 1, 128))
try:
    jax.eval_shape(flash_attention, x, x, x)
except AttributeError as error:
    print("JAX", jax.__version__, "gives", error)
    raise SystemExit(1) from None
