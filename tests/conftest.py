"""Files that take longest go first, so that xdist's workers end together; see `make unit`."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONGEST = (
    "pytest_plugin/test_isolation.py",
    "pytest_plugin/test_ray.py",
    "pytest_plugin/test_deaths.py",
    "start/test_getting_started.py",
    "pytest_plugin/test_resume.py",
    "pytest_plugin/test_plugin.py",
    "pytest_plugin/test_terminal.py",
    "pytest_plugin/test_beside.py",
    "run/test_counts.py",
    "proofs/test_proofs.py",
    "test_docs.py",
    "pytest_plugin/test_collect.py",
    "jaxprs/test_rewrite.py",
    "declare/test_relations.py",
    "records/test_fuzz_records.py",
)
assert all((TESTS / name).exists() for name in LONGEST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
