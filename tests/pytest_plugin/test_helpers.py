"""Helper processes judge cases of the running item. The records are the same, whatever becomes of a helper."""

from dataclasses import replace
from pathlib import Path

import pytest

from kerneltest.records.record_files import read_records
from kerneltest.records.schema import Record
from tests import forked
from tests.plugins import PLUGINS

# The main process waits in its first case until a helper has begun one. Only that one is in trouble.
SUITE = """
import os, time
import numpy as np
import kerneltest as kt
from kernels.vector_add import vector_add
from pathlib import Path

SEEN = Path(__file__).with_name("seen")

FLOATS = kt.array("n", "float32")

@kt.oracle_for(vector_add, x=FLOATS, y=FLOATS, dims=dict(n=kt.dim(values=(3, 5, 7))))
def added(x, y):
    is_main = os.environ["MAIN"] == str(os.getpid())
    if not is_main:
        SEEN.touch()
        {trouble}
    for _ in range(600 if len(os.sched_getaffinity(0)) > 1 else 0):
        if SEEN.exists():
            break
        time.sleep(0.05)
    return x + y
"""
CONFTEST = """
import os
os.environ.setdefault("MAIN", str(os.getpid()))
os.sched_getaffinity = lambda _: range({processors})
import kerneltest.pytest_plugin.dispatch
import kerneltest.pytest_plugin.helpers
kerneltest.pytest_plugin.dispatch._LEAST_CASES = 0
kerneltest.pytest_plugin.helpers._PATIENCE = 2.0
"""


def _run(folder: Path, processors: int, trouble: str = "pass") -> list[Record]:
    folder.mkdir()
    (folder / "test_suite.py").write_text(SUITE.format(trouble=trouble), encoding="utf-8")
    (folder / "conftest.py").write_text(CONFTEST.format(processors=processors), encoding="utf-8")
    known = ("-p", "no:cacheprovider", "--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out")
    ended = forked.run(folder, "pytest", *PLUGINS, *known)
    assert ended.returncode == 0, ended.stdout
    assert (folder / "seen").exists() is (processors > 1)
    records = sorted(read_records(folder / "out"), key=lambda record: (record.group, record.case))
    return [replace(record, seconds=0.0, ulps=()) for record in records]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return _run(tmp_path_factory.mktemp("alone") / "run", 1)


@pytest.mark.parametrize(
    "trouble",
    ["pass", "return x + y + 1", "raise ValueError", "os._exit(0)", "os.abort()", "time.sleep(1000)"],
    ids=["none", "a finding", "an exception", "an exit", "a crash", "a hang"],
)
def test_the_records_are_those_of_one_process(tmp_path: Path, alone: list[Record], trouble: str) -> None:
    assert [_without_share(each) for each in _run(tmp_path / "run", 2, trouble)] == list(map(_without_share, alone))


def _without_share(record: Record) -> Record:
    """A record without the parts of its bound, which the largest errors so far have, in the order of the cases."""
    return replace(record, error_budget=())
