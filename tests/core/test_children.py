"""Children of each kind: what they answer, how they end, and what ends with them."""

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from kerneltest.core.children import Child, ChildEndedError, ChildRaisedError, Children, End
from kerneltest.core.exit_guard import refuse_exit
from tests import stubborn

Make = Callable[..., Child]
TRACE = "LLVM ERROR: Cannot select: intrinsic"
TOO_LATE = "did not answer within 0.3 s"


@pytest.fixture(params=["exec", "spawn"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Child] = []

    def child(**options: Any) -> Child:
        serve = "tests.stubborn" if request.param == "exec" else stubborn.serve
        made.append(Child(serve, "the child", request.param, **options))
        return made[-1]

    yield child
    for each in made:
        each.kill()
        each.close()


def test_a_child_is_kept_between_requests_of_any_size(make: Make) -> None:
    child = make()
    answers = [child.ask({"do": "echo", "text": text}, 120) for text in ("a", "é\n\ud800" * 10, "b" * 2**22)]
    assert [len(answer["text"]) for answer in answers] == [1, 30, 2**22]
    assert len({answer["pid"] for answer in answers}) == 1


@pytest.mark.sweep(6)
@pytest.mark.parametrize(
    ("do", "end", "status", "exec_words", "cause"),
    [
        ("die", End.DIED, 7, "died with exit code 7: about to die$", "it exited with status 7"),
        ("die with a stack trace", End.DIED, 7, f"died with exit code 7: {TRACE}$", "it exited with status 7"),
        ("leave", End.DIED, 0, "died with exit code 0", "it exited without a crash report"),
        ("abort", End.DIED, -signal.SIGABRT, "died with exit code -6", "killed by SIGABRT"),
        ("hang", End.LATE, -signal.SIGKILL, f"{TOO_LATE} and was killed", TOO_LATE),
        ("close", End.SILENT, -signal.SIGKILL, "died with exit code -9", "what it writes does not arrive"),
    ],
)
def test_the_end_of_a_child_costs_one_answer(
    make: Make, do: str, end: End, status: int, exec_words: str, cause: str
) -> None:
    child = make()
    before = child.ask({"do": "echo"}, 120)["pid"]
    with pytest.raises(ChildEndedError, match="the child ") as caught:
        child.ask({"do": do}, 0.3 if do == "hang" else math.inf)
    error = caught.value
    assert (error.end, error.status, error.verdict) == (end, status, "hang" if end is End.LATE else "crash")
    assert error.cause.startswith(cause)
    assert not error.stderr or re.search(exec_words, str(error))
    assert child.ask({"do": "echo"}, 120)["pid"] != before


def test_what_an_executed_child_writes_comes_with_its_answer() -> None:
    child = Child("tests.stubborn", "the child")
    assert child.ask({"do": "talk"}, 120)["stderr"] == "a warning\n"
    assert child.ask({"do": "echo"}, 120)["stderr"] == ""
    child.close()


def test_an_exception_is_raised_with_its_traceback_and_noise_is_ignored(make: Make) -> None:
    child = make()
    before = child.ask({"do": "write into all pipes"}, 120)["pid"]
    with pytest.raises(ChildRaisedError, match=r"(?s)Traceback.*stubborn.*ValueError: not that"):
        child.ask({"do": "raise"}, 120)
    assert child.ask({"do": "echo"}, 120)["pid"] == before


def test_memory_has_a_limit(make: Make) -> None:
    with pytest.raises(ChildEndedError, match=r"it used \d\.\d GiB; its limit is 0\.3 GiB") as caught:
        make(memory=0.3 * 2**30).ask({"do": "eat"}, 60)
    assert caught.value.end is End.MEMORY


def test_a_wait_that_is_interrupted_ends_the_child_and_what_it_started(make: Make) -> None:
    child = make()
    started = child.ask({"do": "start"}, 120)["started"]

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child.ask({"do": "hang"}, on_wait=interrupt)
    _wait_for_end(started)


@pytest.mark.parametrize("start", ["exec", "spawn"])
@pytest.mark.parametrize("do", ["echo", "hang"])
def test_a_child_ends_with_its_parent(start: Literal["exec", "spawn"], do: str, tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.stubborn", start, do, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.3)  # for the last request to arrive
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _wait_for_end(child)
    assert tmp_path.exists() == (start == "exec")


def test_ctrl_c_spares_a_worker_that_is_starting() -> None:
    child = Child(stubborn.serve, "the child", "spawn")
    child.start()
    try:
        assert child._process is not None
        first = child._process.pid
        for _ in range(20):
            os.kill(first, signal.SIGINT)
            time.sleep(0.01)
        assert child.ask({"do": "echo", "text": "a"}, 120)["pid"] == first  # it was not started again
    finally:
        child.kill()
        child.close()


def _wait_for_end(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        until = time.monotonic() + 120
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
            time.sleep(0.05)
        assert process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        pass


def test_threads_are_served_side_by_side_and_children_are_reused() -> None:
    children = Children(lambda: Child("tests.stubborn", "the child"))
    with ThreadPoolExecutor(2) as pool:
        pids = {answer["pid"] for answer in pool.map(lambda _: children.ask({"do": "echo"}, 120), range(12))}
    children.close()
    assert 1 <= len(pids) <= 2


def test_an_exit_can_be_refused() -> None:
    before = os._exit
    with refuse_exit(), refuse_exit(), pytest.raises(RuntimeError, match=r"os\._exit\(0\) was called"):
        os._exit(0)
    assert os._exit is before
