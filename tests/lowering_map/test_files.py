"""Maps as files: nothing is lost, and whatever is not a map is refused."""

import json
from dataclasses import replace

import pytest

from kerneltest.lowering_map.map import MapError, dumps, loads
from tests.lowering_map.sample_maps import EXP, MAP


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
