"""Samples of an oracle are shared by machines that round them alike, and only by those."""

from collections.abc import Callable

import numpy as np
import pytest

from kerneltest.core.dtypes import Array, FloatFormat, float_format, parse_dtype
from kerneltest.core.precision import AMD, FLOAT32, NVIDIA, SIMULATED, TPU, XLA_CPU
from kerneltest.numerics.bounds import OracleCase
from kerneltest.numerics.rounding_bounds import OracleSamples

BFLOAT16 = float_format(parse_dtype("bfloat16"))
MACHINES = (XLA_CPU, SIMULATED, NVIDIA, AMD, TPU)
TINY = 1e-38  # times a normal number: some are subnormal

# The oracle, the scale and format of its argument, and which machines share the samples of the first and of the second.
ORACLES: dict[str, tuple[Callable[[Array], Array], float, FloatFormat, str, str]] = {
    "sums": (lambda x: x + 1, 1.0, FLOAT32, "simulated NVIDIA AMD TPU", "NVIDIA AMD"),
    "subnormal sums": (lambda x: x + x, TINY, FLOAT32, "TPU", "NVIDIA AMD"),
    "functions": (np.exp, 1.0, FLOAT32, "", ""),
    "quotients": (lambda x: x / (x + 3), 1.0, FLOAT32, "", "AMD"),
    "products": (lambda x: x @ x, 1.0, FLOAT32, "", "NVIDIA"),
    "narrow products": (lambda x: x @ x, 1.0, BFLOAT16, "simulated AMD TPU", "AMD"),
    "scaled narrow products": (lambda x: 0.3 * (x @ x), 1.0, BFLOAT16, "", ""),
}


def samples_of(name: str) -> OracleSamples:
    oracle, scale, fmt, *_ = ORACLES[name]
    x = np.random.Generator(np.random.PCG64(1)).normal(size=(8, 8)).astype(parse_dtype("bfloat16")).astype(np.float64)
    leaves = {"x": x * np.float64(np.float32(scale))}
    values = (np.asarray(oracle(leaves["x"])),)
    case = OracleCase(lambda given: values, leaves, values, {"x": fmt}, lambda given: (oracle(given["x"]),), oracle)
    return OracleSamples(case, FLOAT32, exact_dots=False)


@pytest.mark.parametrize("name", ORACLES)
def test_shared_samples_are_those_that_a_machine_would_make(name: str) -> None:
    for first, sharing in zip(MACHINES, ORACLES[name][3:], strict=False):
        found = []
        for second in MACHINES:
            samples = samples_of(name)
            before, after, own = samples.at(first), samples.at(second), samples_of(name).at(second)
            assert after.spreads[0].deviation.tobytes() == own.spreads[0].deviation.tobytes()
            assert after.sources == own.sources
            found += [second.name.split()[0].strip(",")] if after is before and second is not first else []
        assert " ".join(found) == sharing
