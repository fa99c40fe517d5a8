"""Records on disk: strict JSON, exact arrays, and what happens to damaged files; reconciliation with the plan."""

import gzip
import io
import json
import tracemalloc
import zipfile
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerneltest.core.details import ErrorCause, InternalError, Mismatch, MismatchCause
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import RecordError
from kerneltest.core.ids import ANY
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Ending, Gap, Verdict
from kerneltest.records.evidence import (
    AxisFootprint,
    BudgetPart,
    ErrorMap,
    Evidence,
    Pattern,
    PatternKind,
    SpecialInput,
    SpecialValue,
    Window,
)
from kerneltest.records.files import SCHEMA
from kerneltest.records.record_files import (
    RecordWriter,
    dumps,
    load_arguments,
    read_plan,
    read_records,
    save_arguments,
    shorten,
    write_plan,
)
from kerneltest.records.run_plan import (
    CellKey,
    FunctionSource,
    NotApplicable,
    PairingSummary,
    Plan,
    PlannedItem,
    Project,
)
from kerneltest.records.runs import Reconciled, reconcile
from kerneltest.records.schema import ExpectedValues, FormulaAnswer, Record
from tests.written import case, write_run

RECORD = Record(
    item="t.py::p[b-float32]",
    pairing="t.py::p",
    backend="b",
    tier=Tier.DEVICE,
    dtype="float32",
    group="special",
    family="one_inf",
    signature="n=1",
    target="x",
    case="c1",
    verdict=Verdict.PASS,
    dims={"n": 1},
    dtypes={"x": "float32"},
    statics={"mode": "up"},
    special_inputs=(SpecialInput("n", SpecialValue.NOT_FULL, of="t"),),
    defined=3,
    undefined=1,
    reused_from="2026-01-01T00:00:00+00:00",
)
INTERNAL = InternalError("planning p", "ValueError", "no such thing", "kerneltest/plan/x.py:3", ("f",))
CELL = CellKey("t.py::p", "b", "float32", "one_inf")
ITEM = PlannedItem(RECORD.item, "t.py::p", "b", Tier.DEVICE, "float32", "special", {"one_inf": 2})
SOURCE = FunctionSource("t.py", ((3, "def f():\n    pass\n"),))
PLAN = Plan(
    items=(ITEM,),
    seed=1,
    depth="quick",
    environment={"jax": "0"},
    unavailable={"cuda": "no device"},
    xfail={"t.py::p": ("none",)},
    not_applicable=(NotApplicable("t.py::p", "tpu", "this kernel is Triton's", 3),),
    fuzz=2,
    prove=True,
    sanitize=("memcheck",),
    orders=3,
    run="a1",
    started="2026-01-01T00:00:00+00:00",
    pairings={"p": PairingSummary({"x": "array [n]"}, SOURCE, FunctionSource("", ()), {"n": 16})},
    project=Project("kernels", "0123456789ab"),
)


WINDOW = Window("", "int8", (1, 2), (0, 0), (1, 2), (1, 0), (1, True), (np.nan, -np.inf), (0.0, np.inf), "01")
EVIDENCE = Evidence(
    output=1,
    index=(1, 2),
    block="m=0",
    wrong_blocks=(1, 4),
    pattern=Pattern(PatternKind.ONE_BLOCK, "m", 0, 2),
    actual=np.nan,
    expected=-0.0,
    bound=0.5,
    arguments={"x": "..."},
    file="cases/c2.npz",
    diagnosis="the mask is missing",
    script="cases/reproduce_c2.py",
    window=WINDOW,
    inputs=(replace(WINDOW, name="x"),),
    stderr="killed",
    otherwise=("TF32",),
    errors=ErrorMap((1, 2), (1, 2), (1, 1), "01"),
    footprint=(AxisFootprint("n", 4, 2, (1, 3)),),
)
CAUSE = MismatchCause(ErrorCause.FORMULA, 3e-4)
FINDING = replace(
    RECORD,
    case="c2",
    verdict=Verdict.MISMATCH,
    message="1 of 2 elements wrong\n\u2028µ\x1b",
    detail=Mismatch(
        "", 0, "", 1, 2, "", (1, 2), "m=0", "nan, not 0", ("\u2028µ\x1b",), MismatchCause(ErrorCause.FORMULA, 3e-4)
    ),
    compared=2,
    wrong=1,
    bound_fraction=np.inf,
    tolerance="exact",
    seconds=0.1,
    evidence=EVIDENCE,
    compiler_metrics={"row": {"registers": 40}},
    advice=("smaller blocks",),
    files=("artifacts/c2/row.ttir",),
    ulps=(3, 0, 1),
    error_budget=(BudgetPart("rounding of `x / y`", "t.py", 3, 0.75, 2.5),),
    expected=ExpectedValues(3, -np.inf, 2.0, 0.5, 1, "float32", ("a mask",), ("a loop",)),
    formula=FormulaAnswer(2, 0.001, "it waits for a copy", ulps=2.0),
    doubted=5,
)


