"""Cases under a tool: what it finds comes to the right case, in the right words; what it cannot do is said."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

import kerneltest as kt
from kerneltest.backends.device import Device
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.planning import build_plan, plan_pairing
from kerneltest.execute.runner import run_case, run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.sanitizer import group, processes
from kerneltest.extensions.sanitizer.group import SanitizedGroup, family_of
from kerneltest.extensions.sanitizer.tools import MISSING, TOOLS
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.records.schema import Record
from tests.fake_sanitizer import Fake, installed

LENGTHS = (8, 16, 32)


def over_body(x_ref: Any, o_ref: Any) -> None:
    x = triton.load(x_ref.at[jnp.arange(8)])
    triton.store(o_ref.at[jnp.arange(8)], x)


def uninit_body(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + o_ref[...]


def asm_kernel(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def _pairing(body: Any, lengths: Sequence[int] = LENGTHS, **options: Any) -> Pairing:
    def kernel(x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(body, out_shape=shape, compiler_params=triton.CompilerParams())(x)

    def oracle(x: Any) -> Any:
        return x

    dims = {"n": kt.dim(values=tuple(lengths))}
    return kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dims, **options)(oracle)


def _item(pairing: Pairing, tools: Sequence[str], backend: str = "cuda") -> Item:
    items = plan_pairing(pairing, "p", resolve([backend]), RunSettings.of(depth="quick", sanitize=tuple(tools))).items
    (item,) = (item for item in items if item.group.name == GroupName.SANITIZED)
    return item


def _records(pairing: Pairing, *tools: str, only: str = "") -> list[Record]:
    return [outcome.record for outcome in run_item(_item(pairing, tools), Cache(), only)]


def _verdicts(records: Sequence[Record]) -> list[str]:
    return [str(record.verdict) for record in records]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setattr(Device, "unavailable", lambda self: "")
    devices = jax.devices()
    monkeypatch.setattr(group, "kernel_device", lambda platform: devices[0])
    monkeypatch.setattr(jax, "devices", lambda platform="": devices)
    return installed(tmp_path, monkeypatch)


def test_a_kernel_in_which_nothing_is_found_passes_in_one_process(fake: Fake) -> None:
    fake.tell(over_body={})
    records = _records(_pairing(over_body), "memcheck")
    assert [(record.verdict, record.family, record.dims["n"], record.compared) for record in records] == [
        ("pass", "memcheck", n, 1) for n in LENGTHS
    ]
    assert fake.done == ["start memcheck", *(f"run over_body {4 * n}" for n in LENGTHS)]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("body", "tool", "verdict", "message"),
    [
        (
            over_body, "memcheck", "out_of_bounds",
            "kernel over_body: writes 16 bytes out of bounds, at the end of output 0 (4,000 bytes), "
            "in thread (122, 0, 0) of block (0, 0, 0); found 6 times by memcheck; the kernel writes at FILE:LINE",
        ),
        (
            uninit_body, "initcheck", "uninitialised",
            "kernel uninit_body: reads 16 bytes that were never written, at 0x7f25c3800400, which is near no input and "
            "no output, in thread (64, 0, 0) of block (0, 0, 0); found 3 times by initcheck; the kernel reads at "
            "FILE:LINE",
        ),
        (
            asm_kernel, "racecheck", "race",
            "kernel asm_kernel: races in shared memory: no barrier orders a write and a read by different threads; "
            "found 512 times by racecheck (FILE:LINE)",
        ),
        (
            asm_kernel, "synccheck", "runtime_error",
            "kernel asm_kernel: misuses a barrier: Divergent thread(s) in warp, in thread (0, 0, 0) of "
            "block (0, 0, 0); found 3 times by synccheck (FILE:LINE)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value in TOOLS else "",
)  # fmt: skip
def test_an_error_is_a_finding_on_its_case(fake: Fake, body: Any, tool: str, verdict: str, message: str) -> None:
    fake.tell(**{body.__name__: {"finds": f"{tool}.xml", "of": 64}})
    records = _records(_pairing(body), tool)
    assert _verdicts(records) == ["pass", verdict, "pass"]
    assert re.sub(r"tests/extensions/sanitizer/test_group.py:\d+", "FILE:LINE", records[1].message) == message
    assert records[1].evidence is not None
    assert records[1].evidence.stderr.startswith("<record>")


def test_cases_that_could_have_done_it_run_again_alone(fake: Fake) -> None:
    fake.tell(uninit_body={"finds": "initcheck.xml", "of": 64})
    _records(_pairing(uninit_body), "initcheck")
    together = ["start initcheck", *(f"run uninit_body {4 * n}" for n in LENGTHS)]
    assert fake.done == together + [
        f"{each}" for n in LENGTHS for each in ("start initcheck", f"run uninit_body {4 * n}")
    ]


def test_what_memcheck_finds_ends_the_process_and_accuses_its_last_case(fake: Fake) -> None:
    fake.tell(over_body={"finds": "memcheck.xml", "of": 64, "ends": "raise"})
    assert _verdicts(_records(_pairing(over_body), "memcheck")) == ["pass", "out_of_bounds", "pass"]
    sizes = [4 * n for n in LENGTHS]
    ran = [f"run over_body {size}" for size in sizes]
    assert fake.done == ["start memcheck", *ran[:2], "start memcheck", ran[2]]


def test_an_error_in_another_kernel_accuses_nobody_and_is_noted(fake: Fake) -> None:
    fake.tell(over_body={"finds": "initcheck.xml"})
    records = _records(_pairing(over_body, [8]), "initcheck")
    assert _verdicts(records) == ["pass"]
    assert records[0].message == "initcheck also found 3 errors outside the Pallas calls, in uninit_body"


@pytest.mark.parametrize(
    ("ends", "verdict", "words"),
    [
        ("die", "crash", "the process under racecheck died with exit code 7"),
        ("hang", "hang", "the process under racecheck did not answer within 2 s"),
        (
            "raise",
            "runtime_error",
            "the kernel raised JaxRuntimeError under racecheck: INTERNAL: unspecified launch failure",
        ),
    ],
)
def test_what_ends_a_process_is_one_lost_case(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, ends: str, verdict: str, words: str
) -> None:
    monkeypatch.setattr(processes, "_CASE_SECONDS", 2.0)
    fake.tell(asm_kernel={"of": 64, "ends": ends})
    records = _records(_pairing(asm_kernel), "racecheck")
    assert _verdicts(records) == ["pass", verdict, "pass"]
    assert words in records[1].message


def test_a_tool_that_dies_once_accuses_nobody(fake: Fake) -> None:
    fake.tell(asm_kernel={"of": 64, "ends": "die", "times": 1})
    assert _verdicts(_records(_pairing(asm_kernel), "racecheck")) == ["pass", "pass", "pass"]


def test_a_zone_that_was_written_to_is_told_with_its_array(fake: Fake) -> None:
    fake.tell(over_body={"zone_writes": [["output", 0, "after", 96, 0, 95], ["input", 0, "before", 1, 4, 4]]})
    (record,) = _records(_pairing(over_body, [8]), "guards")
    assert record.verdict == "out_of_bounds"
    assert record.message == (
        "guards: the kernel wrote 96 bytes past the end of output 0 (4,000 bytes): bytes 0 to 95 after it\n"
        "guards: the kernel wrote 1 byte before the start of x (4,000 bytes): byte 4 before it"
    )


def test_an_output_without_zones_is_not_called_right(fake: Fake) -> None:
    fake.tell(over_body={"unguarded": [0]})
    (record,) = _records(_pairing(over_body, [8]), "guards")
    assert record.verdict == "unavailable"
    assert "XLA does not put output 0 between guard zones" in record.message


def test_without_compute_sanitizer_the_records_and_the_run_say_what_to_install(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerneltest.extensions.sanitizer.tools.find_compute_sanitizer", lambda: "")
    item = _item(_pairing(over_body, [8]), ["memcheck", "guards"])
    records = [outcome.record for outcome in run_item(item, Cache())]
    assert [(record.family, record.verdict) for record in records] == [("memcheck", "unavailable"), ("guards", "pass")]
    assert records[0].message == MISSING
    assert SanitizedGroup().problem([item]) == f"--kt-sanitize: memcheck not run: {MISSING}"


def test_tools_that_no_device_is_there_for_are_said(fake: Fake) -> None:
    settings = RunSettings.of(depth="quick", sanitize=("guards",))
    items = plan_pairing(_pairing(over_body, [8]), "p", resolve(["interpret"]), settings).items
    assert "--kt-sanitize: guards not run: none of the available backends" in SanitizedGroup().problem(items)
    assert SanitizedGroup().problem([]) == ""


def test_a_tool_that_cannot_use_the_device_accuses_no_kernel(fake: Fake) -> None:
    fake.tell(device={}, over_body={"finds": "memcheck.xml"})
    (record,) = _records(_pairing(over_body, [8]), "memcheck")
    assert record.verdict == "unavailable"
    assert "a process under memcheck cannot use the device: RuntimeError: no device" in record.message


def test_one_case_alone_runs_alone(fake: Fake) -> None:
    fake.tell(over_body={})
    pairing = _pairing(over_body)
    case = list(_item(pairing, ["guards"]).cases())[1]
    assert [record.case for record in _records(pairing, "guards", only=case.id)] == [case.id]
    assert fake.done == ["run over_body 64"]


def test_saved_inputs_are_judged_under_their_tool_again(fake: Fake) -> None:
    fake.tell(over_body={"finds": "memcheck.xml", "of": 64})
    item = _item(_pairing(over_body), ["guards"])
    planned = list(item.cases())[1]
    arguments = planned.fill(item.pairing)
    saved = ExplicitCase("p", planned.signature, arguments, family=family_of("memcheck"), target="")
    assert run_case(item, saved, Cache()).record.verdict == "out_of_bounds"
    assert len(set(arguments["x"].tolist())) == 16  # every element says where it came from


def test_a_quarantined_case_does_not_run_beside_others(fake: Fake) -> None:
    fake.tell(over_body={})
    hung = kt.xfail("hang", signature="*n=16*", reason="known", url="https://example.com/1")
    records = _records(_pairing(over_body, xfail=[hung]), "memcheck")
    assert _verdicts(records) == ["pass", "xfail", "pass"]
    assert "run over_body 64" not in fake.done


@pytest.mark.parametrize(
    ("backend", "asked", "planned"),
    [
        ("cuda", ["memcheck", "guards"], ["memcheck", "guards"]),
        ("rocm", ["memcheck", "guards"], ["guards"]),
        ("cuda", [], []),
        ("interpret", ["guards"], []),
    ],
)
def test_tools_are_for_the_devices_that_they_serve(
    fake: Fake, backend: str, asked: list[str], planned: list[str]
) -> None:
    settings = RunSettings.of(depth="quick", sanitize=tuple(asked))
    items = plan_pairing(_pairing(over_body), "p", resolve([backend]), settings).items
    assert [name for item in items if item.group.name == GroupName.SANITIZED for name in item.families()] == planned
    assert items


def test_the_plan_says_which_tools_were_asked(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "environment", lambda self: {})
    item = _item(_pairing(over_body, [8]), ["guards"])
    settings = RunSettings.of(depth="quick", sanitize=("guards",))
    plan = build_plan([], [item], [item.name], settings, run="a")
    assert plan.sanitize == ("guards",)
    assert plan.items[0].families == {"guards": 1}
