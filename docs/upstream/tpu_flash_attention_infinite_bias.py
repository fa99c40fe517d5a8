"""TPU flash attention gives NaN where a bias of -inf masks all of the first block of keys (JAX 0.10.2 to 0.12.0.1).

The running maximum starts at -inf, and stays there while every score is -inf, so `exp(s - maximum)` is exp(NaN) from
then on, whatever the next blocks hold. The same call in one block of keys is right, and so is `mha_reference`; block
sizes "have negligible effect on numerics", as their docstring says. A maximum that starts at a large negative number,
or one that is replaced by 0 where it is -inf, gives the right values. Shown without a TPU, by the values of JAX's TPU
interpreter.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

q, kv = jnp.ones((1, 1, 8, 128)), jnp.ones((1, 1, 256, 128))
bias = jnp.zeros((1, 1, 8, 256)).at[..., :128].set(-jnp.inf)
with pltpu.force_tpu_interpret_mode():
    in_one = flash_attention(q, kv, kv, bias, block_sizes=BlockSizes(8, 256, 256, 1))
    in_two = flash_attention(q, kv, kv, bias, block_sizes=BlockSizes(8, 128, 128, 1))
print("JAX", jax.__version__, "gives", in_one[0, 0, 0, 0], "in one block of keys and", in_two[0, 0, 0, 0], "in two")
raise SystemExit(int(not (in_two == in_one).all()))
