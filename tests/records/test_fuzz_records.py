"""Damaged and crafted runs: every command ends with 0, 1 or 2, with one line for 2, and never takes much memory.

200 of them, always the same, by default; KT_FUZZ_EXAMPLES=20000 draws as many new ones.
"""

import gzip
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import kerneltest as kt
from kerneltest.cli import main
from kerneltest.declare.pairing import Pairing
from kerneltest.records.record_files import RecordWriter, save_arguments
from kerneltest.records.run_plan import NotApplicable
from kerneltest.records.schema import FaultLocation, Record, Reproducer
from kerneltest.reproduce import rerun
from tests.made_runs import WRONG
from tests.written import HOSTILE, PASS, absent, case, write_run

EXAMPLES = int(os.environ.get("KT_FUZZ_EXAMPLES", "200"))
MOST_MEMORY = 256 * 2**20  # bytes that one run may add to what the process needed before

PAIRING = "test_fuzzed.py::doubled"
SUITE = """
import kerneltest as kt
from tests.sample import double

@kt.oracle_for(double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))
def doubled(x):
    return x * 2 + 1
"""
SHARD, PACKED, PLAN = "records-main.jsonl", "records-gw1.jsonl.gz", "plan.json"

Json = Any
Files = Mapping[str, bytes]

TEXTS = (
    "", "*", "::", "\0", "\x1b[2J", "\r", "\n\n", "\u2028", "\ud800", "\uffff", "💥", "a\\u0000", HOSTILE, "../x",
    "/etc/passwd", "cases/../../x", "cases/\0", "C:\\x", "x" * 50_000, "é" * 3000, "--help", "-", "None", "import os",
    "simulate:sm_90", "lower:", "cuda", "pass", "mismatch", "unavailable", "fuzz", "drawn", "deep", "2099-01-01",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2**31, 2**63 - 1, 2**63, 10**400, 9 * 10**4299, -(10**300), 0.5, -0.0, 1e308, 5e-324, float("nan"),
    float("inf"),
)  # fmt: skip
OTHERS = (None, True, False, [], {}, [[]], {"float": "nan"}, {"float": "x"}, {"": {}}, [1, "1"], {"schema": 6})
ODD = st.sampled_from([*TEXTS, *NUMBERS, *OTHERS])


def _deep(value: Json, depth: int) -> Json:
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@dataclass(frozen=True)
class Place:
    holder: Json
    key: Any

    def set(self, value: Json) -> None:
        self.holder[self.key] = deepcopy(value)

    def get(self) -> Json:
        return self.holder[self.key]


def _places(document: Json) -> Iterator[Place]:
    if isinstance(document, (dict, list)):
        for key in document if isinstance(document, dict) else range(len(document)):
            yield Place(document, key)
            yield from _places(document[key])


def _change(draw: Callable[[Any], Any], document: Json, values: list[Json]) -> None:
    """Changes one place of a document."""
    places = list(_places(document)) or [Place([0], 0)]
    place = draw(st.sampled_from(places))
    kind = draw(st.sampled_from([*["alike"] * 8, "retype", "drop", "rename", "more", "move", "deepen", "repeat"]))
    if kind == "alike":  # as the schema says, mostly
        alike = [each for each in (*TEXTS, *NUMBERS, *values) if type(each) is type(place.get())]
        place.set(draw(st.sampled_from(alike or [None])))
    elif kind == "retype":
        place.set(draw(ODD))
    elif kind == "drop":
        del place.holder[place.key]
    elif kind == "rename" and isinstance(place.holder, dict):
        place.holder[draw(st.sampled_from(TEXTS))] = place.holder.pop(place.key)
    elif kind == "more" and isinstance(place.get(), dict):
        place.get()[draw(st.sampled_from(TEXTS))] = draw(ODD)
    elif kind == "more" and isinstance(place.get(), list):
        place.get().append(draw(ODD))
    elif kind == "move":
        place.set(draw(st.sampled_from(values)))
    elif kind == "deepen":
        place.set(_deep(place.get(), draw(st.sampled_from([1, 150, 400]))))
    elif isinstance(place.holder, list):
        place.holder.extend(deepcopy([place.get()]) * draw(st.sampled_from([1, 500])))


def _damaged(draw: Callable[[Any], Any], raw: bytes) -> bytes:
    start = draw(st.integers(0, len(raw)))
    end = min(len(raw), start + draw(st.sampled_from([0, 1, 7, 300])))
    kind = draw(st.sampled_from(["cut", "remove", "repeat", "insert", "flip", "zeros", "lines"]))
    if kind == "cut":
        return raw[:start]
    if kind == "flip" and start < len(raw):
        return raw[:start] + bytes([raw[start] ^ 1 << draw(st.integers(0, 7))]) + raw[start + 1 :]
    if kind == "lines":
        lines = raw.split(b"\n")
        return b"\n".join(draw(st.permutations(lines)) + draw(st.lists(st.sampled_from(lines), max_size=2)))
    put = {"insert": draw(st.binary(max_size=8)), "repeat": raw[start:end] * 2, "zeros": bytes(end - start)}
    return raw[:start] + put.get(kind, b"") + raw[end:]


