"""A user's class in a conftest.py is a backend like any other."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import kerneltest as kt
from kerneltest.backends import device
from kerneltest.backends import registry as registry_module
from kerneltest.backends.base import Artifact
from kerneltest.backends.registry import REGISTRY, BackendEntry, resolve, select_ids, sort_ids
from kerneltest.core.precision import Precision
from kerneltest.core.targets import BACKEND_IDS
from kerneltest.records.record_files import read_plan, read_records
from kerneltest.trace.tracing import Traced
from tests import forked
from tests.plugins import PLUGINS
from tests.sample import double

ROOT = Path(__file__).parents[2]

CONFTEST = """
from dataclasses import dataclass

import numpy as np
import kerneltest as kt
from kerneltest.core.targets import BACKEND_IDS
from kerneltest.core.precision import Precision

@dataclass(frozen=True)
class Doubling:
    precision: Precision = Precision("mine", {})

    def run(self, leaves):
        (x,) = leaves
        if x.size == 5:
            raise kt.Failure(kt.Verdict.HANG, "five is too many")
        return (x + x,)

@kt.backend("my-id")
@dataclass(frozen=True)
class Mine(kt.Backend):
    tier = kt.Tier.DEVICE

    def unsupported_reason(self, traced):
        return "" if traced.dialects == {"triton"} else "only kernels for Triton"

    def prepare(self, traced):
        return Doubling()

    def environment(self):
        return {"driver": "seven"}
"""
SUITE = """
import kerneltest as kt
from kernels.vector_add import vector_add

def double(x):
    return vector_add(x, x)

@kt.oracle_for(double, x=kt.array("n", "int8"), dims=dict(n=kt.dim(values=(3, 5))), tolerance=kt.tolerance.exact())
def doubled(x):
    return 2 * x
