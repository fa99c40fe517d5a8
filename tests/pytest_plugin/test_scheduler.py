"""Which of xdist's workers gets which items: what shares work stays together, and nobody waits for long."""

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerneltest.pytest_plugin.pytest_run import RUN
from kerneltest.pytest_plugin.scheduler import ItemCost, PartScheduling, chunk_size, item_costs, rank_items
from kerneltest.records.record_files import read_plan
from tests.pytest_plugin.test_plugin import _pytest
from tests.written import absent, case, write_run

SUITE = """
import kerneltest as kt
from kernels.vector_add import vector_add

def double(x):
    return vector_add(x, x)

def oracle(x):
    return 2 * x

FLOATS = kt.array("n", ("float32", "float16"))
DECLARED = dict(x=FLOATS, dims=dict(n=kt.dim(values=(3,))), tolerance=kt.tolerance.exact())
first, second, third = (kt.oracle_for(double, **DECLARED)(oracle) for _ in range(3))

def test_plain():
    pass
"""
QUICK = ("--kt-depth", "quick", "--kt-backends")


def test_a_part_stays_in_one_worker_but_for_the_last(tmp_path: Path) -> None:
    run = _pytest(tmp_path, *QUICK, "lower:sm_90,interpret,lower:gfx942", "-n", "2", "-v", suite=SUITE)
    assert "scheduling tests via PartScheduling" in run.stdout
    assert "19 passed" in run.stdout
    workers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for worker, name in re.findall(r"\[(gw\d)\].* PASSED (\S+\[\S+\])", run.stdout):
        workers[name.partition("[")[0], name.rpartition("-")[2]].add(worker)
    assert len(workers) == 6
    assert set.union(*workers.values()) == {"gw0", "gw1"}
    assert sum(len(each) > 1 for each in workers.values()) <= 1


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("options", "way"),
    [(("--dist", "worksteal"), "WorkStealingScheduling"), (("--maxschedchunk", "1"), "LoadScheduling")],
)
def test_another_way_that_the_user_asks_for_is_xdists_own(tmp_path: Path, options: tuple[str, ...], way: str) -> None:
    run = _pytest(tmp_path, *QUICK, "lower:sm_90", "-n", "2", "-v", *options, suite=SUITE)
    assert f"scheduling tests via {way}" in run.stdout
    assert "7 passed" in run.stdout


def test_without_pairings_it_is_xdists_load(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "-n", "2", suite="def test_one(): pass\ndef test_two(): pass\ndef test_three(): pass\n")
    assert "3 passed" in run.stdout


def test_the_costliest_part_goes_first_and_what_is_absent_has_no_cost(tmp_path: Path) -> None:
    place = "suites/test_t.py::"
    folder = write_run(
        tmp_path / "out",
        case(item=f"{place}p[interpret-float32]", case="c1"),
        case(item=f"{place}p[lower:sm_90-float32]", backend="lower:sm_90", case="c1"),
        case(item=f"{place}p[interpret-int8]", dtype="int8", case="c1"),
        case(item=f"{place}q[interpret-int8]", pairing=f"{place}q", dtype="int8", case="c1"),
        absent(item=f"{place}p[cuda]", backend="cuda"),
    )
    plan = read_plan(folder)
    named = ["test_x.py::test_plain", f"{place}q[interpret-int8]", *(each.item for each in plan.items)]
    named = [*dict.fromkeys(named)]
    known = item_costs(plan, named)
    assert {named[number]: each.cost for number, each in known.items()} == {
        f"{place}p[interpret-float32]": 1.0,
        f"{place}p[lower:sm_90-float32]": 4.0,
        f"{place}p[interpret-int8]": 1.0,
        f"{place}q[interpret-int8]": 1.0,
    }
    order = rank_items(known)
    assert [named[number].removeprefix(place) for number in sorted(order, key=lambda number: order[number])] == [
        "p[interpret-float32]",
        "p[lower:sm_90-float32]",
        "q[interpret-int8]",
        "p[interpret-int8]",
    ]


