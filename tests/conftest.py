"""Files that take longest go first, so that xdist's workers end together. `make test` leaves out slow ones.

`@pytest.mark.slow` marks a single test as slow. `make test` runs three rows of a test with `@pytest.mark.sweep(3)`.
"""

import gc
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONGEST = """
    report/test_report_browser.py pytest_plugin/test_isolation.py pytest_plugin/test_stale_greens.py
    start/test_getting_started.py extensions/ray/test_ray.py test_docs.py test_declarations.py
    records/test_fuzz_records.py pytest_plugin/test_plugin.py extensions/same_bits/test_certificate.py
    localize/test_condition_experiments.py pytest_plugin/test_terminal.py pytest_plugin/test_silent_doors.py
    pytest_plugin/test_collect.py corpus/test_mosaic_gpu.py corpus/test_triton.py corpus/test_edited.py
    corpus/test_tpu.py corpus/test_tpu_compilers.py corpus/test_production.py backends/simulate/test_device.py
    tools/test_generate.py pytest_plugin/test_beside.py execute/test_counts.py start/test_init.py
    pytest_plugin/test_crash_reports.py pytest_plugin/test_shards.py pytest_plugin/test_suspect_tracker.py
    execute/test_little_asked.py execute/test_invariants.py execute/test_two_questions.py
    execute/test_linear_algebra.py localize/test_value_relations.py extensions/proofs/test_proofs.py
    pytest_plugin/test_resume.py extensions/mutation/test_mutation_session.py plan/test_planned_values.py
    triage/test_wrong_oracles.py
""".split()
# Whole sessions, other tools and sweeps, of what other files test in parts. `make test-all` runs these too.
SLOW = """
    declare/test_relations.py execute/test_counts.py execute/test_evidence_exceptions.py execute/test_fuzz.py
    execute/test_kinds.py execute/test_ranks.py extensions/mutation/test_mutation_session.py
    extensions/proofs/test_proofs.py extensions/ray/test_cluster.py extensions/ray/test_ray.py
    plan/test_format_limits.py plan/test_planned_values.py pytest_plugin/test_beside.py pytest_plugin/test_folder.py
    pytest_plugin/test_isolation.py pytest_plugin/test_resume.py pytest_plugin/test_stale_greens.py
    records/test_fuzz_records.py records/test_memory.py report/test_report_browser.py reproduce/test_repro.py
    reproduce/test_suite_import.py start/test_getting_started.py test_declarations.py test_detection.py
    test_how_to.py test_model_library.py test_typed_use.py tools/test_generate.py triage/test_rewording.py
    triage/test_wrong_oracles.py
""".split()
assert all((TESTS / name).exists() for name in (*LONGEST, *SLOW))


def pytest_collection_finish() -> None:
    """What is imported by now stays until the end, so nothing is gained by searching it for garbage."""
    gc.freeze()
    gc.set_threshold(50_000, 20)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sweep(rows): `make test` runs this many of the rows, evenly spread")


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Three workers share two cores, since a quarter of their time is spent on sleeps and on waiting for children."""
    return 3 * (yield) // 2


@pytest.fixture
def values_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cases of invariants, which take a third of the time, for tests of what is said of values."""
    from kerneltest.execute.invariant_group import InvariantGroup

    monkeypatch.setattr(InvariantGroup, "cases", lambda group, item: iter(()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One collected pairing makes this a run of kerneltest, which misses all pairings that tests make for themselves.
    own = (item for item in items if type(item).__name__ == "KernelItem" and TESTS in item.path.parents)
    pairings = [item.nodeid for item in own if item.path.name.startswith("test_")]  # not those that tests run
    assert not pairings, f"make these in a function: {pairings}"
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    slow = {TESTS / name for name in SLOW}
    sweeps: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.path in slow:
            item.add_marker("slow")
        elif item.get_closest_marker("sweep"):
            sweeps[item.nodeid.partition("[")[0]].append(item)
    for rows in sweeps.values():
        (kept,) = rows[0].get_closest_marker("sweep").args  # type: ignore[union-attr]
        spread = {len(rows) * place // kept for place in range(kept)}
        for place, item in enumerate(rows):
            if place not in spread:
                item.add_marker("slow")
