"""What a session does with what nodes send, without a cluster: each record once, each item once, each file in place."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kerneltest as kt
from kerneltest.backends.base import Backend
from kerneltest.backends.device import Device, RemoteBackend
from kerneltest.backends.registry import REGISTRY
from kerneltest.cli import main
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.planning import build_plan, plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.verdict_key import item_fingerprint, pairing_fingerprints
from kerneltest.execute.watchdog import limit_time
from kerneltest.extensions.ray.code import ArchiveError, code_differences, format_reasons, pack, project_code, unpack
from kerneltest.extensions.ray.loop import MAX_LOSSES, ClusterJob, JobTable
from kerneltest.extensions.ray.messages import (
    ItemDone,
    ItemProgress,
    ItemStarted,
    JobLost,
    JobOver,
    QueuedItem,
    RecordLog,
    RecordLogError,
    Resources,
)
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult
from kerneltest.pytest_plugin.isolation import plan_differences
from kerneltest.records.journal import Activity, Journal, Phase, read_orphaned
from kerneltest.records.record_files import line_of, read_records
from kerneltest.records.schema import Record
from tests.faults import double
from tests.late import be_late, watched_closely

__all__ = ["watched_closely"]

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
    log = RecordLog(tmp_path, "ray")
    log.add(_line(Verdict.PASS, case="before"))
    for each in verdicts:
        log.add(_line(Verdict(each), message="why"))
    log.add(_line(Verdict.PASS, case="after"))
    records = list(read_records(tmp_path))
    assert [(each.case, each.verdict) for each in records] == [("before", "pass"), ("c", kept), ("after", "pass")]
    if kept == "nondeterministic":
        words = f"{verdicts[0]} on the first run and {verdicts[1]} on the second, with the same inputs: why"
        assert records[1].message == words
    assert len(log.lines_of("i")) == 3
    assert log.judged_cases() == 3
    log.end("i")
    assert not log.lines_of("i")
    assert not log.judged_cases()


@pytest.mark.parametrize(
    "line", [b"", b"{}", PASS.replace(b'"pass"', b'"fine"'), PASS.replace(b'"schema":12', b'"schema":9')]
)
def test_what_is_no_record_is_refused(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(RecordLogError, match="a node sent an invalid record"):
        RecordLog(tmp_path, "ray").add(line)
    with pytest.raises(RecordLogError, match="invalid smallest case"):
        RecordLog(tmp_path, "ray").add_smallest([line])


def test_files_of_records_alone_are_written(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, "ray")
    log.save({"cases/a.npz": b"1"})
    assert (tmp_path / "cases" / "a.npz").read_bytes() == b"1"
    with pytest.raises(RecordLogError, match="belongs to no record"):
        log.save({"plan.json": b""})
    with pytest.raises(OSError, match="leads out"):
        log.save({"cases/../../a": b""})


class _Desk:
    def __init__(self, folder: Path) -> None:
        self.out: list[tuple[int, list[QueuedItem]]] = []
        self.given_up: list[tuple[str, Activity, str]] = []
        tasks = {name: ItemRequest(name, "") for name in ("i", "j")}
        self.jobs = JobTable([ClusterJob(tasks, Resources())], RecordLog(folder, "ray"), self._submit, self._give_up)
        self.jobs.start()

    def _submit(self, number: int, works: Sequence[QueuedItem], needs: Resources) -> None:
        self.out.append((number, list(works)))

    def _give_up(self, task: ItemRequest, doing: Activity, words: str) -> ItemResult:
        self.given_up.append((task.name, doing, words))
        return ItemResult("crash")

    def take(self, *events: Any) -> None:
        for event in events:
            self.jobs.handle(0, event)


def test_what_a_dead_node_had_not_ended_is_handed_out_again_with_what_is_recorded(tmp_path: Path) -> None:
    desk = _Desk(tmp_path)
    desk.take(ItemStarted("i", "node", "host"), ItemProgress("i", {}, (PASS,), ()), JobLost(True, "it fell"))
    again = [QueuedItem(ItemRequest("i", "", is_retry=True), (PASS,)), QueuedItem(ItemRequest("j", ""))]
    assert desk.out[1:] == [(0, again)]
    assert desk.jobs.losses == [
        "the node that ran i was lost on host (node node): it fell; the item continues elsewhere, with 1 more item"
    ]
    desk.take(ItemStarted("i", "other", "host"), ItemDone("i", ItemResult("pass")), JobLost(False, "it fell"))
    assert desk.out[2:] == [(0, [QueuedItem(ItemRequest("j", ""))])]  # `i` is not run again
    desk.take(ItemStarted("j", "other", "host"), ItemDone("j", ItemResult("pass")), JobOver())
    assert list(desk.jobs.ended) == ["i", "j"]
    assert len(desk.out) == 3
    assert not desk.given_up
    assert [each.case for each in read_records(tmp_path)] == ["c"]


def test_what_the_run_has_recorded_already_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "records-main.jsonl").write_bytes(PASS + b"\n")
    desk = _Desk(tmp_path)
    assert desk.out == [
        (0, [QueuedItem(ItemRequest("i", "", is_retry=True), (PASS,)), QueuedItem(ItemRequest("j", ""))])
    ]
    desk.take(ItemProgress("i", {}, (PASS,), ()))
    assert len(list(read_records(tmp_path))) == 1


def test_the_command_line_hands_pytest_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(pytest, "main", lambda words: given.extend(words) or 0)
    assert main(["run", "--ray", "auto", "-k", "softmax", "suites", "-x", "--kt-depth", "quick"]) == 0
    assert given[:2] == ["-p", "kerneltest"]
    assert given[-8:] == ["--kt-ray", "auto", "--kt-depth", "quick", "-k", "softmax", "suites", "-x"]
    with pytest.raises(SystemExit):
        main(["doctor", "-x"])


def test_a_process_that_died_on_a_node_is_known_to_the_session(tmp_path: Path) -> None:
    died = Activity("i", "c", "ones", "n=3", Phase.RUNNING, 2, "ray-n-7.1")
    desk = _Desk(tmp_path)
    desk.take(ItemStarted("i", "n", "h"), ItemProgress("i", {}, (PASS,), ()), ItemDone("i", ItemResult("pass")))
    assert [*read_orphaned(tmp_path)] == []
    desk.take(ItemStarted("j", "n", "h"), ItemDone("j", ItemResult("pass"), crashes=(died,)))
    assert [*read_orphaned(tmp_path)] == [died]  # `read_ended` makes a problem of it
    with pytest.raises(OSError, match="leads out"):
        desk.jobs.log.end("j", [replace(died, shard="../../x")])


def test_an_item_whose_case_changed_its_verdict_fails(tmp_path: Path) -> None:
    desk = _Desk(tmp_path)
    other = _line(Verdict.MISMATCH)
    desk.take(
        ItemStarted("i", "n", "h"),
        ItemProgress("i", {}, (PASS,), ()),
        ItemProgress("i", {}, (other,), ()),
        ItemDone("i", ItemResult("pass")),
    )
    ended = desk.jobs.ended["i"].result
    assert ended is not None
    assert ended.verdict == "nondeterministic"
    assert ended.headline.startswith("case c: pass on the first run and mismatch on the second")


def test_an_item_that_loses_node_after_node_is_given_up_and_the_others_are_not(tmp_path: Path) -> None:
    desk = _Desk(tmp_path)
    doing = Activity("i", "c", "ones", "n=3")
    for _ in range(MAX_LOSSES):
        desk.take(ItemStarted("i", "node", "host"), ItemProgress("i", {}, (), (), doing), JobLost(True, "it fell"))
    assert desk.given_up == [("i", doing, f"{MAX_LOSSES} nodes or workers were lost while running it: it fell")]
    assert desk.out[-1] == (0, [QueuedItem(ItemRequest("j", ""))])
    desk.take(JobOver())  # without a word about j
    assert desk.out[-1] == (0, [QueuedItem(ItemRequest("j", ""))])


def test_other_code_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "kernel_of_a_test.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(here)
    __import__("kernel_of_a_test")
    monkeypatch.delitem(sys.modules, "kernel_of_a_test", raising=False)
    code = project_code(here.resolve(), [here / "kernel_of_a_test.py"])
    assert list(code.files) == ["kernel_of_a_test.py"]
    assert code_differences(code, there) == ([], [])
    (there / "kernel_of_a_test.py").write_text("x = 2\n", encoding="utf-8")
    assert code_differences(code, there) == ([], ["kernel_of_a_test.py differs"])
    assert code_differences(code, tmp_path) == ([], ["kernel_of_a_test.py is missing"])
    other = replace(code, own="", versions={**code.versions, "jax": "0.1"})
    installed, _ = code_differences(other, here)
    assert installed[0].startswith("jax is ")
    assert installed[0].endswith("; the run was planned with 0.1")
    assert installed[1] == "kerneltest's own sources differ"
    assert format_reasons(["a", "b", "c", "d", "e"]) == "a; b; c and 2 more"


def test_a_project_is_shipped_without_what_is_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    code, rest = ["kernels/a.py", "data.bin"], [".git/config", "venv/pyvenv.cfg", "venv/b.py", "__pycache__/c", "out/d"]
    for name in code + rest:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name, encoding="utf-8")
    there = unpack(pack(root, root / "out"), tmp_path / "there")
    assert {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()} == {*code}
    monkeypatch.setattr("kerneltest.extensions.ray.code._MAX_BYTES", 5)
    with pytest.raises(ArchiveError, match="put the project on all nodes"):
        pack(root, root / "out")


def _doubled(x: Any) -> Any:
    return 2 * x


def _tripled(x: Any) -> Any:
    return double(x) * 1.5


def _planned(backend: Backend) -> Any:
    x = kt.array("n", ("float32", "float16"))
    pairing = kt.oracle_for(double, x=x, dims=dict(n=kt.dim(values=(3,))))(_doubled)
    settings = RunSettings(depth="quick")
    planned = plan_pairing(pairing, "p", [backend], settings)
    return planned.items, build_plan([planned], planned.items, [each.name for each in planned.items], settings, run="r")


@pytest.mark.usefixtures("watched_closely")
def test_an_oracle_that_hangs_leaves_its_item_without_a_fingerprint() -> None:
    items, _ = _planned(REGISTRY["interpret"].make())

    def hangs(x: Any) -> Any:
        be_late()
        time.sleep(9999)

    parts = [replace(item, pairing=replace(item.pairing, oracle=hangs)) for item in items[:1]]
    with limit_time(journal := Journal(), 100):
        assert item_fingerprint(parts, journal) == ""
        assert item_fingerprint(items[:1], journal)
        assert pairing_fingerprints(parts, journal).keys() == {"p"}


def test_a_device_that_a_node_has_is_planned_for_here() -> None:
    cuda = Device("cuda", frozenset({"mosaic_tpu"}))
    items, plan = _planned(RemoteBackend(cuda, "", {"device": "NVIDIA H100"}))
    assert {item.name for item in items} >= {"p[cuda-float32]"}
    assert plan.environment["cuda: device"] == "NVIDIA H100"
    assert not plan.unavailable
    items, plan = _planned(RemoteBackend(cuda, "no node of the cluster has a GPU", {}))
    assert [item.name for item in items] == ["p[cuda]"]
    assert plan.unavailable == {"cuda": "no node of the cluster has a GPU"}


def test_a_node_refuses_what_it_would_run_otherwise() -> None:
    cuda = Device("cuda", frozenset({"mosaic_tpu"}))
    items, plan = _planned(RemoteBackend(cuda, "", {"device": "NVIDIA H100"}))
    name = items[0].name
    mine = [item for item in items if item.name == name]
    assert not list(plan_differences(plan, mine, name))
    other = RemoteBackend(cuda, "", {"device": "NVIDIA A100"})
    words = list(plan_differences(plan, [replace(each, backend=other) for each in mine], name))
    assert words == ["cuda: device is NVIDIA A100; the run was planned with NVIDIA H100"]
    assert list(
        plan_differences(plan, [replace(each, settings=RunSettings(depth="quick", seed=1)) for each in mine], name)
    ) == [f"{name} has other cases"]
    on_interpret, simple = _planned(REGISTRY["interpret"].make())
    parts = [item for item in on_interpret if item.name == on_interpret[0].name]
    there = [replace(part, pairing=replace(part.pairing, kernel=_tripled)) for part in parts]
    assert not list(plan_differences(simple, parts, parts[0].name, item_fingerprint(parts, Journal())))
    (word,) = plan_differences(simple, parts, parts[0].name, item_fingerprint(there, Journal()))
    assert word.startswith("code or data outside of the project differs")
    elsewhere = replace(plan, environment={**plan.environment, "jax": "0.1", "jax_enable_x64": "maybe"})
    assert [each.partition(" is ")[0] for each in plan_differences(elsewhere, mine, name)] == ["jax", "jax_enable_x64"]