def test_a_part_that_is_cut_keeps_its_simulations_together(tmp_path: Path) -> None:
    backends = ["simulate:gfx942", "lower:sm_90", "simulate:sm_90", "interpret"]  # in the order of pytest-randomly
    made = [case(item=f"t.py::p[{each}-float32]", backend=each, case=f"c{n}") for each in backends for n in range(100)]
    plan = read_plan(write_run(tmp_path / "out", *made))
    costs = item_costs(plan, [f"t.py::p[{each}-float32]" for each in backends])
    order = sorted(costs, key=rank_items(costs).__getitem__)
    assert [backends[number] for number in order] == ["interpret", "lower:sm_90", "simulate:gfx942", "simulate:sm_90"]
    assert [costs[number].cost for number in order] == [100.0, 400.0, 150.0, 15.0]


A, B, C = ("a", "float32"), ("b", "float32"), ("c", "float32")


@pytest.mark.parametrize(
    ("left", "workers", "least", "count"),
    [
        ([(A, 2.0), (A, 1.0), (A, 1.0), (B, 4.0)], 2, 1, 3),  # a whole part
        ([(A, 2.0), (B, 2.0), (B, 1.0), (C, 1.0)], 2, 2, 3),  # two, where one item is too few
        ([(A, 2.0), (A, 1.0), (A, 1.0)], 2, 1, 1),  # the last is cut to a worker's share
        ([(A, 1.0), (A, 0.5), (A, 2.0), (A, 0.5)], 2, 1, 2),  # or to what is closest to it
        ([(A, 4.0, "lower"), (A, 1.5, "simulate"), (A, 0.1, "simulate"), (A, 0.1, "simulate")], 2, 1, 1),
        ([(A, 1.5, "simulate"), (A, 0.5, "simulate"), (A, 0.1, "simulate")], 2, 1, 3),  # what shares lowered code
        ([(A, 1.0)] * 8 + [(B, 1.0)] * 8, 8, 1, 2),  # more workers than parts
        ([(A, 1.0)], 2, 2, 1),
        ([], 2, 2, 0),
    ],
)
def test_a_worker_gets_whole_parts_while_there_is_enough_for_all(
    left: list[tuple[Any, ...]], workers: int, least: int, count: int
) -> None:
    costs = [ItemCost(part, *tier or ["interpret"], cost) for part, cost, *tier in left]
    assert chunk_size(costs, workers, least) == count


class _Node:
    """A worker that runs an item once it knows the next, or that there is none."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.queue: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, numbers: Sequence[int]) -> None:
        assert not self.shutting_down
        self.queue += numbers

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def runs(self) -> bool:
        return len(self.queue) > (0 if self.shutting_down else 1)


@pytest.mark.parametrize("seed", range(40))
def test_every_item_is_run_whatever_the_parts_and_whoever_dies(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    parts = [f"t.py::p{number}[{{}}-float32]" for number in range(chance.randint(0, 5))]
    backends = ["lower:sm_90", "interpret", "simulate:sm_90", "simulate:gfx942"]
    made = [(part, backend) for part in parts for backend in chance.sample(backends, chance.randint(1, 4))]
    cases = [
        case(item=part.format(each), pairing=part[:8], backend=each, case=f"c{n}")
        for part, each in made
        for n in range(chance.randint(1, 9))
    ]
    names = [*dict.fromkeys(each.item for each in cases), *(f"t.py::test_{n}" for n in range(chance.randint(0, 3)))]
    chance.shuffle(names)
    nodes = [_Node() for _ in range(chance.randint(1, 4))]
    run = SimpleNamespace(
        plan=SimpleNamespace(is_written=bool(cases)), folder=SimpleNamespace(path=write_run(tmp_path / "out", *cases))
    )
    config: Any = SimpleNamespace(
        stash={RUN: run}, getoption=lambda name: None, getvalue=lambda name: ["popen"] * len(nodes)
    )
    scheduling = PartScheduling(config)

    def begin(node: _Node) -> None:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, names)

    for node in nodes:
        begin(node)
    scheduling.schedule()
    ran: list[str] = []
    deaths = chance.randint(0, 3)
    while True:
        if scheduling.tests_finished:  # as xdist asks after every event
            for node in nodes:
                node.shutdown()
        if not (busy := [node for node in nodes if node.runs]):
            break
        node = chance.choice(busy)
        if deaths and chance.random() < 0.2:
            deaths -= 1
            nodes.remove(node)
            scheduling.mark_test_pending(scheduling.remove_node(node))
            nodes.append(_Node())
            begin(nodes[-1])
            scheduling.schedule()
            continue
        number = node.queue.pop(0)
        ran.append(names[number])
        scheduling.mark_test_complete(node, number, chance.choice([0.01, 1.0]))
    assert sorted(ran) == sorted(names)
