"""What another process has found counts here as far as this process would have recorded the same."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.execute.believed_records import believed_record
from kerneltest.execute.cache import Cache
from kerneltest.records.evidence import BudgetPart
from kerneltest.records.schema import Record
from tests.written import case

PARTS = (BudgetPart("exp", "", 0, 1.0),)
PASS = case(compared=9, seconds=1.0)
BACKEND = SimpleNamespace(id="interpret", platform="cpu")
ITEM: Any = SimpleNamespace(backend=BACKEND, settings=SimpleNamespace(timeout=10), pairing=None)


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (PASS, PASS),
        (replace(PASS, seconds=11.0), None),  # than one step may take
        (replace(PASS, bound_fraction=0.2), replace(PASS, bound_fraction=0.2)),
        (replace(PASS, bound_fraction=0.2, error_budget=PARTS), replace(PASS, bound_fraction=0.2)),
        (replace(PASS, bound_fraction=0.9), None),  # the largest so far, whose parts are missing
        (replace(PASS, bound_fraction=0.9, error_budget=PARTS), replace(PASS, bound_fraction=0.9, error_budget=PARTS)),
        (replace(PASS, compared=0, error_budget=PARTS), replace(PASS, compared=0, error_budget=PARTS)),
        (replace(PASS, verdict=Verdict.MISMATCH), replace(PASS, verdict=Verdict.MISMATCH)),
    ],
)
def test_a_pass_counts_with_the_parts_of_its_bound_where_this_process_would_record_them(
    record: Record, wanted: Record | None
) -> None:
    cache = Cache()
    cache.largest_fraction["interpret", record.family] = 0.2
    planned: Any = SimpleNamespace(signature=None)
    assert believed_record(record, ITEM, planned, cache) == wanted


def test_a_pass_does_not_count_where_compiled_code_contradicts_numpy() -> None:
    cache = Cache()
    path: Any = SimpleNamespace(is_contradicted=lambda traced: True)
    cache.fast_paths["interpret"] = path
    planned: Any = SimpleNamespace(signature=None)
    traced: Any = "traced"
    cache.traces[planned.signature, "any"] = traced
    assert believed_record(PASS, ITEM, planned, cache) is None
