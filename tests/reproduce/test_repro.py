"""Reproduction: the script beside saved inputs, and `kerneltest repro`."""

import ast
import os
import re
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.cli import main
from kerneltest.plan.signatures import signatures
from kerneltest.records.record_files import RecordWriter, load_arguments, read_plan, read_records, write_plan
from kerneltest.records.schema import Record
from kerneltest.reproduce import rejudge, rerun, script_writer, standalone
from kerneltest.trace.jaxpr_source import NoSourceError, literal
from tests import forked
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[2]

KERNEL = """
import jax.numpy as jnp
from jax.experimental import pallas as pl

def scaled(pair, factor):
    def body(x_ref, y_ref, o_ref):
        v = x_ref[...] * factor + y_ref[...]
        o_ref[...] = jnp.where(jnp.isnan(v), 0, v).astype(v.dtype)  # BUG

    return pl.pallas_call(body, out_shape=pair["x"])(pair["x"], pair["y"])
"""
MENDED = KERNEL.replace("jnp.where(jnp.isnan(v), 0, v).astype(v.dtype)", "v")
SUITE = """
import kerneltest as kt
from mine.kernel import scaled

each = dict(
    pair=kt.tree({"x": kt.array("n", "bfloat16"), "y": kt.array("n", "bfloat16")}),
    factor=kt.static(2), dims=dict(n=kt.dim(values=(3,))),
)

@kt.oracle_for(scaled, **each)
def named(pair, factor):
    return pair["x"] * factor + pair["y"]

@kt.oracle_for(lambda pair, factor: scaled(pair, factor), **each)
def unnamed(pair, factor):
    return named(pair, factor)
"""
ALONE = "import sys, runpy; sys.modules['kerneltest'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"


def _python(folder: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYTEST_XDIST_WORKER", None)
    if arguments[0] == "-m":
        return forked.run(folder, *arguments[1:], environment=environment)
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a broken kernel, and the report of a run of it."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "mine").mkdir()
    (folder / "mine/kernel.py").write_text(KERNEL, encoding="utf-8")
    (folder / "test_mine.py").write_text(SUITE, encoding="utf-8")
    options = ("--kt-backends", "interpret,simulate:sm_90", "--kt-depth", "quick", "--kt-report", "out")
    shown = _python(folder, "-m", "pytest", *PLUGINS, "-p", "no:cacheprovider", *options, path=str(ROOT))
    assert "kerneltest repro out" in shown.stdout, shown.stdout + shown.stderr
    return folder


def _finding(project: Path, pairing: str, backend: str = "interpret") -> Record:
    return next(
        r
        for r in read_records(project / "out")
        if r.pairing.endswith(f"::{pairing}") and r.backend == backend and r.evidence is not None and r.evidence.file
    )


def _script(project: Path, record: Record) -> Path:
    assert record.evidence is not None
    file = project / "out" / record.evidence.file
    return file.with_name(f"reproduce_{file.stem}.py")


def test_the_script_shows_the_same_element_without_kerneltest_until_the_kernel_is_mended(project: Path) -> None:
    record = _finding(project, "named")
    script = _script(project, record)
    assert record.evidence is not None
    arguments = load_arguments(project / "out", record.evidence.file)
    assert {path: value.dtype.name for path, value in arguments.items()} == {"pair.x": "bfloat16", "pair.y": "bfloat16"}
    again = _python(project.parent, "-c", ALONE, str(script))
    assert again.returncode == 1, again.stderr
    assert f"still wrong at {list(record.evidence.index)}: got {record.evidence.actual}, expected nan" in again.stdout
    assert f"found: {record.verdict}: " in again.stdout
    (project / "mine/kernel.py").write_text(MENDED, encoding="utf-8")
    try:
        mended = _python(project, "-c", ALONE, str(script))
        assert (mended.returncode, mended.stderr) == (0, "")
        assert f"right at {list(record.evidence.index)}: got nan" in mended.stdout
    finally:
        (project / "mine/kernel.py").write_text(KERNEL, encoding="utf-8")
    assert str(project) not in script.read_text()


@pytest.mark.parametrize(
    ("inputs", "platform", "words"),
    [("absent.npz", "cpu", "FileNotFoundError"), ("damaged.npz", "cpu", "ValueError"),
     ("good.npz", "rocm", "RuntimeError")],
)  # fmt: skip
def test_a_script_that_cannot_run_does_not_say_still_wrong(
    tmp_path: Path, inputs: str, platform: str, words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "damaged.npz").write_bytes(b"nothing that numpy reads")
    np.savez(tmp_path / "good.npz", **{"float32:x": np.zeros(1, np.uint32)})  # type: ignore[arg-type]
    constants = dict(HERE=tmp_path, INPUTS=inputs, PLATFORM=platform, X64=jax.config.read("jax_enable_x64"))
    for name, value in constants.items():
        monkeypatch.setattr(standalone, name, value)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert standalone.main() == 2
    assert f"cannot run: {words}: " in capsys.readouterr().err


def test_a_kernel_without_a_name_is_taken_from_its_pairing(project: Path) -> None:
    script = _script(project, _finding(project, "unnamed"))
    assert "Also kerneltest: the kernel or an option has no name" in script.read_text()
    assert _python(project, str(script), path=str(ROOT)).returncode == 1
    without = _python(project, "-c", ALONE, str(script))
    assert without.returncode == 2
    assert "cannot import unnamed.kernel from test_mine" in without.stderr


def test_a_script_for_the_simulator_asks_kerneltest(project: Path) -> None:
    record = _finding(project, "named", "simulate:sm_90")
    script = _script(project, record)
    assert "needs kerneltest" in script.read_text()
    again = _python(project, str(script), path=str(ROOT))
    assert again.returncode == 1, again.stderr
    assert f"on simulate:sm_90: {record.family}, {record.signature}" in again.stdout


def _constants(script: Path) -> set[str]:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    assigned: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.If)):
            break
        if isinstance(statement, ast.AnnAssign):
            assigned.add(ast.unparse(statement.target))
        elif isinstance(statement, ast.Assign):
            assigned |= {ast.unparse(each) for each in statement.targets}
    return assigned