"""


def _raise() -> Any:
    raise KeyError("no such device")


class _Doubling:
    precision = Precision("mine", {})

    def run(self, leaves: Any) -> Any:
        return [leaves[0] + leaves[0]]


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "prepare raises": (dict(prepare=lambda self, traced: _raise()), "backend faulty raised KeyError: 'no such device'"),
    "prepare gives nothing": (dict(prepare=lambda self, traced: None), "backend faulty raised AttributeError: 'None"),
    "run raises": (dict(run=lambda self, leaves: _raise()), "backend faulty raised KeyError: 'no such device' ("),
    "run exits": (dict(run=lambda self, leaves: sys.exit(3)), "backend faulty raised SystemExit: 3"),
    "run gives nothing": (dict(run=lambda self, leaves: None), "backend faulty raised TypeError: 'NoneType'"),
    "run gives another dtype": (
        dict(run=lambda self, leaves: [leaves[0].astype("int16") * 2]),
        "backend faulty returned int16[5], but the kernel's outputs are int8[5]",
    ),
    "run gives too many": (
        dict(run=lambda self, leaves: leaves * 2),
        "backend faulty returned int8[5], int8[5], but the kernel's outputs are int8[5]",
    ),
    "not supported raises": (
        dict(unsupported_reason=lambda self, traced: _raise()),
        "backend faulty raised KeyError: 'no such device' (",
    ),
}


def _faulty(methods: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> kt.Result:
    """The faulty method is called for the length 5 alone, where it is about a case."""

    class Sometimes(_Doubling):
        def run(self, leaves: Any) -> Any:
            return methods["run"](self, leaves) if len(leaves[0]) == 5 else super().run(leaves)

    class Faulty(kt.Backend):
        tier = kt.Tier.DEVICE

        def unavailable(self) -> str:
            return methods.get("unavailable", lambda: "")()

        def environment(self) -> dict[str, Any]:
            return _raise()

        def unsupported_reason(self, traced: Traced) -> str:
            wrong = methods.get("unsupported_reason")
            return wrong(self, traced) if wrong and traced.inputs[0].shape == (5,) else ""

        def prepare(self, traced: Traced) -> Any:
            if "prepare" in methods and traced.inputs[0].shape == (5,):
                return methods["prepare"](self, traced)
            return Sometimes() if "run" in methods else _Doubling()

    monkeypatch.setattr(registry_module, "REGISTRY", dict(registry_module.REGISTRY))
    kt.backend("faulty")(Faulty)
    pairing = kt.oracle_for(
        double, x=kt.array("n", "int8"), dims=dict(n=kt.dim(values=(5, 3))), tolerance=kt.tolerance.exact()
    )(lambda x: 2 * x)
    assert "no such device" in str(resolve(["faulty"])[0].environment())
    return kt.check(pairing, backends=["faulty"], depth="quick")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_a_fault_of_a_users_backend_costs_the_case_and_names_it(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    methods, message = FAULTS[fault]
    result = _faulty(methods, monkeypatch)
    of_five = [f for f in result.findings if f.signature == "n=5,int8" and f.family != "vmapped"]
    assert of_five
    assert all(f.verdict == "runtime_error" and f.message.startswith(message) for f in of_five), of_five[0].message
    assert [r.verdict for r in result.records if r.signature == "n=3,int8" and r.verdict != "pass"] == []


def test_a_users_backend_that_raises_when_it_is_asked_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _faulty(dict(unavailable=_raise), monkeypatch)
    assert result.unavailable == {
        "faulty": "backend faulty raised KeyError: 'no such device' when asked whether it is available"
    }
    assert not result.ok


def test_a_backend_of_a_conftest_is_selected_run_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    options = ("-p", "no:cacheprovider", "--kt-depth", "quick", "--kt-report", "out", "--kt-backends", "my-id")
    run = forked.run(tmp_path, "pytest", *PLUGINS, *options)
    assert run.returncode == 1, run.stdout
    assert "test_suite.py::doubled[my-id-int8]" in run.stdout
    assert "five is too many" in run.stdout
    plan, records = read_plan(tmp_path / "out"), list(read_records(tmp_path / "out"))
    assert {(item.backend, item.tier) for item in plan.items} == {("my-id", kt.Tier.DEVICE)}
    assert plan.environment["my-id: driver"] == "seven"
    assert {(record.backend, record.tier) for record in records} == {("my-id", kt.Tier.DEVICE)}
    assert {(record.dims["n"], record.verdict) for record in records} == {(3, "pass"), (5, "hang")}
    assert all(record.compared for record in records if record.verdict == "pass")


class _Mine(kt.Backend):
    tier = kt.Tier.LOWER

    def prepare(self, traced: Traced) -> Artifact:
        return Artifact(len(traced.calls))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, BackendEntry]:
    entries = dict(registry_module.REGISTRY)
    monkeypatch.setattr(registry_module, "REGISTRY", entries)
    return entries


def test_a_class_of_a_user_stands_among_the_others(registry: dict[str, BackendEntry]) -> None:
    assert kt.backend("mine")(_Mine) is _Mine
    (made,) = resolve(["mi*"])
    assert (made.id, made.tier) == ("mine", _Mine.tier)
    assert sort_ids(["mine", "rocm", "interpret"]) == ["interpret", "rocm", "mine"]


@pytest.mark.parametrize("in_all", [False, True])
def test_all_stands_for_it_only_where_it_says_so(in_all: bool, registry: dict[str, BackendEntry]) -> None:
    kt.backend("mine", in_all=in_all)(_Mine)
    assert ("mine" in select_ids(["all"])) is in_all


class _WithoutTier(kt.Backend):
    def prepare(self, traced: Traced) -> Artifact:
        return Artifact(0)


class _WithoutPrepare(kt.Backend):
    tier = kt.Tier.DEVICE


@pytest.mark.parametrize(
    ("name", "made", "words"),
    [
        ("interpret", _Mine, "the id 'interpret' is taken by kerneltest.backends.interpret"),
        ("two words", _Mine, "must be one word without commas and wildcards"),
        ("lower:*", _Mine, "must be one word without commas and wildcards"),
        ("mine", _WithoutTier, "_WithoutTier must set its tier, as in `tier = kt.Tier.DEVICE`"),
        ("mine", _WithoutPrepare, "_WithoutPrepare must define `prepare`"),
    ],
)
def test_what_cannot_be_a_backend_is_said_at_once(
    name: str, made: type[kt.Backend], words: str, registry: dict[str, BackendEntry]
) -> None:
    before = dict(registry)
    with pytest.raises(ValueError, match=re.escape(words)):
        kt.backend(name)(made)
    assert registry == before


def test_declarations_know_the_ids_of_all_backends() -> None:
    assert [*BACKEND_IDS][: len(registry_module._ENTRIES)] == [entry.id for entry in registry_module._ENTRIES]


def test_a_declaration_may_name_a_users_backend_once_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "REGISTRY", dict(registry_module.REGISTRY))
    with pytest.raises(kt.DeclarationError, match=r"'named-here' matches no backend; .* with kt.backend first"):
        kt.oracle_for(double, x=kt.array("n"), backends="named-here")(lambda x: 2 * x)

    @kt.backend("named-here")
    class Named(kt.Backend):
        tier = kt.Tier.DEVICE

        def prepare(self, traced: Traced) -> Any:
            return _Doubling()

    assert kt.oracle_for(double, x=kt.array("n"), backends="named-here")(lambda x: 2 * x).backends == ("named-here",)


@pytest.mark.parametrize(
    ("platform", "driver", "plugin", "cure"),
    [
        ("cuda", True, False, ". This machine has its driver: pip install 'jax[cuda13]'"),
        ("rocm", True, False, ". This machine has its driver: pip install 'jax[rocm7-local]'"),
        ("cuda", True, True, ""),
        ("cuda", False, False, ""),
    ],
)
def test_a_gpu_without_its_wheel_is_told_with_the_cure(
    platform: str, driver: bool, plugin: bool, cure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path if driver else tmp_path / "none"
    monkeypatch.setattr(device, "device_problem", lambda name: f"JAX finds no {name} device here")
    monkeypatch.setitem(device._DRIVERS, platform, (place, ("numpy" if plugin else "no_such_plugin",)))
    assert REGISTRY[platform].make().unavailable() == f"JAX finds no {platform} device here{cure}"