def test_the_json_of_special_floats_and_numpy_scalars_is_strict() -> None:
    text = dumps({"a": [np.nan, np.inf, -np.inf, -0.0, 1.5], "b": np.float32(2), "c": np.int8(3), "d": None})
    special = [{"float": "nan"}, {"float": "inf"}, {"float": "-inf"}]
    back = json.loads(text, parse_constant=lambda word: pytest.fail(word))
    assert back == {"a": [*special, 0.0, 1.5], "b": 2.0, "c": 3, "d": None}
    assert np.signbit(back["a"][3])


def test_what_has_no_place_in_a_record_is_refused() -> None:
    with pytest.raises(TypeError, match="ndarray has no place"):
        dumps({"a": np.zeros(3)})


def test_records_and_plan_come_back_as_they_were(tmp_path: Path) -> None:
    records = [RECORD, FINDING, replace(RECORD, bound_fraction=1, dims={"float": 3})]
    for shard, some in (("gw0", records[:2]), ("gw1", records[2:])):
        writer = RecordWriter(tmp_path, shard)
        for record in some:
            writer.write(record)
        writer.close()
    write_plan(tmp_path, PLAN)
    assert repr(list(read_records(tmp_path))) == repr([*records[:2], replace(records[2], bound_fraction=1.0)])
    assert read_plan(tmp_path) == PLAN


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


@pytest.mark.parametrize(
    "filled",
    [
        FINDING,
        *FINDING.error_budget,
        FINDING.expected,
        FINDING.formula,
        EVIDENCE,
        WINDOW,
        replace(
            PLAN,
            problems=("a pairing is held nowhere",),
            internal_errors=(INTERNAL,),
            budget=60,
            shard="1/2",
            whole="ab",
            elsewhere=PLAN.items,
        ),
    ],
    ids=lambda filled: type(filled).__name__,
)
def test_what_comes_back_has_no_field_at_its_default(filled: Any) -> None:
    assert [each.name for each in fields(filled) if getattr(filled, each.name) == _default(each)] == []


def test_numpy_scalars_come_back_as_plain_numbers(tmp_path: Path) -> None:
    evidence = Evidence(actual=np.float32(1.5), expected=np.int8(3), bound=np.float64("nan"))
    _shard(tmp_path, _line(replace(RECORD, compared=np.int64(7), bound_fraction=np.float32(0.5), evidence=evidence)))
    (record,) = read_records(tmp_path)
    assert repr(record.evidence) == repr(Evidence(actual=1.5, expected=3, bound=float("nan")))
    assert repr((record.compared, record.bound_fraction)) == "(7, 0.5)"


def test_half_a_surrogate_pair_is_written_such_that_it_can_be_read(tmp_path: Path) -> None:
    _shard(tmp_path, _line(replace(RECORD, message="no file \udcff", compiler_metrics={"\udcff": {}})))
    (record,) = read_records(tmp_path)
    assert (record.message, record.compiler_metrics) == ("no file \\udcff", {"\\udcff": {}})


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.bool_])
def test_arguments_come_back_bit_for_bit(tmp_path: Path, dtype: type) -> None:
    source = [[0, 1, np.nan, -0.0]] if np.dtype(dtype).kind not in "ib" else [[0, 1, 1, 0]]
    values = np.array(source, np.float32).astype(dtype)
    back = load_arguments(tmp_path, save_arguments(tmp_path, "c1", {"x": values, "a.b": values[0, 0]}))
    assert back["x"].dtype == values.dtype
    assert back["x"].shape == (1, 4)
    assert back["x"].tobytes() == values.tobytes()
    assert back["a.b"].shape == ()


def _npz(folder: Path, key: str, content: bytes, kind: int = zipfile.ZIP_DEFLATED) -> str:
    (folder / "cases").mkdir()
    with zipfile.ZipFile(folder / "cases/c1-x.npz", "w", kind, compresslevel=1) as saved:
        saved.writestr(key, content)
    return "cases/c1-x.npz"