@pytest.mark.parametrize(
    ("module", "pairing", "backend"), [(standalone, "named", "interpret"), (rejudge, "named", "simulate:sm_90")]
)
def test_a_script_is_its_module_with_every_constant_filled_in(
    project: Path, module: types.ModuleType, pairing: str, backend: str
) -> None:
    assert module.__file__ is not None
    script = _script(project, _finding(project, pairing, backend))
    assert _constants(script) == _constants(Path(module.__file__))


def test_the_command_judges_the_saved_inputs_on_any_backend(project: Path) -> None:
    record = _finding(project, "named")
    for options, backend in (((), "interpret"), (("--backend", "simulate:gfx942"), "simulate:gfx942")):
        again = _python(project, "-m", "kerneltest", "repro", "out", record.case, *options, path=str(ROOT))
        assert again.returncode == 1, again.stderr
        assert f" on {backend}: {record.family}, {record.signature}" in again.stdout
        assert ("elements wrong" in again.stdout) == (backend == "interpret")


def test_a_pairing_has_the_blocks_that_it_had_in_the_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(x: jax.Array) -> Any:
        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        spec = pl.BlockSpec((64,), lambda i: (i,))
        return pl.pallas_call(body, grid=pl.cdiv(x.size, 64), in_specs=[spec], out_specs=spec, out_shape=x)(x)

    judged: list[kt.Pairing] = []

    def run(folder: Path, record: Record, pairing: kt.Pairing, *_: object) -> Any:
        judged.append(pairing)
        return types.SimpleNamespace(record=record)

    pairing = kt.oracle_for(copy, x=kt.array("n", "float32"))(lambda x: x)
    monkeypatch.setattr(rerun, "import_pairing", lambda *_: pairing)
    monkeypatch.setattr(rerun, "run_saved_case", run)
    rerun.judge_again(project / "out", _finding(project, "named").case)
    assert [each.dims["n"].block for each in judged] == [64]


