"""Wrong uses of memory in words, as rendered from their fields."""

import pytest

from kerneltest.core.details import (
    Access,
    IndexOverflow,
    MemoryFault,
    Race,
    Undefined,
    UndefinedCause,
    UndefinedSource,
    Visit,
)

LOAD, STORE = Visit(Access.LOAD, (1,), "k.py:7"), Visit(Access.STORE, (0, 2), "k.py:9")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            MemoryFault("", LOAD, "x", "offset 100 of 100 elements", count=28, hint="mask the load"),
            "load at x offset 100 of 100 elements by program (1), at k.py:7; 28 in all; mask the load",
        ),
        (
            MemoryFault("f", LOAD, "x", overflow=IndexOverflow("2 x 3", 31, 5, 6), others=("race: another",)),
            "kernel f: an index wraps around: 2 x 3 is past 2^31, so the load at x by program (1) accesses offset 5 "
            "instead of 6, at k.py:7\nkernel f: race: another",
        ),
        (
            MemoryFault("", LOAD, "x", overflow=IndexOverflow("2 x 3", 31, 5, 5)),
            "an index wraps around: 2 x 3 is past 2^31, so the load at x by program (1) is wrongly masked, at k.py:7",
        ),
        (
            MemoryFault("", Visit(Access.LOAD, place="k.py:7"), "x", undefined_address=True),
            "the address or the mask of a load at x was computed from memory that was never written, at k.py:7",
        ),
        (MemoryFault("", LOAD, "x", words="as the tool has it"), "as the tool has it"),
        (
            Race("", "o", "[3]", (LOAD, STORE), count=2, values=("1", "2")),
            "o[3] is read by program (1) at k.py:7 and written by program (0, 2) at k.py:9, in no order; 2 in all; "
            "programs write 1 and 2",
        ),
        (
            Race("", "o", "[3]", (STORE, Visit(Access.STORE, (1, 2), "k.py:9")), values=("1",)),
            "o[3] is written by program (0, 2) and by program (1, 2) at k.py:9, in no order; all write 1",
        ),
        (
            Undefined("output 0", False, 1, 4, "[3]", (UndefinedSource(UndefinedCause.MASKED, "k.py:5"),)),
            "1 of 4 elements of output 0 depend on memory never written, the first [3]; a masked load without `other` "
            "at k.py:5",
        ),
        (Undefined("output 1", True, 1, 4, "[3]"), "1 of 4 elements of output 1 were never written, the first [3]"),
    ],
)
def test_a_wrong_use_of_memory_in_words(fault: MemoryFault | Race | Undefined, words: str) -> None:
    assert fault.text() == words


@pytest.mark.parametrize("cause", UndefinedCause)
def test_the_line_of_an_undefined_read_is_data_and_shown(cause: UndefinedCause) -> None:
    source = UndefinedSource(cause, "k.py:5", "x[3]")
    assert "at k.py:5" in source.text()
    assert Undefined("output 0", False, 1, 4, "[3]", (source,)).place == "k.py:5"
