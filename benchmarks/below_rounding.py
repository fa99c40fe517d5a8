"""Counts the bugs that are smaller than the rounding of a kernel's dtype and that kerneltest finds or remarks on.

    python -m benchmarks.below_rounding [--jobs N] [--only TEXT]

Twenty bugs, each in every float dtype of its pairing, on `interpret` at `quick`. Beside the findings of a whole run
stand those that need no question about the formula: what is left when only the rounding is judged. A formula that is
less than four ulps of float32 off is a remark and no finding. Exits with 1 if a bug is neither.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from unittest import mock

import jax

import kerneltest as kt
from benchmarks.side_by_side import run_side_by_side
from kerneltest.execute.formula import Formula
from kerneltest.records.schema import FormulaAnswer
from tests.broken import Edited


@dataclass(frozen=True, slots=True)
class SmallBug(Edited):
    """A bug below rounding.

    Attributes:
      name: the bug, in words.
      pairing, function, edits: as `Edited` takes them.
    """

    name: str
    pairing: str
    function: str
    edits: tuple[tuple[str, str], ...]


_ONLINE = "attention.online", "causal_attention_online"
_ONE_BLOCK = "attention.one_block", "causal_attention"
_FUSED = "softmax.fused", "softmax_fused"
_LAYER_NORM = "layer_norm.normalised", "layer_norm"
_ENTROPY = "cross_entropy.tiled", "cross_entropy_tiled"
_MATMUL = "matmul.tiled", "matmul"
_ROTARY = "rotary.rotated", "rotary"

_EXP = "e = jnp.exp(x - _shift(jnp.max(x), finite))\n    plgpu.store(o_ref.at[at], _divide(e, jnp.sum(e))"
_EXP2 = "e = jnp.exp2((x - _shift(jnp.max(x), finite)) * 1.4427)\n    plgpu.store(o_ref.at[at], _divide(e, jnp.sum(e))"
_ROOT = "scale = jax.lax.rsqrt(jnp.sum(centred * centred) / columns + EPSILON)"
_LOSS = "o_ref[row] = jnp.log(total) - (at_label - _shift(maximum))"
_WEIGHTS = "e = jnp.exp(scores - _shift(jnp.max(scores, axis=1))[:, None])\n    weights"
_SEEN = "jnp.isfinite(jnp.max(scores, axis=1))[:, None] & (jnp.arange(scores.shape[1]) < sk)[None, :]"
_ZEROS = "zeros = jnp.zeros((block_m, block_n), jnp.float32)\n    result"

BUGS = (
    SmallBug("1/sqrt(d) to four digits", *_ONLINE, (("(1 / math.sqrt(d))", "round(1 / math.sqrt(d), 4)"),)),
    SmallBug("1e-7 in the total", *_ONLINE, (("_divide(accumulator, total)", "_divide(accumulator, total + 1e-7)"),)),
    SmallBug(
        "a rescale 2^-22 off",
        *_ONLINE,
        (("rescale = jnp.exp(maximum - shift)", "rescale = jnp.exp(maximum - shift) * (1 - 2.0**-22)"),),
    ),
    SmallBug("log2(e) to five digits", *_FUSED, ((_EXP, _EXP2),)),
    SmallBug(
        "1e-8 in the total",
        *_FUSED,
        (("_divide(e, jnp.sum(e)).astype(o_ref.dtype)", "_divide(e, jnp.sum(e) + 1e-8).astype(o_ref.dtype)"),),
    ),
    SmallBug("epsilon 1.01e-5 for 1e-5", *_LAYER_NORM, (("EPSILON = 1e-5", "EPSILON = 1.01e-5"),)),
    SmallBug("epsilon 1e-6 for 1e-5", *_LAYER_NORM, (("EPSILON = 1e-5", "EPSILON = 1e-6"),)),
    SmallBug(
        "epsilon outside of the root",
        *_LAYER_NORM,
        ((_ROOT, "scale = 1 / (jnp.sqrt(jnp.sum(centred * centred) / columns) + EPSILON)"),),
    ),
    SmallBug(
        "epsilon 1% off", "rms_norm.normalised", "rms_norm", (("EPSILON = 2.0**-10", "EPSILON = 2.0**-10 * 1.01"),)
    ),
    SmallBug("base 10001 for 10000", *_ROTARY, (("BLOCK, BASE = 32, 10000.0", "BLOCK, BASE = 32, 10001.0"),)),
    SmallBug(
        "an exponent to five digits", *_ROTARY, (("(-2 * math.log(base) / d)", "round(-2 * math.log(base) / d, 5)"),)
    ),
    SmallBug("1e-7 in the total", *_ENTROPY, ((_LOSS, _LOSS.replace("log(total)", "log(total + 1e-7)")),)),
    SmallBug(
        "label smoothing of 1e-7",
        *_ENTROPY,
        ((_LOSS, "o_ref[row] = (1 - 1e-7) * (jnp.log(total) - (at_label - _shift(maximum)))"),),
    ),
    SmallBug(
        "1.00001 + exp(-x)",
        "swiglu.gate",
        "swiglu_gate",
        (("x / (1.0 + jnp.exp(-x))", "x / (1.00001 + jnp.exp(-x))"),),
    ),
    SmallBug(
        "a carry that decays by 2^-24",
        "cumulative_sum.sums",
        "cumulative_sum",
        (("return carry + jnp.sum(x)", "return carry * (1 - 2.0**-24) + jnp.sum(x)"),),
    ),
    SmallBug(
        "one term 2^-26 too large",
        "vector_add.blocked",
        "vector_add_blocked",
        (
            (
                "x + y, mask=inside",
                "(x.astype(jnp.float32) * (1 + 2.0**-26) + y.astype(jnp.float32)).astype(x.dtype), mask=inside",
            ),
        ),
    ),
    SmallBug(
        "an accumulator that loses 2^-20 a step",
        *_MATMUL,
        (
            (
                "return accumulator + _dot(x, y, precision)",
                "return accumulator * (1 - 2.0**-20) + _dot(x, y, precision)",
            ),
        ),
    ),
    SmallBug(
        "a bias of 1e-9",
        *_MATMUL,
        ((_ZEROS, _ZEROS.replace("zeros((block_m, block_n)", "full((block_m, block_n), 1e-9")),),
    ),
    SmallBug(
        "a product 2^-23 too large",
        *_ONE_BLOCK,
        (
            (
                "_dot(weights.astype(v.dtype), v, precision)",
                "_dot(weights.astype(v.dtype), v, precision) * (1 + 2.0**-23)",
            ),
        ),
    ),
    SmallBug(
        "masked columns attended by 1e-8",
        *_ONE_BLOCK,
        ((_WEIGHTS, _WEIGHTS.replace("\n", f" + jnp.where({_SEEN}, 1e-8, 0.0)\n", 1)),),
    ),
)


def found_dtypes(bug: SmallBug, asks_formula: bool) -> tuple[dict[str, str], dict[str, float], float]:
    """Returns the cause that a first finding states and the ulps of remarks, both by dtype, and the seconds."""
    without = mock.patch.object(Formula, "ask", return_value=(FormulaAnswer(), ()))
    started = time.perf_counter()
    with nullcontext() if asks_formula else without:
        result = kt.check(bug.broken(), backends=("interpret",), depth="quick")
    causes: dict[str, str] = {}
    for finding in result.findings:
        cause = getattr(finding.record.detail, "cause", None)
        causes.setdefault(finding.record.dtype, cause.what if cause is not None else "unknown")
    ulps: dict[str, float] = {}
    for record in result.records:
        if record.formula is not None and record.formula.ulps:
            ulps[record.dtype] = max(ulps.get(record.dtype, 0.0), record.formula.ulps)
    return causes, ulps, time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class Answer:
    """The findings for one bug, by dtype.

    Attributes:
      dtypes: the float dtypes of its pairing.
      causes: the cause that the first finding states, by dtype.
      ulps: the ulps of float32 by which a remark says that the formula is off, by dtype.
      alone: the dtypes in which it is found if only the rounding is judged.
      seconds: of the whole run.
    """

    dtypes: tuple[str, ...]
    causes: dict[str, str]
    ulps: dict[str, float]
    alone: frozenset[str]
    seconds: float


def find(number: int) -> Answer:
    """Runs a bug with both questions, and with the rounding alone."""
    bug = BUGS[number]
    dtypes = tuple(name for name in ("float32", "bfloat16", "float16") if name in _float_dtypes(bug))
    rounding, _, _ = found_dtypes(bug, asks_formula=False)
    causes, ulps, seconds = found_dtypes(bug, asks_formula=True)
    return Answer(dtypes, causes, ulps, frozenset(rounding), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of a bug's or a pairing's name")
    parser.add_argument("--jobs", type=int, default=1, help="bugs side by side, each in a process of its own")
    options = parser.parse_args()
    chosen = [number for number, bug in enumerate(BUGS) if options.only in f"{bug.pairing} {bug.name}"]
    cells = found = alone = formula = remarked = 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for number, answer in run_side_by_side(pool, find, chosen):
            bug = BUGS[number]
            cells += len(answer.dtypes)
            alone += sum(name in answer.alone for name in answer.dtypes)
            found += sum(name in answer.causes for name in answer.dtypes)
            formula += sum(answer.causes.get(name) == "formula" for name in answer.dtypes)
            small = {name: f"{ulps:.2g} ulps" for name, ulps in answer.ulps.items()}
            remarked += sum(name in small and name not in answer.causes for name in answer.dtypes)
            told = ", ".join(f"{name} {answer.causes.get(name, small.get(name, 'MISSED'))}" for name in answer.dtypes)
            print(f"{bug.pairing}: {bug.name}: {told} ({answer.seconds:.0f} s)", flush=True)
    print(
        f"JAX {jax.__version__}: {found} of {cells} found, {formula} called a wrong formula; {alone} by rounding alone"
        f"; {remarked} remarked on"
    )
    sys.exit(found + remarked != cells)


def _float_dtypes(bug: SmallBug) -> set[str]:
    return {name for leaf in bug.twin().leaves.values() for name in map(str, leaf.dtypes)}


if __name__ == "__main__":
    main()