class _Named(NamedTuple):
    w: Any


def test_a_pytree_of_a_class_of_ones_own_is_filled_by_its_pairing(monkeypatch: pytest.MonkeyPatch) -> None:
    here = sys.modules[__name__]
    pairing = kt.oracle_for(lambda p: p, p=kt.tree({"a": _Named(kt.array("n"))}))(lambda p: p)
    pairing = replace(pairing, module=__name__)
    monkeypatch.setattr(here, "named_pairing", pairing, raising=False)
    described, _ = script_writer._call(pairing, signatures(pairing, "quick")[0], script_writer._Imports(Path.cwd()))
    assert described == [("tree", __name__, "named_pairing", "p")]
    assert standalone.value(described[0], {"p.a.w": 3}) == {"a": _Named(3)}


PLACES = ["the-root", "the-suites-folder", "above-the-project", "in-another-project"]


@pytest.mark.parametrize("place", PLACES)
def test_the_suite_is_found_by_its_path_from_any_folder_of_its_project_and_from_no_other(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """Its folder need not have a name that Python could import."""
    suite = project / "gpu-tests/v2.0/test_mine_v1.py"
    suite.parent.mkdir(parents=True, exist_ok=True)
    suite.write_text(SUITE, encoding="utf-8")
    record = replace(_finding(project, "named"), pairing="gpu-tests/v2.0/test_mine_v1.py::named")
    folder = project / f"reports-{place}"
    assert record.evidence is not None
    _changed(project, folder, record)
    (folder / record.evidence.file).write_bytes((project / "out" / record.evidence.file).read_bytes())
    (project / "pytest.ini").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/pyproject.toml").touch()
    folders = [project, suite.parent, tmp_path, tmp_path / "other"]
    monkeypatch.chdir(folders[PLACES.index(place)])
    monkeypatch.setattr(sys, "path", [*sys.path])
    inside = place in PLACES[:2]
    assert main(["repro", str(folder), record.case]) == (1 if inside else 2)
    said = capsys.readouterr()
    assert ("elements wrong" in said.out) == inside
    assert ("run this command where pytest ran" in said.err) != inside


def _changed(project: Path, folder: Path, record: Record) -> Path:
    """A report with one record that somebody has changed."""
    folder.mkdir()
    (folder / "plan.json").write_bytes((project / "out/plan.json").read_bytes())
    writer = RecordWriter(folder, "main")
    writer.write(record)
    writer.close()
    (folder / "cases").mkdir()
    (folder / "cases/a-b.npz").write_bytes(b"nothing that numpy reads")
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(pairing="../outside.py::p"), "is not a pairing in the current project"),
        (dict(pairing="/etc/outside.py::p"), "is not a pairing in the current project"),
        (dict(pairing="\0.py::p"), "is not a pairing in the current project"),
        (dict(pairing="x" * 9000 + ".py::p"), "no file x+.py in"),
        (dict(pairing="test_leaves.py::p"), "cannot import test_leaves.py::p: SystemExit: 0"),
        (dict(pairing="test_skips.py::p"), "cannot import test_skips.py::p: Skipped: "),
        (dict(group="numeric"), "the group 'numeric' has no family"),
        (dict(group="unknown"), "the group 'unknown' has no family"),
        (dict(family="ones"), "the group 'special' has no family 'ones'"),
        (dict(pairing="test_mine.py::os.system"), "is not a pairing|has no attribute"),
        (dict(pairing="absent.py::p"), "no file absent.py in .*: run this command where pytest ran"),
        (dict(dims={"n": 99}), "the declaration of named changed: it has no signature"),
        (dict(file="../../secret.npz"), "line 1: record.evidence.file: leads out of the run's folder"),
        (dict(file="artifacts/a-b.npz"), "is not a file of saved inputs"),
        (dict(file="cases/a-b.npz"), "the inputs cannot be read"),
        (dict(file="cases/absent-b.npz"), "the inputs cannot be read"),
    ],
)
def test_what_comes_from_a_record_is_not_trusted(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    words: str,
) -> None:
    record = _finding(project, "named")
    assert record.evidence is not None
    file = changes.pop("file", record.evidence.file)
    record = replace(record, **changes, evidence=replace(record.evidence, file=file))  # type: ignore[arg-type]
    folder = _changed(project, tmp_path / "out", record)
    if "inputs" not in words:  # all else is in order
        shutil.copytree(project / "out/cases", folder / "cases", dirs_exist_ok=True)
    (project / "test_leaves.py").write_text("import sys; sys.exit(0)", encoding="utf-8")
    (project / "test_skips.py").write_text("import pytest; pytest.importorskip('absent')", encoding="utf-8")
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["repro", str(folder), record.case]) == 2
    error = capsys.readouterr().err
    assert re.search(words, error)
    assert error.count("\n") == 1


