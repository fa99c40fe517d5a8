"""A child process that dies or hangs costs one answer, and the next question gets a new child."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kerneltest.backends.codegen.isolate import Worker, Workers
from kerneltest.core.failures import Failure


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("tests.stubborn", "the child")
    yield made
    made.close()


def test_a_child_is_kept_between_questions(worker: Worker) -> None:
    first, second = (worker.ask({"do": "answer"}, 20)["pid"] for _ in range(2))
    assert first == second


def test_what_a_child_says_comes_with_its_answer(worker: Worker) -> None:
    assert worker.ask({"do": "talk"}, 20)["stderr"] == "a warning\n"
    assert worker.ask({"do": "answer"}, 20)["stderr"] == ""


@pytest.mark.parametrize(
    ("do", "verdict", "words"),
    [
        ("die", "crash", "the child died with exit code 7: about to die"),
        ("hang", "hang", "the child gave no answer within 2 s and was ended"),
    ],
)
def test_the_end_of_a_child_is_one_lost_answer(worker: Worker, do: str, verdict: str, words: str) -> None:
    before = worker.ask({"do": "answer"}, 20)["pid"]
    with pytest.raises(Failure, match=words) as caught:
        worker.ask({"do": do}, 2)
    assert caught.value.verdict == verdict
    assert worker.ask({"do": "answer"}, 20)["pid"] != before


def test_threads_are_served_side_by_side_and_children_are_reused() -> None:
    workers = Workers("tests.stubborn", "the child")
    try:
        with ThreadPoolExecutor(2) as pool:
            pids = {answer["pid"] for answer in pool.map(lambda _: workers.ask({"do": "answer"}, 20), range(12))}
        assert 1 <= len(pids) <= 2
    finally:
        workers.close()
