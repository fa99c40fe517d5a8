"""Kernels of `kernels/` broken by hand: each an edit of the source, the pairing it breaks and where it must show."""

import types
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from kerneltest import Pairing

KERNELS = Path(__file__).parent.parent / "kernels"


class Edited:
    """A kernel of a pairing, with edits: what it takes from `pairing` (as `suite.name`), `function` and `edits`."""

    __slots__ = ()
    pairing: str
    function: str
    edits: tuple[tuple[str, str], ...]

    @property
    def family(self) -> str:
        return self.pairing.partition(".")[0]

    def twin(self) -> Pairing:
        """The pairing with the kernel as it should be."""
        suite, _, name = self.pairing.partition(".")
        found = getattr(import_module(f"suites.test_{suite}"), name)
        assert isinstance(found, Pairing)
        return found

    def broken(self) -> Pairing:
        """The pairing with the broken kernel in the right one's place."""
        return replace(self.twin(), kernel=getattr(edited(self.family, self.edits), self.function))


@dataclass(frozen=True, slots=True)
class Broken(Edited):
    """One bug: what it must be called at least once, and words that at least one finding's message must hold."""

    name: str
    pairing: str
    function: str
    edits: tuple[tuple[str, str], ...]
    verdict: str
    where: str


def edited(module: str, edits: tuple[tuple[str, str], ...]) -> types.ModuleType:
    """A kernel module with edits; an edit whose text does not occur just once is an error."""
    path = KERNELS / f"{module}.py"
    source = path.read_text(encoding="utf-8")
    for old, new in edits:
        if source.count(old) != 1:
            raise ValueError(f"{path.name}: {old!r} occurs {source.count(old)} times")
        source = source.replace(old, new)
    made = types.ModuleType(f"broken_{module}")
    exec(compile(source, str(path), "exec"), made.__dict__)
    return made


_ACCUMULATE_IN_INPUT_DTYPE = (
    ("preferred_element_type=jnp.float32", "preferred_element_type=x.dtype"),
    ("zeros = jnp.zeros((block_m, block_n), jnp.float32)", "zeros = jnp.zeros((block_m, block_n), x_ref.dtype)"),
)

