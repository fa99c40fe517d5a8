"""A user's file with every kind of argument, option and registration. It is type-checked, and never imported."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

import kerneltest as kt

Array = npt.NDArray[Any]


@kt.family(group="numeric", applies=lambda slot: slot.role == "data", each=True)
def sevens(slot: kt.Slot, rng: np.random.Generator) -> Array:
    """Sevens."""
    return slot.cast(np.full(slot.shape, 7.0))


@kt.invariant(applies=lambda pairing, signature: "x" in pairing.leaves and dict(signature.dims)["n"] > 1)
def called_again(context: kt.CaseContext) -> Iterator[kt.Variation]:
    """Called again, the kernel gives the same."""
    shares = (
        kt.OutputCheck("called again", context.by_oracle()),
        kt.OutputCheck("as before", context.as_plain_call()),
        kt.OutputCheck("not below zero", lambda outputs, precision: kt.ExpectedOutputs(outputs, outputs)),
    )
    yield kt.Variation(context.traced, context.leaves, shares)


@dataclass(frozen=True)
class Absolute:
    """A tolerance model of one's own."""

    limit: float

    def misfit(self, leaves: Mapping[str, Any], dims: Mapping[str, Any]) -> str:
        return "" if self.limit > 0 else "absolute(0) allows nothing"

    def bounds(self, measured: kt.Measured) -> tuple[kt.Bound, ...]:
        return tuple(kt.Bound(np.full(value.shape, self.limit)) for value in measured.values)


class Zeros:
    """An executable of one's own."""

    precision = kt.Precision("zeros", {"exp": kt.Ulps(0.5)}, flushes=True)

    def __init__(self, traced: kt.Traced) -> None:
        self.outputs = traced.outputs

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(np.zeros(output.shape, output.dtype) for output in self.outputs)


@kt.backend("zeros", in_all=False)
class ZerosBackend(kt.Backend):
    """A backend of one's own."""

    tier = kt.Tier.SIMULATE

    def unsupported_reason(self, traced: kt.Traced) -> str:
        return "" if traced.calls else "there is nothing to run"

    def prepare(self, traced: kt.Traced) -> kt.Executable:
        if not traced.outputs:
            raise kt.Failure(kt.Verdict.COMPILE_ERROR, "no outputs")
        return Zeros(traced)


kt.add_lowering_hint("cumlogsumexp", "a loop over blocks that carries the maximum and the sum")


def kernel(
    x: jax.Array, params: Any, keep: jax.Array, at: jax.Array, count: jax.Array, scale: jax.Array, n: int, mode: str,
    how: Any, dims: jax.Array,
) -> jax.Array:  # fmt: skip
    return x


@kt.oracle_for(
    kernel,
    x=kt.array("m 3 n", ("float32", "bfloat16"), domain=(-1.0, 1.0)),
    params=kt.tree({"w": kt.array("n"), "b": [kt.scalar("float32"), kt.array("n", kt.DEFAULT_INTEGERS)]}),
    keep=kt.mask("m n"),
    at=kt.indices("q", into="n"),
    count=kt.lengths("q", up_to="n", dtype="int8"),
    scale=kt.scalar(kt.DEFAULT_FLOATS, domain=(0, 1)),
    n=kt.dim_size("n"),
    mode=kt.static("one", "two"),
    how=kt.static(none=None, relu=jax.nn.relu),
    arguments={"dims": kt.array("m")},
    dims={"m": kt.dim(block=8, multiple_of=2, maximum=64), "n": kt.dim(values=[3, 5], minimum=0)},
    tolerance=Absolute(1.0),
    xfail=[kt.xfail("mismatch", reason="known", url="https://example.org", backend="cuda", signature="*mode=two*")],
    rejects=[kt.rejects("third_mode", mode="three", raises=ValueError, match="mode", dims={"m": 3})],
    signed_zeros=True,
    all_masked="zeros",
    batch_dims="m",
    invariant_to=("mode", "grid"),
    grad=True,
)
def oracle(
    x: Array, params: Any, keep: Array, at: Array, count: Array, scale: Array, n: int, mode: str, how: str, dims: Array
) -> Array:
    return x


pairing: kt.Pairing = oracle
models: list[kt.Tolerance] = [
    kt.tolerance.exact(),
    kt.tolerance.conditioned(4.0, over="n", compute="input", samples=2),
    kt.tolerance.dot("k", accumulate="bfloat16", slope=2.0, output="m n", precision="mode"),
    kt.tolerance.reduction("n", accumulate="input"),
    kt.tolerance.ulp(2, compute="float32"),
    kt.tolerance.reference(np.exp, factor=3.0),
    Absolute(2.0),
]


def conforms(case: kt.ExplicitCase) -> str:
    """What a script does with a pairing."""
    kt.assert_conforms(pairing, case, backends=["interpret"])
    result: kt.Result = kt.check(pairing, backends=["interpret"], depth="quick", seed=1, case="", orders=2)
    assert result.ok
    finding: kt.Finding = result.findings[0]
    wrong: Array = finding.arguments["x"]
    return f"{finding.verdict.meaning}: {finding.message}, {wrong.shape}, {kt.check_addresses(pairing, n=2**31)}"
