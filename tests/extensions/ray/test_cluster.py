"""What a session does with what nodes send, without a cluster: each record once, each item once, each file in place."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kerneltest as kt
from kerneltest.backends.device import Device
from kerneltest.backends.remote import Elsewhere
from kerneltest.cli import main
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.planning import plan_of, plan_pairing
from kerneltest.extensions.ray.code import code_of, in_words, unlike
from kerneltest.extensions.ray.events import Began, Done, Lost, Needs, News, Over, Work
from kerneltest.extensions.ray.jobs import MOST, Job, Jobs
from kerneltest.extensions.ray.record_log import Ledger, LedgerError
from kerneltest.extensions.ray.source_archive import ShippingError, packed, unpacked
from kerneltest.pytest_plugin.plan_mismatch import differences
from kerneltest.pytest_plugin.worker import Ended, Task
from kerneltest.records.io import line_of, read_records
from kerneltest.records.journal import Doing
from kerneltest.records.schema import Record
from tests.faults import double

RECORD = Record("i", "p", "interpret", Tier.INTERPRET, "float32", "plain", "ones", "n=3", "", "c", Verdict.PASS)
PASS = line_of(RECORD)


def _line(verdict: Verdict, **changes: Any) -> bytes:
    return line_of(replace(RECORD, verdict=verdict, **changes))


@pytest.mark.parametrize(
    ("verdicts", "kept"),
    [
        (["pass", "pass"], "pass"),
        (["mismatch", "mismatch"], "mismatch"),
        (["unavailable", "pass"], "pass"),
        (["pass", "unavailable"], "pass"),
        (["pass", "mismatch"], "nondeterministic"),
        (["crash", "pass", "pass"], "nondeterministic"),
    ],
)
def test_a_case_that_comes_twice_has_one_record(tmp_path: Path, verdicts: list[str], kept: str) -> None:
    ledger = Ledger(tmp_path, "ray")
    ledger.add(_line(Verdict.PASS, case="before"))
    for each in verdicts:
        ledger.add(_line(Verdict(each), message="why"))
    ledger.add(_line(Verdict.PASS, case="after"))
    records = list(read_records(tmp_path))
    assert [(each.case, each.verdict) for each in records] == [("before", "pass"), ("c", kept), ("after", "pass")]
    if kept == "nondeterministic":
        words = (
            f"{verdicts[0]} when it was run first, and {verdicts[1]} when it was run again, with the same bits in: why"
        )
        assert records[1].message == words
    assert len(ledger.of("i")) == 3
    assert ledger.judged() == 3
    ledger.end("i")
    assert not ledger.of("i")
    assert not ledger.judged()


@pytest.mark.parametrize("line", [b"", b"{}", PASS.replace(b'"pass"', b'"fine"'), PASS.replace(b"10", b"9", 1)])
def test_what_is_no_record_is_refused(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(LedgerError, match="a node sent what is no record"):
        Ledger(tmp_path, "ray").add(line)
    with pytest.raises(LedgerError, match="no smallest case"):
        Ledger(tmp_path, "ray").add_smallest([line])


def test_files_of_records_alone_are_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "ray")
    ledger.save({"cases/a.npz": b"1"})
    assert (tmp_path / "cases" / "a.npz").read_bytes() == b"1"
    with pytest.raises(LedgerError, match="belongs to no record"):
        ledger.save({"plan.json": b""})
    with pytest.raises(OSError, match="leads out"):
        ledger.save({"cases/../../a": b""})


class _Desk:
    """Jobs of two items, and what was handed out."""

    def __init__(self, folder: Path) -> None:
        self.out: list[tuple[int, list[Work]]] = []
        self.given_up: list[tuple[str, Doing, str]] = []
        tasks = {name: Task(name, "") for name in ("i", "j")}
        self.jobs = Jobs([Job(tasks, Needs())], Ledger(folder, "ray"), self._submit, self._give_up)
        self.jobs.start()

    def _submit(self, number: int, works: Sequence[Work], needs: Needs) -> None:
        self.out.append((number, list(works)))

    def _give_up(self, task: Task, doing: Doing, words: str) -> Ended:
        self.given_up.append((task.name, doing, words))
        return Ended("crash")

    def take(self, *events: Any) -> None:
        for event in events:
            self.jobs.take(0, event)


def test_what_a_dead_node_had_not_ended_is_handed_out_again_with_what_is_recorded(tmp_path: Path) -> None:
    desk = _Desk(tmp_path)
    desk.take(Began("i", "node", "host"), News("i", {}, (PASS,), ()), Lost(True, "it fell"))
    again = [Work(Task("i", "", again=True), (PASS,)), Work(Task("j", ""))]
    assert desk.out[1:] == [(0, again)]
    assert desk.jobs.losses == [
        "the node of i was lost on host (node node): it fell; it goes on elsewhere, and 1 more item with it"
    ]
    desk.take(Began("i", "other", "host"), Done("i", Ended("pass")), Lost(False, "it fell"))
    assert desk.out[2:] == [(0, [Work(Task("j", ""))])]  # `i` is not run again
    desk.take(Began("j", "other", "host"), Done("j", Ended("pass")), Over())
    assert list(desk.jobs.ended) == ["i", "j"]
    assert len(desk.out) == 3
    assert not desk.given_up
    assert [each.case for each in read_records(tmp_path)] == ["c"]


def test_what_the_run_has_recorded_already_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "records-main.jsonl").write_bytes(PASS + b"\n")
    desk = _Desk(tmp_path)
    assert desk.out == [(0, [Work(Task("i", "", again=True), (PASS,)), Work(Task("j", ""))])]
    desk.take(News("i", {}, (PASS,), ()))
    assert len(list(read_records(tmp_path))) == 1


def test_the_command_line_hands_pytest_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(pytest, "main", lambda words: given.extend(words) or 0)
    assert main(["run", "--ray", "auto", "-k", "softmax", "suites", "-x", "--kt-depth", "quick"]) == 0
    assert given[:2] == ["-p", "kerneltest"]
    assert given[-8:] == ["--kt-ray", "auto", "-k", "softmax", "suites", "-x", "--kt-depth", "quick"]
    with pytest.raises(SystemExit):
        main(["doctor", "-x"])


def test_an_item_whose_case_changed_its_verdict_fails(tmp_path: Path) -> None:
    desk = _Desk(tmp_path)
    other = _line(Verdict.MISMATCH)
    desk.take(Began("i", "n", "h"), News("i", {}, (PASS,), ()), News("i", {}, (other,), ()), Done("i", Ended("pass")))
    ended = desk.jobs.ended["i"].ended
    assert ended is not None
    assert ended.verdict == "nondeterministic"
    assert ended.headline.startswith("case c: pass when it was run first, and mismatch when it was run again")


def test_an_item_that_loses_node_after_node_is_given_up_and_the_others_are_not(tmp_path: Path) -> None:
    desk = _Desk(tmp_path)
    doing = Doing("i", "c", "ones", "n=3")
    for _ in range(MOST):
        desk.take(Began("i", "node", "host"), News("i", {}, (), (), doing), Lost(True, "it fell"))
    assert desk.given_up == [("i", doing, f"{MOST} nodes or workers were lost while it ran: it fell")]
    assert desk.out[-1] == (0, [Work(Task("j", ""))])
    desk.take(Over())  # without a word about j
    assert desk.out[-1] == (0, [Work(Task("j", ""))])


def test_other_code_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "kernel_of_a_test.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(here)
    __import__("kernel_of_a_test")
    monkeypatch.delitem(sys.modules, "kernel_of_a_test", raising=False)
    code = code_of(here.resolve(), [here / "kernel_of_a_test.py"])
    assert list(code.files) == ["kernel_of_a_test.py"]
    assert unlike(code, there) == ([], [])
    (there / "kernel_of_a_test.py").write_text("x = 2\n", encoding="utf-8")
    assert unlike(code, there) == ([], ["kernel_of_a_test.py differs"])
    assert unlike(code, tmp_path) == ([], ["kernel_of_a_test.py is not there"])
    other = replace(code, own="", versions={**code.versions, "jax": "0.1"})
    installed, _ = unlike(other, here)
    assert installed[0].startswith("jax is ")
    assert installed[0].endswith(", and 0.1 where the run was planned")
    assert installed[1] == "kerneltest's own sources differ"
    assert in_words(["a", "b", "c", "d", "e"]) == "a; b; c and 2 more"


def test_a_project_is_shipped_without_what_is_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    code, rest = ["kernels/a.py", "data.bin"], [".git/config", "venv/pyvenv.cfg", "venv/b.py", "__pycache__/c", "out/d"]
    for name in code + rest:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name, encoding="utf-8")
    there = unpacked(packed(root, root / "out"), tmp_path / "there")
    assert {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()} == {*code}
    monkeypatch.setattr("kerneltest.extensions.ray.source_archive._MOST", 5)
    with pytest.raises(ShippingError, match="put the project on all nodes"):
        packed(root, root / "out")


def _doubled(x: Any) -> Any:
    return 2 * x


def _planned(backend: Elsewhere) -> Any:
    x = kt.array("n", ("float32", "float16"))
    pairing = kt.oracle_for(double, x=x, dims=dict(n=kt.dim(values=(3,))))(_doubled)
    planned = plan_pairing(pairing, "p", [backend], "quick", 0)
    settings = dict(depth="quick", seed=0, fuzz=0, prove=False, orders=0, budget=0, run="r")
    return planned.items, plan_of([planned], planned.items, [each.name for each in planned.items], **settings)


def test_a_device_that_a_node_has_is_planned_for_here() -> None:
    cuda = Device("cuda", frozenset({"mosaic_tpu"}))
    items, plan = _planned(Elsewhere(cuda, "", {"device": "NVIDIA H100"}))
    assert {item.name for item in items} >= {"p[cuda-float32]"}
    assert plan.environment["cuda: device"] == "NVIDIA H100"
    assert not plan.unavailable
    items, plan = _planned(Elsewhere(cuda, "no node of the cluster has a GPU", {}))
    assert [item.name for item in items] == ["p[cuda]"]
    assert plan.unavailable == {"cuda": "no node of the cluster has a GPU"}


def test_a_node_refuses_what_it_would_run_otherwise() -> None:
    cuda = Device("cuda", frozenset({"mosaic_tpu"}))
    items, plan = _planned(Elsewhere(cuda, "", {"device": "NVIDIA H100"}))
    name = items[0].name
    mine = [item for item in items if item.name == name]
    assert not list(differences(plan, mine, name))
    other = Elsewhere(cuda, "", {"device": "NVIDIA A100"})
    words = list(differences(plan, [replace(each, backend=other) for each in mine], name))
    assert words == ["cuda: device is NVIDIA A100, and NVIDIA H100 where the run was planned"]
    assert list(differences(plan, [replace(each, seed=1) for each in mine], name)) == [f"{name} has other cases"]
    elsewhere = replace(plan, environment={**plan.environment, "jax": "0.1", "jax_enable_x64": "maybe"})
    assert [each.partition(" is ")[0] for each in differences(elsewhere, mine, name)] == ["jax", "jax_enable_x64"]