BROKEN = (
    Broken(
        "the second operand always comes from the first block",
        "vector_add.blocked",
        "vector_add_blocked",
        (("y_ref.at[at]", "y_ref.at[pl.ds(pl.program_id(0) * 0, block)]"),),
        "mismatch",
        "block n=1",
    ),
    Broken(
        "the mask drops the last element",
        "vector_add.blocked",
        "vector_add_blocked",
        (("jnp.arange(block) < length", "jnp.arange(block) < length - 1"),),
        "special_mismatch",
        "only past the last full block of n",
    ),
    Broken(
        "the grid lacks the tail",
        "vector_add.blocked",
        "vector_add_blocked",
        (("grid=(pl.cdiv(length, block),)", "grid=(max(length // block, 1),)"),),
        "special_mismatch",
        "only past the last full block of n (from 128 on)",
    ),
    Broken(
        "every block counts from the next block's start",
        "iota.blocked",
        "iota_blocked",
        (
            (
                "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index,",
                "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index + block,",
            ),
        ),
        "mismatch",
        "holds what belongs 1 block of n further on",
    ),
    Broken(
        "the mask drops the last element",
        "iota.blocked",
        "iota_blocked",
        (("mask=index < length", "mask=index < length - 1"),),
        "mismatch",
        "only past the last full block of n",
    ),
    Broken(
        "the grid lacks the last program",
        "iota.grid",
        "iota_grid",
        (
            (
                "grid=(n,),\n        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),\n        compiler_params=plgpu",
                "grid=(max(n - 1, 1),),\n        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),\n"
                "        compiler_params=plgpu",
            ),
        ),
        "mismatch",
        "1 of",
    ),
    Broken(
        "the last step of k is skipped",
        "matmul.tiled",
        "matmul",
        (("fori_loop(0, pl.cdiv(k, block_k), step", "fori_loop(0, k // block_k, step"),),
        "mismatch",
        "every element",
    ),
    Broken(
        "sums are accumulated in the input's dtype",
        "matmul.tiled",
        "matmul",
        _ACCUMULATE_IN_INPUT_DTYPE,
        "mismatch",
        "bfloat16",
    ),
    Broken(
        "the tail of k is not masked in y",
        "matmul.tiled",
        "matmul",
        (("mask=depth_inside[:, None] & column_inside[None, :]", "mask=column_inside[None, :]"),),
        "special_mismatch",
        "expected",
    ),
    Broken(
        "the columns' index map always gives the first block",
        "matmul.two_by_two",
        "matmul_2x2",
        (("lambda i, j: (0, j)", "lambda i, j: (0, 0)"),),
        "mismatch",
        "worst at",
    ),
    Broken(
        "every matrix is multiplied by the first right one",
        "batched_matmul.one_axis",
        "batched_matmul",
        (("return product(x, y)", "return product(x, y[:1].repeat(y.shape[0], 0))"),),
        "mismatch",
        "worst at [",
    ),
    Broken(
        "the batch comes out reversed",
        "batched_matmul.two_axes",
        "batched_matmul",
        (("return product(x, y)", "return product(x, y)[::-1]"),),
        "mismatch",
        "worst at [",
    ),
    Broken(
        "the last element of k is dropped",
        "batched_matmul.left_only",
        "batched_matmul",
        (("return product(x, y)", "return product(x[..., :-1], y[..., :-1, :])"),),
        "mismatch",
        "every element",
    ),
    Broken(
        "the tail of a row counts as zeros",
        "softmax.fused",
        "softmax_fused",
        (
            (
                "at = (row, pl.ds(tile * block, block))\n"
                "    x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)\n    e = ",
                "at = (row, pl.ds(tile * block, block))\n"
                "    x = plgpu.load(x_ref.at[at], mask=inside, other=0.0).astype(jnp.float32)\n    e = ",
            ),
        ),
        "mismatch",
        "every element",
    ),
    Broken(
        "fully masked tiles are not guarded",
        "softmax.tiled",
        "softmax_tiled",
        (("return jnp.where(is_finite(maximum), maximum, jnp.maximum(maximum, 0.0))", "return maximum"),),
        "special_mismatch",
        "got nan, expected 0",
    ),
    Broken(
        "the maximum starts from 0 instead of -inf",
        "softmax.tiled",
        "softmax_tiled",
        (("    maximum = jnp.max(x)\n", "    maximum = jnp.maximum(jnp.max(x), 0.0)\n"),),
        "mismatch",
        "far_below_zero",
    ),
    Broken(
        "exponentials are computed and summed in the input's dtype",
        "softmax.fused",
        "softmax_fused",
        (
            (
                "x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)\n    e = ",
                "x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf)\n    e = ",
            ),
        ),
        "mismatch",
        "float16",
    ),
    Broken(
        "the mean is over the padded row",
        "rms_norm.normalised",
        "rms_norm",
        (
            (
                "    return jax.lax.rsqrt(jnp.sum(x * x) / columns + EPSILON)",
                "    return jax.lax.rsqrt(jnp.mean(x * x) + EPSILON)",
            ),
        ),
        "mismatch",
        "every element",
    ),
    Broken(
        "the gradient lacks the mean's part",
        "rms_norm.normalised",
        "rms_norm",
        (("scale * (w * g - y * mean)", "scale * w * g"),),
        "mismatch",
        "the gradient: by x",
    ),
    Broken(
        "the tail of w is not masked",
        "rms_norm.normalised",
        "rms_norm",
        (
            (
                "x, w = _load(x_ref, row, inside), _load(w_ref, at, inside)\n    plgpu",
                "x, w = _load(x_ref, row, inside), w_ref[at].astype(jnp.float32)\n    plgpu",
            ),
            ("w).astype(o_ref.dtype), mask=inside)", "w + 0 * jnp.sum(w)).astype(o_ref.dtype), mask=inside)"),
        ),
        "special_mismatch",
        "expected",
    ),
)

# Tried on a Hopper GPU, where every staging takes seconds.
BROKEN_PIPELINES = (
    Broken(
        "the output's index map is transposed",
        "pipeline_copy.copy",
        "pipeline_copy",
        (("_copied(x, lambda i, j: (i, j), x.shape, block,", "_copied(x, lambda i, j: (j, i), x.shape, block,"),),
        "mismatch",
        "m",
    ),
    Broken(
        "the input's index map is one block off",
        "pipeline_copy.copy",
        "pipeline_copy",
        (
            (
                "BlockSpec(block, lambda i, j: (i, j), delay",
                "BlockSpec(block, lambda i, j: (i, (j + 1) % grid[1]), delay",
            ),
        ),
        "mismatch",
        "n",
    ),
    Broken(
        "one column of blocks is never read",
        "pipeline_copy.copy",
        "pipeline_copy",
        (("BlockSpec(block, lambda i, j: (i, j), delay", "BlockSpec(block, lambda i, j: (i, j * 0), delay"),),
        "mismatch",
        "block",
    ),
)
