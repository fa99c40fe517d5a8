"""What ends green, and what must not: cut runs, swapped cases, lost records, processes that died."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kerneltest import cli
from kerneltest.core.failures import RecordError
from kerneltest.records.files import SCHEMA
from kerneltest.records.journal import Activity, Journal, Phase, read_orphaned, write_orphaned
from kerneltest.records.record_files import RecordWriter, write_end
from kerneltest.records.run_plan import End, digest_ids
from kerneltest.records.runs import end_run, read_ended, read_running, read_runs
from tests.written import PASS, case, write_run

ONE, TWO = case(case="c1"), case(case="c2")


def _shard(folder: Path, change: Callable[[bytes], bytes]) -> None:
    shard = folder / "records-main.jsonl"
    shard.write_bytes(change(shard.read_bytes()))


def _another(folder: Path) -> None:
    writer = RecordWriter(folder, "elsewhere")
    writer.write(case(case="c3"))
    writer.close()


def _die(folder: Path) -> None:
    (folder / "end.json").unlink()
    Journal(folder).start(PASS.item, "c2", "normal", "n=1")


def _die_and_go_on(folder: Path) -> None:
    Journal(folder, "gw0").start(PASS.item, "c2", "normal", "n=1")


FAULTS = {
    "a run that never ended": (lambda folder: (folder / "end.json").unlink(), "the run did not end"),
    "a process that died": (_die, "main was starting for case c2 (normal, n=1) of suites/test_t.py::p[i]"),
    "a worker's death that no case repeats": (_die_and_go_on, "it did not crash again when that case ran alone"),
    "a last line that was cut off": (lambda folder: _shard(folder, lambda text: text[:-20]), "there are 1 records"),
    "a lost line": (lambda folder: _shard(folder, lambda text: text.split(b"\n", 1)[1]), "there are 1 records"),
    "a lost shard": (
        lambda folder: (folder / "records-main.jsonl").unlink(),
        "there are 0 records, but the run wrote 2",
    ),
    "a shard from elsewhere": (_another, "there are 3 records, but the run wrote 2"),
    "the end of another run": (lambda folder: write_end(folder, End("other", 2)), "belong to different runs"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_green_run_is_incomplete_after(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", ONE, TWO)
    (run,) = read_runs(folder)
    assert run.reconciled.green
    harm, words = FAULTS[fault]
    harm(folder)
    (run,) = read_runs(folder)
    assert not run.reconciled.complete
    assert words in run.reconciled.problems[0]
    assert cli.main(["summary", str(folder)]) == 1
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("doing", "words"),
    [
        (Activity(PASS.item, "c2", "normal", "n=1", shard="gw0"), "it did not crash again when that case ran alone"),
        (Activity("another item", shard="gw0"), "it did not crash again"),
        (None, ""),
    ],
)
def test_a_session_sees_the_death_that_no_case_repeats(doing: Activity | None, words: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ONE, TWO)
    (folder / "end.json").unlink()
    if doing is not None:
        write_orphaned(folder, doing)
    ended = read_ended(folder).reconciled
    assert ended.complete is not bool(words)
    assert all(words in problem for problem in ended.problems)


@pytest.mark.parametrize(
    ("recorded", "planned", "complete"),
    [
        (("c1", "c2"), ("c2", "c1"), True),
        (("c1", "c2"), ("c1", "c9"), False),
        (("c1", "c2", "c3"), ("c1", "c2"), False),
        (("c1",), ("c1", "c2"), False),
    ],
)
def test_cases_are_reconciled_by_id(
    recorded: tuple[str, ...], planned: tuple[str, ...], complete: bool, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run", *(case(case=name) for name in recorded), planned=len(planned))
    plan = json.loads((folder / "plan.json").read_text())
    plan["plan"]["items"][0]["digests"] = {"normal": digest_ids(planned)}
    (folder / "plan.json").write_text(json.dumps(plan))
    (run,) = read_runs(folder)
    assert run.reconciled.complete is complete


def test_the_end_counts_what_is_there(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ONE, TWO)
    (folder / "end.json").unlink()
    end_run(read_running(folder))
    (run,) = read_runs(folder)
    assert run.reconciled.complete


def test_a_damaged_end_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ONE)
    (folder / "end.json").write_text(f'{{"schema": {SCHEMA}, "end": {{"run": 3}}}}')
    with pytest.raises(RecordError, match=r"end\.json: end\.run: Input should be a valid string"):
        read_runs(folder)


def test_a_journal_tells_what_a_process_was_doing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "gw1")
    journal.start("t.py::p[i]", "c1", "normal", "n=1," + "long," * 50)
    journal.start("t.py::p[i]", "c2", "ones", "n=2")
    journal.enter_phase(Phase.COMPILING, beside=3)
    (doing,) = read_orphaned(tmp_path)
    assert doing == journal.activity
    assert str(doing) == (
        "compiling the kernel for case c2 (ones, n=2), with 3 other compilations under way, of t.py::p[i]"
    )
    journal.stop()
    assert list(read_orphaned(tmp_path)) == []
    journal.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [b"", b"0 running the kernel", b"\xff\n{}", b"x y\n{}", b'0 dancing\n{"item":"i"}\n'])
def test_a_journal_that_was_cut_off_tells_nothing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "running-main.txt").write_bytes(text)
    assert list(read_orphaned(tmp_path)) == []


def test_without_a_folder_a_journal_is_kept_in_memory() -> None:
    journal = Journal()
    journal.start("i", "c", "f", "s")
    assert isinstance(journal.activity, Activity)
