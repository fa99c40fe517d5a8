"""Pairings of one name in several files have separate cases, saved inputs and reproductions."""

import json
import os
from collections import defaultdict
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from kerneltest.records.record_files import load_arguments, read_records
from kerneltest.records.schema import Record
from tests import forked
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[2]

# The same names, signatures and families in each file; values from another domain and another bug.
SUITE = """
import kerneltest as kt
from tests.sample import elementwise

def scale(x):
    return elementwise(lambda v: v + {error}, x)

@kt.oracle_for(
    scale, x=kt.array("n", "float32", domain=({low}, {low} + 1)), dims=dict(n=kt.dim(values=[3])),
    tolerance=kt.tolerance.exact(),
)
def scaled(x):
    return x
"""
FILES = {"test_one.py": (4, 1), "test_two.py": (32, 2), "below/test_one.py": (128, 4)}  # domain from, error
PAIRINGS = [f"{file}::scaled" for file in FILES]


def _python(folder: Path, *words: str) -> CompletedProcess[str]:
    return forked.run(
        folder, *words, environment={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "below").mkdir()
    (folder / "below" / "__init__.py").touch()
    for file, (low, error) in FILES.items():
        (folder / file).write_text(SUITE.format(low=low, error=error), encoding="utf-8")
    options = ("--kt-report", "out", "--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0")
    run = _python(folder, "pytest", *PLUGINS, "-p", "no:cacheprovider", "-q", *options)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "INCOMPLETE" not in run.stdout
    return folder


@pytest.fixture(scope="module")
def findings(project: Path) -> dict[str, list[Record]]:
    found = defaultdict(list)
    for record in read_records(project / "out"):
        if record.evidence is not None and record.evidence.file:
            found[record.pairing].append(record)
    return dict(found)


def test_their_cases_have_ids_of_their_own(project: Path) -> None:
    ids = defaultdict(set)
    for record in read_records(project / "out"):
        ids[record.pairing].add(record.case)
    assert sorted(ids) == sorted(PAIRINGS)
    assert len(set.union(*ids.values())) == sum(map(len, ids.values()))


def test_no_inputs_overwrite_others(project: Path, findings: dict[str, list[Record]]) -> None:
    assert sorted(findings) == sorted(PAIRINGS)
    files = [r.evidence.file for records in findings.values() for r in records if r.evidence is not None]
    assert len(files) == len(set(files)) > len(PAIRINGS)
    for pairing, records in findings.items():
        low, _ = FILES[pairing.partition("::")[0]]
        for record in records:
            assert record.evidence is not None
            values = load_arguments(project / "out", record.evidence.file)["x"].astype(np.float64)
            assert ((values >= low) & (values <= low + 1)).all()


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_reproduction_takes_the_right_one(pairing: str, project: Path, findings: dict[str, list[Record]]) -> None:
    record = findings[pairing][0]
    again = _python(project, "kerneltest", "repro", "out", record.case)
    assert again.returncode == 1, again.stdout + again.stderr
    assert record.message.splitlines()[0] in again.stdout


CHECK = """
import json
import sys
from importlib import import_module

import kerneltest as kt

for module, case in json.loads(sys.argv[1]):
    try:
        (finding,) = kt.check(import_module(module).scaled, depth="quick", case=case).findings
        print(finding.message)
    except ValueError as error:
        print(error)
"""


def test_check_finds_a_case_by_its_id_in_its_own_file(project: Path, findings: dict[str, list[Record]]) -> None:
    records = [findings[pairing][0] for pairing in PAIRINGS]
    modules = [file.partition(".py")[0].replace("/", ".") for file in FILES]
    asked = [*zip(modules, (record.case for record in records), strict=True), ("test_two", records[0].case)]
    (project / "check_cases.py").write_text(CHECK, encoding="utf-8")
    told = _python(project, "check_cases", json.dumps(asked))
    *messages, other = told.stdout.splitlines()
    assert "\n".join(messages) == "\n".join(record.message for record in records), told.stderr
    assert f"::scaled has no case {records[0].case} at depth quick" in other
