"""A cluster of two raylets on this machine: the verdicts of one process, whatever dies on the way."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from kerneltest.records.runs import RunRecords, read_runs
from tests.plugins import PLUGINS
from tests.pytest_plugin.test_plugin import _pytest

ROOT = Path(__file__).parents[3]
QUICK = ("--kt-backends", "interpret,lower:sm_90,cuda,fake", "--kt-depth", "quick", "--kt-minimize", "1")

CONFTEST = """
import kerneltest as kt
from kerneltest.backends.interpret import Interpret

@kt.backend("fake")
class Fake(Interpret):
    tier = kt.Tier.DEVICE

    def __init__(self):
        super().__init__("fake")
"""
SUITE = """
import os
import time
import numpy as np
import kerneltest as kt
from kernels.vector_add import vector_add

SLOW = float(os.environ.get("SLOW", "0"))

def wrong(x, y):
    time.sleep(SLOW)
    return x - y

def deadly(x, y):
    time.sleep(SLOW)
    if type(x) is np.ndarray and (x == 1).all():
        print("said before the end", flush=True)
        os.abort()
    return x + y

def declared(*dtypes, **more):
    x = kt.array("n", dtypes)
    return dict(x=x, y=x, dims=dict(n=kt.dim(values=(3,))), tolerance=kt.tolerance.exact(), **more)

victim = kt.oracle_for(vector_add, **declared("float32", "float16", backends=["interpret", "lower:*", "cuda"]))(wrong)
dies = kt.oracle_for(vector_add, **declared("float32"))(deadly)

