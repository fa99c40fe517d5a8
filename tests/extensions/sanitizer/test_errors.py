"""What tools write, in words: recorded on an H200 by compute-sanitizer 2025.3.1."""

from pathlib import Path

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.extensions.sanitizer.processes import (
    KernelSite,
    PlacedArray,
    SanitizerError,
    describe_address,
    failure_of,
    read_errors,
)
from kerneltest.extensions.sanitizer.tools import MAX_RECORDS

RECORDED = Path(__file__).parent / "recorded"
ARRAYS = (PlacedArray("x", 1000, 100), PlacedArray("output 0", 2000, 100))


@pytest.mark.parametrize(
    ("tool", "verdict", "kernel", "count"),
    [
        ("memcheck", Verdict.OUT_OF_BOUNDS, "over_body", 6),
        ("initcheck", Verdict.UNINITIALISED, "uninit_body", 3),
        ("racecheck", Verdict.RACE, "asm_kernel", 1),
        ("synccheck", Verdict.RUNTIME_ERROR, "asm_kernel", 3),
    ],
)
def test_each_record_is_an_error_of_its_kernel(tool: str, verdict: Verdict, kernel: str, count: int) -> None:
    errors = read_errors(RECORDED / f"{tool}.xml", tool)
    assert [(error.verdict, error.kernel) for error in errors] == [(verdict, kernel)] * count


def _written(folder: Path, *changes: tuple[str, str], end: int | None = None) -> Path:
    text = (RECORDED / "memcheck.xml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "errors.xml").write_text(text[:end])
    return folder / "errors.xml"


def test_what_a_process_left_torn_still_counts(tmp_path: Path) -> None:
    assert len(read_errors(_written(tmp_path, end=-300), "memcheck")) == 5
    assert read_errors(tmp_path / "none.xml", "memcheck") == ()


def test_a_warning_accuses_nobody(tmp_path: Path) -> None:
    assert read_errors(_written(tmp_path, ("<level>Error", "<level>Warning")), "memcheck") == ()


@pytest.mark.parametrize(
    ("changes", "verdict", "what"),
    [
        ([("<error>out of bounds", "<error>misaligned")], "runtime_error", "writes 16 bytes misaligned"),
        ([("<direction>write", "<direction>read")], "out_of_bounds", "reads 16 bytes out of bounds"),
        ([("<direction>write", "<direction>atomic")], "out_of_bounds", "does an atomic of 16 bytes out of bounds"),
        ([("__global__<", "__shared__<")], "out_of_bounds", "writes 16 bytes out of bounds in shared memory"),
        (
            [("<direction>write</direction>", ""), ("Invalid __global__ write", "Warp illegal instruction")],
            "runtime_error", "Warp illegal instruction of size 16 bytes is out of bounds",
        ),
    ],
    ids=["misaligned", "read", "atomic", "shared", "no access"],
)  # fmt: skip
def test_memcheck_says_what_was_done(
    tmp_path: Path, changes: list[tuple[str, str]], verdict: str, what: str
) -> None:  # fmt: skip
    error = read_errors(_written(tmp_path, *changes), "memcheck")[0]
    assert (error.verdict, error.what) == (verdict, what)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (2100, "at the end of output 0 (100 bytes)"),
        (2164, "64 bytes past the end of output 0 (100 bytes)"),
        (2092, "across the end of output 0 (100 bytes), by 8 bytes"),
        (2004, "at byte 4 of output 0 (100 bytes)"),
        (1984, "16 bytes before the start of output 0 (100 bytes)"),
        (1120, "20 bytes past the end of x (100 bytes)"),
        (2**30, "at 0x40000000, which is near no input and no output"),
    ],
)
def test_an_access_is_told_by_the_nearest_array(address: int, words: str) -> None:
    error = SanitizerError(Verdict.OUT_OF_BOUNDS, "k", "writes", address=address, size=16)
    assert describe_address(error, ARRAYS) == words


def test_other_errors_of_a_case_are_told_after_the_first() -> None:
    errors = [SanitizerError(Verdict.OUT_OF_BOUNDS, "k", "writes"), SanitizerError(Verdict.OUT_OF_BOUNDS, "k", "reads")]
    failure = failure_of("memcheck", errors, ARRAYS, lambda error: KernelSite("k"))
    assert str(failure) == "kernel k: writes; found once by memcheck\nkernel k: reads"


def test_a_count_that_was_cut_says_so() -> None:
    errors = [SanitizerError(Verdict.RACE, "k", "races")] * MAX_RECORDS
    assert "found at least 100 times" in str(failure_of("racecheck", errors, (), lambda error: KernelSite("k")))
