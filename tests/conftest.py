"""Files that take longest go first, so that xdist's workers end together; see `make unit`."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONGEST = (
    "pytest_plugin/test_isolation.py",
    "extensions/ray/test_ray.py",
    "pytest_plugin/test_crash_reports.py",
    "start/test_getting_started.py",
    "pytest_plugin/test_resume.py",
    "pytest_plugin/test_plugin.py",
    "pytest_plugin/test_terminal.py",
    "pytest_plugin/test_beside.py",
    "execute/test_counts.py",
    "extensions/proofs/test_proofs.py",
    "test_docs.py",
    "pytest_plugin/test_collect.py",
    "trace/test_rewrite.py",
    "declare/test_relations.py",
    "records/test_fuzz_records.py",
)
assert all((TESTS / name).exists() for name in LONGEST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
