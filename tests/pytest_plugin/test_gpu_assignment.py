"""Workers and GPUs: each has one of its own or a share of one, whoever dies."""

import os
from pathlib import Path

import pytest

from kerneltest.pytest_plugin import scheduler as module
from kerneltest.pytest_plugin.scheduler import assign_gpus
from tests import forked
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[2]
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"


@pytest.mark.parametrize(
    ("nvidia", "amd", "given", "devices"),
    [
        (2, 0, {}, ["0", "1", "0"]),
        (4, 0, {"CUDA_VISIBLE_DEVICES": "2,3"}, ["2", "3", "2"]),
        (4, 0, {"CUDA_VISIBLE_DEVICES": "3, 1, 0"}, ["3", "1", "0"]),
        (4, 0, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937,1"}, ["GPU-8932f937", "1", "GPU-8932f937"]),
        (4, 0, {"CUDA_VISIBLE_DEVICES": "1,-1,2"}, ["1", "1", "1"]),  # the driver stops at what is not there
        (2, 0, {"CUDA_VISIBLE_DEVICES": "0,5,1"}, ["0", "0", "0"]),
        (2, 0, {"CUDA_VISIBLE_DEVICES": ""}, ["", "", ""]),
        (0, 0, {"CUDA_VISIBLE_DEVICES": "0"}, ["", "", ""]),
        (0, 2, {}, ["0", "1", "0"]),
        (0, 4, {"ROCR_VISIBLE_DEVICES": "1,3"}, ["1", "3", "1"]),
        (0, 4, {"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "1"}, ["3", "3", "3"]),
        (0, 4, {"HIP_VISIBLE_DEVICES": "2,0"}, ["2", "0", "2"]),
        (0, 4, {"CUDA_VISIBLE_DEVICES": "2,0"}, ["2", "0", "2"]),
        (0, 0, {}, ["", "", ""]),
    ],
)
def test_three_workers_share_the_gpus_that_their_caller_may_use(
    nvidia: int, amd: int, given: dict[str, str], devices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_nvidia", lambda: [str(number) for number in range(nvidia)])
    monkeypatch.setattr(module, "_amd", lambda: [str(number) for number in range(amd)])
    made = assign_gpus(3, given)
    names = ["CUDA_VISIBLE_DEVICES"] if nvidia else ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"]
    assert [variables.get(names[0], "") for variables in made] == devices
    for variables, device in zip(made, devices, strict=True):
        if not device:
            assert not variables
            continue
        assert float(variables[FRACTION]) == pytest.approx(0.9 / devices.count(device), abs=0.001)
        assert variables.keys() == {*names, FRACTION}
        assert variables.get("HIP_VISIBLE_DEVICES", "0") == "0"


def test_a_fraction_that_the_caller_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_nvidia", lambda: ["0"])
    assert assign_gpus(1, {FRACTION: "0.2"})[0] == {"CUDA_VISIBLE_DEVICES": "0"}


def test_amd_gpus_are_nodes_with_vector_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, units in enumerate([0, 128, 0, 304]):
        node = tmp_path / str(number)
        node.mkdir()
        (node / "properties").write_text(f"cpu_cores_count 8\nsimd_count {units}\n", encoding="ascii")
    monkeypatch.setattr(module, "_KFD", tmp_path)
    assert module._amd() == ["0", "1"]


SUITE = """
import os
import time
import pytest

@pytest.mark.parametrize("number", range(40))
def test_it(number):
    names = "PYTEST_XDIST_WORKER", "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION"
    with open("seen.txt", "a") as file:
        print(*(os.environ.get(name, "") for name in names), file=file)
    if number == 3:
        os._exit(1)
    until = time.monotonic() + 300
    while len({line.split()[0] for line in open("seen.txt")}) < 4 and time.monotonic() < until:
        time.sleep(0.01)  # three workers, and the one that takes the place of the dead one
"""


def test_a_worker_that_takes_the_place_of_a_dead_one_has_its_gpu(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 0\necho 1\n", encoding="utf-8")
    tool.chmod(0o755)
    known = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for name in ("PYTEST_XDIST_WORKER", "CUDA_VISIBLE_DEVICES", FRACTION):
        known.pop(name, None)
    command = ("pytest", *PLUGINS, "-p", "no:cacheprovider", "-n", "3", "-q")
    ended = forked.run(tmp_path, *command, environment=known)
    assert "1 failed, 39 passed" in ended.stdout, ended.stdout
    seen = {tuple(line.split()) for line in (tmp_path / "seen.txt").read_text(encoding="utf-8").splitlines()}
    workers = {worker: (device, fraction) for worker, device, fraction in seen}
    assert len(workers) == 4  # three, and one in the place of another
    devices = sorted(device for device, _ in workers.values())
    assert devices in (["0", "0", "0", "1"], ["0", "0", "1", "1"])
    assert set(workers.values()) == {("0", "0.450"), ("1", "0.900")}
