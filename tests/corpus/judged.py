"""The pair of tests that runs over the corpus: the broken kernel's finding is named, and the right one has none."""

import importlib.util
import linecache
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import jax
import pytest

from kerneltest.records.schema import Record
from tests.corpus.twin import Twin
from tests.found import records

ROOT = Path(__file__).parents[2]
GROUPS = {"first": "structural", "all": "", "any": "", "production": "production"}


def is_served(backend: str) -> bool:
    """Whether this machine has what a backend needs."""
    if backend.startswith("compile:tpu"):
        return importlib.util.find_spec("libtpu") is not None
    return backend != "cuda" or jax.default_backend() == "gpu"


def run(twin: Twin, broken: bool, backends: Iterable[str]) -> Iterator[Record]:
    """The records of one of two kernels, as soon as they are there."""
    depth = "standard" if twin.cases == "production" else "quick"
    return records(twin.make(broken), tuple(backends), depth, GROUPS[twin.cases], twin.cases == "first")


def finding(twin: Twin, backend: str = "") -> Record:
    """The first finding of the broken kernel, on the first backend if none is named."""
    return next(record for record in run(twin, True, (backend or next(iter(twin.verdicts)),)) if record.message)


def named_lines(message: str) -> list[str]:
    """The source lines that a message names."""
    return [
        linecache.getline(str(ROOT / path), int(number)).strip()
        for path, number in re.findall(r"([\w/]+\.py):(\d+)", message)
    ]


def check_broken(twin: Twin) -> None:
    """The broken kernel ends in its verdict on each backend, with its words and its lines."""
    backends = [backend for backend in twin.verdicts if is_served(backend)]
    if not backends:
        pytest.skip(f"nothing here runs on {', '.join(twin.verdicts) or 'a backend that finds it'}")
    found: dict[str, list[Record]] = defaultdict(list)
    for record in run(twin, True, backends):
        found[record.backend].append(record)
        if twin.cases == "any" and not _wrong(twin, record.backend, found[record.backend]):
            break
    for backend in backends:
        assert not (wrong := _wrong(twin, backend, found[backend])), (backend, wrong)


def _wrong(twin: Twin, backend: str, found: list[Record]) -> str:
    """What the records of a broken kernel lack, or ""."""
    expected = twin.verdicts[backend].split("|")
    # Where memory is poisoned on purpose, a backend may see more.
    findings = [each for each in found if each.verdict.is_finding or each.verdict in expected]
    messages = [f"{each.family} {each.signature} {each.message}" for each in findings]
    if expected == ["pass"]:
        accused = [each.message for each in found if each.verdict.is_finding and each.group != "invariants"]
        return "" if findings and not accused else f"not judged, or accused: {accused}"
    others = [f"{each.verdict}: {each.message}" for each in findings if each.verdict not in expected]
    if not findings or (others and twin.cases != "any") or len(others) == len(findings):
        return f"not {expected}: {others}"
    if not any(twin.words in message for message in messages):
        return f"not {twin.words!r}: {messages[:5]}"
    lines = [line for each in findings for line in named_lines(each.message)]
    if missing := [line for line in twin.lines if not any(line in named for named in lines)]:
        return f"does not name {missing}: {lines} in {messages[:1]}"
    raw = [each.message for each in findings if re.match(r"(JaxRuntime|Mosaic)Error", each.message)]
    return f"an exception in place of a message: {raw}" if raw else ""


def check_right(twin: Twin) -> None:
    """The right kernel is judged on each backend, and not accused."""
    backends = [backend for backend in dict.fromkeys((*twin.verdicts, *twin.right_on)) if is_served(backend)]
    if not backends:
        pytest.skip(f"nothing here runs on {', '.join(twin.verdicts) or 'a backend that finds it'}")
    passed = set()
    for record in run(twin, False, backends):
        assert not record.verdict.is_finding, f"{record.backend}, {record.verdict}: {record.message}"
        if record.verdict == "pass":
            passed.add(record.backend)
    assert passed == set(backends)


def pair_of_tests(
    twins: Iterable[Twin], broken: int = 0, right: int = 0
) -> tuple[Callable[..., None], Callable[..., None]]:
    """The two tests of some twins, of which `make test` runs that many rows, or all."""

    @pytest.mark.parametrize("twin", twins, ids=_name)
    def test_broken(twin: Twin) -> None:
        check_broken(twin)

    @pytest.mark.parametrize("twin", [twin for twin in twins if not twin.right_is_tested], ids=_name)
    def test_right(twin: Twin) -> None:
        check_right(twin)

    sweeps = [(test_broken, broken), (test_right, right)]
    one, other = (pytest.mark.sweep(rows)(test) if rows else test for test, rows in sweeps)
    return one, other


def _name(twin: Twin) -> str:
    return twin.name