def _array(values: Array, **header: object) -> bytes:
    """In NumPy's format; the header may lie."""
    file = io.BytesIO()
    true = {"descr": values.dtype.str, "fortran_order": False, "shape": values.shape}
    np.lib.format.write_array_header_1_0(file, {**true, **header})  # type: ignore[arg-type]
    return file.getvalue() + values.tobytes()


SOME = np.arange(4, dtype=np.uint32)


@pytest.mark.parametrize(
    ("key", "content", "kind"),
    [
        ("float32:x.npy", _array(np.zeros(64 * 2**20, np.uint8)), zipfile.ZIP_DEFLATED),
        ("float32:x.npy", _array(SOME, shape=(10**15,)), zipfile.ZIP_DEFLATED),
        ("float32:x.npy", _array(SOME, shape=(-4,)), zipfile.ZIP_DEFLATED),
        ("float32:x.npy", _array(SOME, shape=(5,)), zipfile.ZIP_DEFLATED),
        ("float32:x.npy", _array(SOME, descr="|O"), zipfile.ZIP_DEFLATED),
        ("float32:x.npy", _array(SOME), zipfile.ZIP_LZMA),
        ("float33:x.npy", _array(SOME), zipfile.ZIP_DEFLATED),
        ("x.npy", _array(SOME), zipfile.ZIP_DEFLATED),
        ("float32:x.npy", b"\x93NUMPY", zipfile.ZIP_DEFLATED),
        ("float32:x.npy", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 9000, zipfile.ZIP_DEFLATED),
    ],
    ids=["zeros", "no_such_size", "negative", "cut_off", "objects", "lzma", "dtype", "name", "empty", "header"],
)
def test_saved_inputs_are_unpacked_no_further_than_they_may_be(
    tmp_path: Path, key: str, content: bytes, kind: int
) -> None:
    name = _npz(tmp_path, key, content, kind)

    def load() -> None:
        with pytest.raises(RecordError, match="the inputs cannot be read"):
            load_arguments(tmp_path, name, most=SOME.nbytes)

    tracemalloc.start()
    load()
    assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    tracemalloc.stop()


def test_very_long_messages_are_cut_in_the_middle(tmp_path: Path) -> None:
    long = f"begins {'x' * 2 * 2**20} ends"
    findings = [case(verdict="runtime_error", case=f"c{n}", message=long, evidence=Evidence(stderr=long))
                for n in range(20)]  # fmt: skip
    run = write_run(tmp_path / "run", *findings)
    assert (run / "records-main.jsonl").stat().st_size < 2**20
    for record in read_records(run):
        assert record.evidence is not None
        for text in (record.message, record.evidence.stderr):
            first, told, last = text.splitlines()
            assert first.startswith("begins")
            assert last.endswith("ends")
            assert told == f"... {len(long) - 20_000:,} characters left out ..."
    assert shorten("x" * 20_000) == "x" * 20_000


def _shard(folder: Path, *lines: str, end: str = "\n") -> None:
    (folder / "records-main.jsonl").write_text("\n".join(lines) + end, encoding="utf-8")


def _line(record: Record) -> str:
    return dumps({"schema": SCHEMA, "record": record})


def test_a_last_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    second = _line(replace(RECORD, case="c2"))
    for length in range(1, len(second)):
        _shard(tmp_path, _line(RECORD), second[:length], end="")
        assert list(read_records(tmp_path)) == [RECORD]
    _shard(tmp_path, _line(RECORD), second, end="")
    assert len(list(read_records(tmp_path))) == 2


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_line_that_was_written_whole_is_not_dropped(tmp_path: Path, end: str) -> None:
    _shard(tmp_path, _line(RECORD), _line(RECORD).replace('"pass"', '"fine"'), end=end)
    with pytest.raises(RecordError, match=r"records-main\.jsonl, line 2: record\.verdict: "):
        list(read_records(tmp_path))


@pytest.mark.parametrize("bad", ["{", "", "3", "[]", "[" * 100_000, "\xff", '{"schema": NaN}', "{} {}"])
@pytest.mark.parametrize("end", [["\n"], ["\n", "\n"]])
def test_a_corrupt_line_names_file_and_line(tmp_path: Path, bad: str, end: list[str]) -> None:
    lines = [_line(RECORD), bad, *([_line(RECORD)] * (len(end) - 1))]
    (tmp_path / "records-main.jsonl").write_bytes(("\n".join(lines) + "\n").encode("latin-1"))
    with pytest.raises(RecordError, match=r"records-main\.jsonl, line 2: "):
        list(read_records(tmp_path))


