"""Broken TPU kernels are found on the CPU, their right twins are not accused, and messages name places."""


import pytest

import kerneltest as kt
from kerneltest.api import Result, pairing_id
from kerneltest.plan.cases import value_cases
from tests.tpu_bugs import COLUMNS, TWINS

BACKEND = "interpret-tpu"


def one_case(name: str, broken: bool, backend: str = BACKEND) -> Result:
    twins = TWINS[name]
    pairing = kt.oracle_for(
        twins.make(broken),
        x=kt.array("m n", twins.dtype),
        dims={"m": kt.dim(values=[twins.rows]), "n": kt.dim(values=[COLUMNS])},
    )(lambda x: twins.oracle(x))
    first = next(value_cases(pairing, pairing_id(pairing), twins.dtype, "structural", 0, "quick"))
    return kt.check(pairing, backends=[backend], depth="quick", case=first.id)


@pytest.mark.parametrize("name", TWINS)
def test_the_right_twin_is_not_accused(name: str) -> None:
    result = one_case(name, False)
    assert result.ok, [f"{f.verdict}: {f.message}" for f in result.findings] or result.records


@pytest.mark.parametrize("name", TWINS)
def test_the_broken_twin_is_found(name: str) -> None:
    twins = TWINS[name]
    (finding,) = one_case(name, True).findings
    assert (finding.verdict, twins.words in finding.message) == (twins.verdict, True), finding.message
    print(finding.message)