@st.composite
def mutants(draw: Callable[[Any], Any], files: Files) -> Files:
    """The files of a run, of which some are changed."""
    changed = dict(files)
    documents = {name: _documents(name, raw) for name, raw in files.items() if not name.endswith(".npz")}
    values = [place.get() for place in _places(deepcopy(list(documents.values())))]
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([PLAN, SHARD, SHARD, *files]))
        if name in documents and draw(st.integers(0, 3)):
            _change(draw, draw(st.sampled_from(documents[name])), values)
            text = "".join(json.dumps(each) + "\n" for each in documents[name]).encode()
            changed[name] = gzip.compress(text, 1) if name == PACKED else text
        else:
            changed[name] = _damaged(draw, changed[name])
            documents.pop(name, None)
    return changed


def _documents(name: str, raw: bytes) -> list[Json]:
    return [json.loads(line) for line in (gzip.decompress(raw) if name == PACKED else raw).splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Files]]:
    """A run of which `kerneltest repro` can show a finding, and its files."""
    folder = tmp_path_factory.mktemp("fuzzed")
    (folder / "test_fuzzed.py").write_text(SUITE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        pairing = rerun.import_pairing(replace(PASS, pairing=PAIRING), tmp_path_factory.mktemp("elsewhere"))
        (finding, *_) = kt.check(pairing, backends=["interpret"], depth="quick").findings
        assert finding.arguments is not None
        record = replace(finding.record, pairing=PAIRING, item=f"{PAIRING}[i]")
        assert record.evidence is not None
        file = save_arguments(folder, f"{record.case}-interpret", finding.arguments)
        record = replace(record, evidence=replace(record.evidence, file=file))
        others = (
            WRONG,
            PASS,
            absent(backend="cuda"),
            case(family="ones", case="c2", compiler_metrics={"row": {"registers": 4}}),
        )
        made = write_run(
            folder / "run",
            record,
            *others,
            started="2026-01-01T00:00:00+00:00",
            xfail={PAIRING: ("race on cuda: reason",)},
            not_applicable=(NotApplicable(PAIRING, "interpret-tpu", "not for TPUs", 7),),
        )
        writer = RecordWriter(made, "main")
        writer.write_reproducer(
            Reproducer(record.case, replace(record, case="c9"), 1, 9, True, FaultLocation("k.py:3", "x", "y", True))
        )
        writer.close()
        (folder / "cases").rename(made / "cases")
        *some, last = (made / SHARD).read_bytes().splitlines(keepends=True)
        (made / SHARD).write_bytes(b"".join(some))
        (made / PACKED).write_bytes(gzip.compress(last))
        files = {path.relative_to(made).as_posix(): path.read_bytes() for path in made.rglob("*") if path.is_file()}
        write_run(folder / "old", record, *others)
        yield made, files


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.fixture
def _imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite that was imported is kept, since it never changes: an import costs a session of pytest."""
    import_pairing, imported = rerun.import_pairing, dict[str, Pairing]()

    def keep(record: Record, report: Path) -> Pairing:
        if record.pairing not in imported:
            imported[record.pairing] = import_pairing(record, report)
        return imported[record.pairing]

    monkeypatch.setattr(rerun, "import_pairing", keep)


@pytest.mark.usefixtures("_imported_once")
def test_every_command_survives_any_run(
    run: tuple[Path, Files], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, files = run
    (case_id,) = (Path(name).stem.partition("-")[0] for name in files if name.endswith(".npz"))
    page, text, svg = (str(tmp_path / name) for name in ("page.html", "page.md", "badge.svg"))
    commands = (
        ["summary", str(folder), "--markdown", text, "--badge", svg, "--badge", str(tmp_path / "badge.json")],
        ["report", str(folder), "-o", page],
        ["diff", str(folder.parent / "old"), str(folder), "--allow-unlike", "--html", page, "--markdown", text],
        ["repro", str(folder), case_id],
    )
    codes: dict[tuple[str, int], int] = {}
    before: dict[str, bytes] = {}

    @settings(
        max_examples=EXAMPLES,
        derandomize=EXAMPLES <= 200,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(mutants(files))
    def survives(mutant: Files) -> None:
        for name, raw in mutant.items():
            if before.get(name) != raw:
                (folder / name).write_bytes(raw)
                before[name] = raw
        memory = _peak()
        for command in commands:
            code = main(command)
            shown = capsys.readouterr()
            codes[command[0], code] = codes.get((command[0], code), 0) + 1
            assert code in (0, 1, 2)
            assert shown.err.count("\n") == (code == 2), shown.err
            assert not set(shown.out + shown.err) & {"\x1b", "\0", "\r"}
            assert "Traceback" not in shown.out
        assert _peak() - memory < MOST_MEMORY
        if (tmp_path / "badge.svg").exists():
            ElementTree.fromstring((tmp_path / "badge.svg").read_text(encoding="utf-8"))

    try:
        survives()
    finally:
        print(codes)  # how many runs of each command ended how, under `-s`
