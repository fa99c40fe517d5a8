"""What the benchmarks of reliability call held: runs with an exception at a line of kerneltest, and attacks."""

import collections
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import attacks, fault_injection
from benchmarks.attack_rows import COMMANDS
from benchmarks.fault_injection import Ended, Line, problem, trace_lines

WANTED = Ended(0, {"pass": 3}, "")


@pytest.mark.parametrize(
    ("kernel", "ended", "words"),
    [
        ("right", Ended(0, {"pass": 3}, ""), ""),
        ("right", Ended(1, {"pass": 2, "internal_error": 1}, ""), ""),
        ("right", Ended(3, {}, ""), ""),
        ("wrong", Ended(1, {"mismatch": 3}, ""), ""),
        ("right", Ended(1, {"pass": 2, "mismatch": 1}, ""), "blames the kernel: mismatch"),
        ("wrong", Ended(1, {"mismatch": 2, "oracle_error": 1}, ""), "blames the kernel: oracle_error"),
        ("right", Ended(0, {"pass": 2}, ""), "ends with 0 and other verdicts"),
        ("right", Ended(0, {"pass": 2, "unavailable": 1}, ""), "ends with 0 and other verdicts"),
        ("right", Ended(3, {}, "INTERNALERROR> RuntimeError: injected"), "no end in words"),
        ("right", Ended(-1, {}, ""), "no end in words"),
    ],
)
def test_a_run_with_a_fault_may_fail_and_neither_blame_a_kernel_nor_lose_a_verdict(
    kernel: str, ended: Ended, words: str
) -> None:
    assert problem(kernel, ended, WANTED) == words


def test_one_execution_of_a_line_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_injection, "ROOT", Path("/package"))
    file = "/package/module.py"
    namespace = {"done": []}
    exec(compile("def add(n):\n    done.append(n)\n    done.append(-n)\n", file, "exec"), namespace)
    executed: collections.Counter[tuple[str, int]] = collections.Counter()
    before = sys.gettrace()
    sys.settrace(trace_lines(executed, Line(file, 3, 2)))
    try:
        namespace["add"](1)
        with pytest.raises(RuntimeError, match="injected"):
            namespace["add"](2)
        namespace["add"](3)
    finally:
        sys.settrace(before)
    assert namespace["done"] == [1, -1, 2, 3, -3]
    assert executed == {(file, 2): 2, (file, 3): 2}


@pytest.mark.parametrize(("status", "reason"), [((2,), ""), ((0,), "status 2, not 0")], ids=["held", "not-held"])
def test_an_attack_that_does_not_hold_says_why(tmp_path: Path, status: tuple[int, ...], reason: str) -> None:
    row = next(row for row in COMMANDS if row.name == "mutate --least nan")
    assert [why for _, why in attacks.run([replace(row, status=status)], tmp_path, 1)] == [reason]