def test_a_shard_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "records-main.jsonl").mkdir()
    with pytest.raises(RecordError, match=r"records-main\.jsonl: cannot be read"):
        list(read_records(tmp_path))


def test_a_gzipped_shard_is_read_and_a_damaged_one_named(tmp_path: Path) -> None:
    packed = gzip.compress((_line(RECORD) + "\n").encode())
    shard = tmp_path / "records-main.jsonl.gz"
    shard.write_bytes(packed)
    assert list(read_records(tmp_path)) == [RECORD]
    for damaged in (packed[:-9], b"{}"):
        shard.write_bytes(damaged)
        with pytest.raises(RecordError, match=r"records-main\.jsonl\.gz: damaged gzip file"):
            list(read_records(tmp_path))


@pytest.mark.parametrize("text", [None, "", "{", "[]", "[" * 100_000, '{"schema": 99}', "{}"])
def test_a_missing_or_damaged_plan_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(RecordError, match=r"plan\.json: the plan cannot be read"):
        read_plan(tmp_path)


def _reconciled(*records: Record) -> Reconciled:
    return reconcile(PLAN, records)


ONE = replace(RECORD, compared=5)
TWO = replace(ONE, case="c2")


@pytest.mark.parametrize(
    ("records", "verdict", "complete", "green"),
    [
        ((ONE, TWO), "pass", True, True),
        ((ONE,), "missing", False, False),
        ((), "missing", False, False),
        ((ONE, replace(TWO, verdict=Verdict.MISMATCH)), "mismatch", True, False),
        ((ONE, replace(TWO, verdict=Verdict.CRASH, case="")), "crash", True, False),
        ((ONE, TWO, replace(TWO, verdict=Verdict.XPASS, case="", compared=0)), "xpass", True, False),
        ((ONE, replace(TWO, verdict=Verdict.XFAIL, compared=0)), "xfail", True, True),
        ((ONE, replace(TWO, verdict=Verdict.UNAVAILABLE, compared=0)), "unavailable", True, True),
        (tuple(replace(r, verdict=Verdict.UNAVAILABLE, compared=0) for r in (ONE, TWO)), "unavailable", False, False),
        (tuple(replace(r, compared=0, defined=0, undefined=0) for r in (ONE, TWO)), "nothing compared", False, False),
        (tuple(replace(r, compared=0, defined=5) for r in (ONE, TWO)), "nothing asked", False, False),  # no other cell
        ((ONE, TWO, TWO), "pass", False, False),
        ((ONE, TWO, replace(ONE, family="another")), "pass", False, False),
    ],
)
def test_every_planned_cell_has_one_status(
    records: tuple[Record, ...], verdict: str, complete: bool, green: bool
) -> None:
    reconciled = _reconciled(*records)
    assert reconciled.cells[CELL].verdict == verdict
    assert (reconciled.complete, reconciled.green) == (complete, green)


def test_a_cell_planned_without_cases_and_recorded_without_any_is_missing() -> None:
    assert reconcile(replace(PLAN, items=(replace(ITEM, families={"one_inf": 0}),)), ()).missing == [CELL]


def test_a_cell_that_could_not_be_served_is_complete_but_a_run_of_only_these_is_not() -> None:
    reconciled = _reconciled(replace(RECORD, verdict=Verdict.UNAVAILABLE, case=""))
    assert reconciled.cells[CELL].green
    assert not reconciled.complete
    assert reconciled.problems == ("nothing was compared in the whole run",)


LACKED = PlannedItem("t.py::p[cuda]", "t.py::p", "cuda", Tier.DEVICE, ANY, ANY, {ANY: 12})
ABSENT = replace(
    RECORD, item=LACKED.item, backend="cuda", dtype=ANY, group=ANY, family=ANY, case="", verdict=Verdict.UNAVAILABLE
)


@pytest.mark.parametrize(
    ("records", "verdict", "complete"), [((ABSENT,), Verdict.UNAVAILABLE, True), ((), Gap.MISSING, False)]
)
def test_a_backend_that_the_machine_lacks_is_one_cell_and_one_that_is_not_for_the_kernel_none(
    records: tuple[Record, ...], verdict: Ending, complete: bool
) -> None:
    reconciled = reconcile(replace(PLAN, items=(ITEM, LACKED)), (ONE, TWO, *records))
    assert reconciled.cells.keys() == {CELL, ("t.py::p", "cuda", ANY, ANY)}
    status = reconciled.cells[CellKey("t.py::p", "cuda", ANY, ANY)]
    assert (status.verdict, status.planned, reconciled.complete) == (verdict, 12, complete)