@pytest.mark.parametrize("changes", [dict(depth="bottomless"), dict(orders=10**12)])
def test_a_plan_that_no_run_wrote_is_not_followed(
    project: Path, tmp_path: Path, changes: dict[str, str | int], capsys: pytest.CaptureFixture[str]
) -> None:
    record = _finding(project, "named")
    folder = _changed(project, tmp_path / "out", record)
    write_plan(folder, replace(read_plan(folder), **changes))  # type: ignore[arg-type]
    assert main(["repro", str(folder), record.case]) == 2
    assert "has an invalid plan" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["out/evil.py", "link.py", "out/below/evil.py", "package/evil.py"])
def test_nothing_in_the_reports_own_folder_is_imported(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    record = replace(_finding(project, "named"), pairing=f"{named}::p")
    folder = _changed(project, tmp_path / "out", record)
    (folder / "below").mkdir()
    for place in (folder, folder / "below"):
        (place / "evil.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n", encoding="utf-8")
    (tmp_path / "link.py").symlink_to(folder / "evil.py")
    (tmp_path / "package").symlink_to(folder / "below")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["repro", "out", record.case]) == 2
    assert f"{named} is in out: nothing is imported from a report's own folder" in capsys.readouterr().err
    assert not (tmp_path / "trace").exists()


def test_an_unknown_folder_case_or_backend_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = _finding(project, "named")
    for arguments, words in (
        (("nowhere", record.case), "the plan cannot be read"),
        ((str(project / "out"), "../x"), "has no finding '../x' with saved inputs; it has "),
        ((str(project / "out"), record.case, "--backend", "gpu"), "unknown backend 'gpu'"),
    ):
        assert main(["repro", *arguments]) == 2
        assert words in capsys.readouterr().err


def test_text_of_a_record_stays_text_in_a_script() -> None:
    for value in ("'''\"\"\"\n$kernel \\", float("-inf"), (1,), ("a", [True, None, {"b": 0.1}])):
        assert literal(value).isascii()
        assert eval(literal(value), {"float": float}) == value
    with pytest.raises(NoSourceError):
        literal(object())


CRAFTED = """
import kerneltest as kt
from kernels.vector_add import vector_add

NAMES = ("a=open('pwned', 'w'), b", "class", "größe")

def kernel(**kw):
    return vector_add(vector_add(kw[NAMES[0]], kw[NAMES[1]]), kw[NAMES[2]])

@kt.oracle_for(kernel, **{name: kt.array("n", "float32") for name in NAMES}, dims=dict(n=kt.dim(values=(3,))))
def summed(**kw):
    return 1 + sum(kw.values())
"""


def test_an_argument_of_any_name_is_passed_and_never_run(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(CRAFTED, encoding="utf-8")
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out")
    _python(tmp_path, "-m", "pytest", *PLUGINS, "-p", "no:cacheprovider", *options, path=str(ROOT))
    script = _script(tmp_path, _finding(tmp_path, "summed"))
    assert "größe" not in script.read_text(encoding="utf-8")
    again = _python(tmp_path, str(script), path=str(ROOT))
    assert again.returncode == 1, again.stderr
    assert "now: still wrong at " in again.stdout
    assert not (tmp_path / "pwned").exists()
