"""The numbers of the second worked example of tolerances.md: `PYTHONPATH=$PWD python docs/worked_tolerance.py`."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.precision import FLOAT32, NVIDIA, XLA_CPU, Precision
from kerneltest.numerics.rounding_bounds import SAMPLE_ROWS
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import sample_outputs, spread_of
from kerneltest.oracle.evaluation import expect
from kerneltest.plan.signatures import Signature
from kerneltest.trace.runnable import runnable
from kerneltest.trace.tracing import trace
from suites.test_attention import one_block

LENGTH, D = 3, 16
AT = (0, 2, 0)  # the first number of the last query, which sees all three keys
SIGNATURE = Signature(
    (("b", 1), ("sq", LENGTH), ("sk", LENGTH), ("d", D)),
    tuple((name, "float32") for name in "qkv"),
    (("precision", "None"),),
    "float32",
)
RNG = np.random.default_rng(0)
CASE = {name: RNG.standard_normal((1, LENGTH, D)).astype(np.float32) for name in "qkv"}
EXPECTED = expect(one_block, SIGNATURE, CASE, (ShapeDtype(CASE["q"].shape, np.dtype(np.float32)),), bitwise=False)


def in_float32(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights and results of the oracle's formula, in the dtype of its arguments."""
    scores = np.einsum("...qd,...kd->...qk", q, k) / np.sqrt(q.dtype.type(D))
    e = np.exp(np.where(np.tri(LENGTH, dtype=bool), scores - scores.max(-1, keepdims=True), -np.inf))
    weights = e / e.sum(-1, keepdims=True)
    return weights, np.einsum("...qk,...kd->...qd", weights, v)


def oracle() -> Iterator[str]:
    """How the element comes about, in float64."""
    weights, _ = in_float32(*(each.astype(np.float64) for each in CASE.values()))
    parts = (f"{w:.4f} * {v:.4f}" for w, v in zip(weights[0, 2], CASE["v"][0, :, 0], strict=True))
    yield f"{' + '.join(parts).replace('+ -', '- ')} = {EXPECTED.values[0][AT]:.10f}"


def bound(precision: Precision) -> Iterator[str]:
    """How its bound comes about on a backend."""
    (rounded,) = EXPECTED.bounds
    case, f = rounded.samples.case, EXPECTED.values[0]
    samples = sample_outputs(case.watched, case.leaves, case.formats, RoundingModel(precision, FLOAT32, SAMPLE_ROWS))[0]
    off = (samples[1:] - samples[0])[(slice(None), *AT)]
    unit = 10.0 ** np.floor(np.log10(np.abs(off).max()))
    yield f"samples less the oracle, in units of {unit:.0e}:"
    for half in np.split(off, 2):
        yield "   " + " ".join(f"{each / unit:6.2f}" for each in half)
    s, u = spread_of(samples).deviation, FLOAT32.unit_roundoff
    m = np.median((s / np.abs(f))[s > 0])
    yield f"their root mean square      s           {s[AT]:.3e}"
    yield f"a quarter of the median     m |f| / 4   {m * abs(f[AT]) / 4:.3e}"
    yield f"7 times the larger of both              {7 * max(s[AT], m * abs(f[AT]) / 4):.3e}"
    yield f"two roundings of f          2 u |f|     {2 * u * abs(f[AT]):.3e}"
    yield f"the result's own rounding   ulp / 2     {FLOAT32.ulp(f)[AT] / 2:.3e}"
    yield f"bound                                   {EXPECTED.bound(0, np.dtype(np.float32), precision)[AT]:.3e}"


def shares(precision: Precision) -> Iterator[str]:
    """What makes it, the largest parts first."""
    for share in EXPECTED.bounds[0].shares(precision):
        if share.part >= 0.01:
            yield f"{share.part:4.0%}  {share.source.kind} of {share.source.origin}"


def machines() -> dict[str, list[float]]:
    """The largest error / bound of all elements as machines compute them, by the bounds of XLA's CPU and of NVIDIA."""
    (kernel,) = runnable(trace(one_block, SIGNATURE), interpret=True)(*CASE.values())
    coarse = (each.astype(ml_dtypes.bfloat16).astype(np.float32) for each in CASE.values())
    outputs = {
        "NumPy in float32": in_float32(*CASE.values())[1],
        "the kernel, by `interpret`": np.asarray(kernel),
        "NumPy in float32, `q`, `k` and `v` rounded to bfloat16": in_float32(*coarse)[1],
    }
    bounds = [EXPECTED.bound(0, np.dtype(np.float32), row) for row in (XLA_CPU, NVIDIA)]
    errors = {name: np.abs(output.astype(np.float64) - EXPECTED.values[0]) for name, output in outputs.items()}
    return {name: [float((error / each).max()) for each in bounds] for name, error in errors.items()}


if __name__ == "__main__":
    print(*oracle(), "", sep="\n")
    for row in (XLA_CPU, NVIDIA):
        print(row.name, *bound(row), "", *shares(row), "", sep="\n")
    for name, used in machines().items():
        print(f"| {name} | {' | '.join(f'{each:.1g}' for each in used)} |")
