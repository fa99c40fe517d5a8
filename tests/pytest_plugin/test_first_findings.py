"""The first finding of an item is shown before the item ends, and with -x it ends the item."""

from pathlib import Path

import pytest

from kerneltest.records.record_files import read_records
from tests import forked
from tests.plugins import PLUGINS

SUITE = """
import kerneltest as kt
from kernels.vector_add import vector_add

@kt.oracle_for(vector_add, x=kt.array("n", "int32"), y=kt.array("n", "int32"), dims=dict(n=kt.dim(values=(3, 5))))
def added(x, y):
    return x + y + 1

def test_plain():
    pass
"""
FIRST = "first finding in added[interpret-int32]: mismatch: "


def _run(folder: Path, *options: str) -> list[str]:
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    known = ("-p", "no:cacheprovider", "--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out")
    return forked.run(folder, "pytest", *PLUGINS, *known, *options).stdout.splitlines()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("options", [(), ("-s",), ("-v",)])
def test_it_is_shown_once_and_before_the_suspects(tmp_path: Path, options: tuple[str, ...]) -> None:
    lines = _run(tmp_path, *options)
    (place,) = (number for number, line in enumerate(lines) if line.startswith(FIRST))
    assert place < next(number for number, line in enumerate(lines) if "= kerneltest" in line or "= FAILURES =" in line)
    assert sum(not record.verdict.is_green for record in read_records(tmp_path / "out")) > 1


@pytest.mark.slow
def test_a_quiet_run_shows_its_failures_alone(tmp_path: Path) -> None:
    assert not [line for line in _run(tmp_path, "-q") if "first finding" in line]


def test_the_first_failure_that_is_asked_for_ends_its_item(tmp_path: Path) -> None:
    lines = _run(tmp_path, "-x")
    assert any("stopping after 1 failures" in line for line in lines)
    findings = [record for record in read_records(tmp_path / "out") if not record.verdict.is_green]
    assert len(findings) == 1
    assert not list((tmp_path / "out").glob("smallest-*"))