def test_no_pairing():
    pass
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU, of which the second also says that it has a GPU."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOW", "0.03")
        patch.setenv("JAX_PLATFORMS", "cpu")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)
        made = cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, "include_dashboard": False}
        )
        made.second = made.add_node(num_cpus=1)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ray")
    (made / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (made / "test_suite.py").write_text(SUITE, encoding="utf-8")
    return made


def _busy(run: "subprocess.Popen[str]", out: Path, records: int, node: Any) -> list[psutil.Process]:
    """Waits until a run has written some records and a node is busy; the processes of that node that are."""
    while run.poll() is None:
        written = sum(path.read_bytes().count(b"\n") for path in out.glob("records-*.jsonl"))
        if written >= records and (found := _workers(node)):
            return found
        time.sleep(0.05)
    pytest.fail(f"the run ended: {run.communicate()[0]}")


def _workers(node: Any) -> list[psutil.Process]:
    raylets = [each.process.pid for each in node.all_processes["raylet"]]
    below = [each for pid in raylets for each in psutil.Process(pid).children(recursive=True)]
    return [each for each in below if any("_serve" in word for word in _command(each))]


def _command(process: psutil.Process) -> list[str]:
    """What a process was started with, and nothing once it has ended: nodes start and end helpers all the time."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="module")
def runs(cluster: Any, folder: Path) -> tuple[RunRecords, RunRecords, str]:
    """A run in one process; and one on both nodes, of which a worker and then a node die; and what that said."""
    one = _pytest(folder, *QUICK, "--kt-report", "one", "--kt-isolate", "always", suite=None)
    assert one.returncode == pytest.ExitCode.TESTS_FAILED, one.stdout
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-p", "no:cacheprovider", *QUICK, "--kt-report", "many"]
    many = subprocess.Popen(
        [*command, "--kt-ray", cluster.address],
        cwd=folder,
        env={**os.environ, "SLOW": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for each in _busy(many, folder / "many", 20, cluster.head_node):
        with suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGKILL)
    _busy(many, folder / "many", 70, cluster.second)
    cluster.remove_node(cluster.second, allow_graceful=False)
    said = many.communicate(timeout=900)[0]
    assert many.returncode == pytest.ExitCode.TESTS_FAILED, said
    (first,), (second,) = read_runs(folder / "one"), read_runs(folder / "many")
    return first, second, said


def _told(run: RunRecords) -> list[Any]:
    return sorted((record.cell, record.case, record.verdict, record.message) for record in run.records)


def test_verdicts_are_those_of_one_process_though_a_worker_and_a_node_died(
    runs: tuple[RunRecords, RunRecords, str],
) -> None:
    one, many, said = runs
    assert [each for each in _told(many) if each[0].backend != "cuda"] == [
        each for each in _told(one) if each[0].backend != "cuda"
    ]
    assert many.reconciled.complete, many.reconciled.problems  # nothing lost, nothing twice
    assert len(many.records) == len(one.records) > 150
    assert re.search(r"a worker that ran test_suite\.py::\S+ was lost on .*; the item continues elsewhere", said), said
    assert re.search(r"the node that ran test_suite\.py::\S+ was lost on .*; the item continues elsewhere", said), said
    assert "is abandoned" not in said


def test_a_case_that_ends_its_process_is_a_crash_and_tells_what_it_wrote(
    runs: tuple[RunRecords, RunRecords, str],
) -> None:
    _, many, _ = runs
    crashes = [record for record in many.records if record.verdict == "crash"]
    assert {record.pairing for record in crashes} == {"test_suite.py::dies"}
    assert all(record.evidence and "said before the end" in record.evidence.stderr for record in crashes)


def test_files_and_smallest_cases_come_along(runs: tuple[RunRecords, RunRecords, str]) -> None:
    one, many, _ = runs
    assert {each.record.pairing for each in many.reproducers} == {each.record.pairing for each in one.reproducers}
    named = [r.evidence for r in (*many.records, *(each.record for each in many.reproducers)) if r.evidence]
    assert any(each.file and each.script for each in named)
    for each in named:
        assert all((many.folder / name).is_file() for name in (each.file, each.script) if name)
    script = next(each.script for each in named if "interpret" in each.script)
    shown = subprocess.run([sys.executable, script], cwd=many.folder, capture_output=True, text=True, check=False)
    assert shown.returncode == 1, shown.stdout + shown.stderr


def test_what_no_node_has_is_unavailable_for_a_reason_that_a_node_gave(
    runs: tuple[RunRecords, RunRecords, str],
) -> None:
    _, many, _ = runs
    assert many.plan.unavailable["cuda"].startswith("JAX finds no cuda device here: ")
    assert {r.verdict for r in many.records if r.backend == "fake"} >= {"pass", "crash"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-p", "no_ray", "--kt-ray", "auto"), "--kt-ray needs Ray: pip install 'kerneltest[ray]'"),
        (("--kt-ray", "auto", "-n", "2"), "--kt-ray and -n cannot be combined: the cluster has its own workers"),
        (("--kt-ray", "auto", "--pdb"), "--kt-ray cannot be combined with --kt-isolate never or --pdb"),
        (("--kt-ray", "ray://x:1"), "Ray Client does not support streaming"),
        (("--kt-ray", "127.0.0.1:1"), "127.0.0.1:1: no cluster answers: "),
        (("--kt-ray-gpus", "1.5"), "--kt-ray-gpus must be a positive whole number of GPUs, or a fraction"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_told(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    blocked = "from kerneltest.extensions.ray import plugin\nplugin.find_spec = lambda name: None\n"
    (tmp_path / "no_ray.py").write_text(blocked, encoding="utf-8")
    run = _pytest(tmp_path, *options, suite="")
    assert words in run.stdout + run.stderr
    assert run.returncode == pytest.ExitCode.USAGE_ERROR


def test_a_run_is_not_resumed_on_a_cluster(tmp_path: Path) -> None:
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out", "-k", "doubled")
    assert _pytest(tmp_path, *options).returncode == pytest.ExitCode.OK
    run = _pytest(tmp_path, *options, "--kt-resume", "--kt-ray", "auto", suite=None)
    assert "--kt-ray and --kt-resume cannot be combined: nodes do not tell" in run.stderr
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
