"""Which pairings that `kerneltest init` writes pass with nothing but an oracle filled in: `python benchmarks/init.py`.

It takes some twenty minutes. Parts of kernels' names as arguments select some.
"""

import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import kerneltest as kt
from kerneltest.start.declaration import infer_declaration
from kerneltest.start.example_calls import example_from_text, import_kernel

OPS = "jax.experimental.pallas.ops"


@dataclass(frozen=True, slots=True)
class Pairable:
    """A kernel to be paired.

    Attributes:
      kernel: as `MODULE:FUNCTION`.
      call: an example, in which `f` is the kernel.
      oracle: the lines of its oracle.
    """

    kernel: str
    call: str
    oracle: str


_ATTENTION = """
maximum = scores.max(axis=-1, keepdims=True)
e = np.exp(scores - np.where(maximum == -np.inf, 0, maximum))
total = e.sum(axis=-1, keepdims=True)
weights = e / np.where(total == 0, 1, total)
"""
_NORMAL = """
centred = x - x.mean(axis=-1, keepdims=True)
return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + {epsilon}) * weight + bias
"""

OF_THE_SUITES = (
    Pairable("kernels.vector_add:vector_add_blocked", "f(jnp.ones(300), jnp.ones(300))", "return x + y"),
    Pairable(
        "kernels.softmax:softmax_tiled",
        "f(jnp.ones((8, 128)))",
        """
maximum = x.max(axis=-1, keepdims=True)
e = np.exp(x - np.where(maximum == -np.inf, 0, maximum))
total = e.sum(axis=-1, keepdims=True)
return e / np.where(total == 0, 1, total)
""",
    ),
    Pairable(
        "kernels.rms_norm:rms_norm",
        "f(jnp.ones((8, 128)), jnp.ones(128))",
        "return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 2.0**-10) * w",
    ),
    Pairable("kernels.matmul:matmul", "f(jnp.ones((96, 64)), jnp.ones((64, 256)))", "return x @ y"),
    Pairable(
        "kernels.swiglu:swiglu",
        "f(jnp.ones((8, 64)), jnp.ones((64, 128)), jnp.ones((64, 128)))",
        "a = x @ w1\nreturn a / (1 + np.exp(-a)) * (x @ w2)",
    ),
    Pairable(
        "kernels.attention:causal_attention_online",
        "f(jnp.ones((1, 2, 64, 32)), jnp.ones((1, 2, 128, 32)), jnp.ones((1, 2, 128, 32)))",
        f"""
(sq, d), sk = q.shape[-2:], k.shape[-2]
scores = np.einsum("...qd,...kd->...qk", q, k) / np.sqrt(d)
scores = np.where(np.arange(sk) <= np.arange(sq)[:, None] + (sk - sq), scores, -np.inf)
{_ATTENTION}
return np.einsum("...qk,...kd->...qd", weights, v)
""",
    ),
)

OF_JAX = (
    Pairable(
        f"{OPS}.gpu.softmax:softmax",
        "f(jnp.ones((8, 128)))",
        "e = np.exp(x - x.max(axis=-1, keepdims=True))\nreturn e / e.sum(axis=-1, keepdims=True)",
    ),
    Pairable(
        f"{OPS}.gpu.layer_norm:layer_norm",
        "f(jnp.ones((4, 8, 128)), jnp.ones(128), jnp.ones(128))",
        _NORMAL.format(epsilon=1e-5),
    ),
    Pairable(
        f"{OPS}.gpu.rms_norm:rms_norm",
        "f(jnp.ones((4, 8, 128)), jnp.ones(128), jnp.ones(128))",
        "return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight + bias",
    ),
    Pairable(
        f"{OPS}.gpu.attention:mha",
        "f(jnp.ones((1, 64, 2, 16)), jnp.ones((1, 64, 2, 16)), jnp.ones((1, 64, 2, 16)), None)",
        """
scores = np.einsum("bqhd,bkhd->bhqk", q, k)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
weights = weights / weights.sum(axis=-1, keepdims=True)
return np.einsum("bhqk,bkhd->bqhd", weights, v)
""",
    ),
    Pairable(
        f"{OPS}.gpu.decode_attention:mqa",
        "f(jnp.ones((2, 8, 16)), jnp.ones((2, 256, 16)), jnp.ones((2, 256, 16)))",
        f"""
scores = np.einsum("bhd,bkd->bhk", q, k) / np.sqrt(q.shape[-1])
{_ATTENTION}
return np.einsum("bhk,bkd->bhd", weights, v)
""",
    ),
    Pairable(f"{OPS}.tpu.example_kernel:double", "f(jnp.ones((8, 128)))", "return 2 * x"),
)


def filled(
    pairable: Pairable, depth: str = "quick", backends: Sequence[str] = ("interpret", "interpret-tpu", "simulate:sm_90")
) -> kt.Result:
    """What comes of a kernel's pairing as it is written, with nothing but its oracle filled in."""
    kernel = import_kernel(pairable.kernel)
    made = infer_declaration(kernel, [example_from_text(kernel, pairable.call)])
    body = textwrap.indent(pairable.oracle.strip(), "    ")
    source = re.sub(r"    raise NotImplementedError\(.*\)\n", lambda _: f"{body}\n", made.source())
    names: dict[str, object] = {"__name__": f"test_{kernel.name}"}
    exec(compile(f"import numpy as np\n{source}", f"test_{kernel.name}.py", "exec"), names)
    pairing = names[made.oracle]
    assert isinstance(pairing, kt.Pairing)
    return kt.check(pairing, backends=backends, depth=depth)


def main(wanted: Sequence[str]) -> None:
    print("| kernel | cases | |\n| --- | --- | --- |")
    for each in (*OF_THE_SUITES, *OF_JAX):
        if not wanted or any(word in each.kernel for word in wanted):
            result = filled(each)
            told = dict.fromkeys(f"{finding.verdict} on {finding.backend}" for finding in result.findings)
            print(f"| `{each.kernel}` | {result.cases} | {', '.join(told) or 'passes'} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
