"""Maps on disk, and compared."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kerneltest.cli import main
from kerneltest.lowering_map.compare import compare
from kerneltest.lowering_map.map import LoweringMap, MapError, dumps, loads
from tests.lowering_map.sample_maps import EXP, MAP, SORT, with_exp


def test_a_map_survives_its_file() -> None:
    assert loads(dumps(MAP), "here") == MAP


def test_a_file_has_a_line_for_each_result() -> None:
    assert len(dumps(MAP).splitlines()) == len(MAP.results) + 2


CORRUPT = {
    "not JSON": ("{", "Invalid JSON"),
    "a list": ("[]", "Input should be an object"),
    "no schema": (dumps(MAP).replace('"schema": 2, ', ""), "schema: Field required"),
    "another schema": (dumps(MAP).replace('"schema": 2', '"schema": 1'), "schema: Input should be 2"),
    "an unknown outcome": (dumps(MAP).replace('"lowers"', '"flies"'), "results: 0: outcome: "),
    "a target it does not name": (dumps(MAP).replace('"sm_90"', '"sm_80"', 1), r"\['sm_90'\] are not among"),
    "a cell twice": (dumps(replace(MAP, results=(EXP, EXP))), "one cell twice"),
    "no cells": (dumps(replace(MAP, results=())), "no cells"),
    "a message that is no text": (dumps(MAP).replace('"message":""', '"message":1'), "results: 0: message: "),
    "an unknown field": (dumps(MAP).replace('"group"', '"troop"', 1), "results: 0: group: "),
    "one field more": (dumps(MAP).replace('"jax"', '"more": 1, "jax"'), "more: "),
    "no versions": (json.dumps({"schema": 2, "results": [], "targets": []}), "jax: Field required"),
}


@pytest.mark.parametrize(("text", "reason"), CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_map_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MapError, match=rf"^here: no readable map: .*{reason}") as refused:
        loads(text, "here")
    assert len(str(refused.value).splitlines()) == 1


ALL = (EXP.dtypes, EXP.targets)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (MAP, MAP, []),
        (MAP, with_exp("error"), [("exp", "lowers", "error", *ALL, "why")]),
        (with_exp("unimplemented"), MAP, [("exp", "unimplemented", "lowers", *ALL, "why")]),
        (with_exp("unimplemented"), with_exp("error"), []),
        (with_exp("absent"), with_exp("unimplemented"), []),
        (MAP, with_exp("absent"), [("exp", "lowers", "absent", *ALL, "why")]),
        (
            MAP,
            with_exp("lowers", dtypes=("float32",)),
            [("exp", "lowers", "refused when traced", ("float16",), EXP.targets, "")],
        ),
        (
            with_exp("lowers", dtypes=("float16",)),
            MAP,
            [("exp", "refused when traced", "lowers", ("float32",), EXP.targets, "")],
        ),
        (replace(MAP, results=(SORT,)), MAP, []),  # exp was not asked for before
        (replace(with_exp("lowers", targets=("sm_90",)), targets=("sm_90",)), MAP, []),  # nor was gfx942
    ],
)
def test_comparing(old: LoweringMap, new: LoweringMap, expected: list[tuple[object, ...]]) -> None:
    changes = compare(old, new)
    assert [(c.primitive, c.before, c.after, c.dtypes, c.targets, c.message) for c in changes] == expected
    assert [change.stopped for change in changes] == [before == "lowers" for _, before, *_ in expected]


def test_targets_on_which_other_dtypes_changed_are_changes_of_their_own() -> None:
    ends = replace(EXP, outcome=with_exp("error").results[0].outcome, message="why")
    results = (
        replace(EXP, dtypes=("float32",), targets=("gfx942",)),
        replace(ends, dtypes=("float16",), targets=("gfx942",)),
        replace(ends, targets=("sm_90",)),
        SORT,
    )
    changes = compare(MAP, replace(MAP, results=results))
    assert {(change.dtypes, change.targets) for change in changes} == {
        (("float16",), ("gfx942",)),
        (("float32", "float16"), ("sm_90",)),
    }


def test_only_like_is_compared_with_like() -> None:
    with pytest.raises(MapError, match="one map was compiled"):
        compare(MAP, replace(MAP, triton="3.0"))
    with pytest.raises(MapError, match="no target or no primitive in common"):
        compare(replace(MAP, results=(EXP,)), replace(MAP, results=(SORT,)))


@pytest.mark.parametrize(
    ("old", "new", "code"), [("lowers", "lowers", 0), ("error", "lowers", 0), ("lowers", "error", 1)]
)
def test_diff_fails_when_something_stopped(old: str, new: str, code: int, tmp_path: Path) -> None:
    for name, outcome in (("old", old), ("new", new)):
        (tmp_path / name).write_text(dumps(with_exp(outcome)))
    assert main(["lowering", str(tmp_path / "new"), "--diff", str(tmp_path / "old")]) == code
